"""Moves of elements: ``nl.copy``, ``nisa.max8``, ``nl.where``, ``nl.load`` and others."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

from difftest.simulator.capacity import check_partitions
from difftest.simulator.core import current
from difftest.simulator.dtypes import INT32
from difftest.simulator.errors import ShapeError
from difftest.simulator.frontend.arguments import (
    as_member,
    dge_mode,
    need_two,
    not_taken,
    oob_mode,
)
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE, issue, on_chip
from difftest.simulator.frontend.classic.expressions import Mask, check_partitions_first
from difftest.simulator.frontend.classic.operators import (
    binary,
    copied_from_psum,
    copy_to_sbuf,
    repeated,
    tile_or_number,
)
from difftest.simulator.index import Shape, as_integers, broadcast_shapes
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import copy as instructions
from difftest.simulator.instructions import dma as moves
from difftest.simulator.instructions import search
from difftest.simulator.instructions import select as selections
from difftest.simulator.instructions.alu import ALU_OPS, alu_op
from difftest.simulator.instructions.checks import is_number, need_tile, wrong_kind
from difftest.simulator.instructions.copy import memset
from difftest.simulator.instructions.dma import loaded_shape
from difftest.simulator.instructions.record import DMA_SPACES, HBM
from difftest.simulator.instructions.values import scalar_dtype
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

# -- copies and searches ---------------------------------------------------------------------------


@LANGUAGE.issues(search.gather_flattened)
def gather_flattened(data, indices, *, mask=None, dtype=None):
    """Gather ``data``'s elements at ``indices`` of the flattened free axes, in each partition."""


@LANGUAGE.issues(instructions.tensor_copy)
def copy(src, *, mask=None, dtype=None):
    """Copy an on-chip tile to a new SBUF tile."""
    src = on_chip(src, "nl.copy", "src")
    return locals()


@LANGUAGE.by_hand  # a view, or a copy of one
def broadcast_to(src, *, shape):
    """Repeat ``src`` along its dimensions of size 1, in a new SBUF tile."""
    tile = on_chip(src, "nl.broadcast_to", "src")
    wanted = as_integers(shape, "nl.broadcast_to's shape")
    if tile.shape == wanted:
        return tile
    return copy(tile._broadcast_to(wanted))


@LANGUAGE.by_hand  # a view
def expand_dims(data, axis):
    """Return a view with added dimensions of size 1; ``axis`` (or axes) refers to the result."""
    tile: Any = on_chip(data, "nl.expand_dims", "data")
    axes = as_integers(axis, "nl.expand_dims' axis")
    ndim = tile.ndim + len(axes)
    for at in sorted(number + ndim if number < 0 else number for number in axes):
        tile = tile.expand_dims(at)
    return tile


# -- selections ------------------------------------------------------------------------------------


@LANGUAGE.issues(selections.where)
def where(condition, x, y, *, dtype=None, mask=None):
    """Select ``condition ? x : y``, element by element."""
    x = tile_or_number(x, "x", "nl.where")
    y = tile_or_number(y, "y", "nl.where")
    if isinstance(condition, Mask):
        condition = _predicate(condition, (x, y))
    condition = on_chip(condition, "nl.where", "condition")
    return locals()


def _predicate(condition: Mask, sides: tuple[Any, ...]) -> Tile:
    """Return a comparison of indices as a tile of 0 and 1, as the compiler does."""
    received = f"indices of shape {list(condition.shape)}"
    remedy = "use nisa.affine_select, or make a tile of the indices with nisa.iota"
    takes = "a tile as condition"
    got = "a comparison of indices"
    report_violation(not_taken("nl.where", takes, got, received, remedy=remedy))
    shape = next(
        (s._tile_shape() for s in sides if isinstance(s, Tile)), condition.shape
    )
    check_partitions_first(condition.shape, shape, "a condition")
    result: Any = None
    for term in condition.terms:
        walk = term.spread(
            broadcast_shapes(term.shape, shape, "nl.where's condition and sides")
        )
        index: Tile = issue(instructions.iota, (walk,), dtype=INT32)
        held = binary("greater_equal", index, 0)
        result = held if result is None else binary("logical_and", result, held)
    return result  # type: ignore[no-any-return]


