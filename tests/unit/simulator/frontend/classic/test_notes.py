"""Code that a compiler or a device accepted runs with a warning, and can be an error.

Each row breaks a stricter rule of the documentation at tag v2.26.0 than kernels that ran on devices
keep. Both modes give the value, warn once, and reject if only documented code is accepted.
"""

import warnings

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import (
    KernelError,
    NkiError,
    OutOfBoundsError,
    RuleWarning,
    UnwrittenError,
    launch,
    strictness,
)
from difftest.simulator.entry import kernel as nki
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.memories import tile_size
from tests.every import every
from tests.unit.simulator.on_tiles import written

DATA = np.random.default_rng(1).integers(-8, 9, (8, 16)).astype(np.float32)
CUBE = DATA.reshape(8, 2, 4, 2)
TALL = DATA[:, :, None]
WIDE = np.arange(128 * 128, dtype=np.float32).reshape(128, 128) % 251
P, X = np.mgrid[0:8, 0:16]


def grid():
    return nl.mgrid[0:8, 0:16]


def product_of_a_transpose(x):
    """[16, 8] in PSUM, transposed once more by a product."""
    turned = nisa.nc_transpose(x)
    return nl.copy(nisa.nc_matmul(turned, turned))


def masked_by_two(x):
    p, i = grid()
    target = nl.zeros((8, 16), nl.float32)
    target[...] = nl.copy(x, mask=p < 4 and i >= 2 and i < 9)
    return target


def cut_back(x):
    beyond = x[:, 8:24]
    return nl.copy(beyond[:, 0:6])


def zeros_in_hbm(x):
    tensor = nl.zeros((8, 16), nl.float32, buffer=nl.hbm)
    return nl.add(nl.load(tensor), x)


def in_order(x):
    result = nl.ndarray((8, 16), nl.float32)
    for i in nl.affine_range(2, directives=ncc.multi_buffer(2), precise_schedule=True):
        result[:, nl.ds(8 * i, 8)] = nl.copy(x[:, nl.ds(8 * i, 8)])
    return result


def rows_of_hbm(x):
    tensor = nl.ndarray((8, 16), nl.float32, buffer=nl.hbm)
    nl.store(tensor, x)
    return nl.load(tensor[nl.arange(4) * 2])


def doubled(left):
    tile = nl.copy(left, dtype=nl.float8_e5m2).reshape((8, 2, 8))
    return nl.copy(nisa.nc_matmul(tile, tile, perf_mode="double_row_gen3"))


def by_a_tile(x):
    """Rows 0, 2, 4, 6 of a matrix, and of the second plane of [2, 8, 16]."""
    tensor = nl.ndarray((2, 8, 16), nl.float32, buffer=nl.hbm)
    for plane in range(2):
        nl.store(tensor[plane], nl.multiply(x, float(plane)))
    rows = nisa.iota(nl.arange(4)[:, None] * 2, dtype=nl.int32)
    nl.store(tensor[0][rows], nl.load(tensor[1, rows]))
    return nl.load(tensor[0])


def by_dma_from_psum(x):
    turned = nl.ndarray((16, 8), nl.float32, buffer=nl.hbm)
    nisa.dma_copy(dst=turned, src=nisa.nc_transpose(x))
    return nl.load(turned)


def named(x):
    tensor = nl.ndarray((8, 16), nl.float32, buffer=nl.hbm)
    nisa.dma_copy(dst=tensor, src=nl.add(x, 1.0, name="sum"), name="move")
    return nl.expand_dims(nl.load(tensor, name="back"), 2, name="wide")


def transposed_load(x):
    tensor = nl.ndarray((8, 16, 1), nl.float32, buffer=nl.hbm)
    nl.store(tensor, x.reshape((8, 16, 1)))
    return nl.load_transpose2d(tensor)


def sum_without_a_command(x):
    """Each half's sum, in two columns: each call resets the registers."""
    sums = nl.ndarray((8, 2), nl.float32)
    for half in range(2):
        part = x[:, 8 * half : 8 * half + 8]
        total = sums[:, half : half + 1]
        nisa.activation(nl.copy, part, reduce_op=np.add, reduce_res=total)
    return sums


