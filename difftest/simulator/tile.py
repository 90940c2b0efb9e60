"""Tiles: typed access patterns on memory, and how indexing makes one from another.

A :class:`Tile` is an offset, a shape and strides on one tensor: what the hardware's instructions
take. Indexing copies nothing. An index that leaves its tensor makes a tile that remembers so: a
mask may still cut it back (see :func:`restrict`), and any use of it without one raises.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

from difftest.simulator.brackets import expand_ellipsis, slice_bounds, spell
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array, from_bits, name_of
from difftest.simulator.errors import KernelError, OutOfBoundsError, ShapeError, UnwrittenError
from difftest.simulator.index import (
    DynamicIndex,
    DynamicSlice,
    Index,
    Shape,
    as_integer,
    as_integers,
    broadcast_shapes,
    is_integer,
)
from difftest.simulator.memory import Storage, contiguous_strides, in_order, pattern_view
from difftest.simulator.trace import Space
from difftest.simulator.walk import Axis, leaves, span

T = TypeVar("T", bound="Tile")


class Tile:
    """An access pattern on a tensor. ``offset`` and ``strides`` are in elements.

    ``partition_axis`` is the axis that runs over partitions, None where an integer index took it
    away. ``axes`` is set only while the pattern leaves its tensor.
    """

    __slots__ = ("axes", "offset", "partition_axis", "shape", "storage", "strides")

    def __init__(
        self,
        storage: Storage,
        offset: int,
        shape: Shape,
        strides: Shape,
        partition_axis: int | None,
        axes: tuple[Axis, ...] | None = None,
    ) -> None:
        self.storage = storage
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.partition_axis = partition_axis
        self.axes = axes

    @classmethod
    def whole(cls: type[T], storage: Storage) -> T:
        """The tile that is all of a tensor."""
        shape = storage.data.shape
        axis = storage.allocation.partition_axis
        return cls(storage, 0, shape, contiguous_strides(shape), axis)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The tile's NKI dtype."""
        return self.storage.dtype

    @property
    def space(self) -> Space:
        return self.storage.space

    @property
    def in_hbm(self) -> bool:
        """Whether the tile lies in HBM, where elements are the dtype's own bits."""
        return self.storage.in_hbm

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def is_whole(self) -> bool:
        """Whether it is all of its tensor in the tensor's own order, in whatever shape.

        A tile of as many elements may be something else: two axes swapped or one reversed by
        their indices, or a part that repeats.
        """
        return (
            self.offset == 0
            and self.size == self.storage.data.size
            and in_order(self.shape, self.strides)
        )

    def __repr__(self) -> str:
        name = self.storage.allocation.name
        return f"{name or 'tile'} {list(self.shape)} {name_of(self.dtype)} in {self.space.value}"

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("a tile of no dimension has no length", received=repr(self))
        return self.shape[0]

    def __bool__(self) -> bool:
        raise KernelError(
            "control flow cannot depend on a tensor's value",
            received=f"{self!r} used as a condition",
            remedy="compare with 'is None' if you meant that; else use a mask or nl.where",
        )

    # -- data --------------------------------------------------------------------------------

    def elements(self) -> Array:
        """The elements in memory, as they are stored."""
        return pattern_view(self.storage.data, self.offset, self.shape, self.strides)

    def check_bounds(self) -> None:
        """Raise :class:`OutOfBoundsError` if the pattern leaves its tensor."""
        if self.axes is not None:
            raise _out_of_bounds(self, self.axes)

    def read(self) -> Array:
        """The elements in memory; raises if some are out of bounds or were never written."""
        if self.axes is not None:
            self.check_bounds()
        if self.storage.unwritten and not self.storage.masked:
            missing = self.storage.unwritten_in(self.offset, self.shape, self.strides)
            if missing is not None:
                raise _unwritten(self, missing)
        return pattern_view(self.storage.data, self.offset, self.shape, self.strides)

    def values(self) -> Array:
        """:meth:`read` as an engine sees them: narrow floats as float32, wherever they lie."""
        array = self.read()
        return from_bits(array, self.dtype) if self.in_hbm else array

    def engine_values(self) -> Array:
        """:meth:`values` with the partition axis first and at least two dimensions."""
        array = self.values()
        if self.storage.in_hbm:
            return array
        shape = self.tile_shape()
        return array if array.shape == shape else array.reshape(shape)

    def signature(self) -> tuple[object, ...]:
        """What :meth:`descriptor` follows from: tiles of one signature keep the same rules."""
        storage = self.storage
        if storage.in_hbm:
            return (storage.space, storage.dtype, self.shape)
        if storage.space is Space.PSUM:
            place: object = (self.offset, self.strides)
        else:
            place = self.offset // storage.partition_step
        return (storage.space, storage.dtype, self.shape, self.partition_axis, place)

    def descriptor(self, *, blocks: bool = False) -> Descriptor:
        """The tile as rules see it; ``blocks`` lets it have block dimensions, as free ones.

        Raises
        ------
        ShapeError : the partition dimension is not the first.
        """
        storage = self.storage
        if storage.in_hbm:
            return Descriptor(storage.space, storage.dtype, self.shape, 0, None, repr(self))
        start = self.offset // storage.partition_step % storage.allocation.partitions
        axis = self.partition_axis
        if blocks and axis:
            shape = (self.shape[axis], *self.shape[:axis], *self.shape[axis + 1 :])
            return Descriptor(storage.space, storage.dtype, shape, start, None, repr(self))
        span = self._span() if storage.space is Space.PSUM else None
        return Descriptor(storage.space, storage.dtype, self.tile_shape(), start, span, repr(self))

    def _span(self) -> tuple[int, int]:
        """First and last byte within each partition."""
        free = range(self.ndim) if self.partition_axis is None else range(1, self.ndim)
        first = self.offset % self.storage.partition_step
        reach = [self.strides[k] * (self.shape[k] - 1) for k in free]
        low = first + sum(min(0, step) for step in reach)
        high = first + sum(max(0, step) for step in reach)
        return low * self.itemsize, (high + 1) * self.itemsize - 1

    def tile_shape(self) -> Shape:
        """The shape with the partition axis first and at least two dimensions.

        Raises
        ------
        ShapeError : the partition dimension is not the first.
        """
        if self.partition_axis is None:
            return (1, *self.shape) if self.shape else (1, 1)
        if self.partition_axis != 0:
            raise ShapeError(
                "the first dimension of a tile is its partition dimension",
                received=f"{self!r} with its partition dimension at axis {self.partition_axis}",
                remedy="index the leading (block) dimensions with integers first",
            )
        return self.shape if len(self.shape) > 1 else (self.shape[0], 1)

    def as_tile(self: T) -> T:
        """The same elements in :meth:`tile_shape`; in HBM the tile itself."""
        shape = self.shape if self.in_hbm else self.tile_shape()
        if shape == self.shape:
            return self
        return self._derive(self.offset, shape, padded(self, self.strides, len(shape)), 0, None)

    # -- shapes ------------------------------------------------------------------------------

    def __getitem__(self: T, key: Any) -> T:
        if key is Ellipsis:
            return self
        items = key if isinstance(key, tuple) else (key,)
        for item in items:
            if isinstance(item, (Index, Tile, DynamicIndex)):
                return self._advanced(items)
        return self._basic(items)

    def _basic(self: T, items: tuple[Any, ...]) -> T:
        """Integers, slices, ``nl.ds``, None and Ellipsis."""
        shape, strides = self.shape, self.strides
        items = expand_ellipsis(items, len(shape), self)
        offset = self.offset
        out_shape: list[int] = []
        out_strides: list[int] = []
        partition: int | None = None
        overrun = False
        walks: list[tuple[int, int, int | None, int]] = []
        axis = 0
        for item in items:
            if item is None:
                out_shape.append(1)
                out_strides.append(0)
                continue
            size, stride = shape[axis], strides[axis]
            if type(item) is slice:
                start, stop, step = slice_bounds(item, size)
                count = -(-(stop - start) // step)
                if count <= 0:
                    raise ShapeError(
                        "a slice selects at least one element",
                        received=f"{spell(item)} on axis {axis} of {self!r}",
                    )
                if axis == self.partition_axis:
                    partition = len(out_shape)
                walks.append((size, start, len(out_shape), step))
                overrun = overrun or start < 0 or start + (count - 1) * step >= size
                out_shape.append(count)
                out_strides.append(stride * step)
            elif isinstance(item, DynamicSlice):
                if axis == self.partition_axis:
                    partition = len(out_shape)
                start = item.start
                walks.append((size, start, len(out_shape), 1))
                overrun = overrun or start < 0 or start + item.size > size
                out_shape.append(item.size)
                out_strides.append(stride)
            elif is_integer(item):
                start = as_integer(item, "index")
                walks.append((size, start, None, 0))
                overrun = overrun or not 0 <= start < size
            else:
                raise KernelError(
                    "a tensor is indexed with integers, slices, nl.ds, None, '...' or "
                    "nl.arange / nl.mgrid expressions",
                    received=f"{type(item).__name__} at axis {axis} of {self!r}",
                )
            offset += start * stride
            axis += 1
        if overrun or self.axes is not None:
            axes = tuple(
                Axis(size, start, tuple(step if k == at else 0 for k in range(len(out_shape))))
                for size, start, at, step in walks
            )
        else:
            axes = None
        return self._derive(offset, tuple(out_shape), tuple(out_strides), partition, axes)

    def _derive(
        self: T,
        offset: int,
        shape: Shape,
        strides: Shape,
        partition: int | None,
        axes: tuple[Axis, ...] | None,
    ) -> T:
        if self.axes is not None:
            self.check_bounds()
        return type(self)(self.storage, offset, shape, strides, partition, axes)

    def _advanced(self: T, items: tuple[Any, ...]) -> T:
        """One index expression or integer for each dimension; tiles make it indirect."""
        for item in items:
            if not (isinstance(item, (Index, Tile, DynamicIndex)) or is_integer(item)):
                raise KernelError(
                    "basic and advanced indexing do not mix",
                    received=f"{spell(item)} beside nl.arange / nl.mgrid on {self!r}",
                    remedy="use an nl.arange (or nl.mgrid) for every dimension, or slices for all",
                )
        if len(items) != self.ndim:
            raise ShapeError(
                "advanced indexing names every dimension",
                received=f"{len(items)} indices for {self!r}",
            )
        if any(isinstance(item, (Tile, DynamicIndex)) for item in items):
            return self._indirect(items)
        shape: Shape = ()
        for item in items:
            if isinstance(item, Index):
                shape = broadcast_shapes(shape, item.shape, "index expressions")
        if len(shape) < 2 and not self.in_hbm:
            raise _one_dimensional(self)
        offset = self.offset
        strides = [0] * len(shape)
        axes = []
        for size, stride, item in zip(self.shape, self.strides, items, strict=True):
            if isinstance(item, Index):
                start, steps = item.start, item.spread(shape).steps
            else:
                start, steps = int(item), (0,) * len(shape)
            axes.append(Axis(size, start, steps))
            offset += start * stride
            for k, step in enumerate(steps):
                strides[k] += step * stride
        if not self.in_hbm:
            _check_partition_walk(self, axes, shape)
        over = any(leaves(axis, shape) for axis in axes)
        return self._derive(offset, shape, tuple(strides), 0, tuple(axes) if over else None)

    def _indirect(self: T, items: tuple[Any, ...]) -> T:
        raise KernelError(
            "this tensor cannot be indexed with a tile", received=f"a tile as an index of {self!r}"
        )

    def reshape(self: T, shape: Any) -> T:
        """The same elements in another shape: a view.

        Raises
        ------
        ShapeError : the sizes differ, or no view has that shape (the elements are not adjacent).
        """
        wanted = as_integers(shape, "reshape to")
        if -1 in wanted:
            rest = 1
            for extent in wanted:
                rest *= extent if extent != -1 else 1
            wanted = tuple(self.size // max(rest, 1) if s == -1 else s for s in wanted)
        total = 1
        for extent in wanted:
            total *= extent
        if total != self.size:
            raise ShapeError(
                "reshape keeps the number of elements",
                received=f"{self!r} to {list(wanted)}: {self.size} to {total} elements",
            )
        self.check_bounds()
        if not self.in_hbm and self.partition_axis is not None:
            _check_partitions_stay(self, self.partition_axis, wanted)
        strides = reshaped_strides(self, wanted)
        return self._derive(self.offset, wanted, strides, self.partition_axis, None)

    def broadcast_to(self: T, shape: Any) -> T:
        """A view that repeats the dimensions of size 1 (stride 0); it cannot be written."""
        wanted = as_integers(shape, "broadcast_to")
        whole = self.as_tile()
        base = whole.shape
        missing = len(wanted) - len(base)
        partitions_stay = missing == 0 or self.in_hbm or base[0] == 1
        fits = (missing >= 0 and partitions_stay) and all(
            have in (1, want) for have, want in zip(base, wanted[missing:], strict=True)
        )
        if not fits:
            raise ShapeError(
                "broadcast_to repeats dimensions of size 1",
                received=f"{self!r} to {list(wanted)}",
            )
        strides = (0,) * missing + tuple(
            stride if have == want else 0
            for have, want, stride in zip(base, wanted[missing:], whole.strides, strict=True)
        )
        return whole._derive(whole.offset, wanted, strides, whole.partition_axis, None)

    def expand_dims(self: T, axis: int) -> T:
        """A view with a dimension of size 1 inserted at ``axis`` (a free dimension)."""
        number = as_integer(axis, "expand_dims' axis")
        at = number + self.ndim + 1 if number < 0 else number
        first = 0 if self.in_hbm else 1
        if not first <= at <= self.ndim:
            raise ShapeError(
                "expand_dims inserts a free dimension",
                received=f"expand_dims(axis={axis}) of {self!r}",
                limit=f"axes {first} to {self.ndim}",
            )
        shape = (*self.shape[:at], 1, *self.shape[at:])
        strides = (*self.strides[:at], 0, *self.strides[at:])
        return self._derive(self.offset, shape, strides, self.partition_axis, self.axes)

    def assert_shape(self: T, shape: Any) -> T:
        """The tile itself if it has this shape; raises :class:`ShapeError` if not."""
        expected = as_integers(shape, "assert_shape")
        if self.shape != expected:
            raise ShapeError("assert_shape", received=f"{self!r}", limit=f"{list(expected)}")
        return self


def _out_of_bounds(tile: Tile, axes: tuple[Axis, ...]) -> OutOfBoundsError:
    number = next(k for k, axis in enumerate(axes) if leaves(axis, tile.shape))
    axis = axes[number]
    low, high = span(axis, tile.shape)
    return OutOfBoundsError(
        "an access stays inside its tensor",
        received=f"indices {low} to {high} on axis {number} of {tile.storage.allocation}",
        limit=f"0 to {axis.size - 1}",
        remedy="correct the loop's bounds, or give the instruction a mask "
        "(NKI does not wrap negative indices)",
    )


def _unwritten(tile: Tile, missing: Array) -> UnwrittenError:
    first = tuple(int(i) for i in np.argwhere(missing)[0]) if missing.ndim else ()
    return UnwrittenError(
        "an instruction reads only what was written before",
        received=f"{int(missing.sum())} of {missing.size} elements of {tile!r} were never "
        f"written, the first at {list(first)}",
        remedy="write the tensor first (nl.zeros, nl.load, an instruction's result), "
        "or read only the part that is written",
    )


def _one_dimensional(tile: Tile) -> ShapeError:
    return ShapeError(
        "a tile's index has at least two dimensions, partition and free",
        received=f"a 1-D nl.arange as an index of {tile!r}",
        remedy="use nl.arange(n)[:, None] for partitions and nl.arange(n)[None, :] for the "
        "free dimension",
    )


def _check_partition_walk(tile: Tile, axes: list[Axis], shape: Shape) -> None:
    """On chip, axis 0 of the result walks the partitions and nothing else does."""
    partition = tile.partition_axis
    for number, axis in enumerate(axes):
        steps = axis.steps if number != partition else (0, *axis.steps[1:])
        wrong = any(steps[1:]) if number == partition else steps[0] != 0
        if wrong and shape[0] > 1:
            raise KernelError(
                "the first axis of an on-chip access walks the partitions, the others do not",
                received=f"axis {number} of {tile!r} walked with steps {axis.steps}",
                remedy="give the partition index shape [:, None] and the free ones [None, :]",
            )


def padded(tile: Tile, values: Shape, ndim: int) -> Shape:
    """Strides or steps of a tile, with 0 for the dimensions that :meth:`Tile.tile_shape` adds."""
    added = (0,) * (ndim - len(values))
    return added + values if tile.partition_axis is None else values + added


def _check_partitions_stay(tile: Tile, axis: int, shape: Shape) -> None:
    """The partition dimension keeps its place and size, and the blocks before it their number."""
    blocks = math.prod(tile.shape[:axis])
    stays = len(shape) > axis and shape[axis] == tile.shape[axis]
    if not stays or math.prod(shape[:axis]) != blocks:
        raise ShapeError(
            "reshape of an on-chip tile keeps its partition dimension",
            received=f"{tile!r} to {list(shape)}",
            limit=f"dimension {axis} stays {tile.shape[axis]}",
            remedy="reshape the free dimensions only, or reshape the tensor in HBM",
        )


def reshaped_strides(tile: Tile, shape: Shape) -> Shape:
    """NumPy's own rule for reshaping without a copy, in elements."""
    view = pattern_view(tile.storage.data, tile.offset, tile.shape, tile.strides)
    reshaped = view.reshape(shape)
    if not np.may_share_memory(reshaped, view):
        raise ShapeError(
            "reshape of a slice is a view, so its elements must be adjacent in memory",
            received=f"{tile!r} with strides {tile.strides} to {list(shape)}",
            remedy="reshape the whole tensor before slicing it, or copy the slice first",
        )
    return tuple(stride // view.itemsize for stride in reshaped.strides)
