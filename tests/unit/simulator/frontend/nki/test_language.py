"""`nki.language` of today's dialect: tensors, functions, loops, programs (stubs of v2.32.0)."""

import ml_dtypes
import numpy as np

from difftest.simulator import (
    TRN1,
    TRN2,
    KernelError,
    LimitError,
    NotModelledError,
    ShapeError,
    launch,
)
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.kernel import jit
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, raised, stored, values

A, B = values(16, 24), values(16, 24, seed=1)
NONE = np.zeros((1, 1), np.float32)


def made(compute, **options):
    """What `compute`, which takes nothing, makes."""
    return on_nki_tiles(lambda x: compute(), NONE, **options)


# -- tensors ---------------------------------------------------------------------------------------


@every("buffer", [nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm])
def test_filled_tensors(buffer):
    def kernel():
        tiles = (
            nl.zeros((4, 3), nl.float32, buffer=buffer),
            nl.ones((4, 3), nl.float32, buffer=buffer),
            nl.full((4, 3), 2.5, nl.float32, buffer=buffer),
        )
        assert all(tile.buffer is buffer for tile in tiles)
        return tuple(stored(tile) for tile in tiles)

    for result, value in zip(launch(kernel).outputs, (0, 1, 2.5), strict=True):
        np.testing.assert_array_equal(result, np.full((4, 3), value, np.float32))


def test_tensors_like_another():
    def compute():
        x = nl.full((4, 3), 7, nl.int32, buffer=nl.psum)
        zeros, empty = nl.zeros_like(x), nl.empty_like(x, dtype=nl.bfloat16, buffer=nl.sbuf)
        assert (zeros.shape, zeros.dtype, zeros.buffer) == ((4, 3), nl.int32, nl.psum)
        assert (empty.shape, empty.dtype, empty.buffer) == ((4, 3), nl.bfloat16, nl.sbuf)
        return zeros

    assert (made(compute) == 0).all()


def test_constants(tmp_path):
    data = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    np.save(tmp_path / "c.npy", A)

    def compute():
        return (
            nl.load(nl.shared_constant(data)),
            nl.load(nl.shared_constant(str(tmp_path / "c.npy"))),
            nl.shared_identity_matrix(5),
            nl.shared_identity_matrix(3, dst=nl.ndarray((3, 3), nl.float32)),
        )

    constant, loaded, identity, small = made(compute)
    np.testing.assert_array_equal(constant, data)
    np.testing.assert_array_equal(loaded, A)
    np.testing.assert_array_equal(identity, np.eye(5, dtype=np.uint8))
    np.testing.assert_array_equal(small, np.eye(3, dtype=np.float32))


def test_random_numbers_repeat_with_a_seed():
    def compute():
        nl.random_seed(nl.full((1, 1), 42, nl.int32))
        first = nl.rand((8, 4), nl.float32)
        second = nl.rand((8, 4), nl.float32)
        nl.random_seed(nl.full((1, 1), 42, nl.int32))
        return first, second, nl.rand((8, 4), nl.float32)

    first, second, again = made(compute)
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()
    assert ((first >= 0) & (first < 1)).all()


def test_tensors_of_overlapping_addresses_share_their_bytes():
    """The free offset is in bytes: two float32 further on is byte 8."""

    def compute(x):
        first = nl.ndarray((4, 8), nl.float32, address=(0, 64))
        other = nl.ndarray((4, 4), nl.int32, address=(0, 64 + 8))
        nisa.tensor_copy(first, x)
        nisa.memset(other, 0)
        return first

    expected = A[:4, :8].copy()
    expected[:, 2:6] = 0
    np.testing.assert_array_equal(on_nki_tiles(compute, A[:4, :8]), expected)


@every(
    "buffer, address, kind, text",
    [
        (nl.psum, (0, 4), KernelError, "the first of a bank"),
        (nl.sbuf, (0,), KernelError, "(partition, byte in each partition)"),
        (nl.sbuf, (128, 0), LimitError, "lies in sbuf"),
        (nl.hbm, (0, 0), KernelError, "an address in HBM is (byte,)"),
        (nl.shared_hbm, (-4,), KernelError, "an address in HBM is (byte,)"),
    ],
)
def test_a_wrong_address_is_an_error(buffer, address, kind, text):
    def compute(x):
        return nl.ndarray((1, 1), nl.float32, buffer=buffer, address=address)

    assert text in raised(kind, compute, NONE)


