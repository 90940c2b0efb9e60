"""Rules that instructions share about their operands, with their wording, and the one write."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np

from difftest.simulator.dtypes import (
    DTYPES,
    FLOAT32,
    Array,
    is_float,
    is_integer,
    name_of,
    round_to,
    to_bits,
)
from difftest.simulator.errors import BufferError, DtypeError, KernelError, ShapeError
from difftest.simulator.memory import repeats
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

Shape = tuple[int, ...]
Scalar = int | float | bool | np.generic

ON_CHIP = (Space.SBUF, Space.PSUM)
SBUF_ONLY = (Space.SBUF,)
HBM = (Space.SHARED_HBM, Space.PRIVATE_HBM)
DMA_SPACES = (*HBM, Space.SBUF)


def _names(spaces: tuple[Space, ...]) -> str:
    return " or ".join(dict.fromkeys("hbm" if space.is_hbm else space.value for space in spaces))


def is_number(value: object) -> TypeGuard[Scalar]:
    """Whether ``value`` is a real number: Python's, NumPy's or ml_dtypes'."""
    if isinstance(value, np.generic):
        return value.dtype.kind in "biuf" or value.dtype in DTYPES
    return isinstance(value, (bool, int, float))


def need_number(value: object, name: str, where: str) -> Scalar:
    """``value`` if it is a real number; raises :class:`KernelError` if not."""
    if not is_number(value):
        raise KernelError(
            f"{where} takes {name} as a number", received=f"{type(value).__name__} {value!r:.80}"
        )
    return value


def need_tile(value: object, name: str, where: str, spaces: tuple[Space, ...] = ON_CHIP) -> Tile:
    """``value`` as a tile in one of ``spaces``.

    Raises
    ------
    KernelError : it is no tensor. BufferError : it is in another memory.
    """
    if not isinstance(value, Tile):
        raise KernelError(
            f"{where} takes a tile as {name}", received=f"{type(value).__name__} {value!r:.80}"
        )
    if value.storage.allocation.space not in spaces:
        raise wrong_space(value, name, where, spaces)
    return value


def wrong_space(tile: Tile, name: str, where: str, spaces: tuple[Space, ...]) -> BufferError:
    """The error for a tile in the wrong memory."""
    if tile.in_hbm:
        remedy = "load it into SBUF first (nisa.dma_copy or nl.load)"
    elif tile.space is Space.PSUM:
        remedy = "copy it to SBUF first (nisa.tensor_copy or nl.copy)"
    else:
        remedy = f"put it into {_names(spaces)}"
    return BufferError(
        f"{where} takes {name} in {_names(spaces)}",
        received=f"{name} = {tile!r}",
        limit=_names(spaces),
        remedy=remedy,
    )


def compute_view(tile: Tile) -> Array:
    """An operand's elements with the partition axis first and at least two dimensions."""
    array = tile.read()
    shape = tile.tile_shape()
    return array if array.shape == shape else array.reshape(shape)


def as_float(values: Array) -> Array:
    """On-chip elements as the float32 that arithmetic works in."""
    return values if values.dtype == FLOAT32 else values.astype(np.float32)


def same_partitions(where: str, **tiles: Tile) -> None:
    """Raise :class:`ShapeError` unless all tiles have the same number of partitions."""
    sizes = {name: tile.tile_shape()[0] for name, tile in tiles.items()}
    if len(set(sizes.values())) > 1:
        raise ShapeError(
            f"{where} takes operands with the same number of partitions",
            received=", ".join(f"{name} {list(tile.shape)}" for name, tile in tiles.items()),
            remedy="broadcast along partitions first: tile.broadcast_to(shape)",
        )


def same_elements(where: str, **tiles: Tile) -> None:
    """Raise :class:`ShapeError` unless all tiles have the same partitions and elements in each."""
    same_partitions(where, **tiles)
    if len({free_size(tile.tile_shape()) for tile in tiles.values()}) > 1:
        raise ShapeError(
            f"{where} takes operands with the same number of elements a partition",
            received=", ".join(f"{name} {list(tile.shape)}" for name, tile in tiles.items()),
        )


def free_size(shape: Shape) -> int:
    """Elements in each partition."""
    total = 1
    for size in shape[1:]:
        total *= size
    return total


def need_column(tile: Tile, name: str, where: str, data: Tile) -> None:
    """Raise unless ``tile`` can take one element for each of ``data``'s partitions: [P, 1]."""
    need_elements(tile, name, where, data, 1)


def need_elements(tile: Tile, name: str, where: str, data: Tile, count: int) -> None:
    """Raise unless ``tile``, a second destination, has ``count`` elements in each partition.

    An instruction asks before it writes anything.

    Raises
    ------
    ShapeError : another shape than [P, ``count``], P the partitions of ``data``.
    OutOfBoundsError, KernelError : it cannot be written.
    """
    partitions = data.tile_shape()[0]
    shape = tile.tile_shape()
    if shape[0] != partitions or free_size(shape) != count:
        raise ShapeError(
            f"{where} writes {name} of {count} element{'s' * (count > 1)} a partition",
            received=f"{name} {list(tile.shape)} for data {list(data.shape)}",
            limit=f"shape {[partitions, count]}",
        )
    check_destination(tile)


