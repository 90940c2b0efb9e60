"""Copies on chip, views, searches and selections: ``nl.copy``, ``nisa.max8``, ``nl.where``."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import INT32
from difftest.simulator.frontend.arguments import engine, not_taken, reduce_cmd
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE
from difftest.simulator.frontend.classic.expressions import Mask, check_partitions_first
from difftest.simulator.frontend.classic.masking import issue
from difftest.simulator.frontend.classic.operators import (
    binary,
    copied_from_psum,
    on_chip,
    tile_or_number,
)
from difftest.simulator.index import as_integers, broadcast_shapes
from difftest.simulator.instructions import copy as instructions
from difftest.simulator.instructions import search
from difftest.simulator.instructions import select as selections
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.operands import wrong_kind
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile

_FP32_MIN = float(np.finfo(np.float32).min)

# -- copies and searches ---------------------------------------------------------------------------


@ISA.issues(instructions.tensor_copy)
def tensor_copy(src, *, mask=None, dtype=None, engine=engine.unknown):
    """A copy of ``src`` in SBUF, cast to ``dtype``."""


@ISA.issues(instructions.tensor_copy_dynamic_src)
def tensor_copy_dynamic_src(src, *, mask=None, dtype=None, engine=engine.unknown):
    """A copy of ``src``, a tile indexed with an offset held in SBUF."""


@ISA.issues(instructions.tensor_copy_dynamic_dst)
def tensor_copy_dynamic_dst(*, dst, src, mask=None, dtype=None, engine=engine.unknown):
    """Copy ``src`` to ``dst``, a tile indexed with an offset held in SBUF."""


@ISA.issues(instructions.tensor_copy_predicated)
def tensor_copy_predicated(*, src, dst, predicate, reverse_pred=False, mask=None, dtype=None):
    """Copy ``src`` to ``dst`` where ``predicate`` is true."""


@ISA.issues(search.max8)
def max8(*, src, mask=None, dtype=None):
    """The 8 largest values of each partition, descending."""


@ISA.issues(search.nc_find_index8, all_ones=False)
def nc_find_index8(*, data, vals, mask=None, dtype=None):
    """The index of each of 8 values in its partition, uint32 (or uint16)."""


@ISA.issues(search.nc_match_replace8, backwards=False)
def nc_match_replace8(*, data, vals, imm, dst_idx=None, mask=None, dtype=None):
    """``data`` with the first occurrence of each of 8 values replaced by ``imm``."""


@ISA.issues(search.local_gather)
def local_gather(src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, *, mask=None):
    """Gather within each GpSimd core's 16 partitions; [P, indices, elements]."""


@ISA.issues(search.nc_stream_shuffle)
def nc_stream_shuffle(src, dst, shuffle_mask, *, dtype=None, mask=None):
    """Move partitions within each quadrant of 32, into ``dst``."""


@ISA.issues(search.sequence_bounds)
def sequence_bounds(*, segment_ids, dtype=None):
    """Start and end of each element's segment: [1, 2, n] for ids [1, n]."""


@LANGUAGE.issues(search.gather_flattened)
def gather_flattened(data, indices, *, mask=None, dtype=None):
    """``data``'s elements at ``indices`` of the flattened free axes, within each partition."""


@LANGUAGE.issues(instructions.tensor_copy)
def copy(src, *, mask=None, dtype=None):
    """A new SBUF tile with the elements of an on-chip tile."""
    src = on_chip(src, "nl.copy", "src")
    return locals()


@LANGUAGE.by_hand  # a view, or a copy of one
def broadcast_to(src, *, shape):
    """A new SBUF tile that repeats ``src`` along its dimensions of size 1."""
    tile = on_chip(src, "nl.broadcast_to", "src")
    wanted = as_integers(shape, "nl.broadcast_to's shape")
    return tile if tile.shape == wanted else copy(tile._broadcast_to(wanted))


@LANGUAGE.by_hand  # a view
def expand_dims(data, axis):
    """A view with dimensions of size 1 more; ``axis`` (or axes) of the result."""
    tile: Any = on_chip(data, "nl.expand_dims", "data")
    axes = as_integers(axis, "nl.expand_dims' axis")
    ndim = tile.ndim + len(axes)
    for at in sorted(number + ndim if number < 0 else number for number in axes):
        tile = tile.expand_dims(at)
    return tile


# -- selections ------------------------------------------------------------------------------------


@LANGUAGE.issues(selections.where)
def where(condition, x, y, *, dtype=None, mask=None):
    """``condition ? x : y``, element by element."""
    x, y = tile_or_number(x, "x", "nl.where"), tile_or_number(y, "y", "nl.where")
    if isinstance(condition, Mask):
        condition = _predicate(condition, (x, y))
    condition = on_chip(condition, "nl.where", "condition")
    return locals()


def _predicate(condition: Mask, sides: tuple[Any, ...]) -> Tile:
    """A comparison of indices as a tile of 0 and 1, which the compiler makes of it."""
    received = f"indices of shape {list(condition.shape)}"
    remedy = "use nisa.affine_select, or make a tile of the indices with nisa.iota"
    takes, got = "a tile as condition", "a comparison of indices"
    note(not_taken("nl.where", takes, got, received, remedy=remedy))
    shape = next((s._tile_shape() for s in sides if isinstance(s, Tile)), condition.shape)
    check_partitions_first(condition.shape, shape, "a condition")
    result: Any = None
    for term in condition.terms:
        walk = term.spread(broadcast_shapes(term.shape, shape, "nl.where's condition and sides"))
        index: Tile = issue(instructions.iota, (walk,), dtype=INT32)
        held = binary("greater_equal", index, 0)
        result = held if result is None else binary("logical_and", result, held)
    return result  # type: ignore[no-any-return]


@ISA.issues(selections.affine_select, cmp_op=ALU_OPS["greater_equal"])
def affine_select(pred, on_true_tile, on_false_value, *, mask=None, dtype=None):
    """``on_true_tile`` where an affine comparison holds, else a constant (GpSimd Engine)."""
    if not isinstance(pred, Mask) or len(pred.terms) != 1:
        takes, remedy = "one comparison of index expressions", "for more of them use nl.where"
        raise wrong_kind(pred, takes, "affine_select", "pred", remedy)
    on_true_tile = copied_from_psum(on_true_tile, "affine_select", "on_true_tile")
    if isinstance(on_true_tile, Tile):
        check_partitions_first(pred.shape, on_true_tile._tile_shape(), "pred")
    pred = pred.terms[0]
    return locals()


@ISA.issues(selections.range_select)
def range_select(
    *, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.idle,
    reduce_res=None, reduce_op=np.amax, range_start=0, on_false_value=_FP32_MIN,
    mask=None, dtype=None,
):  # fmt: skip
    """``on_true_tile`` where the free index lies between two bounds held in tiles."""


@ISA.issues(selections.select_reduce)
def select_reduce(
    *, dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle,
    reduce_op=np.amax, reverse_pred=False, mask=None, dtype=None,
):  # fmt: skip
    """``dst = predicate ? on_true : on_false``, and optionally its maximum a partition."""