@every("grid", [(), (2,)])
@every("start, shared", [(64, 0), (60, 1), (0, 16)])
def test_tensors_in_hbm_that_overlap_share_what_they_hold(grid, start, shared):
    def kernel(data):
        first, second = (
            nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm, name=name, address=(place,))
            for name, place in (("a", 0), ("b", start))
        )
        nisa.dma_copy(first, data)
        nisa.dma_copy(second.reshape((1, 16)), nl.full((1, 16), -1.0, nl.float32))
        return first

    data = A[:4, :4]
    expected = data.copy().reshape(-1)
    expected[16 - shared :] = -1
    (result,) = launch(jit(kernel), (data,), grid=grid).outputs
    np.testing.assert_array_equal(result.reshape(-1), expected)


@every("machine, sbuf", [(TRN1, 192), (TRN2, 224)])
def test_tile_sizes_are_the_machines(machine, sbuf):
    def compute():
        size = nl.tile_size
        assert (size.pmax, size.psum_fmax, size.psum_bank_fmax) == (128, 512, 512)
        assert (size.psum_bank_fmax_bytes, size.psum_num_banks) == (2048, 8)
        assert (size.gemm_stationary_fmax, size.gemm_moving_fmax) == (128, 512)
        assert size.bn_stats_fmax == 512
        assert size.sbuf_size_bytes == 128 * sbuf * 1024
        assert size.sbuf_fmax_bytes == size.total_available_sbuf_size == size.sbuf_fmax * 4
        return nl.zeros((1, 1), nl.float32)

    made(compute, machine=machine)


def test_memories():
    assert [nl.is_hbm(b) for b in (nl.hbm, nl.shared_hbm, nl.private_hbm, nl.sbuf)] == [
        *(True, True, True, False)
    ]
    assert [nl.is_on_chip(b) for b in (nl.sbuf, nl.psum, nl.hbm)] == [True, True, False]
    assert nl.is_sbuf(nl.sbuf)
    assert nl.is_psum(nl.psum)
    assert nl.hbm is nl.private_hbm


# -- functions -------------------------------------------------------------------------------------

BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "less": np.less,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
}


@every("name", BINARY)
def test_functions_of_two_tiles_and_of_a_number(name):
    function = getattr(nl, name)

    def compute(x, y):
        return function(x, y), function(x, 0.5), function(0.5, x)

    both, right, left = on_nki_tiles(compute, A, B)
    half = np.float32(0.5)
    np.testing.assert_array_equal(both, BINARY[name](A, B).astype(np.float32))
    np.testing.assert_array_equal(right, BINARY[name](A, half).astype(np.float32))
    np.testing.assert_array_equal(left, BINARY[name](half, A).astype(np.float32))


UNARY = {
    "exp": np.exp,
    "tanh": np.tanh,
    "square": np.square,
    "abs": np.abs,
    "negative": np.negative,
    "reciprocal": np.reciprocal,
    "copy": np.copy,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "gelu_apprx_sigmoid_dx": lambda x: (
        (1 + 1.702 * x * (1 - 1 / (1 + np.exp(-1.702 * x)))) / (1 + np.exp(-1.702 * x))
    ),
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
}


@every("name", UNARY)
def test_functions_of_one_tile(name):
    result = on_nki_tiles(getattr(nl, name), A)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, UNARY[name](A.astype(np.float64)), rtol=1e-6, atol=1e-7)


@every("name, function", [("sin", np.sin), ("cos", np.cos)])
def test_angles_of_any_size(name, function):
    angles = np.linspace(-20, 20, 64, dtype=np.float32).reshape(4, 16)
    expected = function(angles.astype(np.float64))
    np.testing.assert_allclose(on_nki_tiles(getattr(nl, name), angles), expected, atol=1e-5)


