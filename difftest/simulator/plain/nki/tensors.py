"""``nl.NkiTensor`` in plain mode: each view is an array of the positions that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from difftest.simulator.dtypes import as_dtype
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    OutOfBoundsError,
    ShapeError,
    UnwrittenError,
    not_modelled,
)
from difftest.simulator.frontend.nki.constants import region_of
from difftest.simulator.plain.indices import (
    Shape,
    Slice,
    bytes_of,
    elements_of,
    integer,
    integers,
    walks_by_strides,
)
from difftest.simulator.plain.indices import inside as in_this_mode
from difftest.simulator.plain.meanings import meant
from difftest.simulator.plain.rounding import Array
from difftest.simulator.plain.tensors import OUTSIDE, PlainStorage, PlainTensor
from difftest.simulator.strictness import note
from difftest.simulator.trace import Space


class PlainNkiStorage(PlainStorage):
    """A tensor that also knows which of its bytes a matmul was the last to write."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.products = np.zeros(self.bytes.shape, dtype=np.bool_)

    def tensor(self) -> PlainNkiTensor:
        """All of it."""
        positions = np.arange(elements_of(self.shape)).reshape(self.shape)
        return PlainNkiTensor(self, positions, self.partition, self.dtype)


def refuse(rule: str, received: object, error: type[Any] = ShapeError) -> NoReturn:
    """Raise an error that says what is wrong in a view."""
    raise error(rule, happened=f"not so: {rule}", received=f"{received!r:.80}")


class PlainRegister:
    """A register of 32 bits: an offset or a loop's bound, of which Python knows no value."""

    def __init__(self, value: int | None = None, *, frozen: bool = False) -> None:
        self._value = value
        self._frozen = frozen

    def get(self) -> int:
        """What the device would see."""
        if self._value is None:
            refuse("a register is written before it is read", self, UnwrittenError)
        return self._value

    def set(self, value: int) -> None:
        """Write it."""
        if self._frozen or not -(2**31) <= value < 2**32:
            refuse("a register has 32 bits, and a loop's is not written", value, KernelError)
        self._value = value

    def _unknown(self, *others: Any) -> NoReturn:
        refuse("a register's value is not known while the kernel is built", self, KernelError)

    __bool__ = __int__ = __index__ = __lt__ = __gt__ = __add__ = __sub__ = __mul__ = _unknown