def rows_by_functions(x):
    """[4, 16]: rows 1, 3, 5, 7, by ``nl.add`` and ``nl.multiply`` of an index."""
    tensor = nl.ndarray((8, 16), nl.float32, buffer=nl.hbm)
    nl.store(tensor, x)
    rows = nl.add(nl.multiply(nl.arange(4)[:, None], 2), 1)
    return nl.load(tensor[nl.subtract(rows, 0), nl.arange(16)[None, :]])


EIGHTS = DATA.astype(ml_dtypes.float8_e5m2).astype(np.float32).reshape(8, 2, 8)
NOTED = {  # name: the function, its array, its result
    "a product of a tile in PSUM": (product_of_a_transpose, DATA, DATA @ DATA.T),
    "nl.matmul of tiles in PSUM": (
        lambda x: nl.copy(
            nl.matmul(nisa.nc_transpose(x), nisa.nc_transpose(x), transpose_x=True)
        ),
        DATA,
        DATA @ DATA.T,
    ),
    "affine_select of a tile in PSUM": (
        lambda x: nisa.affine_select(
            nl.arange(16)[:, None] >= nl.arange(8)[None, :], nisa.nc_transpose(x), -1.0
        ),
        DATA,
        np.where(np.arange(16)[:, None] >= np.arange(8), DATA.T, -1),
    ),
    "a transpose of 128 x 128 on the Vector Engine": (
        lambda x: nisa.nc_transpose(x, engine=nisa.vector_engine),
        WIDE,
        WIDE.T,
    ),
    "tensor_reduce of inner axes": (
        lambda x: nisa.tensor_reduce(np.add, x, axis=[1, 3]),
        CUBE,
        CUBE.sum(axis=(1, 3)),
    ),
    "operands of different rank": (
        lambda x: nisa.tensor_tensor(x, nl.max(x, axis=[1, 2, 3]), np.subtract),
        CUBE,
        CUBE - CUBE.max(axis=(1, 2, 3), keepdims=True),
    ),
    "nl.where on indices": (
        lambda x: nl.where((grid()[0] >= 2) & (grid()[1] < 9), x, 0.5),
        DATA,
        np.where((P >= 2) & (X < 9), DATA, np.float32(0.5)),
    ),
    "masks joined with and": (
        masked_by_two,
        DATA,
        np.where((P < 4) & (X >= 2) & (X < 9), DATA, 0),
    ),
    "fewer indices than dimensions": (rows_of_hbm, DATA, DATA[[0, 2, 4, 6]]),
    "zeros in private HBM": (zeros_in_hbm, DATA, DATA),
    "a size that is a whole float": (
        lambda x: nl.add(nl.zeros((8.0, 16), nl.float32), x),
        DATA,
        DATA,
    ),
    "max8 with positional arguments": (
        lambda x: nisa.max8(x),
        DATA,
        -np.sort(-DATA, axis=1)[:, :8],
    ),
    "hints of a range": (in_order, DATA, DATA),
    "a hint of a tensor": (
        lambda x: nl.add(nl.zeros((8, 16), nl.float32, lazy_initialization=True), x),
        DATA,
        DATA,
    ),
    "a dimension of size 1 more": (
        lambda x: nl.add(x.reshape((8, 16, 1)), x),
        DATA,
        TALL * 2,
    ),
    "one element a partition of more dimensions": (
        lambda x: x * x[:, 0:1].reshape((8, 1, 1)),
        DATA,
        DATA * DATA[:, :1],
    ),
    "a whole float in reshape": (lambda x: x.reshape((8, 16 / 1, 1)), DATA, TALL),
    "iota's pattern": (
        lambda x: nl.add(
            x, nisa.iota(pattern=grid()[0] * 3 - grid()[1], dtype=nl.int32)
        ),
        DATA,
        DATA + 3 * P - X,
    ),
    "rows of HBM by a tile of indices": (
        by_a_tile,
        DATA,
        np.where(np.arange(8)[:, None] % 2, 0, DATA),
    ),
    "a DMA from PSUM": (by_dma_from_psum, DATA, DATA.T),
    "a mask behind a mask": (
        lambda x: nl.copy(
            nl.matmul(x[grid()[0] < 6][grid()[0] >= 2], x, transpose_x=True)
        ),
        DATA,
        DATA[2:6].T @ DATA[2:6],
    ),
    "a transposed load of a trailing 1": (transposed_load, DATA, DATA.T),
    "bools for masks": (
        lambda x: nl.copy(nl.matmul(x[True][grid()[0] < 6][True], x, transpose_x=True)),
        DATA,
        DATA[:6].T @ DATA[:6],
    ),
    "a tile's T": (lambda x: x.T, DATA, DATA.T),
    "a sum without a command": (
        sum_without_a_command,
        DATA,
        np.stack([DATA[:, :8].sum(1), DATA[:, 8:].sum(1)], axis=1),
    ),
    "functions of index expressions": (rows_by_functions, DATA, DATA[1::2]),
    "a name of any call": (named, DATA, TALL + 1),
    "a perf_mode": (doubled, DATA, np.einsum("kli,klj->ij", EIGHTS, EIGHTS)),
}
modes = every("plain", [False, True])


