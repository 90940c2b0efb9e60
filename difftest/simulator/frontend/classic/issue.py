"""How the classic API issues an instruction: a new tile for its result, and its mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array, as_dtype
from difftest.simulator.frontend.classic.masking import as_mask
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.masked import Mask, issue_masked
from difftest.simulator.instructions.record import Instruction
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
    chosen: Mask | None = None,
) -> Any:
    """:func:`difftest.simulator.instructions.gate.issue`, for what a mask leaves.

    ``dtype`` and ``mask`` are as the kernel gives them. ``chosen`` is the mask as bools over a
    shape, instead, where a call lays it out itself.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if mask is None and chosen is None:
        return gate.issue(
            instruction, operands, options, dst=dst, others=others, dtype=wanted, engine=engine
        )
    return issue_masked(
        instruction,
        operands,
        options,
        mask=chosen or (lambda shape: as_mask(mask, shape)),
        dst=dst,
        others=others,
        dtype=wanted,
        engine=engine,
    )


def written(tile: Tile) -> Array | None:
    """Where a masked instruction's result was written; None if everywhere."""
    if not tile.storage.masked:
        return None
    missing = tile.unwritten()
    return None if missing is None else np.logical_not(missing)