class NoElements:
    """A part of a tensor in HBM without elements, of which there is nothing to use."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.ndim, self.size = shape, len(shape), 0

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse("what is used has an element", (name, self.shape))

    def __getitem__(self, key: Any) -> NoReturn:
        refuse("what is used has an element", (key, self.shape))

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        refuse("what is used has an element", (key, self.shape))


class PlainNkiTensor(PlainTensor):
    """A tensor or a view of one; on chip the first dimension is the partitions'."""

    def at(self, positions: Array, partition: int | None) -> PlainNkiTensor:
        """Elements of the same tensor, by their positions."""
        return PlainNkiTensor(
            self.storage, positions, partition, self.dtype, scattered=self.scattered
        )

    def of(self, positions: Array) -> PlainNkiTensor:
        """A view of this dialect: the first dimension stays the partitions'."""
        return self.at(positions, 0)

    @property
    def buffer(self) -> Any:
        """The memory that the tensor lies in."""
        return region_of(self.space)

    @property
    def name(self) -> str:
        """The name that the kernel gave it."""
        return self.storage.name

    def __setitem__(self, key: Any, value: Any) -> None:
        meant("today's assignment", target=self[key], value=value)

    def __bool__(self) -> bool:
        """True, as any object: kernels ask whether they got one."""
        return True

    def __iter__(self) -> Iterator[PlainNkiTensor]:
        return (self[k] for k in range(self.shape[0]))

    # -- elements ----------------------------------------------------------------------------

    def write(self, elements: Array, where: Array | None = None) -> None:
        """As of the plain mode; what is written is no matmul's any more."""
        super().write(elements, where)
        chosen = self.positions if where is None else self.positions[where]
        storage: Any = self.storage
        storage.products[bytes_of(chosen, self.itemsize)] = False

    def of_matmuls(self) -> Array:
        """Where a matmul was the last to write."""
        storage: Any = self.storage
        found: Array = storage.products[bytes_of(self.positions, self.itemsize)].all(axis=-1)
        return found

    def write_product(self, elements: Array) -> None:
        """:meth:`write` by a matmul."""
        self.write(elements)
        storage: Any = self.storage
        storage.products[bytes_of(self.positions, self.itemsize)] = True

    # -- indexing ----------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        items = [in_this_mode(item) for item in (key if isinstance(key, tuple) else (key,))]
        dots = [k for k, item in enumerate(items) if item is Ellipsis]
        missing = self.ndim - len(items) + len(dots)
        if len(dots) > 1 or missing < 0:
            refuse("an index has one item for each dimension", key)
        at = dots[0] if dots else len(items)
        items = [*items[:at], *[slice(None)] * missing, *items[at + len(dots) :]]
        positions, shape = self.positions, []
        for axis, item in enumerate(items):
            chosen, is_one = self._chosen(item, self.shape[axis], axis)
            positions = np.take(positions, chosen, axis)
            if not is_one or (axis == 0 and not self.in_hbm):
                shape.append(len(chosen))
        if 0 in shape:
            return NoElements(tuple(shape))
        least = 1 if self.in_hbm or self.ndim == 1 else 2
        shape += [1] * (least - len(shape))
        return self.of(positions.reshape(shape))

    def _chosen(self, item: Any, size: int, axis: int) -> tuple[list[int], bool]:
        """The indices that an item names, and whether it is an integer."""
        if isinstance(item, Slice):
            first, last, step = item.start, item.start + item.size, 1
        elif isinstance(item, slice):
            step = 1 if item.step is None else integer(item.step, "a slice's step")
            first = 0 if item.start is None else integer(item.start, "a slice's start")
            last = size if item.stop is None else integer(item.stop, "a slice's stop")
            first, last = (number + size if number < 0 else number for number in (first, last))
        elif isinstance(item, range):
            error = KernelError(
                "an index is no loop", happened="a loop was an index", received=f"{item}"
            )
            note(error)
            first, last, step = item.start, item[-1] + 1 if item else item.start, item.step
        else:
            number = integer(item, "an index")
            if not -size <= number < size:
                refuse("an access stays inside its tensor", (number, self), OutOfBoundsError)
            return [number % size], True
        if step < 1:
            refuse("a slice has a positive step", item, KernelError)
        found = list(range(first, last, step))
        if not found and not (self.in_hbm and first == last):
            refuse("a slice selects an element", item)
        if first < 0 or last > size:
            refuse("an access stays inside its tensor", (item, axis, self), OutOfBoundsError)
        return found, False

    # -- views -------------------------------------------------------------------------------

    def _dim(self, dim: Any, first: int = 0, extra: int = 0) -> int:
        number = integer(dim, "a dimension")
        at = number + self.ndim + extra if number < 0 else number
        if not first <= at < self.ndim + extra:
            refuse("a view names a dimension that it may change", (dim, self))
        return at

    @property
    def _free(self) -> int:
        """The first dimension that a view may change."""
        return 0 if self.in_hbm else 1

    def slice(self, dim: Any, start: Any, end: Any, step: Any = 1) -> PlainNkiTensor:
        """``start:end:step`` of one dimension."""
        axis = self._dim(dim)
        if not 0 <= integer(start, "start") < integer(end, "end"):
            refuse("slice takes 0 <= start < end", (start, end))
        found: PlainNkiTensor = self[(slice(None),) * axis + (slice(start, end, step),)]
        return found

    def select(self, dim: Any, index: Any) -> PlainNkiTensor:
        """One element of a dimension, which goes."""
        if hasattr(index, "__index__") and not isinstance(index, (PlainTensor, PlainRegister)):
            chosen: PlainNkiTensor = self[(slice(None),) * self._dim(dim) + (index,)]
            return chosen
        axis = self._dim(dim, self._free)
        numbers = self._offsets(index)
        if numbers.size != 1:
            refuse("a scalar offset is one element", index)
        number = int(numbers[0])
        inside = 0 <= number < self.shape[axis]
        positions = np.take(self.positions, number if inside else 0, axis)
        while positions.ndim < (1 if self.in_hbm else 2):
            positions = positions[..., None]
        return self._as(positions if inside else np.full_like(positions, OUTSIDE), self.dtype)

    def _offsets(self, index: Any) -> Array:
        """The integers that a tensor in SBUF holds, column after column."""
        if isinstance(index, PlainRegister):
            return np.array([index.get()], np.int64)
        if not isinstance(index, PlainTensor) or index.space is not Space.SBUF:
            raise not_modelled("another offset in plain mode", f"{index!r:.60}")
        if index.dtype.kind not in "iu":
            refuse("an offset is an integer", index, DtypeError)
        numbers: Array = index.read().astype(np.int64).T.reshape(-1)
        return numbers

    def permute(self, dims: Any) -> PlainNkiTensor:
        """The dimensions in another order."""
        order = integers(dims, "dims")
        if sorted(order) != list(range(self.ndim)) or (not self.in_hbm and order[0] != 0):
            refuse("permute takes each dimension once, on chip the first in its place", dims)
        return self.of(self.positions.transpose(order))

    def broadcast(self, dim: Any, size: Any) -> PlainNkiTensor:
        """A dimension of size 1 repeated."""
        axis, count = self._dim(dim, self._free), integer(size, "size")
        if self.shape[axis] != 1 or count < 1:
            refuse("broadcast repeats a dimension of size 1", (dim, size, self))
        return self.of(np.repeat(self.positions, count, axis))

    def expand_dim(self, dim: Any) -> PlainNkiTensor:
        """A new dimension of size 1."""
        return self.of(np.expand_dims(self.positions, self._dim(dim, self._free, 1)))

    def squeeze_dim(self, dim: Any) -> PlainNkiTensor:
        """Without a dimension of size 1."""
        axis = self._dim(dim, self._free)
        if self.shape[axis] != 1:
            refuse("squeeze_dim removes a dimension of size 1", (dim, self))
        return self.of(np.squeeze(self.positions, axis))

    def reshape_dim(self, dim: Any, shape: Any) -> PlainNkiTensor:
        """One dimension as several."""
        axis = self._dim(dim)
        sizes = self._completed(integers(shape, "shape"), self.shape[axis])
        if axis < self._free and len(sizes) > 1:
            refuse("reshape_dim keeps the partitions", (dim, shape, self))
        return self.of(
            self.positions.reshape((*self.shape[:axis], *sizes, *self.shape[axis + 1 :]))
        )

    def flatten_dims(self, start_dim: Any, end_dim: Any) -> PlainNkiTensor:
        """Adjacent dimensions as one."""
        first = self._dim(start_dim, self._free)
        last = self._dim(end_dim, first)
        merged = elements_of(self.shape[first : last + 1])
        return self._strided((*self.shape[:first], merged, *self.shape[last + 1 :]))

    def reshape(self, shape: Any) -> PlainNkiTensor:
        """The same elements in another shape."""
        sizes = self._completed(integers(shape, "shape"), self.size)
        if not self.in_hbm and sizes[:1] != self.shape[:1]:
            refuse("reshape keeps the partitions", (shape, self))
        return self._strided(sizes)

    def _completed(self, sizes: Shape, total: int) -> Shape:
        """``sizes`` with what -1 stands for; as many elements as ``total``."""
        rest = elements_of(tuple(size for size in sizes if size != -1))
        found = tuple(total // max(rest, 1) if size == -1 else size for size in sizes)
        if elements_of(found) != total or min(found, default=0) < 1:
            refuse("a view keeps the number of elements", (sizes, self))
        return found

    def _strided(self, shape: Shape) -> PlainNkiTensor:
        """The positions in another shape, whose dimensions step through memory evenly."""
        positions = self.positions.reshape(shape)
        if not walks_by_strides(positions):
            refuse("a view merges what is contiguous in memory", (shape, self))
        return self.of(positions)

    def rearrange(self, src_pattern: Any, dst_pattern: Any, fixed_sizes: Any = None) -> Any:
        """Dimensions split, permuted and merged by name."""
        known = dict(fixed_sizes or {})
        flat = [name for side in (src_pattern, dst_pattern) for name in _flat(side)]
        if not all(isinstance(name, str) for name in flat) or len(src_pattern) != self.ndim:
            refuse("rearrange's source pattern names each dimension", src_pattern)
        parts: PlainNkiTensor = self
        names: list[str] = []
        for group in src_pattern:
            members = [group] if isinstance(group, str) else list(group)
            if len(members) > 1:
                sizes = tuple(known.get(name, -1) for name in members)
                parts = parts.reshape_dim(len(names), sizes)
            names += members
        wanted = [[group] if isinstance(group, str) else list(group) for group in dst_pattern]
        order = [name for group in wanted for name in group]
        if sorted(order) != sorted(names) or len(set(names)) != len(names):
            refuse("rearrange's patterns have the same names", (src_pattern, dst_pattern))
        parts = parts.permute(tuple(names.index(name) for name in order))
        for axis, members in enumerate(wanted):
            if len(members) > 1:
                parts = parts.flatten_dims(axis, axis + len(members) - 1)
        return parts

    def view(self, dtype: Any) -> PlainNkiTensor:
        """The same bytes as another dtype; the last dimension is scaled."""
        wanted = as_dtype(dtype)
        old, new = self.itemsize, wanted.itemsize
        if old == new:
            return self._as(self.positions, wanted)
        places = bytes_of(self.positions, old).reshape(*self.shape[:-1], -1)
        free = self.ndim > 1 or self.in_hbm
        if not free or places.shape[-1] % new:
            refuse("a view of another size scales the last dimension", (dtype, self))
        groups = places.reshape(*self.shape[:-1], -1, new)
        starts = groups[..., :1]
        adjacent = (groups == starts + np.arange(new)).all() and not (starts % new).any()
        if not adjacent:
            refuse("a view of another size takes adjacent elements", (dtype, self))
        positions = starts[..., 0] // new
        if not walks_by_strides(positions):
            refuse("a view steps through memory evenly", (dtype, self))
        return self._as(positions, wanted)

    reinterpret_cast = view

    def _as(self, positions: Array, dtype: Any) -> PlainNkiTensor:
        return PlainNkiTensor(self.storage, positions, 0, dtype, scattered=self.scattered)

    # -- access patterns ---------------------------------------------------------------------

    def ap(
        self,
        pattern: Any,
        offset: Any = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: Any = 0,
        dtype: Any = None,
    ) -> PlainNkiTensor:
        """``[[stride, count], ...]`` on the storage, by the nested loops of AWS's page."""
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        pairs = [(integer(step, "a stride"), integer(count, "a count")) for step, count in pattern]
        if not pairs or min(count for _, count in pairs) < 1:
            refuse("ap's counts are at least 1", pattern)
        start = self._start(offset, wanted)
        row = self._row(wanted)
        if not self.in_hbm:
            if pairs[0][1] > 1 and pairs[0][0] != row:
                refuse("the first stride on chip is the elements of a partition", pattern)
            pairs[0] = (row, pairs[0][1])
        if scalar_offset is None and vector_offset is None:
            positions = np.array(start)
            for step, count in pairs:
                positions = positions[..., None] + step * np.arange(count)
            self._check_extent(positions, row)
            return self._as(positions, wanted)
        return self._moved(pairs, start, scalar_offset, vector_offset, indirect_dim, wanted)

    def _start(self, offset: Any, dtype: Any) -> int:
        begin: int = int(self.positions.reshape(-1)[0]) * self.itemsize
        if offset is not None:
            if begin:
                refuse("ap with an offset is called on a whole tensor", self, KernelError)
            return integer(offset, "an offset")
        if begin % dtype.itemsize:
            refuse("ap of another dtype begins at one of its elements", self)
        start: int = begin // dtype.itemsize
        return start

    def _row(self, dtype: Any) -> int:
        """Elements of a partition; of a tensor in HBM all of them."""
        shape = self.storage.shape if self.in_hbm else self.storage.shape[1:]
        size: int = elements_of(shape) * self.storage.dtype.itemsize // dtype.itemsize
        return size

    def _check_extent(self, positions: Array, row: int) -> None:
        """Each partition of the pattern lies in one of the tensor's; in HBM all of it inside."""
        rows = 1 if self.in_hbm else self.storage.shape[0]
        inside = (positions >= 0) & (positions < rows * row)
        lines = positions.reshape(1 if self.in_hbm else len(positions), -1)
        one = (lines // row == lines[:, :1] // row).all()
        if not inside.all() or not one:
            refuse("an access pattern stays in its tensor", self, OutOfBoundsError)

    def _moved(
        self, pairs: Any, start: int, scalar: Any, vector: Any, dim: Any, dtype: Any
    ) -> PlainNkiTensor:
        """A pattern in HBM that one offset moves, or one for each row; outside it is OUTSIDE."""
        index = scalar if vector is None else vector
        by_rows = vector is not None
        if scalar is not None and by_rows:
            refuse("ap takes one dynamic offset", self, KernelError)
        axis = integer(dim, "indirect_dim")
        if not 0 <= axis < self.ndim or (by_rows and (axis or not self.in_hbm)):
            refuse("ap's indirect_dim is a dimension", dim, KernelError)
        numbers = self._offsets(index)
        count = pairs[0][1] if by_rows else 1
        if numbers.size < count or (not by_rows and numbers.size != 1):
            refuse("ap has an offset for each row", index)
        chosen = numbers[:count]
        unit = elements_of(self.shape[axis + 1 :]) * self.itemsize // dtype.itemsize
        rest = pairs[1:] if by_rows else pairs
        positions = start + chosen * unit
        for step, size in rest:
            positions = positions[..., None] + step * np.arange(size)
        if not by_rows:
            positions = positions[0]
        lines = positions.reshape(count, -1)
        most = self.storage.bytes.size // dtype.itemsize
        fits = (chosen >= 0) & (chosen < self.shape[axis])
        fits = fits & (lines.min(axis=1) >= 0) & (lines.max(axis=1) < most)
        if not self.in_hbm and fits.all():
            self._check_extent(positions, self._row(dtype))
        kept = np.where(fits[:, None], lines, OUTSIDE).reshape(positions.shape)
        return PlainNkiTensor(self.storage, kept, 0, dtype, scattered=True)

    def vector_select(self, dim: Any, vector_offset: Any) -> PlainNkiTensor:
        """A row for each offset."""
        if integer(dim, "dim") != 0 or not isinstance(vector_offset, PlainTensor):
            refuse("vector_select takes dimension 0 and a tensor", (dim, vector_offset))
        pairs = [[0, vector_offset.shape[0]]]
        sizes = self.shape[1:]
        pairs += [[elements_of(sizes[k + 1 :]), size] for k, size in enumerate(sizes)]
        return self.ap(pairs, vector_offset=vector_offset)


def _flat(pattern: Any) -> list[Any]:
    """The names of a pattern of rearrange."""
    if not isinstance(pattern, (str, tuple, list)):
        return [pattern]
    groups = [one if isinstance(one, (tuple, list)) else (one,) for one in pattern]
    return [name for group in groups for name in group]


def _no_operator(symbol: str) -> Any:
    def operator(self: PlainNkiTensor, *others: Any) -> NoReturn:
        refuse("tensors of today's dialect have no operators", (symbol, self), KernelError)

    return operator


for _symbol in (
    *("add", "sub", "mul", "truediv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"),
    *("matmul", "neg", "abs", "invert", "lt", "le", "gt", "ge"),
):
    for _method in (f"__{_symbol}__", f"__r{_symbol}__", f"__i{_symbol}__"):
        setattr(PlainNkiTensor, _method, _no_operator(_symbol))
for _method in ("__eq__", "__ne__", "__hash__"):
    setattr(PlainNkiTensor, _method, getattr(object, _method))