@modes
@every("name", NOTED)
def test_code_that_was_seen_to_run_runs_with_a_warning(name, plain):
    compute, data, expected = NOTED[name]

    def kernel(tensor):
        return written(compute(nl.load(tensor)))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        (result,) = launch(kernel, [data], plain=plain).outputs
    assert_array_equal(result, expected)
    assert said
    assert all(one.category is RuleWarning for one in said)
    assert len({str(one.message) for one in said}) == len(said)
    with pytest.raises(NkiError):
        launch(kernel, [data], plain=plain, strictness="documented")


def test_a_note_comes_again_in_the_next_launch_although_the_call_was_checked():
    def kernel(tensor):
        nisa.nc_transpose(nl.load(tensor), engine=nisa.vector_engine)

    for _ in range(2):
        with pytest.warns(RuleWarning, match="got 128 x 128 elements"):
            launch(kernel, [WIDE])
    with strictness("documented"), pytest.raises(NkiError, match="at most 32 x 32"):
        launch(kernel, [WIDE])


@pytest.mark.filterwarnings("ignore::difftest.simulator.RuleWarning")
def test_the_compilers_copy_is_in_the_trace():
    def kernel(tensor):
        nisa.nc_matmul(nisa.nc_transpose(nl.load(tensor)), nl.ones((16, 4), nl.float32))

    opcodes = [event.opcode for event in launch(kernel, [DATA]).trace]
    assert opcodes == ["dma_copy", "nc_transpose", "memset", "tensor_copy", "nc_matmul"]


@modes
def test_a_column_is_a_tile_of_two_dimensions_when_it_is_indexed_again(plain):
    def kernel(tensor):
        column = nl.load(tensor)[:, 3]
        return written(nl.copy(column[2:6, 0:1])), written(
            nl.copy(column[nl.arange(8)[:, None], nl.arange(1)[None, :]])
        )

    some, all_of_it = launch(kernel, [DATA], plain=plain).outputs
    assert_array_equal(some, DATA[2:6, 3:4])
    assert_array_equal(all_of_it, DATA[:, 3:4])


@modes
def test_a_slice_that_left_its_tile_may_be_cut_back(plain):
    def kernel(tensor):
        return written(cut_back(nl.load(tensor)))

    assert_array_equal(launch(kernel, [DATA], plain=plain).outputs[0], DATA[:, 8:14])

    def outside(tensor):
        nl.copy(nl.load(tensor)[:, 8:24][:, 4:12])

    with pytest.raises(OutOfBoundsError):
        launch(outside, [DATA], plain=plain)


@modes
def test_unwritten_private_hbm_is_a_doubt(plain):
    def kernel():
        tensor = nl.ndarray((4, 4), nl.float32, buffer=nl.private_hbm)
        return written(nl.load(tensor))

    with pytest.raises(UnwrittenError):
        launch(kernel, plain=plain)
    with pytest.warns(RuleWarning, match="never"):
        (result,) = launch(kernel, plain=plain, strictness="relaxed").outputs
    assert np.isnan(result).all()


def test_an_unknown_strictness_is_rejected():
    with pytest.raises(
        KernelError, match="strictness is one of the accepted values"
    ) as caught:
        launch(lambda: None, strictness="lax")
    assert caught.value.limit == "documented, seen, relaxed"


