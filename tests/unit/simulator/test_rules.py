"""The hardware's rules: each broken once, with the whole text of the error.

A broken kernel marks the line that breaks the rule; the error must name that line.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np
import pytest

from difftest.simulator import NkiError, launch
from difftest.simulator.entry import kernel as nki
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.headlines import HEADLINES

MARK = "# the line"
DATA = np.ones((128, 512), np.float32)


@pytest.fixture
def unquoted():
    """Whole texts are tested here."""


class Broken(NamedTuple):
    """A rule that a kernel breaks: parts of the error's text."""

    rule: str
    received: str
    limit: str | None
    remedy: str | None
    args: tuple[Any, ...] = (DATA,)


RULES: dict[Any, Broken] = {}


def breaks(rule, received, limit=None, remedy=None, args=(DATA,)):
    def register(kernel):
        RULES[kernel] = Broken(rule, received, limit, remedy, args)
        return kernel

    return register


@breaks(
    "the partition size of a tile is at most 128",
    "[256, 1] float32 in sbuf: 256 partitions",
    "128 partitions (trn2, nl.tile_size.pmax)",
    "loop over the first dimension in tiles of at most 128",
    args=(np.ones(512, np.float32),),
)
def row_chunk_of_256(a_vec):
    out = nl.ndarray(a_vec.shape, a_vec.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(a_vec.shape[0] // 256):
        tile = nl.ndarray((256, 1), dtype=a_vec.dtype, buffer=nl.sbuf)  # the line
        nisa.dma_copy(dst=tile, src=a_vec[m * 256 : (m + 1) * 256])
        nisa.dma_copy(dst=out[m * 256 : (m + 1) * 256], src=tile)
    return out


@breaks(
    "the partition size of a tile is at most 128",
    "[200, 4] float32 in sbuf: 200 partitions",
    "128 partitions",
    "loop over the first dimension",
    args=(np.ones((200, 4), np.float32),),
)
def load_of_200_rows(x):
    nl.load(x)  # the line


@breaks(
    "the free size of nc_matmul's stationary operand is at most 128",
    "stationary [128, 512]: 512 elements a partition",
    "128 (nl.tile_size.gemm_stationary_fmax)",
    "loop over tiles of 128",
)
def stationary_too_wide(x):
    tile = nl.load(x)
    nisa.nc_matmul(tile, tile)  # the line


@breaks(
    "the free size of nc_matmul's moving operand is at most 512",
    "moving [128, 600]: 600 elements a partition",
    "512 (nl.tile_size.gemm_moving_fmax)",
    "loop over tiles of 512",
)
def moving_too_wide(x):
    tile = nl.load(x)
    wide = nl.zeros((128, 600), nl.float32)
    nisa.nc_matmul(tile[:, 0:128], wide)  # the line


@breaks(
    "a matmul accumulates inside one PSUM bank",
    "bytes 1200 to 3247 of the partition",
    "banks of 2048 bytes (512 float32, nl.tile_size.psum_fmax)",
    "use PSUM tiles of at most 512 float32 a partition",
)
def accumulation_across_banks(x):
    tile = nl.load(x)
    total = nl.zeros((128, 1024), nl.float32, buffer=nl.psum)
    total[:, 300:812] += nisa.nc_matmul(tile[:, 0:128], tile)  # the line


@breaks(
    "a tile fits the bytes that psum has in each partition",
    "[128, 8192] float32 in psum: 32768 bytes a partition",
    "16384 bytes a partition (trn2)",
    "use a smaller free dimension",
)
def psum_tile_too_large(x):
    nl.ndarray((128, 8192), nl.float32, buffer=nl.psum)  # the line


@breaks(
    "the tensors live at one time fit psum",
    "18432 bytes a partition in 9 live tensors",
    "16384 bytes a partition (trn2)",
    "use smaller tiles",
)
def nine_banks(x):
    size = (128, 512)
    held = [nl.zeros(size, nl.float32, buffer=nl.psum) for _ in range(9)]  # the line
    for tile in held:
        nl.copy(tile[:, 0:1])


@breaks(
    "dma_copy takes src in hbm or sbuf",
    "src = tile [128, 512] float32 in psum",
    "hbm or sbuf",
    "copy it to SBUF first (nisa.tensor_copy or nl.copy)",
)
def dma_from_psum(x):
    tile = nl.load(x)
    product = nisa.nc_matmul(tile[:, 0:128], tile)
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=product)  # the line
    return out


@breaks(
    "nc_matmul takes moving in sbuf",
    "moving = x [128, 512] float32 in shared_hbm",
    "sbuf",
    "load it into SBUF first (nisa.dma_copy or nl.load)",
)
def matmul_of_hbm(x):
    tile = nl.load(x)
    nisa.nc_matmul(tile[:, 0:128], x)  # the line


@breaks(
    "nl.exp takes x in sbuf or psum",
    "x = x [128, 512] float32 in shared_hbm",
    "sbuf or psum",
    "load it into SBUF first",
)
def compute_in_hbm(x):
    nl.exp(x)  # the line


@breaks(
    "nl.load takes src in hbm",
    "src = tile [128, 512] float32 in sbuf",
    "hbm",
    "put it into hbm",
)
def load_of_sbuf(x):
    nl.load(nl.load(x))  # the line


@breaks(
    "the GpSimd Engine cannot access PSUM",
    "tensor_copy with src = tile [128, 512] float32 in psum",
    "sbuf",
    "copy it to SBUF first",
)
def gpsimd_and_psum(x):
    tile = nl.load(x)
    product = nisa.nc_matmul(tile[:, 0:128], tile)
    nisa.tensor_copy(product, engine=nisa.gpsimd_engine)  # the line


@breaks(
    "tensor_tensor takes two inputs that are not both in PSUM",
    "data1 = tile [128, 512] float32 in psum, data2 = tile [128, 512] float32 in psum",
    "at most one of them in psum",
    "copy one of them to SBUF first",
)
def two_inputs_in_psum(x):
    tile = nl.load(x)
    product = nisa.nc_matmul(tile[:, 0:128], tile)
    nisa.tensor_tensor(product, product, nl.add)  # the line


@breaks(
    "nc_matmul takes stationary of certain dtypes",
    "stationary = tile [128, 128] int32 in sbuf",
    "float8_e4m3, float8_e4m3fn, float8_e5m2, bfloat16, float16, tfloat32, float32",
    "cast it by nisa.tensor_copy",
)
def matmul_of_integers(x):
    tile = nl.load(x)
    whole = nl.copy(tile[:, 0:128], dtype=nl.int32)
    nisa.nc_matmul(whole, tile)  # the line


@breaks(
    "NKI has no such dtype",
    "dtype <class 'numpy.float64'>",
    "bfloat16, bool, float16, float32",
    "convert an input on the host: array.astype(np.float32)",
)
def double_precision(x):
    nl.zeros(x.shape, np.float64)  # the line


@breaks(
    "an access stays inside its tensor",
    "indices 384 to 640 on axis 1 of x [128, 512] float32 in shared_hbm",
    "0 to 511",
    "correct the loop's bounds, or give the instruction a mask",
)
def slice_beyond_the_end(x):
    for i in nl.affine_range(2):
        nl.load(x[:, 384 * i : 384 * i + 257])  # the line


@breaks(
    "an access stays inside its tensor",
    "indices -1 to -1 on axis 1 of x [128, 512]",
    "0 to 511",
    "NKI does not wrap negative indices",
)
def negative_index(x):
    nl.load(x[:, -1])  # the line


@breaks(
    "an access stays inside its tensor",
    "indices 256 to 767 on axis 1",
    "0 to 511",
    "give the instruction a mask",
)
def mask_that_lets_too_much_through(x):
    p, f = nl.mgrid[0:128, 0:512]
    nl.load(x[p, f + 256], mask=f < 512)  # the line


@breaks(
    "an index held in a tile stays inside its tensor",
    "index [128, 0] into x [128, 512] float32 in shared_hbm, at element [0, 0]",
    "[127, 511]",
    "correct the indices, or pass oob_mode=nisa.oob_mode.skip",
)
def index_in_a_tile_beyond(x):
    rows = nl.full((4, 1), 128, nl.int32)
    nl.load(x[rows, nl.arange(512)[None, :]])  # the line


@breaks(
    "an instruction reads only elements that were written before",
    "of tile [128, 512] float32 in sbuf were never written, the first at [0, 0]",
    None,
    "write the tensor first (nl.zeros, nl.load, an instruction's result)",
)
def read_of_nothing(x):
    total = nl.ndarray((128, 512), nl.float32)
    nisa.tensor_tensor(total, nl.load(x), nl.add)  # the line


@breaks(
    "an instruction reads only elements that were written before",
    "128 of 256 elements of tile [128, 2] float32 in sbuf were never written, the first at [0, 1]; "
    "it was made at",
    None,
    "or read only the part that is written",
)
def read_of_a_part_of_nothing(x):
    total = nl.ndarray((128, 512), nl.float32)
    total[:, 0:4] = nl.load(x[:, 0:4])
    nl.sum(total[:, 3:5], axis=1)  # the line


@breaks(
    "a kernel does not write to its parameters",
    "a write to x [128, 512] float32 in shared_hbm",
    None,
    "annotate the parameter with neuronxcc.nki.typing.mutable_tensor",
)
@nki.jit
def write_to_a_parameter(x):
    nl.store(x, nl.load(x))  # the line


@breaks(
    "a kernel writes all elements that it returns",
    "tile [128, 512] float32 in shared_hbm",
    None,
    "M // TILE is 0 if M is smaller than TILE",
)
def output_never_written(x):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)  # the line
    return (out,)


