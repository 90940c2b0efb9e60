"""Draw legal calls of the reductions, the scan and the selections."""

from __future__ import annotations

import numpy as np

from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.registers import Accumulate
from tests.unit.simulator.instructions.calls.computing import (
    COMPARING,
    LOGICAL,
    operator,
)
from tests.unit.simulator.instructions.calls.drawn import (
    CLASSIC_COMMANDS,
    Drawing,
    DrawnCall,
    all_integers,
    draws,
)
from tests.unit.simulator.instructions.calls.tensors import Affine

REDUCING = ("add", "subtract", "maximum", "minimum", "multiply", *LOGICAL)
SCANNING = ("add", "subtract", "multiply", "maximum", "minimum")
RANGE_COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")


def factors(d: Drawing, name, data):
    """The data again, small enough for a product of all of them to be exact."""
    if name != "multiply":
        return data
    return d.tile(
        "data", data.values.shape, space=data.space, dtype=data.dtype, low=-1, high=1
    )


@draws("tensor_reduce")
def tensor_reduce(d: Drawing) -> DrawnCall:
    shape = d.shape()
    axes = tuple(range(d.integer(1, len(shape) - 1), len(shape)))
    keepdims = d.flag()
    kept = tuple(
        1 if k in axes else n for k, n in enumerate(shape) if keepdims or k not in axes
    )
    data = d.tile("data", shape)
    dst = d.dst(kept if len(kept) > 1 else (*kept, 1))
    op = operator(d, data, dst, arithmetic=REDUCING)
    negate = not op.bitvec and d.flag()
    return DrawnCall(
        d.record,
        {"data": factors(d, op.name, data)},
        (op, axes, negate, keepdims),
        {"dst": dst},
    )


@draws("tensor_partition_reduce")
def tensor_partition_reduce(d: Drawing) -> DrawnCall:
    shape = d.shape()
    data = d.tile("data", shape)
    dst = d.dst((1, *shape[1:]))
    bitvec = ("bitwise_or", "bitwise_and") if all_integers(data, dst) else ()
    op = ALU_OPS[d.pick(("add", "maximum", *bitvec))]
    return DrawnCall(d.record, {"data": data}, (op,), {"dst": dst})


@draws("tensor_scalar_reduce")
def tensor_scalar_reduce(d: Drawing) -> DrawnCall:
    shape = d.shape()
    loaded = "reduce_init" in d.forced  # which the classic dialect cannot
    without_register = () if loaded else ("subtract",)
    reduce_op = ALU_OPS[
        d.pick(("add", "multiply", "maximum", "minimum", *without_register))
    ]
    small = ("multiply", "maximum", "minimum", *COMPARING)
    op0 = ALU_OPS[
        d.pick(small if reduce_op.name == "multiply" else (*small, "add", "subtract"))
    ]
    most = 1 if reduce_op.name == "multiply" else 4
    data = d.tile("data", shape, low=-most, high=most)
    operand0 = d.vector("operand0", shape[0], low=-most, high=most)
    start = d.tile("reduce_init", (shape[0], 1)) if loaded else None
    command = Accumulate.LOAD_REDUCE if loaded else Accumulate.RESET_REDUCE

    return DrawnCall(
        d.record,
        {"data": data, "operand0": operand0, "reduce_init": start},
        (op0, reduce_op, command, False),
        {
            "dst": d.dst(shape),
            "reduce_res": d.tile("reduce_res", (shape[0], 1), written=False),
        },
        spells=not loaded,
    )


@draws("tensor_tensor_scan")
def tensor_tensor_scan(d: Drawing) -> DrawnCall:
    shape = d.shape()
    spaces = d.not_both_in_psum("data0", "data1")
    op0, op1 = (ALU_OPS[d.pick(SCANNING)] for _ in range(2))
    reverse = (d.flag(), d.flag())
    return DrawnCall(
        d.record,
        {
            "data0": d.tile("data0", shape, space=spaces["data0"]),
            "data1": d.tile("data1", shape, space=spaces["data1"]),
            "initial": d.vector("initial", shape[0]),
        },
        (op0, op1, *reverse),
        {"dst": d.dst(shape)},
    )


