"""The limits of DMA, gathers, searches, selections and copies."""

import numpy as np

from difftest.simulator import (
    TRN1,
    BufferError,
    DtypeError,
    Engine,
    KernelError,
    LimitError,
    NotModelledError,
    ShapeError,
    Space,
)
from difftest.simulator.instructions.alu import ALU_OPS as A
from difftest.simulator.instructions.registers import Accumulate
from tests.unit.simulator.instructions.calls.limits import (
    A_TILE,
    GPSIMD_IN_PSUM,
    IN_PSUM,
    INTEGERS,
    limit,
    tile,
)
from tests.unit.simulator.instructions.calls.tensors import nl
from tests.unit.simulator.instructions.calls.uses import Tensor, Use

PSUM = Space.PSUM
HBM = Space.SHARED_HBM
VECTOR = Engine.VECTOR
GPSIMD = Engine.GPSIMD
FP32_MIN = float(np.finfo(np.float32).min)

# -- DMA -------------------------------------------------------------------------------------------

TABLE = tile(9, 4, space=HBM)
ROWS = tile(9, 4, space=HBM, indexed=(3, 4))


def copied(src=TABLE, dst=TABLE, rmw=None, dge="unknown", **given):
    return Use({"src": src}, (rmw, "error", dge), dst, **given)


def gathered(dst=A_TILE, rmw=None, dge="unknown", **given):
    return Use(
        {"src": tile(9, 4, space=HBM, indexed=(4, 8))},
        (rmw, "error", dge),
        dst,
        **given,
    )


THREE_ROWS = tile(3, 4)


def scattered(src=THREE_ROWS, rmw=None, outside="error", dge="unknown", **given):
    return Use({"src": src}, (rmw, outside, dge), ROWS, **given)


def turned(src, axes=None, dge="unknown", **given):
    return Use({"src": src}, (axes, dge, "error"), **given)


for used in (copied, gathered, scattered):
    limit(
        "dma_copy",
        "_hardware_descriptors",
        used(dge="hwdge"),
        used(dge="hwdge", machine=TRN1),
        KernelError,
        "needs NeuronCore-v3",
    )
for legal, illegal, text in (
    (copied(tile(4, 9)), copied(tile(4, 8)), "32 and 36 elements"),
    (gathered(tile(8, 4)), gathered(tile(4, 9)), "36 elements"),
    (scattered(tile(4, 3)), scattered(tile(3, 5)), "15 and 12 elements"),
):
    limit("dma_copy", "same_size(src, dst)", legal, illegal, ShapeError, text)
for used in (copied, scattered):  # a gather adds in no dialect
    limit(
        "dma_copy",
        "one_of(dst_rmw_op)",
        used(rmw=A["add"]),
        used(rmw=A["multiply"]),
        KernelError,
        "dma_copy adds",
    )
limit(
    "dma_transpose",
    "_hardware_descriptors",
    turned(TABLE, dge="hwdge"),
    turned(TABLE, dge="hwdge", machine=TRN1),
    KernelError,
    "needs NeuronCore-v3",
)
CUBE = tile(4, 3, 2)
for legal, illegal, error, text in (
    (
        turned(tile(4, 3, 2, 5)),
        turned(tile(4, 3, 2, 5, 2)),
        ShapeError,
        "2 to 4 dimensions",
    ),
    (
        turned(CUBE, (2, 1, 0)),
        turned(CUBE, (0, 2, 1)),
        NotModelledError,
        "one permutation",
    ),
    (turned(tile(4, 128)), turned(tile(4, 129)), LimitError, "129 partitions"),
):
    limit("dma_transpose", "_permutation", legal, illegal, error, text)

# -- gathers and searches --------------------------------------------------------------------------


def gathered_by(places, values=A_TILE):
    return Use({"indices": Tensor(places, "uint32"), "data": values})