@breaks(
    "a feature that the simulator does not model raises, and is never ignored",
    "accumulate=True",
)
def argument_that_is_not_modelled(x):
    nisa.tensor_copy(nl.load(x), accumulate=True)  # the line


@breaks(
    "control flow cannot depend on a tensor's value",
    "bool in sbuf used as a condition",
    None,
    "else use a mask or nl.where",
)
def condition_on_a_tile(x):
    tile = nl.load(x)
    if tile > 0:  # the line
        nl.exp(tile)


@breaks(
    "control flow cannot depend on nl.arange or nl.mgrid",
    "a mask used as a condition",
    None,
    "use the instruction's mask argument, and & instead of 'and'",
)
def condition_on_an_index(x):
    if nl.arange(4)[:, None] < 2:  # the line
        nl.load(x)


@breaks(
    "a kernel with a grid is not called inside another kernel",
    "write_to_a_parameter[2]",
    None,
    "call it without the grid",
)
def grid_inside_a_kernel(x):
    write_to_a_parameter[2](x)  # the line


@breaks(
    "the first dimension of a tile is its partition dimension",
    "[4, 8, 8] float32 in sbuf with its partition dimension at axis 1",
    None,
    "index the leading (block) dimensions with integers first",
)
def blocks_as_a_tile(x):
    blocks = nl.zeros((4, nl.par_dim(8), 8), nl.float32)
    nl.add(blocks, 32.0)  # the line