ROUNDED = {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}
FRACTIONS = np.array(
    [3.2, 3.7, -3.2, -3.7, 0, -0.3, 0.3, 1e-30, -1e-30, 0.99999994, -0.99999994, 2.5, -2.5, 7, -7,
     8388607.5, -8388607.5, 16777217, 3e38, -3e38],
    np.float32,
)[None, :]  # fmt: skip


@every("name", ROUNDED)
@every("dtype", [np.float32, ml_dtypes.bfloat16])
def test_floor_ceil_and_trunc_are_exact(name, dtype):
    data = FRACTIONS.astype(dtype)
    random = (10 * A).astype(dtype)
    for given in (data, random):
        result = on_nki_tiles(getattr(nl, name), given)
        expected = ROUNDED[name](given.astype(np.float64)).astype(dtype)
        np.testing.assert_array_equal(result, expected, strict=True)


def test_a_rounded_tile_may_become_integers():
    result = on_nki_tiles(
        lambda x: nl.floor(x, dtype=nl.int32), np.array([[2.7, -2.2]], np.float32)
    )
    assert result.tolist() == [[2, -3]]


def test_tan():
    angles = np.linspace(-4, 4, 64, dtype=np.float32).reshape(4, 16)
    result = on_nki_tiles(nl.tan, angles)
    np.testing.assert_allclose(result, np.tan(angles.astype(np.float64)), rtol=2e-4)
    assert on_nki_tiles(nl.tan, np.zeros((2, 2), np.float32)).tolist() == [[0, 0]] * 2


def test_the_derivative_of_gelu_by_a_sigmoid_at_infinity():
    ends = np.array([[-np.inf, np.inf, 0]], np.float32)
    assert on_nki_tiles(nl.gelu_apprx_sigmoid_dx, ends).tolist() == [[0, 1, 0.5]]


def test_a_function_casts_once():
    result = on_nki_tiles(lambda x: nl.exp(x, dtype=nl.bfloat16), A)
    np.testing.assert_array_equal(result, np.exp(A).astype(ml_dtypes.bfloat16))


REDUCTIONS = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod, "mean": np.mean}


