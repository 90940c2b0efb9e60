"""``nki.language``: loads, stores, copies, transposes and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.errors import BufferError, KernelError, ShapeError
from difftest.simulator.frontend.arguments import no_extras
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import copy_to_sbuf, on_chip
from difftest.simulator.frontend.classic.products import product
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.index import Shape, as_integers
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import dma
from difftest.simulator.instructions import matmul as products
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.copy import memset, tensor_copy
from difftest.simulator.instructions.dma import loaded_shape
from difftest.simulator.instructions.operands import is_number, need_tile
from difftest.simulator.instructions.promotion import scalar_dtype
from difftest.simulator.instructions.record import HBM
from difftest.simulator.memory import check_partitions
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

_LOAD = (None, "unknown")
"""The options of a DMA that computes nothing, and leaves its descriptors to the compiler."""


def load(src: Any, *, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """A new SBUF tile with the elements of an HBM tensor (or a part of one)."""
    no_extras("nl.load", kwargs)
    if isinstance(src, IndirectTile):
        need_tile(src.base, "src", "nl.load", HBM)
        _no_mask(mask, "nl.load of a tile of indices")
        gathered: Tensor = issue(dma.dma_gather, (src,), (False, "unknown"), dtype=dtype)
        return gathered
    source = need_tile(src, "src", "nl.load", HBM)
    tile: Tensor = issue(dma.dma_copy, (source,), _LOAD, dtype=dtype, mask=mask)
    return tile


def _no_mask(mask: object, where: str) -> None:
    if mask is not None and mask is not True:
        raise KernelError(
            f"{where} takes no mask here",
            received=f"mask={mask!r}",
            remedy="use nisa.dma_copy with oob_mode=nisa.oob_mode.skip",
        )


def store(dst: Any, value: Any, *, mask: object = None, **kwargs: object) -> None:
    """Write an on-chip tile, or a number, to an HBM tensor (or a part of one)."""
    no_extras("nl.store", kwargs)
    if isinstance(dst, IndirectTile):
        need_tile(dst.base, "dst", "nl.store", HBM)
        _no_mask(mask, "nl.store to a tile of indices")
        value = _storable(value, loaded_shape(dst.shape))
        issue(dma.dma_scatter, (value,), (None, False, "unknown"), dst=dst)
        return
    target = need_tile(dst, "dst", "nl.store", HBM)
    value = _storable(value, loaded_shape(target.shape))
    issue(dma.dma_copy, (value,), _LOAD, dst=target, mask=mask)


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
            received=f"value {list(tile.shape)}, destination {list(shape)}",
        )
    spread = (have[0], *(1,) * (len(shape) - len(have)), *have[1:])
    return tile.as_tile().reshape(spread).broadcast_to(shape)


def copy(src: Any, *, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """A new SBUF tile with the elements of an on-chip tile."""
    no_extras("nl.copy", kwargs)
    source = on_chip(src, "nl.copy", "src")
    tile: Tensor = issue(tensor_copy, (source,), dtype=dtype, mask=mask)
    return tile


copy.nki_name = "copy"  # type: ignore[attr-defined]


def broadcast_to(src: Any, *, shape: Any, **kwargs: object) -> Any:
    """A new SBUF tile that repeats ``src`` along its dimensions of size 1."""
    no_extras("nl.broadcast_to", kwargs)
    tile = on_chip(src, "nl.broadcast_to", "src")
    wanted = as_integers(shape, "nl.broadcast_to's shape")
    return tile if tile.shape == wanted else copy(tile.broadcast_to(wanted))


def expand_dims(data: Any, axis: Any) -> Any:
    """A view with dimensions of size 1 more; ``axis`` (or axes) of the result."""
    tile = on_chip(data, "nl.expand_dims", "data")
    axes = as_integers(axis, "nl.expand_dims' axis")
    ndim = tile.ndim + len(axes)
    for at in sorted(number + ndim if number < 0 else number for number in axes):
        tile = tile.expand_dims(at)
    return tile


def load_transpose2d(
    src: Any, *, mask: object = None, dtype: object = None, **kwargs: object
) -> Tensor:
    """A new SBUF tile with a 2-D HBM tensor's elements transposed."""
    no_extras("nl.load_transpose2d", kwargs)
    if isinstance(src, IndirectTile):
        raise KernelError("nl.load_transpose2d takes no tile of indices", received=f"{src!r}")
    source = need_tile(src, "src", "nl.load_transpose2d", HBM)
    if source.ndim != 2:
        raise ShapeError("nl.load_transpose2d takes two dimensions", received=f"{source!r}")
    _no_mask(mask, "nl.load_transpose2d")
    tile: Tensor = issue(dma.dma_transpose, (source,), (None, "unknown"), dtype=dtype)
    return tile


def transpose(x: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Tensor:
    """A new SBUF tile with a 2-D tile's partition and free dimensions swapped."""
    no_extras("nl.transpose", kwargs)
    data = on_chip(x, "nl.transpose")
    if len(data.tile_shape()) != 2:
        raise ShapeError("nl.transpose takes two dimensions", received=f"{data!r}")
    _no_mask(mask, "nl.transpose")
    if data.space is Space.PSUM:
        data = copy_to_sbuf(data)
    turned = issue(products.nc_transpose, (data,))
    return copy(turned, dtype=dtype)


def matmul(
    x: Any, y: Any, *, transpose_x: bool = False, mask: object = None, **kwargs: object
) -> Tensor:
    """``x @ y`` (or ``x.T @ y``) in PSUM, float32: nc_matmul, after a transpose of x if needed."""
    no_extras("nl.matmul", kwargs)
    stationary = on_chip(x, "nl.matmul")
    moving = on_chip(y, "nl.matmul", "y")
    if not transpose_x:
        stationary = transpose(stationary)
    if moving.space is Space.PSUM:
        raise BufferError(
            "nl.matmul reads its operands from SBUF",
            received=f"y = {moving!r}",
            remedy="copy it first (nl.copy)",
        )
    tile: Tensor = product(stationary, moving, ((), ()), _matmul_mask(mask))
    return tile


def _matmul_mask(mask: object) -> bool | None:
    if mask is None or isinstance(mask, (bool, np.bool_)):
        return None if mask is None else bool(mask)
    raise KernelError(
        "a matmul has three axes, so a mask over two of them is ambiguous",
        received=f"mask={mask!r}",
        limit="a condition on loop and program indices",
        remedy="slice the operands instead",
    )


def atomic_rmw(dst: Any, value: Any, op: object, *, mask: object = None, **kwargs: object) -> None:
    """``dst = dst + value`` in HBM, at places named by a tile of indices."""
    no_extras("nl.atomic_rmw", kwargs)
    _no_mask(mask, "nl.atomic_rmw")
    if not isinstance(dst, IndirectTile):
        raise KernelError(
            "nl.atomic_rmw takes a destination indexed by a tile", received=f"{dst!r}"
        )
    value = _storable(value, loaded_shape(dst.shape))
    options = (alu_op(op, "nl.atomic_rmw"), False, "unknown")
    issue(dma.dma_scatter, (value,), options, dst=dst)


def device_print(prefix: str, x: Any, *, mask: object = None, **kwargs: object) -> None:
    """Print a tile's values while the kernel is simulated."""
    no_extras("nl.device_print", kwargs)
    _no_mask(mask, "nl.device_print")
    print(prefix, x.values() if isinstance(x, Tile) else x)
