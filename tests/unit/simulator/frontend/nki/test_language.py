"""`nki.language` of the current dialect: tensors, functions, loops, programs (stubs of v2.32.0)."""

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
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import (
    on_nki_tiles,
    raised,
    stored,
    values,
)

A = values(16, 24)
B = values(16, 24, seed=1)
NONE = np.zeros((1, 1), np.float32)


def made(compute, **options):
    """Return the result of `compute`, which takes no arguments."""
    return on_nki_tiles(lambda x: compute(), NONE, **options)


# -- tensors ---------------------------------------------------------------------------------------


def test_tensors_like_another():
    def compute():
        x = nl.full((4, 3), 7, nl.int32, buffer=nl.psum)
        zeros = nl.zeros_like(x)
        empty = nl.empty_like(x, dtype=nl.bfloat16, buffer=nl.sbuf)
        assert (zeros.shape, zeros.dtype, zeros.buffer) == ((4, 3), nl.int32, nl.psum)
        assert (empty.shape, empty.dtype, empty.buffer) == (
            (4, 3),
            nl.bfloat16,
            nl.sbuf,
        )
        return zeros

    assert (made(compute) == 0).all()


def test_constants_and_identities_hold_their_data(tmp_path):
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
        (nl.sbuf, (128, 0), LimitError, "fits sbuf"),
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
def test_overlapping_tensors_in_hbm_share_their_data(grid, start, shared):
    def kernel(data):
        first, second = (
            nl.ndarray(
                (4, 4), nl.float32, buffer=nl.shared_hbm, name=name, address=(place,)
            )
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
        assert (
            size.sbuf_fmax_bytes == size.total_available_sbuf_size == size.sbuf_fmax * 4
        )
        return nl.zeros((1, 1), nl.float32)

    made(compute, machine=machine)


def test_functions_on_memories_tell_hbm_from_on_chip():
    assert [nl.is_hbm(b) for b in (nl.hbm, nl.shared_hbm, nl.private_hbm, nl.sbuf)] == [
        True,
        True,
        True,
        False,
    ]
    assert [nl.is_on_chip(b) for b in (nl.sbuf, nl.psum, nl.hbm)] == [True, True, False]
    assert nl.is_sbuf(nl.sbuf)
    assert nl.is_psum(nl.psum)
    assert nl.hbm is nl.private_hbm


# -- functions -------------------------------------------------------------------------------------


def test_the_derivative_of_gelu_by_a_sigmoid_at_infinity():
    ends = np.array([[-np.inf, np.inf, 0]], np.float32)
    assert on_nki_tiles(nl.gelu_apprx_sigmoid_dx, ends).tolist() == [[0, 1, 0.5]]


def test_loads_and_stores_move_rows_and_transposes(capsys):
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
        (
            lambda x: nisa.activation(x, nl.prelu, x),
            NotModelledError,
            "use nisa.activate2",
        ),
        (
            lambda x: nl.average(x),
            KernelError,
            "nl.average is an operator for instructions",
        ),
        (
            lambda x: nl.broadcast_to(x, (16, 2, 24)),
            ShapeError,
            "a shape of 2 dimensions",
        ),
        (lambda x: nl.shared_constant([1]), KernelError, "NumPy array"),
        (lambda x: nl.no_such, AttributeError, "no_such"),
    ],
)
def test_bad_input_is_one_clear_error(compute, kind, text):
    assert text in raised(kind, compute, A)


# -- loops and programs ----------------------------------------------------------------------------


def test_each_function_is_an_operator_too():
    names = [
        "add",
        "divide",
        "less",
        "exp",
        "gelu_apprx_sigmoid_dx",
        "floor",
        "sum",
        "average",
    ]
    for name in names:
        assert getattr(nl, name).nki_name == name
