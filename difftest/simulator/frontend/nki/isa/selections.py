"""``nki.isa``: selections."""

from __future__ import annotations

import numpy as np

from difftest.simulator.frontend.nki.calls import call, commands
from difftest.simulator.frontend.nki.constants import reduce_cmd as registers
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.frontend.nki.operands import OperatorName, affine
from difftest.simulator.index import is_integer
from difftest.simulator.instructions import select as instructions
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.operands import need_number, need_tile
from difftest.simulator.trace import Space

_EQUAL, _MAXIMUM = OperatorName("equal"), OperatorName("maximum")
_FP32_MIN = float(np.finfo(np.float32).min)


def _predicate(values, where):
    """The affine expression; ``offset`` came third once, before the multiplier."""
    if is_integer(values["on_true_tile"]):
        check_level("nisa.affine_select with offset third")
        order = ("channel_multiplier", "on_true_tile", "on_false_value", "cmp_op", "offset")
        offset, multiplier, tile, value, op = (values[name] for name in order)
        given = (multiplier, tile, value, _EQUAL if is_integer(op) else op, offset)
        values.update(zip(order, given, strict=True))
    need_tile(values["on_true_tile"], "on_true_tile", where, (Space.SBUF,))
    values["pred"] = affine(values, where)


@call(instructions.affine_select, prepare=_predicate, pred=None)
def affine_select(
    dst,
    pattern,
    channel_multiplier,
    on_true_tile,
    on_false_value,
    cmp_op=_EQUAL,
    offset=0,
    name=None,
):
    """``dst = on_true_tile`` where ``cmp_op(affine value, 0)`` holds, else a constant."""


@call(
    instructions.range_select,
    prepare=commands("vector"),
    on_false_value=lambda value, where: float(
        np.float32(need_number(value, "on_false_value", where))
    ),
    reduce_op=alu_op,
)
def range_select(
    dst,
    on_true_tile,
    comp_op0,
    comp_op1,
    bound0,
    bound1,
    reduce_cmd=registers.reset_reduce,
    reduce_res=None,
    reduce_op=_MAXIMUM,
    range_start=0,
    on_false_value=_FP32_MIN,
    name=None,
):
    """``dst = on_true_tile`` where the free index lies between two bounds held in tiles."""


@call(instructions.select_reduce, prepare=commands("vector"), reduce_op=alu_op)
def select_reduce(
    dst,
    predicate,
    on_true,
    on_false,
    reduce_res=None,
    reduce_cmd=registers.idle,
    reduce_op=_MAXIMUM,
    reverse_pred=False,
    name=None,
):
    """``dst = predicate ? on_true : on_false``, and optionally its maximum a partition."""