@every("name", REDUCTIONS)
def test_reductions(name):
    function, numpys = getattr(nl, name), REDUCTIONS[name]
    data = A.reshape(16, 4, 6)
    whole, last, kept = on_nki_tiles(
        lambda x: (function(x, (1, 2)), function(x, 2), function(x, -1, keepdims=True)), data
    )
    wide = data.astype(np.float64)
    np.testing.assert_allclose(whole, numpys(wide, axis=(1, 2))[:, None], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, numpys(wide, axis=2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kept, numpys(wide, axis=2, keepdims=True), rtol=1e-5, atol=1e-6)


def test_reductions_made_of_others():
    data = A.reshape(16, 4, 6)

    def compute(x):
        return nl.var(x, 2), nl.softmax(x), nl.softmax(x, (1, 2)), nl.all(x, (1, 2))

    spread, soft, whole, every = on_nki_tiles(compute, data)
    wide = data.astype(np.float64)
    np.testing.assert_allclose(spread, wide.var(axis=2, keepdims=True), rtol=1e-5)
    exponent = np.exp(wide)
    np.testing.assert_allclose(soft, exponent / exponent.sum(axis=2, keepdims=True), rtol=1e-5)
    total = exponent.sum(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(whole, exponent / total, rtol=1e-5)
    assert (every == 1).all()


def test_rms_norm():
    result = on_nki_tiles(lambda x, w: nl.rms_norm(x, w, axis=1, n=24, epsilon=1e-3), A, B)
    wide = A.astype(np.float64)
    expected = wide / np.sqrt((wide**2).sum(axis=1, keepdims=True) / 24 + 1e-3) * B
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_products():
    def compute(x, y):
        return nl.matmul(x, y, transpose_x=True), nl.matmul(nl.copy(x[:, 0:16]), y), nl.transpose(x)

    turned, plain, transposed = on_nki_tiles(compute, A, B)
    np.testing.assert_allclose(turned, A.T @ B, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(plain, A[:, :16] @ B, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(transposed, A.T)


def test_selections_and_shapes():
    places = np.random.default_rng(0).integers(0, 24, (16, 5)).astype(np.uint32)

    def compute(x, y, i):
        column = x[:, 0:1]
        return (
            nl.where(nl.greater(x, 0.0), x, y),
            nl.gather_flattened(x, i),
            nl.broadcast_to(column, (16, 3), dtype=nl.float16),
            nl.copy(nl.expand_dims(x, 1)),
        )

    chosen, gathered, spread, expanded = on_nki_tiles(compute, A, B, places)
    np.testing.assert_array_equal(chosen, np.where(A > 0, A, B))
    np.testing.assert_array_equal(gathered, np.take_along_axis(A, places.astype(int), axis=1))
    np.testing.assert_array_equal(spread, np.broadcast_to(A[:, :1], (16, 3)).astype(np.float16))
    np.testing.assert_array_equal(expanded, A[:, None])


def test_broadcast_to_repeats_a_row_along_the_partitions():
    row = np.arange(5, dtype=np.float32)[None, :]
    corner = np.full((1, 1), 7, np.float32)
    wide, square = on_nki_tiles(
        lambda x, y: (nl.broadcast_to(x, (128, 5)), nl.broadcast_to(y, (16, 3))), row, corner
    )
    np.testing.assert_array_equal(wide, np.broadcast_to(row, (128, 5)))
    np.testing.assert_array_equal(square, np.full((16, 3), 7, np.float32))


def test_loads_and_stores(capsys):
    def kernel(a):
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        with nl.no_reorder():
            row = nl.load(a[3], dtype=nl.float16)
        assert row.shape == (24, 1)
        nl.device_print("row", row[0:2])
        nl.store(out, nl.load(a))
        return out, stored(nl.load_transpose2d(a)), stored(row)

    out, turned, row = launch(kernel, (A,)).outputs
    np.testing.assert_array_equal(out, A)
    np.testing.assert_array_equal(turned, A.T)
    np.testing.assert_array_equal(row[:, 0], A[3].astype(np.float16))
    assert capsys.readouterr().out.startswith("row [[")


@every(
    "compute, kind, text",
    [
        (lambda x: nl.add(x, x[:, 0:2]), ShapeError, "broadcast(dim, size)"),
        (lambda x: nl.add(1, 2), KernelError, "two tiles, or a tile and a number"),
        (lambda x: nl.power(x, 2.0), NotModelledError, "known issues"),
        (lambda x: nl.average(x), KernelError, "nl.average is an operator for instructions"),
        (lambda x: nl.broadcast_to(x, (16, 2, 24)), ShapeError, "a shape of 2 dimensions"),
        (lambda x: nl.shared_constant([1]), KernelError, "NumPy array"),
        (lambda x: nl.no_such, AttributeError, "no_such"),
    ],
)
def test_bad_input_is_one_clear_error(compute, kind, text):
    assert text in raised(kind, compute, A)


# -- loops and programs ----------------------------------------------------------------------------


def test_loops():
    def compute():
        for loop in (nl.affine_range, nl.sequential_range, nl.static_range):
            assert list(loop(3)) == [0, 1, 2]
            assert list(loop(1, 3)) == [1, 2]
            assert list(loop(start=5, stop=0, step=-2)) == [5, 3, 1]
        return nl.zeros((1, 1), nl.float32)

    made(compute)


@every("grid, ndim, programs", [((), 0, 1), ((1,), 1, 1), ((2,), 1, 2)])
def test_programs(grid, ndim, programs):
    def kernel():
        out = nl.ndarray((2, 1), nl.int32, buffer=nl.shared_hbm)
        assert (nl.program_ndim(), nl.num_programs(), nl.num_programs(axes=0)) == (
            *(ndim, programs, programs),
        )
        nl.store(out[nl.program_id(0)], nl.full((1, 1), nl.program_id(0) + 5, nl.int32))
        return out

    result = launch(kernel, grid=grid).outputs[0]
    assert result[:programs, 0].tolist() == [5, 6][:programs]


def test_each_function_is_an_operator_too():
    for name in (*BINARY, *UNARY, "sum", "max", "min", "prod", "rsqrt", "bitwise_and", "average"):
        assert getattr(nl, name).nki_name == name