def need_dtype(tile: Tile, name: str, where: str, allowed: tuple[np.dtype[Any], ...]) -> None:
    """Raise :class:`DtypeError` unless the tile has one of the dtypes."""
    if tile.dtype not in allowed:
        raise DtypeError(
            f"{where} takes {name} of certain dtypes",
            received=f"{name} = {tile!r}",
            limit=", ".join(name_of(dtype) for dtype in allowed),
            remedy="cast it with nisa.tensor_copy(..., dtype=...)",
        )


def need_integers(where: str, **dtypes: np.dtype[Any]) -> None:
    """Raise :class:`DtypeError` unless all dtypes are integers (bitvec operators)."""
    for name, dtype in dtypes.items():
        if not is_integer(dtype):
            raise DtypeError(
                f"{where}: bitvec operators work on integers",
                received=f"{name} of {name_of(dtype)}",
                limit="int8, uint8, int16, uint16, int32, uint32",
                remedy="give the result an integer dtype (a Python integer counts as int32, and "
                "uint32 with int32 as float32): dtype=nl.uint32",
            )


def need_float(tile: Tile, name: str, where: str) -> None:
    """Raise :class:`DtypeError` unless the tile holds floats."""
    if not is_float(tile.dtype):
        raise DtypeError(f"{where} takes {name} of a float dtype", received=f"{tile!r}")


def check_destination(dst: Tile) -> None:
    """Raise unless an instruction can write to ``dst``: inside its tensor, and no parameter."""
    if dst.axes is not None:
        dst.check_bounds()
    if not dst.storage.mutable:
        raise immutable(dst)


def write(dst: Tile, values: Array, where: Array | None = None) -> None:
    """Round an instruction's results once into ``dst``'s dtype and store them.

    ``values`` broadcast to ``dst``. ``where`` limits the write to a mask's true elements.
    """
    storage = dst.storage
    check_destination(dst)
    rounded = round_to(values, storage.dtype)
    if dst.in_hbm:
        rounded = to_bits(rounded, storage.dtype)
    if (
        where is None
        and rounded.base is None
        and rounded.shape == storage.data.shape == dst.shape
        and dst.is_whole()
        and rounded.flags.c_contiguous
        and rounded.flags.writeable
        and storage.release is not None
    ):
        # A whole on-chip tensor and an array that nobody else has: it becomes the tensor's data.
        storage.data = rounded
        storage.unwritten = 0
        storage.written = None
        return
    store(dst, rounded, where)


def store(dst: Tile, values: Array, where: Array | None = None) -> None:
    """Put ``values``, as memory keeps them, into ``dst``, and note that they are written.

    Their shapes are equal, broadcast, or hold the same elements in each partition.

    Raises
    ------
    ShapeError : they do not; or ``dst`` names an element more than once, with different values.
    """
    view = dst.elements()
    values = _fit(values, dst)
    if where is not None:
        where = _spread(where, view.shape)
    repeated = repeats(dst.shape, dst.strides)
    if repeated:
        values = values.copy()  # they may lie in the tensor that is written
    if where is None:
        view[...] = values
    else:
        np.copyto(view, values, where=where, casting="unsafe")
    if repeated:
        _check_repeated(dst, values, where)
    dst.storage.mark_written(dst.offset, dst.shape, dst.strides, where)


def _spread(where: Array, shape: Shape) -> Array:
    """A mask in a destination's shape, which may lack the tile's free or partition axis."""
    if where.size == math.prod(shape):
        return where.reshape(shape)
    return np.broadcast_to(where, shape)


def _check_repeated(dst: Tile, values: Array, where: Array | None) -> None:
    """Raise :class:`ShapeError` if an element has been given two values."""
    view = dst.elements()
    given = np.empty(view.shape, view.dtype)
    given[...] = values
    bits = np.dtype(f"V{view.itemsize}")  # NaN is equal to itself
    lost = np.ascontiguousarray(view).view(bits) != given.view(bits)
    if where is not None:
        lost &= where
    if lost.any():
        raise ShapeError(
            "a destination that names an element more than once gives it one value",
            received=f"{dst!r} with strides {dst.strides}, and values that differ",
            remedy="index each element once, or make the value repeat along the same axis",
        )


def _fit(values: Array, dst: Tile) -> Array:
    """``values`` such that they broadcast to ``dst``'s shape, partition to partition."""
    shape = dst.shape
    if values.shape == shape or values.ndim == 0:
        return values
    want = shape if dst.in_hbm else dst.tile_shape()
    if values.size == dst.size and (dst.in_hbm or values.shape[0] == want[0]):
        return values.reshape(shape)
    # Dimensions that are missing are free ones: NumPy would put them before the partitions.
    have = (values.shape[0], *(1,) * (len(want) - values.ndim), *values.shape[1:])
    if len(have) != len(want) or any(h not in (1, w) for h, w in zip(have, want, strict=True)):
        raise ShapeError(
            "an instruction's result has its destination's shape, or repeats to fill it",
            received=f"values of shape {list(values.shape)} for {dst!r}",
        )
    return np.broadcast_to(values.reshape(have), want).reshape(shape)


def immutable(tile: Tile) -> KernelError:
    """The error for writing to a kernel's parameter."""
    return KernelError(
        "a kernel does not write to its parameters",
        received=f"a write to {tile!r}",
        remedy="create the output with nl.ndarray(..., buffer=nl.shared_hbm) and return it, or "
        "annotate the parameter with neuronxcc.nki.typing.mutable_tensor",
    )
