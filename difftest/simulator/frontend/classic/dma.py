"""What the DMA engines move: ``nl.load``, ``nl.store`` and kin, ``nisa.dma_copy``."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

from difftest.simulator.capacity import check_partitions
from difftest.simulator.core import current
from difftest.simulator.errors import ShapeError
from difftest.simulator.frontend.arguments import as_member, dge_mode, need_two, oob_mode
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE
from difftest.simulator.frontend.classic.masking import issue
from difftest.simulator.frontend.classic.operators import (
    copied_from_psum,
    copy_to_sbuf,
    on_chip,
    repeated,
)
from difftest.simulator.index import Shape
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import dma as instructions
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.copy import memset
from difftest.simulator.instructions.dma import loaded_shape
from difftest.simulator.instructions.operands import is_number, need_tile, wrong_kind
from difftest.simulator.instructions.promotion import scalar_dtype
from difftest.simulator.instructions.record import DMA_SPACES, HBM
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

_OobMode = oob_mode


def _in_hbm(side: Any, name: str, where: str) -> Any:
    """A side of a DMA, in HBM; a tile may index it."""
    need_tile(side._base if isinstance(side, IndirectTile) else side, name, where, HBM)
    return side


def _outside(mode: Any, src: Any, dst: Any = None) -> Any:
    """What happens where indices lead out of a tensor: nothing to say if no side has such."""
    return mode if isinstance(src, IndirectTile) or isinstance(dst, IndirectTile) else None


@LANGUAGE.issues(instructions.dma_copy)
def load(src, *, mask=None, dtype=None):
    """A new SBUF tile with the elements of an HBM tensor (or a part of one)."""
    oob_mode = _outside("error", _in_hbm(src, "src", "nl.load"))
    return locals()


@LANGUAGE.issues(instructions.dma_copy)
def store(dst, value, *, mask=None):
    """Write an on-chip tile, or a number, to an HBM tensor (or a part of one)."""
    oob_mode = _outside("error", _in_hbm(dst, "dst", "nl.store"))
    src = _storable(value, loaded_shape(dst.shape))
    return locals()


def _storable(value: Any, shape: Shape) -> Tile:
    """``value`` in SBUF and of ``shape``: numbers fill a tile, PSUM is copied, size 1 repeats."""
    if is_number(value):
        check_partitions(shape[0], "nl.store's destination", current().machine)
        tile: Tile = issue(memset, (value,), ((shape[0], 1),), dtype=scalar_dtype(value))
    else:
        tile = on_chip(value, "nl.store", "value")
    if tile._space is Space.PSUM:
        tile = copy_to_sbuf(tile)
    return repeated(tile, shape, "nl.store's value", partitions=True)


@LANGUAGE.issues(instructions.dma_transpose)
def load_transpose2d(src, *, mask=None, dtype=None):
    """A new SBUF tile with a 2-D HBM tensor's elements transposed."""
    src = need_tile(src, "src", "nl.load_transpose2d", HBM)
    try:
        need_two(src, "nl.load_transpose2d")
    except ShapeError as error:
        if src.shape[2:] != (1,):
            raise
        note(error)
        src = src[:, :, 0]
    return locals()


@LANGUAGE.by_hand  # the event says that all its additions arrive
def atomic_rmw(dst, value, op, *, mask=None):
    """``dst = dst + value`` in HBM, at places named by a tile of indices."""
    if not isinstance(dst, IndirectTile):
        raise wrong_kind(dst, "a destination indexed by a tile", "nl.atomic_rmw")
    src = _storable(value, loaded_shape(dst.shape))
    core, operator = current(), alu_op(op, "nl.atomic_rmw")
    before, options = core.instructions, (operator, "error", "unknown")
    issue(instructions.dma_copy, (src,), options, dst=dst, mask=mask)
    core.amend(core.instructions - before, op=operator.name)


@ISA.issues(instructions.dma_copy)
def dma_copy(
    *, dst, src, mask=None, dst_rmw_op=None, oob_mode=oob_mode.error,
    dge_mode=dge_mode.unknown,
):  # fmt: skip
    """``dst = src`` between HBM and SBUF; a side indexed by a tile gathers or scatters."""
    src = copied_from_psum(src, "dma_copy", "src", DMA_SPACES)
    oob_mode = _outside(as_member(_OobMode, oob_mode, "dma_copy").name, src, dst)
    return locals()


@ISA.issues(instructions.dma_transpose, oob_mode="error")
def dma_transpose(src, *, axes=None, mask=None, dtype=None, dge_mode=dge_mode.unknown):
    """``src`` in SBUF with its axes permuted by the DMA engines."""