@draws("bn_stats")
def bn_stats(d: Drawing) -> DrawnCall:
    """Counts that are powers of two, so that means are exact; above 64 the variances are not."""
    shape = (d.shape()[0], d.pick((1, 2, 4, 32, 64)))
    return DrawnCall(
        d.record, {"data": d.tile("data", shape)}, (), {"dst": d.dst((shape[0], 6))}
    )


@draws("bn_aggr")
def bn_aggr(d: Drawing) -> DrawnCall:
    """Tuples of one element each, a power of two of them."""
    shape = (d.shape()[0], 3 * d.pick((1, 2, 4)))
    dtype = d.dtype("data")
    values = np.abs(d.values(shape, dtype).astype(np.float64))
    values[:, ::3] = 1
    return DrawnCall(
        d.record,
        {"data": d.tile("data", shape, dtype=dtype, values=values)},
        (),
        {"dst": d.dst((shape[0], 2))},
    )


# -- selections ------------------------------------------------------------------------------------


@draws("affine_select")
def affine_select(d: Drawing) -> DrawnCall:
    shape = d.shape(ranks=(2,))
    step = d.integer(-2, 2)
    other = float(d.integer(0, 4))

    tile = d.tile("on_true_tile", shape)
    operands = {
        "on_true_tile": tile,
        "pred": Affine(shape, -1, 1, step),
        "on_false_value": other,
    }
    return DrawnCall(
        d.record, operands, (ALU_OPS["greater_equal"],), {"dst": d.dst(shape)}
    )


@draws("range_select")
def range_select(d: Drawing) -> DrawnCall:
    shape = d.shape()
    low, high = (d.pick(RANGE_COMPARISONS) for _ in range(2))
    start = d.integer(0, 3)
    least = float(np.finfo(np.float32).min)
    command = d.pick(CLASSIC_COMMANDS)
    largest = ALU_OPS["maximum"]
    return DrawnCall(
        d.record,
        {
            "on_true_tile": d.tile("on_true_tile", shape),
            "bound0": d.tile("bound0", (shape[0], 1)),
            "bound1": d.tile("bound1", (shape[0], 1), low=0, high=8),
        },
        (ALU_OPS[low], ALU_OPS[high], start, least, largest, command),
        {"dst": d.dst(shape), "reduce_res": d.other("reduce_res", (shape[0], 1))},
    )


@draws("select_reduce")
def select_reduce(d: Drawing) -> DrawnCall:
    shape = d.shape()
    spaces = d.not_both_in_psum("on_true", "predicate")
    reduce_res = d.other("reduce_res", (shape[0], 1))
    commands = [
        c for c in CLASSIC_COMMANDS if reduce_res is None or c is not Accumulate.IDLE
    ]
    command = d.pick(commands)
    reverse = d.flag()

    return DrawnCall(
        d.record,
        {
            "on_true": d.tile("on_true", shape, space=spaces["on_true"]),
            "predicate": d.tile(
                "predicate", shape, space=spaces["predicate"], low=0, high=1
            ),
            "on_false": d.vector("on_false", shape[0]),
        },
        (reverse, ALU_OPS["maximum"], command),
        {"dst": d.dst(shape), "reduce_res": reduce_res},
    )


@draws("tensor_copy_predicated")
def tensor_copy_predicated(d: Drawing) -> DrawnCall:
    shape = d.shape()
    dtype = d.forced.get("src", d.forced.get("dst"))
    dtype = dtype if isinstance(dtype, np.dtype) else d.dtype("dst")
    spaces = d.not_both_in_psum("src", "predicate")
    src = float(d.integer(0, 4))
    reverse = d.flag()
    if "src" in d.forced or d.flag():
        src = d.tile("src", shape, space=spaces["src"], dtype=dtype)
    space = spaces["predicate"]

    return DrawnCall(
        d.record,
        {
            "src": src,
            "predicate": d.tile("predicate", shape, space=space, low=0, high=1),
        },
        (reverse,),
        {"dst": d.tile("dst", shape, dtype=dtype)},
    )