limit(
    "gather_flattened",
    "same_partitions(data, indices)",
    gathered_by((4, 3)),
    gathered_by((5, 3)),
    ShapeError,
    "indices [5, 3]",
)


def local(src=(32, 8), index=(32, 2), width=1, count=None, dst=None):
    return Use(
        {"src_buffer": Tensor(src), "index": Tensor(index, "uint16")},
        (width, count),
        dst,
    )


limit(
    "local_gather",
    "same_partitions(src_buffer, index)",
    local(),
    local(index=(16, 4)),
    ShapeError,
    "index [16, 4]",
)
for legal, illegal, text in (
    (local((48, 8), (48, 2)), local((47, 8), (47, 2)), "a multiple of 16"),
    (local(width=32), local(width=3), "num_elem_per_idx is one of"),
    (
        local(index=(32, 256)),
        local(index=(32, 257), count=4097),
        "at most 4096 indices",
    ),
    (local(count=1), local(count=0), "at least one index"),
    (local(count=32), local(count=33), "at most the 32 indices"),
):
    limit("local_gather", "_gatherable", legal, illegal, LimitError, text)
limit(
    "local_gather",
    "one_dtype(src_buffer, dst)",
    local(dst=tile(32, 32, 1)),
    local(dst=tile(32, 32, 1, dtype="float16")),
    DtypeError,
    "of one dtype",
)


def searched(shape=(4, 8), vals=(4, 8)):
    operands = {"data": Tensor(shape), "vals": Tensor(vals), "imm": 0.0}
    return Use(operands, (False,), others=(None,))


for name, vals in (("nc_find_index8", (4, 7)), ("nc_match_replace8", (4, 2, 2, 2))):
    limit(
        name,
        "_eight_values",
        searched(vals=(4, 2, 4)),
        searched(vals=vals),
        ShapeError,
        "takes 8",
    )
    limit(
        name,
        "same_partitions(data, vals)",
        searched((5, 9), (5, 8)),
        searched((5, 9), (4, 8)),
        ShapeError,
        "same number of partitions",
    )
    limit(
        name,
        "length(data)",
        searched((1, 16384), (1, 8)),
        searched((1, 16385), (1, 8)),
        LimitError,
        "16385",
    )
limit(
    "nc_find_index8",
    "length(data)",
    searched((1, 8), (1, 8)),
    searched((1, 7), (1, 8)),
    LimitError,
    "8 to 16384 elements",
)
for legal, illegal, text in (
    ((1, 8), (1, 7), "[1, 7]: 7 elements"),
    ((1, 16384), (1, 16385), "16385"),
    ((1, 2, 2, 1, 8), (1, 2, 1, 2, 1, 8), "in up to 5 dimensions"),
):
    both = (Use({"src": tile(*shape)}) for shape in (legal, illegal))
    limit("max8", "length(src)", *both, LimitError, text)


TWO_QUADRANTS = tile(64, 8)


def shuffled(src=TWO_QUADRANTS, dst=TWO_QUADRANTS, order=tuple(range(32))):
    return Use({"src": src}, (order,), dst)


def from_partition(start, count, dtype="float32"):
    return tile(128, 8, dtype=dtype, part=(slice(start, start + count), slice(0, 8)))


SHUFFLE = "nc_stream_shuffle"
for order in (tuple(range(31)), (*range(31), 32)):
    legal = shuffled(order=(*range(31), 255))
    limit(
        SHUFFLE,
        "_shuffle_mask",
        legal,
        shuffled(order=order),
        KernelError,
        "list of 32",
    )
for rule, legal, illegal, error, text in (
    (
        "one_dtype(src, dst)",
        TWO_QUADRANTS,
        tile(64, 8, dtype="float16"),
        DtypeError,
        "one dtype",
    ),
    (
        "same_free_size(src, dst)",
        tile(64, 2, 4),
        tile(64, 9),
        ShapeError,
        "elements a partition",
    ),
):
    limit(SHUFFLE, rule, shuffled(legal), shuffled(illegal), error, text)
