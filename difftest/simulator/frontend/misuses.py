"""What kernels write that a dialect does not have, or not so: a table, as simulator/misuses.py."""

from __future__ import annotations

from difftest.simulator.errors import DtypeError, LimitError, ShapeError, UnwrittenError
from difftest.simulator.misuses import Misuse

CALL_WITH_GRID = Misuse(
    "a kernel with a grid is not called inside another kernel",
    "a kernel called another one with a grid",
    "call it without the grid",
)
DTYPE_WITHOUT_TORCH = Misuse(
    "a kernel that is called with torch tensors returns dtypes that torch has",
    "torch has no dtype for an output",
    "call the kernel with NumPy arrays, or return another dtype",
    error=DtypeError,
)
GRID_OF_ZERO = Misuse(
    "a grid dimension is positive",
    "a kernel was given a grid of 0, and runs as one of 1",
    "leave the brackets out",
)
MASK_OF_ONE_ROW = Misuse(
    "a masked operand with two rows a partition takes part with both",
    "a mask left out one of the two rows of a partition",
)
ASSIGNMENT_TO_HBM = Misuse(
    "tensors in HBM are written by DMA",
    "a value was assigned to a tensor in HBM",
    "use nl.store(dst, value) or nisa.dma_copy(dst=..., src=...)",
)
VALUE_IN_HBM = Misuse(
    "a tensor in HBM is written by DMA",
    "a tensor in HBM was created with a value",
    "create it with nl.ndarray and write it with nl.store",
)
INDEX_BEHIND_MASK = Misuse(
    "a product's operand has one mask between its brackets, and nothing else",
    "a tile under a mask was indexed once more",
    "write one mask, (a < b) & (c < d), behind the other indices",
)
INDEX_OF_ONE_DIMENSION = Misuse(
    "a tile's index has at least two dimensions, partition and free",
    "a tile on chip was indexed with index expressions of one dimension",
    "use nl.arange(n)[:, None] for partitions and nl.arange(n)[None, :] for the free dimension",
    error=ShapeError,
)
SLICES_BESIDE_INDICES = Misuse(
    "basic and advanced indexing do not mix",
    "a tensor was indexed with slices and index expressions at once",
    "use an nl.arange (or nl.mgrid) for every dimension, or slices for all",
)
MASK_OF_TWO_AXES = Misuse(
    "a product's mask says by its indices' shape which operand's free axis it limits",
    "a mask of a matrix product can mean two axes",
    "use three dimensions: nl.arange(m)[None, :, None] for the stationary operand, "
    "nl.arange(n)[None, None, :] for the moving one",
)
SHAPE_OF_MASK = Misuse(
    "a mask must broadcast to the shape of its instruction",
    "a mask does not have its instruction's shape",
    error=ShapeError,
)
ASSIGNMENT_TO_INDEX = Misuse(
    "an index does not support item assignment",
    "something was assigned to an index expression",
    "make a tile of it first: nisa.iota(index, dtype=nl.int32)",
)
OR_OF_MASKS = Misuse(
    "a mask is a conjunction of comparisons",
    "two masks were joined with |",
    "issue the instruction once for each part",
    limit="comparisons of affine expressions, joined with &",
)
AND_OF_MASKS = Misuse(
    "comparisons of indices are joined with &",
    "two masks were joined with 'and'",
    "write (a < b) & (c < d)",
)
PART_OF_INDEX = Misuse(
    "an index expression takes only ':' and None between its brackets",
    "an index expression was indexed with more than ':' and None",
    "make another nl.arange of the range you want",
)
BLOCK_INSIDE_BANK = Misuse(
    "a block in PSUM begins at partition 0 and byte 0 of its bank",
    "a block was placed inside a bank of PSUM",
    limit="(bank, 0, 0), in the releases that AWS's documentation is of",
    error=LimitError,
)
OFFSETS_FOR_AN_ENGINE = Misuse(
    "an offset for each row is for the DMA engines",
    "an engine was given a view with an offset for each row",
    "gather into SBUF with nisa.dma_copy first",
)
UNWRITTEN_REGISTER = Misuse(
    "a register is written before it is read",
    "a register was read that nothing had written",
    "nisa.register_alloc(0), nisa.register_move or nisa.register_load first",
    error=UnwrittenError,
)
ASSIGNMENT_BY_DMA = Misuse(
    "tensors in HBM are written and read by DMA",
    "an assignment had a side in HBM",
    "use nisa.dma_copy(dst, src), nl.load(src) or nl.store(dst, value)",
)
SUM_WITHOUT_START = Misuse(
    "accumulate=True adds to what a matmul wrote before",
    "nc_matmul was to add to what nothing had written",
    "use accumulate=False for the first matmul (accumulate=(i > 0)), or leave accumulate out",
)
DATA_OF_SEVERAL_TILES = Misuse(
    "data is one access pattern",
    "data was asked of tiles that no single view has",
    "index one tile or a row of tiles first; is_data_representable tells",
    error=ShapeError,
)
LOOP_IN_ORDER = Misuse(
    "a loop on the device does not run inside nl.no_reorder",
    "a loop on the device was to run inside nl.no_reorder",
    "write nl.no_reorder() inside the loop's body, or a loop over Python integers",
)