@ISA.issues(selections.affine_select, cmp_op=ALU_OPS["greater_equal"])
def affine_select(pred, on_true_tile, on_false_value, *, mask=None, dtype=None):
    """Select ``on_true_tile`` where an affine comparison holds, else a constant (GpSimd Engine)."""
    if not isinstance(pred, Mask) or len(pred.terms) != 1:
        raise wrong_kind(
            pred,
            "one comparison of index expressions",
            "affine_select",
            "pred",
            "for more of them use nl.where",
        )
    on_true_tile = copied_from_psum(
        on_true_tile, "affine_select", "on_true_tile", mask=mask
    )
    if isinstance(on_true_tile, Tile):
        check_partitions_first(pred.shape, on_true_tile._tile_shape(), "pred")
    pred = pred.terms[0]
    return locals()


_OobMode = oob_mode


def _in_hbm(side: Any, name: str, where: str) -> Any:
    """Return a side of a DMA, which must be in HBM; a tile may index it."""
    need_tile(side._base if isinstance(side, IndirectTile) else side, name, where, HBM)
    return side


def _outside(mode: Any, src: Any, dst: Any = None) -> Any:
    """Return the mode for indices out of bounds; None if no side has dynamic indices."""
    if isinstance(src, IndirectTile) or isinstance(dst, IndirectTile):
        return mode
    return None


@LANGUAGE.issues(moves.dma_copy)
def load(src, *, mask=None, dtype=None):
    """Load an HBM tensor (or a part of one) into a new SBUF tile."""
    oob_mode = _outside("error", _in_hbm(src, "src", "nl.load"))
    return locals()


@LANGUAGE.issues(moves.dma_copy)
def store(dst, value, *, mask=None):
    """Write an on-chip tile, or a number, to an HBM tensor (or a part of one)."""
    oob_mode = _outside("error", _in_hbm(dst, "dst", "nl.store"))
    src = _storable(value, loaded_shape(dst.shape), mask)
    return locals()


def _storable(value: Any, shape: Shape, mask: object) -> Tile:
    """Return ``value`` in SBUF with ``shape``.

    A number fills a tile, PSUM is copied, and dimensions of size 1 repeat.
    """
    if is_number(value):
        check_partitions(shape[0], "nl.store's destination", current().machine)
        tile: Tile = issue(
            memset, (value,), ((shape[0], 1),), dtype=scalar_dtype(value)
        )
    else:
        tile = on_chip(value, "nl.store", "value")
    if tile._space is Space.PSUM:
        tile = copy_to_sbuf(tile, mask)
    return repeated(tile, shape, "nl.store's value", partitions=True)


@LANGUAGE.issues(moves.dma_transpose)
def load_transpose2d(src, *, mask=None, dtype=None):
    """Load the transpose of a 2-D HBM tensor into a new SBUF tile."""
    src = need_tile(src, "src", "nl.load_transpose2d", HBM)
    try:
        need_two(src, "nl.load_transpose2d")
    except ShapeError as error:
        if src.shape[2:] != (1,):
            raise
        report_violation(error)
        src = src[:, :, 0]
    return locals()


@LANGUAGE.by_hand  # the event records that all its additions arrive
def atomic_rmw(dst, value, op, *, mask=None):
    """Add ``dst = dst + value`` in HBM, at places in a tile of indices."""
    if not isinstance(dst, IndirectTile):
        raise wrong_kind(dst, "a destination indexed by a tile", "nl.atomic_rmw")
    src = _storable(value, loaded_shape(dst.shape), mask)
    core = current()
    operator = alu_op(op, "nl.atomic_rmw")
    before = core.instructions
    options = (operator, "error", "unknown")
    issue(moves.dma_copy, (src,), options, dst=dst, mask=mask)
    core.amend(core.instructions - before, op=operator.name)


@ISA.issues(moves.dma_copy)
def dma_copy(
    *, dst, src, mask=None, dst_rmw_op=None, oob_mode=oob_mode.error,
    dge_mode=dge_mode.unknown,
):  # fmt: skip
    """Copy ``dst = src`` between HBM and SBUF; a side indexed by a tile gathers or scatters."""
    src = copied_from_psum(src, "dma_copy", "src", DMA_SPACES, mask)
    oob_mode = _outside(as_member(_OobMode, oob_mode, "dma_copy").name, src, dst)
    return locals()
