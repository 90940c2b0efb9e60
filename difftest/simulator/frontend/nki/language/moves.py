"""``nki.language``: loads, stores, and what is printed."""

from __future__ import annotations

import contextlib

from difftest.simulator.core import current
from difftest.simulator.dtypes import as_nki_dtype
from difftest.simulator.errors import BufferError
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.isa.moves import dma_copy
from difftest.simulator.frontend.nki.language.creation import ndarray
from difftest.simulator.instructions.operands import need_tile, wrong_kind
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space


@public
def load(src, dtype=None):
    """A new tile in SBUF with the elements of a tensor in HBM."""
    if not isinstance(src, (Tile, DynamicView)) or not src.in_hbm:
        raise BufferError(
            "nl.load takes a tensor in hbm",
            happened="nl.load got a src that is not in hbm",
            received=f"src = {src!r:.80}",
            limit="hbm",
        )
    shape = src.shape if len(src.shape) > 1 else (*src.shape, 1)
    tile = ndarray(shape, src.dtype if dtype is None else as_nki_dtype(dtype))
    dma_copy(tile, src)
    return tile


@public
def store(dst, value):
    """Copy a tile in SBUF to a tensor in HBM, which is returned."""
    need_tile(value, "value", "nl.store", (Space.SBUF,))
    if not isinstance(dst, (Tile, DynamicView)) or not dst.in_hbm:
        raise BufferError(
            "nl.store takes dst in hbm",
            happened="nl.store got a dst that is not in hbm",
            received=f"dst = {dst!r:.80}",
            limit="hbm",
        )
    dma_copy(dst, value)
    return dst


@public
def device_print(print_prefix, tensor):
    """Print a tensor's values when the kernel runs."""
    if not isinstance(tensor, Tile):
        raise wrong_kind(tensor, "a tensor", "nl.device_print")
    print(print_prefix, tensor.values())


@public
@contextlib.contextmanager
def no_reorder():
    """``with nl.no_reorder():`` instructions run in program order here anyway.

    A loop on the device cannot run inside it; it can stand inside such a loop's body.
    """
    core = current()
    outer, core.keeps_order = core.keeps_order, True
    try:
        yield
    finally:
        core.keeps_order = outer
