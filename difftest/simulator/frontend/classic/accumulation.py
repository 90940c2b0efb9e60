"""``psum += nisa.nc_matmul(...)``: the Tensor Engine accumulates in PSUM.

In the classic API the product is a tile of its own until it is added to another. The hardware's
instruction accumulates where it writes, so the addition is issued as the product once more, into
the tile that it is added to; the product on its own stays in the trace only if something else
reads it (see :mod:`difftest.simulator.fuse`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import ShapeError
from difftest.simulator.frontend.classic.issue import issue, written
from difftest.simulator.frontend.classic.operators import update
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.definedness import add_product
from difftest.simulator.instructions.issued import Issue
from difftest.simulator.instructions.masked import Mask
from difftest.simulator.instructions.matmul import accumulate, nc_matmul
from difftest.simulator.instructions.writing import write
from difftest.simulator.memory import NEVER
from difftest.simulator.strictness import doubt
from difftest.simulator.tile import Tile
from difftest.simulator.unwritten import unwritten_error


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
    if added.size != target.size or added.tile_shape()[0] != target.tile_shape()[0]:
        raise ShapeError(
            "a matmul accumulates into a tile of its result's shape",
            happened="a matmul's result was added to a tile of another shape",
            received=f"target {list(target.shape)}, product {list(added.shape)}",
        )
    core = current()
    operands = (made.stationary, made.moving)
    missing, before = target.unwritten(), target.lost()
    if missing is not None and before is not None:
        missing = missing & ~before
    adds = missing is None or not missing.all()
    options = (adds, *made.placement)
    call = gate.prepare(core, Issue(nc_matmul, operands, options, {"dst": target}))
    gone = added.unwritten(NEVER)
    if gone is not None and target.storage.masked:
        doubt(unwritten_error(added, gone))
    product, where = added.engine_values(unwritten=True), written(added)
    if core.shadow is not None:
        core.shadow.foresee_sum(target, added, missing, where)
    if core.oracle is not None:
        core.oracle.added(target, added, missing, where)
    if missing is None:
        accumulate(target, product, where)
    else:
        _begin(target, product.reshape(target.shape), missing, where)
    add_product(target, added)
    _lose(target, added, before, gone)
    added.storage.allocation.absorbed += 1
    reads = (*operands, target) if adds else operands
    partial = () if where is None else [(target, where)]
    core.emit(call.kind, (target,), reads, call.roles, partial=partial)


def _lose(target: Tile, added: Tile, before: Array | None, gone: Array | None) -> None:
    """What was lost of either summand is lost of the sum."""
    lost = before
    if gone is not None:
        gone = gone.reshape(target.shape)
        lost = gone if before is None else gone | before
    if lost is None or target.storage.masked:
        return
    first = target if before is not None else added
    target.forget_written(lost, first.origin("added"))


def _begin(target: Tile, product: Array, missing: Array, where: Array | None) -> None:
    """The first accumulation of a group overwrites what nothing has written."""
    held = np.where(missing, np.float32(0), target.values(unwritten=True))
    if where is not None:
        target.storage.leave_out()
    write(target, np.where(missing, product, held + product), where)
