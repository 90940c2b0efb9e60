"""How the classic API issues an instruction: a new tile for its result, and its mask.

A mask does no work on the hardware: the compiler issues a smaller instruction (AWS
``nki.api.shared.rst`` at tag v2.26.0, "NKI API Masking"). So a rectangular mask cuts the operands
to its box, and any other one also limits what is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array, as_dtype
from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.classic.masking import as_mask, mask_box, restrict
from difftest.simulator.index import Shape
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.dma import loaded_shape
from difftest.simulator.instructions.record import Call, Instruction
from difftest.simulator.instructions.writing import immutable
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine


def issue(
    instruction: Instruction,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    *,
    dst: Tile | IndirectTile | None = None,
    others: tuple[Tile | None, ...] = (),
    dtype: object = None,
    engine: Engine = Engine.UNKNOWN,
    mask: object = None,
) -> Any:
    """Issue an instruction and return the tile that it wrote.

    Parameters
    ----------
    operands, options, others : as :func:`difftest.simulator.instructions.gate.issue` takes them.
    dst : the tile that it writes, None for a new one.
    dtype : of a new tile, as the kernel spells it.
    mask : as the kernel gives it.

    Raises
    ------
    NkiError : the call breaks a rule of the instruction, or the mask is none.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if mask is None:
        return gate.issue(
            instruction, operands, options, dst=dst, others=others, dtype=wanted, engine=engine
        )
    core = current()
    call = gate.prepare(core, instruction, operands, options, dst, others, wanted, engine)
    covered = _covered(call, dst, operands)
    chosen = as_mask(mask, covered)
    if chosen is True:
        return gate.issue(
            instruction, operands, options, dst=dst, others=others, dtype=wanted, engine=engine
        )
    if any(other is not None for other in others):
        raise not_modelled(f"{call.name}'s mask beside a reduction", f"{mask!r}", "slice the data")
    if isinstance(dst, IndirectTile):
        raise not_modelled(f"{call.name}'s mask beside a tile of indices", f"{mask!r}")
    whole = gate.new_tile(core, call) if dst is None else dst
    if not whole.storage.mutable:
        raise immutable(whole)  # also where the mask leaves nothing to write
    if not whole.in_hbm:
        whole.storage.leave_out()
    box = None if isinstance(chosen, bool) else mask_box(chosen)
    if box is None or isinstance(chosen, bool):
        return whole
    inner = chosen[box]
    rectangular = bool(inner.all())
    if call.instruction.reduced is None:
        part = restrict(whole, box, covered)
    else:
        if not rectangular:
            raise not_modelled(f"{call.name}'s mask that is not a rectangle", f"{mask!r}")
        part = restrict(whole, _result_box(call, box, covered), call.result.shape)
    gate.issue(
        instruction,
        tuple(_cut(call, number, op, box, covered) for number, op in enumerate(operands)),
        options,
        dst=part,
        others=others,
        engine=call.engine if engine is not Engine.UNKNOWN else engine,
        where=None if rectangular else inner,
    )
    return whole


def _covered(call: Call, dst: Tile | IndirectTile | None, operands: tuple[Any, ...]) -> Shape:
    """The shape that a mask ranges over: the result's, or a reduction's operand's."""
    if call.instruction.reduced is not None:
        first: Tile = operands[0]
        return first.tile_shape()
    if dst is None:
        return call.result.shape
    if isinstance(dst, IndirectTile) or dst.in_hbm:
        return loaded_shape(dst.shape)
    return dst.tile_shape()


def _cut(call: Call, number: int, operand: Any, box: tuple[slice, ...], covered: Shape) -> Any:
    """The part of an operand that the mask leaves."""
    if not isinstance(operand, Tile):
        return operand
    if call.instruction.operands[number].whole_rows:
        shape = operand.tile_shape()
        box, covered = (box[0], *(slice(0, size) for size in shape[1:])), shape
    return restrict(operand, box, covered)


def _result_box(call: Call, box: tuple[slice, ...], covered: Shape) -> tuple[slice, ...]:
    """What a box of the data leaves of a result that lacks some of their axes."""
    assert call.instruction.reduced is not None
    axes, shape = call.instruction.reduced(call), call.result.shape
    if len(shape) == len(covered):
        return tuple(
            slice(0, size) if axis in axes else box[axis] for axis, size in enumerate(shape)
        )
    kept = [cut for axis, cut in enumerate(box) if axis not in axes]
    return (*kept, *(slice(0, size) for size in shape[len(kept) :]))


def written(tile: Tile) -> Array | None:
    """Where a masked instruction's result was written; None if everywhere."""
    if not tile.storage.masked:
        return None
    missing = tile.unwritten()
    return None if missing is None else np.logical_not(missing)