for legal, illegal, count in ((96, 64, 32), (64, 32, 64), (0, 32, 96)):
    begins = [
        shuffled(from_partition(at, count), tile(count, 8)) for at in (legal, illegal)
    ]
    if count == 32:  # a step of 64 is not asked of one quadrant; half of one is none
        begins[1] = shuffled(from_partition(64, 64), from_partition(32, 64))
    limit(SHUFFLE, "_shuffle_starts", *begins, LimitError, "begins at partition 32")

# -- selections ------------------------------------------------------------------------------------


def ranged(
    op="less",
    start=0,
    other=FP32_MIN,
    reduce_op="maximum",
    command=Accumulate.IDLE,
    **given,
):
    bounds = {"bound0": tile(4, 1), "bound1": tile(4, 1)}
    first = A[given.pop("first", "greater")]
    options = (first, A[op], start, other, A[reduce_op], command)
    return Use({"on_true_tile": A_TILE, **bounds}, options, others=(None,), **given)


limit(
    "range_select",
    "needs_generation(3)",
    ranged(),
    ranged(machine=TRN1),
    KernelError,
    "needs NeuronCore-v3",
)
for rule, illegal, text in (
    ("_fills_with_the_least", ranged(other=-3.0e38), "the smallest float32"),
    ("_range_rules", ranged(start=2**24 - 7), "indices up to 16777216"),
):
    limit("range_select", rule, ranged(start=2**24 - 8), illegal, KernelError, text)
for number, illegal in enumerate((ranged(first="not_equal"), ranged("not_equal"))):
    limit(
        "range_select",
        f"one_of(comp_op{number})",
        ranged(),
        illegal,
        KernelError,
        f"comp_op{number}=not_equal",
    )


def selected(on_true=A_TILE, predicate=(4, 8), space=Space.SBUF, dst=A_TILE, **given):
    tiles = {
        "on_true": on_true,
        "predicate": Tensor(predicate, "uint8", space),
        "on_false": 0.0,
    }
    reduce_op = A[given.get("reduce_op", "maximum")]
    into = given.get("into")
    command = given.get("command", Accumulate.IDLE)
    return Use(tiles, (False, reduce_op, command), dst, others=(into,))


for name, used in (("range_select", ranged), ("select_reduce", selected)):
    limit(
        name,
        "one_of(reduce_op)",
        used(),
        used(reduce_op="minimum"),
        NotModelledError,
        "reduces with max only",
    )
limit(
    "select_reduce",
    "not_both_in_psum(on_true, predicate)",
    selected(space=PSUM),
    selected(IN_PSUM, space=PSUM),
    BufferError,
    "not both in PSUM",
)
for illegal in (
    selected(predicate=(4, 9)),
    selected(dst=tile(5, 8)),
    selected(tile(4, 7)),
):
    limit(
        "select_reduce",
        "same_partitions_and_free_size(dst, predicate, on_true)",
        selected(predicate=(4, 2, 4)),
        illegal,
        ShapeError,
        "same number of",
    )


def predicated(src=A_TILE, predicate=(4, 8), space=Space.SBUF, dst=A_TILE):
    return Use(
        {"src": src, "predicate": Tensor(predicate, "uint8", space)}, (False,), dst
    )


PREDICATED = "tensor_copy_predicated"
for illegal in (
    predicated(predicate=(4, 9)),
    predicated(tile(5, 8)),
    predicated(dst=tile(4, 7)),
):
    limit(
        PREDICATED,
        "same_partitions_and_free_size(dst, predicate, src)",
        predicated(predicate=(4, 4, 2)),
        illegal,
        ShapeError,
        "same number of",
    )
