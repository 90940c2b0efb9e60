"""``nki.isa``: registers, which hold bounds of loops and offsets, and scalars.

Moves between registers leave no event in a trace: AWS's compiler places them on the engines'
sequencers. Source: the stubs of ``nki.isa`` at v2.32.0; scalars as NKI 0.7 documents them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import name_of
from difftest.simulator.errors import DtypeError, ShapeError
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.objects import ISSUED
from difftest.simulator.frontend.nki.virtual_registers import (
    DeviceValue,
    NkiScalar,
    VirtualRegister,
    thirty_two_bits,
)
from difftest.simulator.index import as_integer
from difftest.simulator.instructions.effects import note
from difftest.simulator.instructions.operands import need_tile, wrong_kind
from difftest.simulator.instructions.record import DMA_SPACES
from difftest.simulator.instructions.writing import write
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine


@public
def register_alloc(x=None):
    """A register; written with ``x`` unless that is None."""
    if x is None:
        return VirtualRegister(None)
    return VirtualRegister(thirty_two_bits(as_integer(x, "register_alloc of"), "register_alloc"))


@public
def register_move(dst, src):
    """``dst = src``, an integer that the kernel knows or another register."""
    target = _register(dst, "dst", "register_move")
    known = isinstance(src, VirtualRegister)
    value = src.device_value() if known else as_integer(src, "register_move of")
    target.set(value, "register_move")
    return ISSUED


@public
def register_load(dst, src):
    """``dst = src``, a tensor of one integer in HBM or SBUF."""
    target = _register(dst, "dst", "register_load")
    source = _one_element(src, "src", "register_load", most_bytes=4)
    target.set(int(source.values().reshape(-1)[0]), "register_load")
    note("register_load", Engine.UNKNOWN, reads=[("src", source)], dst=target.label)
    return ISSUED


@public
def register_store(dst, src):
    """Write a register to a tensor of one element in HBM or SBUF."""
    _store(dst, _register(src, "src", "register_store"), "register_store", 4)
    return ISSUED


@public
def scalar_load(src):
    """An int32 or int64 in HBM or SBUF as a scalar."""
    source = _one_element(src, "src", "scalar_load", most_bytes=8)
    wide = source.dtype.itemsize == 8
    value = int(source.values().reshape(-1)[0])
    scalar = NkiScalar(value, np.dtype(np.int64 if wide else np.int32))
    note("scalar_load", Engine.UNKNOWN, reads=[("src", source)], dst=scalar.label)
    return scalar


@public
def scalar_store(dst, s):
    """Write a scalar to a tensor of one element in HBM or SBUF."""
    if not isinstance(s, NkiScalar):
        raise wrong_kind(s, "an nl.NkiScalar", "scalar_store", "s")
    _store(dst, s, "scalar_store", s.dtype.itemsize)
    return ISSUED


def _register(value: Any, role: str, where: str) -> VirtualRegister:
    if not isinstance(value, VirtualRegister):
        remedy = "make one with nisa.register_alloc()"
        raise wrong_kind(value, "a register", where, role, remedy)
    return value


def _one_element(tensor: Any, role: str, where: str, *, most_bytes: int) -> Tile:
    tile = need_tile(tensor, role, where, DMA_SPACES)
    if tile.size != 1:
        raise ShapeError(
            f"{where} takes {role} of one element",
            happened=f"{where} got {role} of {tile.size} elements",
            received=repr(tile),
            limit="[1] or [1, 1]",
        )
    if tile.dtype.kind not in "iu" or tile.dtype.itemsize > most_bytes:
        raise DtypeError(
            f"{where} takes {role} as an integer",
            happened=f"{where} got {role} of {name_of(tile.dtype)}",
            received=repr(tile),
            limit=f"integers of up to {8 * most_bytes} bits",
        )
    return tile


def _store(dst: Any, src: DeviceValue, where: str, most_bytes: int) -> None:
    value = src.device_value()
    target = _one_element(dst, "dst", where, most_bytes=most_bytes)
    bits = np.array(value, dtype=np.int64).astype(target.dtype)
    write(target, np.full(target.shape, bits))
    note(where, Engine.UNKNOWN, writes=[("dst", target)], src=src.label)
