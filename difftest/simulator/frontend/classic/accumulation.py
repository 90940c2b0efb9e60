"""``psum += nisa.nc_matmul(...)``: the Tensor Engine accumulates in PSUM.

In the classic API the product is a tile of its own until it is added to another. The hardware's
instruction accumulates where it writes, so the addition is issued as the product once more, into
the tile that it is added to; the product on its own stays in the trace only if something else
reads it (see :mod:`difftest.simulator.fuse`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from difftest.simulator.frontend.classic.issue import issue, written
from difftest.simulator.frontend.classic.operators import update
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.masked import Mask
from difftest.simulator.instructions.matmul import added_product, nc_matmul
from difftest.simulator.tile import Tile


class Product(NamedTuple):
    """What a matmul was issued with: where a tile in PSUM has its values from."""

    stationary: Tile
    moving: Tile
    placement: tuple[Any, ...]
    writes: tuple[int, int]
    """How often each operand's tensor had been written."""

    def is_current(self) -> bool:
        """Whether the operands still hold what was multiplied."""
        return self.writes == _writes(self.stationary, self.moving)


def _writes(stationary: Tile, moving: Tile) -> tuple[int, int]:
    return stationary.storage.allocation.writes, moving.storage.allocation.writes


def product(stationary: Any, moving: Any, placement: tuple[Any, ...], chosen: Mask | None) -> Any:
    """``stationary.T @ moving`` as a new tile in PSUM that another can accumulate."""
    tile = issue(nc_matmul, (stationary, moving), (False, *placement), chosen=chosen)
    tile.storage.producer = Product(stationary, moving, placement, _writes(stationary, moving))
    return tile


def _is_product(tile: Tile) -> bool:
    """Whether a tile is all of its tensor, and not another dtype's view of it."""
    return tile.is_whole() and tile.dtype is tile.storage.dtype


def accumulate_product(target: Tile, added: Tile) -> None:
    """Add a matmul's result to ``target``, in float32, as the matmul's own accumulation.

    Raises
    ------
    ShapeError : it is not of the result's shape. LimitError : it does not lie in one PSUM bank.
    """
    made = added.storage.producer
    if not isinstance(made, Product) or not (made.is_current() and _is_product(added)):
        update("add", target, added)
        return
    fresh = target._fresh()
    adds = fresh is None or not fresh.all()
    sources = {"stationary": made.stationary, "moving": made.moving}
    options, where = (adds, *made.placement), written(added)
    gate.issue(added_product, (added,), options, dst=target, where=where, sources=sources)
    added.storage.allocation.absorbed += 1
