"""``nki.isa``: selections."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.isa.moves import affine
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.operands import OperatorName, same_elements
from difftest.simulator.frontend.nki.registers import command_of
from difftest.simulator.index import as_integer, is_integer
from difftest.simulator.instructions import select as instructions
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.operands import need_number, need_tile
from difftest.simulator.trace import Space

_CMD = constants.reduce_cmd
_EQUAL = OperatorName("equal")
_MAXIMUM = OperatorName("maximum")
_FP32_MIN = float(np.finfo(np.float32).min)


@public
def affine_select(
    dst: Any,
    pattern: Any,
    channel_multiplier: int,
    on_true_tile: Any,
    on_false_value: Any,
    cmp_op: Any = _EQUAL,
    offset: int = 0,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = on_true_tile`` where ``cmp_op(affine value, 0)`` holds, else a constant."""
    if is_integer(on_true_tile):  # dst, pattern, offset, channel_multiplier, tile, value, cmp_op
        check_level("nisa.affine_select with offset third")
        last: Any = offset
        offset, channel_multiplier = channel_multiplier, on_true_tile
        on_true_tile, on_false_value = on_false_value, cmp_op
        cmp_op = _EQUAL if is_integer(last) else last
    tile = need_tile(on_true_tile, "on_true_tile", "affine_select", (Space.SBUF,))
    same_elements("affine_select", dst=dst, on_true_tile=tile)
    index = affine(dst, pattern, offset, channel_multiplier, "affine_select")
    options = (alu_op(cmp_op, "affine_select"),)
    return issue(instructions.affine_select, dst, (tile, index, on_false_value), options)


@public
def range_select(
    dst: Any,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: Any = _CMD.reset_reduce,
    reduce_res: Any = None,
    reduce_op: Any = _MAXIMUM,
    range_start: int = 0,
    on_false_value: Any = _FP32_MIN,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = on_true_tile`` where the free index lies between two bounds held in tiles."""
    where = "range_select"
    value = np.float32(need_number(on_false_value, "on_false_value", where))
    options = (
        alu_op(comp_op0, where),
        alu_op(comp_op1, where),
        as_integer(range_start, "range_select's range_start"),
        float(value),
        alu_op(reduce_op, where),
        command_of(reduce_cmd, where, "vector", reduce_res),
    )
    operands = (on_true_tile, bound0, bound1)
    return issue(instructions.range_select, dst, operands, options, others=(reduce_res,))


@public
def select_reduce(
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = _CMD.idle,
    reduce_op: Any = _MAXIMUM,
    reverse_pred: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = predicate ? on_true : on_false``, and optionally its maximum a partition."""
    options = (
        bool(reverse_pred),
        alu_op(reduce_op, "select_reduce"),
        command_of(reduce_cmd, "select_reduce", "vector", reduce_res),
    )
    operands = (on_true, predicate, on_false)
    return issue(instructions.select_reduce, dst, operands, options, others=(reduce_res,))
