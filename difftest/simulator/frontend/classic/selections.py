"""Selections: ``nl.where``, ``nisa.affine_select``, ``range_select``, ``select_reduce``."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import INT32
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.arguments import reduce_cmd
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE
from difftest.simulator.frontend.classic.expressions import Mask, check_partitions_first
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import (
    binary,
    copied_from_psum,
    on_chip,
    tile_or_number,
)
from difftest.simulator.index import broadcast_shapes
from difftest.simulator.instructions import select as instructions
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.copy import iota
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile

_FP32_MIN = float(np.finfo(np.float32).min)


@LANGUAGE.issues(instructions.where)
def where(condition, x, y, *, dtype=None, mask=None):
    """``condition ? x : y``, element by element."""
    x, y = tile_or_number(x, "x", "nl.where"), tile_or_number(y, "y", "nl.where")
    if isinstance(condition, Mask):
        condition = _predicate(condition, (x, y))
    condition = on_chip(condition, "nl.where", "condition")
    return locals()


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


@ISA.issues(instructions.affine_select, cmp_op=ALU_OPS["greater_equal"])
def affine_select(pred, on_true_tile, on_false_value, *, mask=None, dtype=None):
    """``on_true_tile`` where an affine comparison holds, else a constant (GpSimd Engine)."""
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
    pred = pred.terms[0]
    return locals()


@ISA.issues(instructions.range_select)
def range_select(
    *, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.idle,
    reduce_res=None, reduce_op=np.amax, range_start=0, on_false_value=_FP32_MIN,
    mask=None, dtype=None,
):  # fmt: skip
    """``on_true_tile`` where the free index lies between two bounds held in tiles."""
    return locals()


@ISA.issues(instructions.select_reduce)
def select_reduce(
    *, dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle,
    reduce_op=np.amax, reverse_pred=False, mask=None, dtype=None,
):  # fmt: skip
    """``dst = predicate ? on_true : on_false``, and optionally its maximum a partition."""
    return locals()
