"""What the DMA engines move: ``nl.load``, ``nl.store`` and kin, ``nisa.dma_copy``."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import as_member, dge_mode, oob_mode
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import copied_from_psum, copy_to_sbuf, on_chip
from difftest.simulator.index import Shape
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import dma as instructions
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.copy import memset
from difftest.simulator.instructions.dma import loaded_shape
from difftest.simulator.instructions.operands import is_number, need_tile
from difftest.simulator.instructions.promotion import scalar_dtype
from difftest.simulator.instructions.record import DMA_SPACES, HBM
from difftest.simulator.memory import check_partitions
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

_OobMode, _DgeMode = oob_mode, dge_mode
_DGE_NAMES = {member: member.name for member in dge_mode}
_LOAD = (None, "unknown")
"""The options of a DMA that computes nothing, and leaves its descriptors to the compiler."""


@LANGUAGE.by_hand
def load(src: Any, *, mask: object = None, dtype: object = None) -> Any:
    """A new SBUF tile with the elements of an HBM tensor (or a part of one)."""
    if isinstance(src, IndirectTile):
        need_tile(src.base, "src", "nl.load", HBM)
        options = (None, "error", "unknown")
        return issue(instructions.dma_gather, (src,), options, dtype=dtype, mask=mask)
    source = need_tile(src, "src", "nl.load", HBM)
    return issue(instructions.dma_copy, (source,), _LOAD, dtype=dtype, mask=mask)


@LANGUAGE.by_hand
def store(dst: Any, value: Any, *, mask: object = None) -> None:
    """Write an on-chip tile, or a number, to an HBM tensor (or a part of one)."""
    if isinstance(dst, IndirectTile):
        need_tile(dst.base, "dst", "nl.store", HBM)
        value = _storable(value, loaded_shape(dst.shape))
        issue(instructions.dma_scatter, (value,), (None, "error", "unknown"), dst=dst, mask=mask)
        return
    target = need_tile(dst, "dst", "nl.store", HBM)
    value = _storable(value, loaded_shape(target.shape))
    issue(instructions.dma_copy, (value,), _LOAD, dst=target, mask=mask)


def _storable(value: Any, shape: Shape) -> Tile:
    """``value`` in SBUF and of ``shape``: numbers fill a tile, PSUM is copied, size 1 repeats."""
    if is_number(value):
        check_partitions(shape[0], "nl.store's destination", current().machine)
        small: Tile = issue(memset, (value,), ((shape[0], 1),), dtype=scalar_dtype(value))
        return _repeat(small, shape)
    tile = on_chip(value, "nl.store", "value")
    if tile.space is Space.PSUM:
        tile = copy_to_sbuf(tile)
    return tile if tile.size == _count(shape) else _repeat(tile, shape)


def _count(shape: Shape) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _repeat(tile: Tile, shape: Shape) -> Tile:
    have = tile.tile_shape()
    if have[0] != shape[0] and have[0] != 1:
        raise ShapeError(
            "nl.store's value has its destination's shape, or repeats along dimensions of size 1",
            happened=f"nl.store got {have[0]} partitions for a destination of {shape[0]}",
            received=f"value {list(tile.shape)}, destination {list(shape)}",
        )
    spread = (have[0], *(1,) * (len(shape) - len(have)), *have[1:])
    return tile.as_tile().reshape(spread).broadcast_to(shape)


@LANGUAGE.issues(instructions.dma_transpose, axes=None, dge_mode="unknown", oob_mode="error")
def load_transpose2d(src, *, mask=None, dtype=None):
    """A new SBUF tile with a 2-D HBM tensor's elements transposed."""
    if isinstance(src, IndirectTile):
        raise KernelError(
            "nl.load_transpose2d takes no tile of indices",
            happened="nl.load_transpose2d got a tensor indexed with a tile",
            received=f"{src!r}",
        )
    src = need_tile(src, "src", "nl.load_transpose2d", HBM)
    if src.ndim != 2:
        raise ShapeError(
            "nl.load_transpose2d takes two dimensions",
            happened=f"nl.load_transpose2d got a tensor of {src.ndim} dimensions",
            received=f"{src!r}",
        )
    return locals()


@LANGUAGE.by_hand
def atomic_rmw(dst: Any, value: Any, op: object, *, mask: object = None) -> None:
    """``dst = dst + value`` in HBM, at places named by a tile of indices."""
    if not isinstance(dst, IndirectTile):
        raise KernelError(
            "nl.atomic_rmw takes a destination indexed by a tile",
            happened="nl.atomic_rmw got a destination that no tile indexes",
            received=f"{dst!r}",
        )
    value = _storable(value, loaded_shape(dst.shape))
    options = (alu_op(op, "nl.atomic_rmw"), "error", "unknown")
    core = current()
    before = core.instructions
    issue(instructions.dma_scatter, (value,), options, dst=dst, mask=mask)
    core.amend(before, op=options[0].name)


@ISA.by_hand
def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: object = None,
    dst_rmw_op: object = None,
    oob_mode: oob_mode = oob_mode.error,
    dge_mode: dge_mode = dge_mode.unknown,
) -> None:
    """``dst = src`` between HBM and SBUF; a side indexed by a tile gathers or scatters."""
    rmw = None if dst_rmw_op is None else alu_op(dst_rmw_op, "dma_copy")
    dge = _DGE_NAMES[as_member(_DgeMode, dge_mode, "a DMA")]
    skips = as_member(_OobMode, oob_mode, "dma_copy") is _OobMode.skip
    outside = "skip" if skips else "error"
    if dst is None:
        raise KernelError(
            "dma_copy takes a tile as dst", happened="dma_copy got no dst", received="None"
        )
    src = copied_from_psum(src, "dma_copy", "src", DMA_SPACES)
    gathers, scatters = isinstance(src, IndirectTile), isinstance(dst, IndirectTile)
    if not gathers and not scatters:
        issue(instructions.dma_copy, (src,), (rmw, dge), dst=dst, mask=mask)
        return
    if skips and rmw is not None:
        raise KernelError(
            "dma_copy with dst_rmw_op takes oob_mode.error only",
            happened="dma_copy with dst_rmw_op got oob_mode.skip",
            received="oob_mode.skip",
        )
    if scatters and not gathers:
        issue(instructions.dma_scatter, (src,), (rmw, outside, dge), dst=dst, mask=mask)
    elif scatters or rmw is not None:
        raise not_modelled("a dma_copy that gathers and scatters or adds", f"{src!r}, {dst!r}")
    else:
        issue(instructions.dma_gather, (src,), (None, outside, dge), dst=dst, mask=mask)


@ISA.issues(instructions.dma_transpose, oob_mode="error")
def dma_transpose(src, *, axes=None, mask=None, dtype=None, dge_mode=dge_mode.unknown):
    """``src`` in SBUF with its axes permuted by the DMA engines."""
    return locals()