@breaks(
    "basic and advanced indexing do not mix",
    ": beside nl.arange / nl.mgrid on",
    None,
    "use an nl.arange (or nl.mgrid) for every dimension, or slices for all",
)
def mixed_indexing(x):
    nl.load(x[nl.arange(4)[:, None], :])  # the line


@breaks(
    "a tile's index has at least two dimensions, partition and free",
    "a 1-D nl.arange as an index of",
    None,
    "use nl.arange(n)[:, None] for partitions",
)
def one_dimensional_arange(x):
    tile = nl.load(x)
    nl.exp(tile[nl.arange(64), 0])  # the line


@breaks(
    "index expressions must be affine in nl.arange and nl.mgrid",
    "// on an index of shape (1, 512)",
    "sums of indices, and products with integers",
    "split the axis into two",
)
def index_that_is_not_affine(x):
    f = nl.arange(512)[None, :]
    nl.load(x[nl.arange(4)[:, None], f // 2])  # the line


@breaks(
    "tensor_reduce reduces free axes",
    "axis=0 of tile [128, 512] float32 in sbuf",
    "axes 1 to 1",
    "across partitions use nisa.tensor_partition_reduce, or transpose first",
)
def reduction_of_partitions(x):
    nisa.tensor_reduce(nl.add, nl.load(x), axis=0)  # the line


@breaks(
    "a transpose on the tensor engine takes at most 128 x 128 elements",
    "data [128, 512]: 128 partitions, 512 elements each",
    "128 partitions, 128 elements each",
    "transpose tile by tile",
)
def transpose_too_wide(x):
    nl.transpose(nl.load(x))  # the line


@breaks(
    "tensor_tensor takes operands with the same number of partitions",
    "data1 [128, 512] float32, data2 [1, 512] float32",
    None,
    "repeat the tile of one partition first: nl.broadcast_to(tile, shape=...)",
)
def partitions_that_do_not_fit(x):
    tile = nl.load(x)
    nisa.tensor_tensor(tile, tile[0:1], nl.add)  # the line


@breaks(
    "an assignment's value has its target's shape, or repeats along free dimensions",
    "target [128, 1], value [128, 512]",
)
def assignment_to_less(x):
    column = nl.ndarray((128, 1), nl.float32)
    column[...] = nl.load(x)  # the line


@breaks(
    "the Scalar Engine computes log in a limited range",
    "1 of 65536 inputs outside it, e.g. -1.0",
    "5.42101e-20 to 1.84467e+19",
    "scale or clamp the input first",
    args=(np.where(np.arange(65536).reshape(128, 512) == 7, -1, 1).astype(np.float32),),
)
def activation_outside_its_range(x):
    nl.log(nl.load(x))  # the line


def marked_line(kernel):
    """The number of the kernel's one marked line."""
    lines, first = inspect.getsourcelines(inspect.unwrap(kernel))
    (marked,) = [first + k for k, line in enumerate(lines) if MARK in line]
    return marked


@every("kernel", RULES)
def test_a_broken_rule_is_an_error_with_rule_limit_and_remedy(kernel):
    broken = RULES[kernel]
    with pytest.raises(NkiError) as caught:
        launch(kernel, broken.args, strictness="documented")
    error = caught.value
    assert error.rule == broken.rule
    assert broken.received in error.received
    for part, expected in ((error.limit, broken.limit), (error.remedy, broken.remedy)):
        assert (part is None) == (expected is None), part
        assert expected is None or expected in part
    assert (error.location.file, error.location.line) == (__file__, marked_line(kernel))
    assert str(error).splitlines()[0] == HEADLINES[kernel.__name__]
    assert error.happened != error.rule
    assert broken.rule in str(error)
    assert f"{error.location}" in str(error)
