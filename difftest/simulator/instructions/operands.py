"""Operands: numbers, tiles in a memory, and the errors for others."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import DTYPES, name_of
from difftest.simulator.errors import BufferError, DtypeError, KernelError
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.record import ON_CHIP, Number
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space


def _names(spaces: tuple[Space, ...]) -> str:
    return " or ".join(dict.fromkeys("hbm" if space.is_hbm else space.value for space in spaces))


def is_number(value: object) -> TypeGuard[Number]:
    """Whether ``value`` is a real number: Python's, NumPy's or ml_dtypes'."""
    if isinstance(value, np.generic):
        return value.dtype.kind in "biuf" or value.dtype in DTYPES
    return isinstance(value, (bool, int, float))


def wrong_kind(
    value: object, takes: str, where: str, name: str = "", remedy: str | None = None
) -> KernelError:
    """The error for a value of another kind than a call, or its argument ``name``, takes."""
    kind = type(value).__name__
    return KernelError(
        f"{where} takes {name} as {takes}" if name else f"{where} takes {takes}",
        happened=f"{where} got a {kind}" + (f" as {name}" if name else ""),
        received=f"{kind} {value!r:.80}",
        remedy=remedy,
    )


def need_number(value: object, name: str, where: str) -> Number:
    """``value`` if it is a real number; raises :class:`KernelError` if not."""
    if not is_number(value):
        raise wrong_kind(value, "a number", where, name)
    return value


def need_tile(value: object, name: str, where: str, spaces: tuple[Space, ...] = ON_CHIP) -> Tile:
    """``value`` as a tile in one of ``spaces``.

    Raises
    ------
    KernelError : it is no tensor. BufferError : it is in another memory.
    """
    if not isinstance(value, Tile):
        raise KernelError(
            f"{where} takes a tile as {name}",
            happened=f"{where} got {name} that is no tile",
            received=f"{type(value).__name__} {value!r:.80}",
        )
    if value._space not in spaces:
        raise wrong_buffer(value, name, where, spaces)
    return value


def check_indices(tile: Tile, what: str) -> None:
    """Raise :class:`DtypeError` unless a tile that ``what`` names holds integers."""
    if tile.dtype.kind not in "iu":
        raise DtypeError(
            f"{what} holds integers",
            happened=f"{what} holds {name_of(tile.dtype)}",
            received=repr(tile),
            limit="int32, uint32 and smaller integers",
        )


def wrong_buffer(
    tile: Tile | IndirectTile | Descriptor, name: str, where: str, spaces: tuple[Space, ...]
) -> BufferError:
    """The error for a tile in the wrong memory."""
    space = tile.space if isinstance(tile, Descriptor) else tile._space
    if space.is_hbm:
        remedy = "load it into SBUF first (nisa.dma_copy or nl.load)"
    elif space is Space.PSUM:
        remedy = "copy it to SBUF first (nisa.tensor_copy or nl.copy)"
    else:
        remedy = f"put it into {_names(spaces)}"
    return BufferError(
        f"{where} takes {name} in {_names(spaces)}",
        happened=f"{where} got {name} in {_names((space,))}",
        received=f"{name} = {tile!r}",
        limit=_names(spaces),
        remedy=remedy,
    )
