"""A table of misuses: rules of the API that have no other home.

A row is data. Converters check the arguments of a call, and an instruction's rules are in its
record.
"""

from __future__ import annotations

from typing import NamedTuple

from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    LimitError,
    NkiError,
    ShapeError,
    UnwrittenError,
)


class Misuse(NamedTuple):
    """A row: the rule, its violation, and the remedy.

    Calling it with the received input returns the error, to be raised or reported.
    """

    rule: str
    happened: str
    remedy: str | None = None
    limit: str | None = None
    error: type[NkiError] = KernelError

    def __call__(self, received: str) -> NkiError:
        return self.error(
            self.rule,
            happened=self.happened,
            received=received,
            limit=self.limit,
            remedy=self.remedy,
        )


TENSOR_AS_CONDITION = Misuse(
    "control flow cannot depend on a tensor's value",
    "a tensor was used as a condition",
    "compare with 'is None' if you meant that; else use a mask or nl.where",
)
TILE_AS_ARRAY = Misuse(
    "a tile is no array or number: its values exist when the kernel runs, not when it is traced",
    "a tile was used as a NumPy array or a number",
    "use functions such as nl.exp and nisa.activation; return a tensor in HBM to see its values",
)
LENGTH_OF_SCALAR = Misuse(
    "a tile of no dimension has no length",
    "len() got a tile without dimensions",
    error=ShapeError,
)
BLOCKS_AS_TILE = Misuse(
    "the first dimension of a tile is its partition dimension",
    "a tensor with block dimensions was used as a tile",
    "index the leading (block) dimensions with integers first",
    error=ShapeError,
)
RESHAPE_OF_SLICE = Misuse(
    "reshape of a slice is a view, so its elements must be adjacent in memory",
    "reshape met elements that are not adjacent in memory",
    "reshape before slicing or permuting, or copy the slice first",
    error=ShapeError,
)
ADDRESS_OF_BLOCKS = Misuse(
    "a tensor with an address has its partitions first",
    "a tensor with block dimensions was given an address",
    error=ShapeError,
)
NO_KERNEL = Misuse(
    "NKI functions run inside a kernel",
    "an NKI function was called with no kernel running",
    "call the kernel through nki.simulate_kernel(kernel, ...) or decorate it with @nki.jit",
)
USE_AFTER_LOOP = Misuse(
    "a tensor made in the body of a loop on the device is not used after the loop",
    "a tensor was used after the loop that made it in its body",
    "make it before the loop",
)
OTHER_SHARED_TENSOR = Misuse(
    "every instance of an SPMD grid creates the same shared_hbm tensors",
    "two instances of a grid created a shared_hbm tensor differently",
    "create shared_hbm tensors at the top of the kernel, with one shape",
)
LAUNCH_IN_KERNEL = Misuse(
    "a kernel is launched from outside kernels",
    "a kernel launched another one",
    "call the other kernel directly, without a grid",
)
RETURN_OF_NO_TENSOR = Misuse(
    "a kernel returns tensors",
    "the kernel returned an object that is not a tensor",
    "return the tensors created with buffer=nl.shared_hbm",
)
EMPTY_ARGUMENT = Misuse(
    "a kernel's tensors have at least one element",
    "an argument has no elements",
    error=ShapeError,
)
WRITE_TO_CONSTANT = Misuse(
    "a kernel writes to arrays that are writeable, and to no constants",
    "an instruction was to write to a read-only array or a constant",
    "pass a copy, which can be written: array.copy()",
)
WRITE_TO_PARAMETER = Misuse(
    "a kernel does not write to its parameters",
    "an instruction was to write to a parameter",
    "create the output with nl.ndarray(..., buffer=nl.shared_hbm) and return it, or "
    "annotate the parameter with neuronxcc.nki.typing.mutable_tensor",
)
READ_ONLY_ARGUMENT = Misuse(
    "an nt.mutable_tensor is written in place",
    "a read-only array was given for an nt.mutable_tensor",
    "pass a copy: array.copy()",
)


# -- of a dialect ----------------------------------------------------------------------------------


MIXED_DIALECTS = Misuse(
    "a kernel calls functions of nki, or of neuronxcc.nki, which nki's compiler rejects since 0.4",
    "a kernel called a function of the other dialect",
    "import all of the kernel's modules from one dialect",
)
CALL_WITH_GRID = Misuse(
    "a kernel with a grid is not called inside another kernel",
    "a kernel called another kernel with a grid",
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
    "a kernel got a grid of 0, and runs with a grid of 1",
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
POWER_WITH_MODULUS = Misuse(
    "a tile is raised to a power without a modulus",
    "pow got a tile and three arguments",
    "use nl.mod of nl.power",
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
# AWS's examples for nl.matmul (aws-neuron/nki-samples) give its result the operands' dtype, which
# they say fails on gen2; the stub of nisa.nc_matmul at v2.32.0 has a float32 dst there.
PRODUCT_OF_BFLOAT16 = Misuse(
    "nl.matmul gives its result the dtype of its operands, and NeuronCore-v2 writes float32 alone",
    "nl.matmul got bfloat16 on trn1, where it does not compile",
    "use nisa.nc_matmul with a float32 dst in PSUM",
    error=DtypeError,
)
OFFSETS_FOR_AN_ENGINE = Misuse(
    "an offset for each row is for the DMA engines",
    "an engine was given a view with an offset for each row",
    "gather into SBUF with nisa.dma_copy first",
)
UNWRITTEN_REGISTER = Misuse(
    "a register is written before it is read",
    "a register was read before it was written",
    "nisa.register_alloc(0), nisa.register_move or nisa.register_load first",
    error=UnwrittenError,
)
ASSIGNMENT_BY_DMA = Misuse(
    "tensors in HBM are written and read by DMA",
    "an assignment had a side in HBM",
    "use nisa.dma_copy(dst, src), nl.load(src) or nl.store(dst, value)",
)
SUM_WITHOUT_START = Misuse(
    "accumulate=True adds to the product of an earlier matmul",
    "nc_matmul was to add to elements that were never written",
    "use accumulate=False for the first matmul (accumulate=(i > 0)), or leave accumulate out",
)
DATA_OF_SEVERAL_TILES = Misuse(
    "data is one access pattern",
    "data was requested of tiles that no single view has",
    "index one tile or a row of tiles first; is_data_representable tells",
    error=ShapeError,
)
NUMBER_OF_TURN_BEFORE = Misuse(
    "the body of nl.affine_range, nl.sequential_range and a loop on the device is traced once: "
    "Python's own numbers keep their values of the first iteration",
    "a loop's body reads a number that the previous iteration has bound",
    "compute it from the loop's variable, or use nl.static_range",
)
LOOP_IN_ORDER = Misuse(
    "a loop on the device does not run inside nl.no_reorder",
    "a loop on the device was to run inside nl.no_reorder",
    "write nl.no_reorder() inside the loop's body, or a loop over Python integers",
)