@modes
def test_a_kernel_may_return_a_tile(plain):
    def kernel(tensor):
        return nl.copy(nl.load(tensor), dtype=nl.bfloat16)

    with pytest.warns(RuleWarning, match="returned a tile that is on chip"):
        (result,) = launch(kernel, [DATA], plain=plain).outputs
    assert_array_equal(result, DATA.astype(ml_dtypes.bfloat16), strict=True)


def test_marks_and_directives_of_the_compiler_change_nothing():
    with ncc.no_reorder(), ncc.allocation_scope():
        pass
    assert repr(ncc.multi_buffer(3)) == "ncc.multi_buffer(factor=3)"
    function = ncc.force_auto_alloc(lambda: None)
    assert callable(ncc.force_auto_alloc()(function))


# -- decorators and modules ------------------------------------------------------------------------


def add_one(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) + 1.0)
    return out


@every(
    "hint",
    [
        "kernel_return",
        "debug_kernel",
        "experimental_flags",
        "show_compiler_tb",
        "enable_out_of_bound_check",
    ],
)
def test_undocumented_hints_of_jit(hint):
    with pytest.warns(RuleWarning, match=hint):
        kernel = nki.jit(**{hint: True})(add_one)
    assert_array_equal(kernel(DATA), DATA + 1)
    with strictness("documented"), pytest.raises(KernelError, match=hint):
        nki.jit(add_one, **{hint: True})


@every("mode", ["jax", "torchxla"])
def test_a_frameworks_mode_runs_on_numpys_arrays(mode):
    with pytest.warns(RuleWarning, match=mode):
        kernel = nki.jit(add_one, mode=mode)
    assert_array_equal(kernel(DATA), DATA + 1)


def test_the_modules_inside_the_documented_ones():
    with embedded():
        from neuronxcc.nki.isa.constants import engine, oob_mode
        from neuronxcc.nki.language.constants import sbuf_min_align, sizeinbytes
        from neuronxcc.nki.language.constants import tile_size as sizes
        from nki.language.constants import sizeinbytes as same
    assert engine.vector is nisa.engine.vector
    assert oob_mode is nisa.oob_mode
    assert (sbuf_min_align, sizes.pmax) == (1, 128)
    assert [sizeinbytes(one) for one in (nl.bfloat16, np.int8, "float32")] == [2, 1, 4]
    assert same is sizeinbytes is nl.constants.sizeinbytes


def test_a_tile_size_that_a_module_sets_holds_until_the_modules_are_gone():
    with embedded():
        with pytest.warns(RuleWarning, match="pmax was set"):
            nl.tile_size.pmax = 64
        assert nl.tile_size.pmax == 64
        with pytest.raises(KernelError, match="width was set"):
            nl.tile_size.width = 3
    assert tile_size.pmax == 128


@every("plain", [False, True])
def test_a_launch_lists_its_warnings(plain):
    def noted(x):
        out = nl.ndarray((8, 4), nl.float32, buffer=nl.shared_hbm)
        cube = nl.load(x)
        for _ in range(2):
            total = nisa.tensor_reduce(np.add, cube, axis=[1, 3])
        nl.store(out, nisa.tensor_reduce(np.max, cube, axis=[1, 3]) + total)
        return out

    with pytest.warns(RuleWarning) as caught:
        result = launch(noted, [CUBE], plain=plain)
    assert [type(one).__name__ for one in result.notes] == ["ShapeError", "ShapeError"]
    assert [str(one) for one in result.notes] == [str(one.message) for one in caught]
    first, second = (one.location.line for one in result.notes)
    assert second == first + 1
    assert launch(add_one, [DATA], plain=plain).notes == ()


def test_a_line_that_breaks_a_rule_with_another_shape_too_warns_once():
    def kernel(x):
        tile = nl.load(x)
        nl.exp(nl.log(tile))
        nl.log(tile)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        launch(kernel, [np.zeros((4, 8), np.float32)])
        launch(kernel, [np.full((4, 9), -1, np.float32)])
    assert len([one for one in warned if "log got" in str(one.message)]) == 2