limit(
    PREDICATED,
    "not_both_in_psum(src, predicate)",
    predicated(IN_PSUM),
    predicated(IN_PSUM, space=PSUM),
    BufferError,
    "not both in PSUM",
)
limit(
    PREDICATED,
    "one_dtype(src, dst)",
    predicated(INTEGERS, dst=INTEGERS),
    predicated(INTEGERS),
    DtypeError,
    "src and dst of one dtype",
)
for side in ({"x": tile(4, 8, 1), "y": 0.0}, {"x": 1.0, "y": tile(4, 1, 8)}):
    limit(
        "where",
        "same_rank(condition, x, y)",
        Use({"condition": A_TILE, "x": tile(4, 1), "y": 0.0}),
        Use({"condition": A_TILE, **side}),
        ShapeError,
        "same number of dimensions",
    )

# -- copies and constants --------------------------------------------------------------------------

INDEXED, INDEXED_IN_PSUM = (
    tile(4, 8, space=s, indexed=(4, 3)) for s in (Space.SBUF, PSUM)
)
for name, legal, illegal in (
    ("tensor_copy", {"src": A_TILE}, {"src": IN_PSUM}),
    ("tensor_copy_dynamic_src", {"src": INDEXED}, {"src": INDEXED_IN_PSUM}),
):
    limit(name, "no_gpsimd_in_psum", Use(legal, engine=GPSIMD), Use(illegal, engine=GPSIMD),
          BufferError, GPSIMD_IN_PSUM)  # fmt: skip
    limit(name, "no_gpsimd_in_psum", Use(illegal, engine=VECTOR), Use(illegal, engine=GPSIMD),
          BufferError, GPSIMD_IN_PSUM)  # fmt: skip


def put(src, dst=INDEXED, engine=GPSIMD):
    return Use({"src": src}, (), dst, engine=engine)


limit(
    "tensor_copy_dynamic_dst",
    "no_gpsimd_in_psum",
    put(tile(4, 3)),
    put(tile(4, 3), INDEXED_IN_PSUM),
    BufferError,
    GPSIMD_IN_PSUM,
)
for illegal in (tile(4, 1), tile(3, 3), tile(4, 3, 1)):
    limit(
        "tensor_copy_dynamic_dst",
        "same_shape(src, dst)",
        put(tile(4, 3)),
        put(illegal),
        ShapeError,
        "operands of one shape",
    )


def constant(dst, engine=GPSIMD):
    return Use({"value": 1.0}, ((4, 8),), dst, engine=engine)


limit(
    "memset",
    "no_gpsimd_in_psum",
    constant(A_TILE),
    constant(IN_PSUM),
    BufferError,
    GPSIMD_IN_PSUM,
)


def placed(*shape):
    """An index expression over this shape."""
    return lambda: sum_of_indices(*shape)


def sum_of_indices(*shape):
    total = nl.arange(shape[0])
    if len(shape) == 1:
        return total
    return total[:, None] + nl.arange(shape[1])[None, :]


limit(
    "iota",
    "_two_dimensions",
    Use({"expr": placed(4, 8)}),
    Use({"expr": placed(8)}),
    ShapeError,
    "at least two dimensions",
)


def chosen(*shape, compare="greater_equal"):
    operands = {"on_true_tile": A_TILE, "pred": placed(*shape), "on_false_value": 0.0}
    return Use(operands, (A[compare],))


for shape in ((4, 7), (5, 8), (2, 8)):
    limit(
        "affine_select",
        "_predicate_repeats",
        chosen(1, 8),
        chosen(*shape),
        ShapeError,
        "one that repeats in it",
    )
limit(
    "affine_select",
    "one_of(cmp_op)",
    chosen(1, 8),
    chosen(1, 8, compare="add"),
    KernelError,
    "takes a comparison",
)
limit(
    "select_reduce",
    "read_if_used",
    selected(into=tile(4, 1), command=Accumulate.REDUCE),
    selected(into=tile(4, 1)),
    KernelError,
    "only if it uses them",
)
