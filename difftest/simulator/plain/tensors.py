"""Tensors, and tiles: arrays of the positions that they name in their tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from difftest.simulator.dtypes import BOOL, name_of
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    Location,
    OutOfBoundsError,
    ShapeError,
    UnwrittenError,
    host_array,
    kernel_location,
)
from difftest.simulator.frontend.arguments import AnyTensor
from difftest.simulator.plain.brackets import fill, indices_of, lengths
from difftest.simulator.plain.indices import (
    Offset,
    PlainIndex,
    PlainMask,
    PlainMaskedOperand,
    Shape,
    bytes_of,
    check_index_shapes,
    check_partition_walk,
    common_shape,
    elements_of,
    inside,
    integer,
    integers,
    is_integer,
    walks_by_strides,
    whole_numbers,
    with_whole_axes,
)
from difftest.simulator.plain.rounding import Array, host_dtype, poison, rounded
from difftest.simulator.plain.syntax import Operators
from difftest.simulator.strictness import doubt
from difftest.simulator.trace import Space

OUTSIDE = -1
"""The position of an element that lies outside its tensor."""


class PlainStorage:
    """One tensor: its bytes, and which of them were ever written."""

    def __init__(
        self,
        shape: Shape,
        dtype: np.dtype[Any],
        space: Space,
        *,
        partition: int = 0,
        data: Array | None = None,
        mutable: bool = True,
        name: str = "",
        location: Location | None = None,
    ) -> None:
        elements = host_array(poison, shape, dtype) if data is None else data
        self.shape, self.bytes = shape, elements.reshape(-1).view(np.uint8)
        self.written = np.full(self.bytes.shape, data is not None)
        self.lost = np.zeros(self.bytes.shape, np.bool_)
        """Which bytes an instruction ever made of what nothing wrote, at ``lost_at`` the last."""
        self.lost_at: Location | None = None
        self.is_destination = self.masked = False
        """A mask left elements out: reading them gives poison and is no error."""
        self.dtype, self.space, self.partition = dtype, space, partition
        self.mutable, self.name = mutable, name
        self.location = location
        """The kernel's line that made it; None for a parameter."""
        self.of_matmul = False

    def tensor(self) -> PlainTensor:
        """All of it as a tile."""
        positions = np.arange(elements_of(self.shape)).reshape(self.shape)
        return PlainTensor(self, positions, self.partition, self.dtype)

    def elements(self, dtype: np.dtype[Any]) -> Array:
        """The bytes as elements of ``dtype``, flat: those that are left at the end are not."""
        count = self.bytes.size // dtype.itemsize
        return self.bytes[: count * dtype.itemsize].view(host_dtype(dtype))

    def written_elements(self, dtype: np.dtype[Any]) -> Array:
        """For each of :meth:`elements` whether all its bytes were written."""
        count = self.bytes.size // dtype.itemsize
        flags = self.written[: count * dtype.itemsize].reshape(count, dtype.itemsize)
        written: Array = np.all(flags, axis=1)
        return written


