"""Selections: ``nl.where``, ``nisa.affine_select``, ``range_select``, ``select_reduce``."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import INT32
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.arguments import (
    as_accumulate,
    as_flag,
    no_extras,
    reduce_cmd,
    same_dtype,
)
from difftest.simulator.frontend.classic.expressions import Mask, check_partitions_first
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import (
    binary,
    copied_from_psum,
    on_chip,
    tile_or_number,
)
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.index import as_integer, broadcast_shapes
from difftest.simulator.instructions import select as instructions
from difftest.simulator.instructions.alu import ALU_OPS, alu_op
from difftest.simulator.instructions.copy import iota
from difftest.simulator.instructions.operands import need_number
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile

_FP32_MIN = float(np.finfo(np.float32).min)


def where(
    condition: Any, x: Any, y: Any, *, dtype: object = None, mask: object = None, **kwargs: object
) -> Any:
    """``condition ? x : y``, element by element."""
    no_extras("nl.where", kwargs)
    sides = (tile_or_number(x, "x", "nl.where"), tile_or_number(y, "y", "nl.where"))
    if isinstance(condition, Mask):
        condition = _predicate(condition, sides)
    test = on_chip(condition, "nl.where", "condition")
    return issue(instructions.where, (test, *sides), dtype=dtype, mask=mask)


def _predicate(condition: Mask, sides: tuple[Any, ...]) -> Tile:
    """A comparison of indices as a tile of 0 and 1, which the compiler makes of it."""
    error = KernelError(
        "nl.where takes a tile as condition",
        happened="nl.where got a comparison of indices",
        received=f"indices of shape {list(condition.shape)}",
        remedy="use nisa.affine_select, or make a tile of the indices with nisa.iota",
    )
    note(error)
    shape = next((s.tile_shape() for s in sides if isinstance(s, Tile)), condition.shape)
    check_partitions_first(condition.shape, shape, "a condition")
    result: Any = None
    for term in condition.terms:
        walk = term.spread(broadcast_shapes(term.shape, shape, "nl.where's condition and sides"))
        index: Tile = issue(iota, (walk,), dtype=INT32)
        held = binary("greater_equal", index, 0)
        result = held if result is None else binary("logical_and", result, held)
    return result  # type: ignore[no-any-return]


def affine_select(
    pred: Any,
    on_true_tile: Any,
    on_false_value: Any,
    *,
    mask: object = None,
    dtype: object = None,
    **kwargs: object,
) -> Tensor:
    """``on_true_tile`` where an affine comparison holds, else a constant (GpSimd Engine)."""
    no_extras("nisa.affine_select", kwargs)
    if not isinstance(pred, Mask) or len(pred.terms) != 1:
        raise KernelError(
            "affine_select takes one comparison of index expressions as pred",
            happened="affine_select got a pred that is not one comparison",
            received=f"{pred!r}",
            remedy="for a more complex condition use nl.where",
        )
    on_true_tile = copied_from_psum(on_true_tile, "affine_select", "on_true_tile")
    if isinstance(on_true_tile, Tile):
        check_partitions_first(pred.shape, on_true_tile.tile_shape(), "pred")
    operands = (on_true_tile, pred.terms[0], on_false_value)
    options = (ALU_OPS["greater_equal"],)
    result: Tensor = issue(instructions.affine_select, operands, options, dtype=dtype, mask=mask)
    return result


def range_select(
    *,
    on_true_tile: Any,
    comp_op0: object,
    comp_op1: object,
    bound0: Any,
    bound1: Any,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    reduce_res: Any = None,
    reduce_op: object = np.amax,
    range_start: int = 0,
    on_false_value: Any = _FP32_MIN,
    mask: object = None,
    dtype: object = None,
    **kwargs: object,
) -> Tensor:
    """``on_true_tile`` where the free index lies between two bounds held in tiles."""
    no_extras("nisa.range_select", kwargs)
    options = (
        alu_op(comp_op0, "range_select"),
        alu_op(comp_op1, "range_select"),
        as_integer(range_start, "range_select's range_start"),
        float(need_number(on_false_value, "on_false_value", "range_select")),
        alu_op(reduce_op, "range_select"),
        as_accumulate(reduce_cmd, "range_select"),
    )
    result: Tensor = issue(
        instructions.range_select,
        (on_true_tile, bound0, bound1),
        options,
        others=(reduce_res,),
        dtype=dtype,
        mask=mask,
    )
    return result


def select_reduce(
    *,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    reduce_op: object = np.amax,
    reverse_pred: bool = False,
    mask: object = None,
    dtype: object = None,
    **kwargs: object,
) -> None:
    """``dst = predicate ? on_true : on_false``, and optionally its maximum a partition."""
    no_extras("nisa.select_reduce", kwargs)
    into = on_chip(dst, "select_reduce", "dst")
    same_dtype(dtype, into, "select_reduce")
    options = (
        as_flag(reverse_pred, "reverse_pred"),
        alu_op(reduce_op, "select_reduce"),
        as_accumulate(reduce_cmd, "select_reduce"),
    )
    issue(
        instructions.select_reduce,
        (on_true, predicate, on_false),
        options,
        dst=into,
        others=(reduce_res,),
        mask=mask,
    )
