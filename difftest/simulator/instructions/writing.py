"""The one write: an instruction's results, rounded once into the destination's dtype."""

from __future__ import annotations

import numpy as np

from difftest.simulator.dtypes import NARROW, Array, round_to, to_bits
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.instructions.carrying import spread
from difftest.simulator.instructions.observing import overflowed
from difftest.simulator.memory import DEFINED
from difftest.simulator.tile import Tile


def check_destination(dst: Tile) -> None:
    """Raise unless an instruction can write to ``dst``: inside its tensor, and no parameter."""
    if dst._axes is not None:
        dst._check_bounds()
    if not dst._storage.mutable:
        raise immutable(dst)


def write(dst: Tile, values: Array, where: Array | None = None) -> None:
    """Round an instruction's results once into ``dst``'s dtype and store them.

    ``values`` broadcast to ``dst``. ``where`` limits the write to a mask's true elements.
    """
    storage = dst._storage
    check_destination(dst)
    rounded = round_to(values, dst.dtype)
    if rounded is not values and dst.dtype in NARROW and np.isinf(rounded).any():
        overflowed(values, rounded)
    if storage.holds_bits:
        rounded = to_bits(rounded, dst.dtype)
    if (
        where is None
        and rounded.base is None
        and rounded.shape == dst.shape
        and dst._is_whole()
        and rounded.flags.c_contiguous
        and rounded.flags.writeable
        and storage.replace(rounded)
    ):
        return
    store(dst, rounded, where)


def store(dst: Tile, values: Array, where: Array | None = None) -> None:
    """Put ``values``, as memory keeps them, into ``dst``, and note that they are written.

    Their shapes are equal, broadcast, or hold the same elements in each partition.

    Raises
    ------
    ShapeError : they do not; or ``dst`` names an element more than once, with different values, and
        is no tile that may.
    """
    storage, pattern = dst._storage, dst._pattern
    view = storage.elements(pattern, dst.dtype)
    if values.shape != dst.shape:
        values = fit(values, dst)
    if where is None and pattern is storage.whole and dst.dtype is storage.dtype:
        view[...] = values
        storage.mark_whole()
        return
    if where is not None:
        where = spread(where, dst.shape)
    repeated = dst._strided and pattern.repeats()
    if repeated:
        values = values.copy()  # they may lie in the tensor that is written
    dst._give(view, values, where)
    if storage.products is not None:
        dst._scatter(storage.products, False, where)
    if storage.gaps is not None:
        dst._mark(DEFINED, where)
    if repeated:
        _settle_repeated(dst, values, where)


def _settle_repeated(dst: Tile, values: Array, where: Array | None) -> None:
    """Elements that have been given two values count as never written, or are an error."""
    view = dst._elements()
    given = np.empty(view.shape, view.dtype)
    given[...] = values
    bits = np.dtype(f"V{view.itemsize}")  # NaN is equal to itself
    lost = np.ascontiguousarray(view).view(bits) != given.view(bits)
    if where is not None:
        lost &= where
    if not lost.any():
        return
    if not dst._may_collide:
        raise ShapeError(
            "a destination that names an element more than once gives it one value",
            happened="an element was given two values at once",
            received=f"{dst!r} with strides {dst.strides}, and values that differ",
            remedy="index each element once, or make the value repeat along the same axis",
        )
    dst._forget_written(lost, dst._origin("given two values"))


def fit(values: Array, dst: Tile) -> Array:
    """``values`` such that they broadcast to ``dst``'s shape, partition to partition."""
    shape = dst.shape
    if values.ndim == 0:
        return values
    want = shape if dst._in_hbm else dst._tile_shape()
    if values.size == dst.size and (dst._in_hbm or values.shape[0] == want[0]):
        return values.reshape(shape)
    # Dimensions that are missing are free ones: NumPy would put them before the partitions.
    have = (values.shape[0], *(1,) * (len(want) - values.ndim), *values.shape[1:])
    if len(have) != len(want) or any(h not in (1, w) for h, w in zip(have, want, strict=True)):
        raise ShapeError(
            "an instruction's result has its destination's shape, or repeats to fill it",
            happened=f"values of shape {list(values.shape)} were to fill {list(shape)}",
            received=f"values of shape {list(values.shape)} for {dst!r}",
        )
    return np.broadcast_to(values.reshape(have), want).reshape(shape)


def immutable(tile: Tile) -> KernelError:
    """The error for writing to a kernel's parameter, or to what else is constant."""
    if tile._in_place:
        return KernelError(
            "a kernel writes to arrays that are writeable, and to no constants",
            happened="an instruction was to write to a read-only array or a constant",
            received=f"a write to {tile!r}",
            remedy="pass a copy, which can be written: array.copy()",
        )
    return KernelError(
        "a kernel does not write to its parameters",
        happened="an instruction was to write to a parameter",
        received=f"a write to {tile!r}",
        remedy="create the output with nl.ndarray(..., buffer=nl.shared_hbm) and return it, or "
        "annotate the parameter with neuronxcc.nki.typing.mutable_tensor",
    )