class PlainTensor(Operators, AnyTensor):
    """A tensor or a part of it: ``positions`` are flat, int64, in the tile's own shape.

    They count elements of ``dtype``, the tensor's own or that of a view. ``partition`` is the axis
    that runs over partitions, None where an index took it away.
    """

    __array_ufunc__ = None

    def __init__(
        self,
        storage: PlainStorage,
        positions: Array,
        partition: int | None,
        dtype: np.dtype[Any],
        *,
        scattered: bool = False,
    ) -> None:
        self.storage, self.positions, self.partition = storage, positions, partition
        self.dtype = dtype
        self.scattered = scattered
        """Named by a tile of indices: of several values for one element the last one counts."""

    shape = property(lambda self: self.positions.shape)
    ndim = property(lambda self: self.positions.ndim)
    size = property(lambda self: int(self.positions.size))
    itemsize = property(lambda self: self.dtype.itemsize)
    space = property(lambda self: self.storage.space)
    in_hbm = property(lambda self: self.storage.space.is_hbm)

    def __repr__(self) -> str:
        return (
            f"{self.storage.name or 'tile'} {list(self.shape)} {self.dtype} in {self.space.value}"
        )

    def __len__(self) -> int:
        if not self.ndim:
            raise ShapeError(
                "a tile of no dimension has no length",
                happened="len() was asked of a tile that has no dimension",
                received=repr(self),
            )
        return int(self.shape[0])

    def __iter__(self) -> Iterator[PlainTensor]:
        return (self[k] for k in range(len(self)))

    def __bool__(self) -> bool:
        rule = "control flow cannot depend on a tensor's value"
        self._refuse(rule, "a tensor was used as a condition")

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        self._refuse("a tile is not an array", "a tile was used as a NumPy array")

    def _refuse(self, rule: str, happened: str) -> NoReturn:
        raise KernelError(rule, happened=happened, received=repr(self))

    # -- elements ----------------------------------------------------------------------------

    def check_bounds(self, where: Array | None = None) -> None:
        """Raise if an element (of those that ``where`` keeps) lies outside the tensor."""
        outside = self.positions == OUTSIDE
        if (outside if where is None else outside & where).any():
            raise OutOfBoundsError(
                "an access stays inside its tensor",
                happened="an access left its tensor",
                received=repr(self),
            )

    def read(self, where: Array | None = None) -> Array:
        """A copy of the elements; outside ``where`` they may be anything.

        Raises
        ------
        OutOfBoundsError, UnwrittenError : of an element that ``where`` keeps.
        """
        self.check_bounds(where)
        inside = np.where(self.positions == OUTSIDE, 0, self.positions)
        missing = ~self.storage.written_elements(self.dtype)[inside]
        if (missing if where is None else missing & where).any() and not self.storage.masked:
            doubt(
                UnwrittenError(
                    "an instruction reads only what was written before",
                    happened="an instruction read what nothing had written",
                    received=f"{self!r}: {int(missing.sum())} elements were never written",
                )
            )
        found = self.storage.elements(self.dtype)[inside]
        return np.array(found.view(np.uint8) != 0 if self.dtype == BOOL else found)

    def leave_out(self, where: Array) -> None:
        """Note that a mask leaves elements out of a tensor on chip that is not all written."""
        if not where.all() and not self.in_hbm and not self.storage.written.all():
            self.storage.masked = True

    def holes(self, where: Array) -> Array:
        """Which elements, of those that ``where`` keeps, an instruction may carry on as unwritten.

        Raises
        ------
        OutOfBoundsError : of an element that ``where`` keeps. UnwrittenError : none was written.
        """
        self.check_bounds(where)
        inside = np.where(self.positions == OUTSIDE, 0, self.positions)
        found: Array = ~self.storage.written_elements(self.dtype)[inside] & where
        if self.storage.masked or not found.any():
            return np.zeros(self.shape, dtype=np.bool_)
        if (found == where).all():
            self.read(where)  # raises
            return np.zeros(self.shape, dtype=np.bool_)
        return found

    def readable(self, where: Array, *, carries: bool) -> tuple[Array, Array]:
        """The elements, and :meth:`holes`; without ``carries`` those are an error."""
        if not carries:
            return self.read(where), np.zeros(self.shape, dtype=np.bool_)
        holes = self.holes(where)
        return self.read(where & ~holes), holes

    def forget(self, where: Array) -> None:
        """Note that these elements hold what nothing wrote; they look so from now on."""
        self.storage.elements(self.dtype)[self.positions[where]] = poison((), self.dtype)
        places = bytes_of(self.positions[where], self.itemsize)
        if places.size:
            self.storage.written[places], self.storage.lost[places] = False, True
            self.storage.lost_at = kernel_location()

    def lost(self) -> Array:
        """Where an instruction made it of what nothing wrote."""
        found: Array = np.all(self.storage.lost[bytes_of(self.positions, self.itemsize)], axis=-1)
        return found & self.missing()

    def missing(self) -> Array:
        """Where it was never written."""
        return ~self.storage.written_elements(self.dtype)[self.positions]

    def write(self, elements: Array, where: Array | None = None) -> None:
        """Put elements, in the dtype's own bits, where ``where`` is true; one after the other."""
        chosen = np.ones(self.shape, dtype=np.bool_) if where is None else where
        if not self.storage.mutable:
            rule = "a kernel does not write to its parameters"
            self._refuse(rule, "an instruction was to write to a parameter")
        self.check_bounds(chosen)
        self.storage.is_destination = True
        data = self.storage.elements(self.dtype)
        given = np.ascontiguousarray(elements[chosen])
        data[self.positions[chosen]] = given
        bits = f"u{given.itemsize}"
        lost = data[self.positions[chosen]].view(bits) != given.view(bits)
        if lost.any() and not self.scattered:
            raise ShapeError(
                "a destination that names an element more than once gives it one value",
                happened="an element was given two values at once",
                received=repr(self),
            )
        self.storage.written[bytes_of(self.positions[chosen], self.itemsize)] = True

    def put(self, values: Array, where: Array | None = None) -> None:
        """Round an instruction's results once into the dtype, and :meth:`write` them."""
        self.write(rounded(values, self.dtype), where)

    # -- views -------------------------------------------------------------------------------

    def at(self, positions: Array, partition: int | None) -> PlainTensor:
        """Elements of the same tensor, by their positions."""
        return PlainTensor(self.storage, positions, partition, self.dtype, scattered=self.scattered)

    def tile(self) -> PlainTensor:
        """The same elements with the partitions first and at least two dimensions."""
        if self.in_hbm:
            return self
        if self.partition is None:
            positions = self.positions.reshape(1, *(self.shape or (1,)))
            return self.at(positions, 0)
        if self.partition != 0:
            raise ShapeError(
                "a tile's first dimension is its partition",
                happened="a tensor with block dimensions was used as a tile",
                received=repr(self),
            )
        return self if self.ndim > 1 else self.at(self.positions.reshape(-1, 1), 0)

    def rows(self) -> PlainTensor:
        """The same elements as partitions and one free axis."""
        tile = self.tile()
        return self.at(tile.positions.reshape(tile.shape[0], -1), 0)

    def spread(self, shape: Shape) -> PlainTensor:
        """The elements repeated to ``shape``: partitions align first, free axes from the last."""
        have = self.shape
        aligned = (*have[:1], *(1,) * (len(shape) - len(have)), *have[1:])
        if len(have) > len(shape) or common_shape(aligned, shape) != shape:
            raise ShapeError(
                "an operand repeats along dimensions of size 1",
                happened=f"an operand of {list(have)} was to repeat to {list(shape)}",
                received=f"{self!r}",
            )
        positions = np.broadcast_to(self.positions.reshape(aligned), shape)
        return self.at(positions, self.partition)

    def __getitem__(self, key: Any) -> Any:
        if key is Ellipsis:
            return self
        items = tuple(map(inside, key if isinstance(key, tuple) else (key,)))
        if len(items) == 1 and isinstance(items[0], PlainMask):
            return PlainMaskedOperand(self, items[0])
        named = sum(1 for item in items if item is not None and item is not Ellipsis)
        if named == 2 and self.ndim == 1 and not self.in_hbm:
            return self.tile()[key]  # a column or a row of a tile has two dimensions
        if any(isinstance(item, (PlainIndex, PlainTensor, Offset)) for item in items):
            self.check_bounds()
            return self._advanced(items)
        return self._basic(items)

    def _pick(self, indices: list[Array], partition: int | None) -> PlainTensor:
        """The elements at ``indices`` (one array for each dimension, which broadcast)."""
        inside = np.ones((), dtype=np.bool_)
        for index, size in zip(indices, self.shape, strict=True):
            inside = inside & (index >= 0) & (index < size)
        if not np.all(inside):
            self.check_bounds()  # a part of what leaves its tensor lies inside what it named
        within = [
            np.clip(index, 0, size - 1) for index, size in zip(indices, self.shape, strict=True)
        ]
        return self.at(np.where(inside, self.positions[tuple(within)], OUTSIDE), partition)

    def _basic(self, items: tuple[Any, ...]) -> PlainTensor:
        """Integers, slices, ``nl.ds``, None and '...': one line of indices for each axis."""
        items = fill(items, self.ndim)
        new_axes = sum(1 for item in items if item is None or not is_integer(item))
        indices: list[Array] = []
        partition, at = None, 0
        for item in items:
            if item is None:
                at += 1
                continue
            axis = len(indices)
            if is_integer(item):
                indices.append(np.array(integer(item, "an index")))
                continue
            line = np.array(indices_of(item, self.shape[axis]))
            indices.append(line.reshape(-1, *(1,) * (new_axes - at - 1)))
            partition = at if axis == self.partition else partition
            at += 1
        picked = self._pick(indices, partition)
        return self.at(picked.positions.reshape(lengths(items, self.shape)), partition)

    def _advanced(self, items: tuple[Any, ...]) -> Any:
        """One index expression, integer or tile for each dimension."""
        for item in items:
            if not (isinstance(item, (PlainIndex, PlainTensor, Offset)) or is_integer(item)):
                raise KernelError(
                    "basic and advanced indexing do not mix",
                    happened="a tensor was indexed with slices and index expressions at once",
                    received=f"{item!r} on {self!r}",
                )
        dynamic = any(isinstance(item, (PlainTensor, Offset)) for item in items)
        items = with_whole_axes(items, self)
        if dynamic:
            return Indirect(self, items)
        arrays = [
            item.values if isinstance(item, PlainIndex) else np.array(int(item)) for item in items
        ]
        shape = common_shape(*(array.shape for array in arrays))
        if not self.in_hbm:
            check_partition_walk(arrays, shape, self.partition, repr(self))
        picked = self._pick(arrays, 0)
        return self.at(np.broadcast_to(picked.positions, shape), 0)

    def reshape(self, shape: Any) -> PlainTensor:
        """The same elements in row-major order in another shape, if that is a view by strides."""
        wanted = whole_numbers(shape, "reshape")
        if -1 in wanted:
            rest = elements_of(tuple(size for size in wanted if size != -1))
            wanted = tuple(self.size // max(rest, 1) if size == -1 else size for size in wanted)
        if elements_of(wanted) != self.size or min(wanted, default=1) < 1:
            raise ShapeError(
                "reshape keeps the number of elements",
                happened=f"reshape was to make {self.size} elements {elements_of(wanted)}",
                received=f"{self!r}: {wanted}",
            )
        self.check_bounds()
        if not self.in_hbm and self.partition is not None:
            before, kept = self.shape[: self.partition], self.shape[self.partition]
            stays = wanted[self.partition : self.partition + 1] == (kept,)
            if not stays or elements_of(wanted[: self.partition]) != elements_of(before):
                raise ShapeError(
                    "reshape keeps the partition dimension",
                    happened="reshape would move or resize the partition dimension",
                    received=f"{self!r}: {wanted}",
                )
        positions = self.positions.reshape(wanted)
        if not walks_by_strides(positions):
            raise ShapeError(
                "reshape is a view, so the elements are adjacent",
                happened="reshape met elements that are not adjacent in memory",
                received=f"{self!r}: {wanted}",
            )
        return self.at(positions, self.partition)

    def broadcast_to(self, shape: Any) -> PlainTensor:
        """The elements repeated along dimensions of size 1; the partition dimension is kept."""
        wanted = integers(shape, "broadcast_to's shape")
        whole = self.tile()
        whole.check_bounds()
        missing = len(wanted) - whole.ndim
        fits = (
            missing >= 0
            and min(wanted, default=1) > 0
            and all(
                have in (1, want)
                for have, want in zip(whole.shape, wanted[max(missing, 0) :], strict=False)
            )
        )
        if not fits or (missing and not self.in_hbm and whole.shape[0] != 1):
            raise ShapeError(
                "broadcast_to repeats dimensions of size 1",
                happened=f"broadcast_to was to repeat {list(self.shape)} to {shape!r:.40}",
                received=f"{self!r}",
            )
        positions = np.broadcast_to(whole.positions, wanted)
        return whole.at(positions, whole.partition)

    def expand_dims(self, axis: Any) -> PlainTensor:
        """A free dimension of size 1 inserted at ``axis``."""
        number = integer(axis, "expand_dims' axis")
        at = number + self.ndim + 1 if number < 0 else number
        if not (0 if self.in_hbm else 1) <= at <= self.ndim:
            raise ShapeError(
                "expand_dims inserts a free dimension",
                happened=f"expand_dims was to insert axis {axis} into {self.ndim} dimensions",
                received=f"axis {axis}",
            )
        self.check_bounds()
        return self.at(np.expand_dims(self.positions, at), self.partition)

    def assert_shape(self, shape: Any) -> PlainTensor:
        """The tile itself if it has this shape."""
        if self.shape != integers(shape, "assert_shape"):
            raise ShapeError(
                "assert_shape",
                happened=f"a tile has the shape {list(self.shape)}, not {shape!r:.40}",
                received=f"{self!r}",
                limit=f"{shape}",
            )
        return self


class Indirect:
    """A tensor indexed with a tile: which elements, is known when the kernel runs."""

    def __init__(self, base: PlainTensor, items: tuple[Any, ...]) -> None:
        self.base, self.items = base, items
        self.shape = common_shape(*(_indirect_shape(item) for item in items))
        tiles = (item.tile if isinstance(item, Offset) else item for item in items)
        check_index_shapes(
            [_index_shape(tile) for tile in tiles if isinstance(tile, PlainTensor)], self.shape
        )

    def resolve(self, where: Array | None = None) -> PlainTensor:
        """The tile that it names now; positions out of bounds are OUTSIDE.

        Of index tiles only what ``where``, bools over the access, keeps must have been written.
        """
        kept = np.ones(self.shape, np.bool_) if where is None else where.reshape(self.shape)
        indices = [np.array(_indirect_values(item, kept)) for item in self.items]
        picked = self.base._pick(indices, 0)
        positions = np.broadcast_to(picked.positions, self.shape)
        return PlainTensor(self.base.storage, positions, 0, self.base.dtype, scattered=True)


def _index_shape(tile: PlainTensor) -> Shape:
    """An index tile of one element is a scalar."""
    shape: Shape = tile.tile().shape
    return () if tile.size == 1 else shape


def _indirect_shape(item: Any) -> Shape:
    if isinstance(item, PlainIndex):
        return item.shape
    if isinstance(item, Offset):
        return common_shape(_index_shape(item.tile), item.index.shape)
    return _index_shape(item) if isinstance(item, PlainTensor) else ()


def _indirect_values(item: Any, where: Array) -> Any:
    if isinstance(item, PlainIndex):
        return item.values
    if isinstance(item, Offset):
        return _indirect_values(item.tile, where) + item.index.values
    if not isinstance(item, PlainTensor):
        return int(item)
    if item.dtype.kind not in "iu":
        raise DtypeError(
            "indices held in a tile are integers",
            happened=f"a tensor was indexed with a tile of {name_of(item.dtype)}",
            received=repr(item),
        )
    have = _index_shape(item)
    aligned = (*(1,) * (where.ndim - len(have)), *have)
    repeats = tuple(k for k, size in enumerate(aligned) if size != where.shape[k])
    kept = where.any(axis=repeats).reshape(item.shape)
    return item.read(kept).astype(np.int64).reshape(have)
