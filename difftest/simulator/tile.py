"""Tiles: typed access patterns on memory.

A :class:`Tile` is a :class:`~difftest.simulator.pattern.Pattern` and a dtype on one tensor: what
the hardware's instructions take. Indexing and views copy nothing. An index that leaves its tensor
makes a tile that remembers so: a mask may still cut it back (``frontend/classic/calls.py``), and
any use of it without one raises.
"""

from __future__ import annotations

import sys
from types import NoneType
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import BOOL, Array, DType, dtype_name, from_bits
from difftest.simulator.elements import Elements, unwritten_error
from difftest.simulator.errors import NkiError
from difftest.simulator.index import (
    as_integer,
    as_integers,
    expand_ellipsis,
    is_index_integer,
    no_index,
)
from difftest.simulator.indexing import (
    Axis,
    Named,
    Patterned,
    broadcast,
    by_hand,
    indexed_view,
    names_two,
    out_of_bounds,
    reinterpreted,
    reshaped,
)
from difftest.simulator.memory import UNWRITTEN, Storage
from difftest.simulator.misuses import (
    BLOCKS_AS_TILE,
    LENGTH_OF_SCALAR,
    TENSOR_AS_CONDITION,
    TILE_AS_ARRAY,
)
from difftest.simulator.pattern import Pattern, Shape
from difftest.simulator.strictness import report_undefined
from difftest.simulator.trace import Space

T = TypeVar("T", bound="Tile")
OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "mod": "mod",
    "pow": "power",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
"""Python's operators, and what NumPy and ``nki.language`` call each."""
_REFLECTED = {
    **{getattr(np, name): f"__r{symbol}__" for symbol, name in OPERATORS.items()},
    np.less: "__gt__",
    np.less_equal: "__ge__",
    np.greater: "__lt__",
    np.greater_equal: "__le__",
    np.equal: "__eq__",
    np.not_equal: "__ne__",
}
"""By NumPy's function, what a tile calls it that is its second operand."""


class Tile(Elements, Patterned):
    """An access pattern on a tensor, in elements of ``dtype``.

    ``partition_axis`` is the axis that runs over partitions, None where an integer index took it
    away. ``axes`` is set only while the pattern leaves its tensor: how that was walked, or the
    error that any use raises.
    """

    __slots__ = ("_axes", "_literal", "_partition_axis", "_pattern", "_storage", "dtype", "shape")

    _may_collide = False
    """Whether a destination may name an element more than once and get different values for it.
    Which one stays is not documented, so it counts as never written then."""

    def __init__(
        self,
        storage: Storage,
        pattern: Pattern,
        partition_axis: int | None,
        dtype: DType | None = None,
        axes: tuple[Axis, ...] | NkiError | None = None,
    ) -> None:
        self._storage = storage
        self._pattern = pattern
        self.shape = pattern[1]
        self._partition_axis = partition_axis
        self.dtype = storage.dtype if dtype is None else dtype
        """The NKI dtype of its elements: the tensor's own unless a view gave it another."""
        self._axes = axes

    @classmethod
    def _whole(cls: type[T], storage: Storage) -> T:
        """The tile that is all of a tensor."""
        return cls(storage, storage.whole, storage.allocation.partition_axis)

    def _derive(
        self: T,
        pattern: Pattern,
        partition_axis: int | None,
        dtype: DType | None = None,
        axes: tuple[Axis, ...] | None = None,
    ) -> T:
        """Another pattern on the same tensor; ``dtype`` None for the tile's own."""
        if self._axes is not None:
            self._check_bounds()
        dtype = self.dtype if dtype is None else dtype
        return type(self)(self._storage, pattern, partition_axis, dtype, axes)

    @property
    def size(self) -> int:
        return self._pattern.size

    _in_place: ClassVar[bool] = False
    """Whether kernels of the tile's dialect write to their arguments."""

    def _is_whole(self) -> bool:
        """Whether it is all of its tensor in the tensor's own order, in whatever shape or dtype.

        A tile of as many elements may be something else: two axes swapped or one reversed by
        their indices, or a part that repeats.
        """
        storage = self._storage
        if self._pattern is storage.whole and self.dtype is storage.dtype:
            return True
        size = storage.size
        if self.dtype is not storage.dtype:
            size = size * storage.dtype.itemsize // self.dtype.itemsize
        return self._pattern.is_whole(size)

    def _repeats(self) -> bool:
        """Return whether the tile names an element more than once; an indirect one may."""
        return self._strided and self._pattern.repeats()

    def __repr__(self) -> str:
        name = self._storage.allocation.name
        text = (
            f"{name or 'tile'} {list(self.shape)} {dtype_name(self.dtype)} in {self._space.value}"
        )
        if self._axes is None and is_for_a_person():
            text += "\n" + contents(self._values(unwritten=True), self._unwritten())
        return text

    def __len__(self) -> int:
        if not self.shape:
            raise LENGTH_OF_SCALAR(repr(self))
        return self.shape[0]

    def __bool__(self) -> bool:
        raise TENSOR_AS_CONDITION(f"{self!r} used as a condition")

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TILE_AS_ARRAY(f"{self!r} used as a NumPy array or a number")

    __float__ = __int__ = __array__

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **how: Any) -> Any:
        """Of ``np.float32(2) * tile`` the tile's operator; all else is no function of tiles."""
        operator = getattr(type(given[-1]), _REFLECTED.get(ufunc, ""), None)
        numpys = isinstance(given[0], (np.ndarray, np.generic))
        if operator is None or not numpys or method != "__call__" or how:
            name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            raise TILE_AS_ARRAY(f"np.{name} of {self!r}")
        return operator(given[1], given[0][()])  # a number was made an array of no dimension

    # -- data --------------------------------------------------------------------------------

    def _named(self) -> tuple[Pattern, DType]:
        return self._pattern, self.dtype

    def _check_bounds(self) -> None:
        """Raise :class:`OutOfBoundsError` if the pattern leaves its tensor."""
        if isinstance(self._axes, NkiError):
            raise self._axes
        if self._axes is not None:
            raise out_of_bounds(self, self._axes)

    def _read(self, where: Array | None = None, *, unwritten: bool = False) -> Array:
        """The elements in memory; raises if some are out of bounds or were never written.

        Of ``where``, bools of the tile's size, only the true elements must have been written; with
        ``unwritten`` those that were not can be anything.
        """
        if self._axes is not None:
            self._check_bounds()
        storage = self._storage
        if storage.validity is not None and not unwritten:
            missing = self._unwritten(UNWRITTEN)
            if missing is not None and where is not None:
                missing = missing & where.reshape(missing.shape)
            if missing is not None and missing.any():
                report_undefined(unwritten_error(self, missing))
                storage.poison()
        dtype = self.dtype
        array = storage.elements(self._pattern, dtype)
        if not self._strided:
            array = self._take(array)
        if dtype is BOOL and storage.holds_bits:
            array = np.not_equal(array.view(np.uint8), 0)  # any byte can lie there
        return array

    def _values(self, where: Array | None = None, *, unwritten: bool = False) -> Array:
        """:meth:`_read` as an engine sees them: narrow floats as float32, wherever they lie."""
        array = self._read(where, unwritten=unwritten)
        return from_bits(array, self.dtype) if self._storage.holds_bits else array

    def _engine_values(self, *, unwritten: bool = False) -> Array:
        """:meth:`values` with the partition axis first and at least two dimensions."""
        array = self._read(unwritten=unwritten)
        storage = self._storage
        if storage.holds_bits:
            array = from_bits(array, self.dtype)
        if storage.in_hbm or (self._partition_axis == 0 and len(self.shape) > 1):
            return array
        return array.reshape(self._tile_shape())

    def _signature(self) -> tuple[object, ...]:
        """What :meth:`_descriptor` follows from: tiles of one signature keep the same rules."""
        storage = self._storage
        space = storage.allocation.space
        if storage.in_hbm:
            return (space, self.dtype, self.shape)
        offset, shape, strides = self._pattern
        if space is Space.PSUM:
            place: object = (offset, strides, storage.start, storage.dtype)
        elif offset:
            place = self._first_partition()
        else:
            place = storage.start[0]
        return (space, self.dtype, shape, self._partition_axis, place)

    def _descriptor(self, role: str = "", *, blocks: bool = False) -> Descriptor:
        """The tile as rules see it; ``blocks`` lets it have block dimensions, as free ones."""
        storage = self._storage
        if storage.in_hbm:
            return Descriptor(storage.space, self.dtype, self.shape, 0, None, role)
        start = self._first_partition()
        axis = self._partition_axis
        if blocks and axis:
            shape = (self.shape[axis], *self.shape[:axis], *self.shape[axis + 1 :])
            return Descriptor(storage.space, self.dtype, shape, start, None, role)
        span = self._span() if storage.space is Space.PSUM else None
        return Descriptor(storage.space, self.dtype, self._tile_shape(), start, span, role)

    def _step(self) -> int:
        """Elements of the tile's dtype from one partition to the next."""
        storage = self._storage
        step = storage.allocation.partition_step
        if self.dtype is storage.dtype:
            return step
        return step * storage.dtype.itemsize // self.dtype.itemsize

    def _first_partition(self) -> int:
        """The partition of its first element."""
        storage = self._storage
        number = self._pattern[0] // self._step()
        if number:
            number %= storage.allocation.partitions
        return storage.start[0] + number

    def _span(self) -> tuple[int, int]:
        """First and last byte within each partition."""
        free = 0 if self._partition_axis is None else 1
        first = self._pattern.offset % self._step()
        low, high = Pattern(first, self.shape[free:], self.strides[free:]).extent()
        start = self._storage.start[1]
        return start + low * self._itemsize, start + (high + 1) * self._itemsize - 1

    def _tile_shape(self) -> Shape:
        """The shape with the partition axis first and at least two dimensions."""
        if self._partition_axis is None:
            return (1, *self.shape) if self.shape else (1, 1)
        if self._partition_axis != 0:
            raise BLOCKS_AS_TILE(
                f"{self!r} with its partition dimension at axis {self._partition_axis}"
            )
        return self.shape if len(self.shape) > 1 else (self.shape[0], 1)

    def _as_tile(self: T) -> T:
        """The same elements in :meth:`_tile_shape`; in HBM the tile itself."""
        shape = self.shape if self._in_hbm else self._tile_shape()
        if shape == self.shape:
            return self
        if isinstance(self._axes, NkiError):
            raise self._axes
        missing = (0,) * (len(shape) - len(self.shape))

        def padded(steps: Shape) -> Shape:
            return missing + steps if self._partition_axis is None else steps + missing

        axes = self._axes and tuple(axis._replace(steps=padded(axis.steps)) for axis in self._axes)
        pattern = Pattern(self.offset, shape, padded(self.strides))
        return type(self)(self._storage, pattern, 0, self.dtype, axes)

    # -- parts and views ---------------------------------------------------------------------

    def __getitem__(self: T, key: Any) -> T:
        if key is Ellipsis:
            return self
        items = key if isinstance(key, tuple) else (key,)
        part = None if isinstance(self._axes, NkiError) else indexed_view(self, items)
        if part is not None:
            return type(self)(self._storage, part[0], part[1], self.dtype, part[2])
        if len(self.shape) == 1 and not self._in_hbm and names_two(items):
            self._check_bounds()
            self = self._as_tile()  # a column or a row of a tile has two dimensions
        return self._indexed(items)

    def _indexed(self: T, items: tuple[Any, ...]) -> T:
        """The part that less common indices name: '...', other integers, or what a dialect has."""
        if isinstance(self._axes, NkiError):
            raise self._axes
        items = expand_ellipsis(items, len(self.shape), self, adds=True)
        part = indexed_view(
            self, tuple(as_integer(k, "index") if is_index_integer(k) else k for k in items)
        )
        if part is None:
            other = next(k for k in items if not isinstance(k, (slice, NoneType)))
            kinds = "integers, slices, None and '...', or as its dialect has it"
            raise no_index(other, kinds, f"axis {items.index(other)} of {self!r}")
        return self._part(part)

    def _part(self: T, part: Named) -> T:
        """The tile that an index names."""
        pattern, partition, axes = part
        return type(self)(self._storage, pattern, partition, self.dtype, axes)

    def reshape(self: T, shape: Any) -> T:
        """The same elements in another shape: a view."""
        wanted = as_integers(shape, "reshape to")
        self._check_bounds()
        return self._derive(reshaped(self, wanted), self._partition_axis)

    def _broadcast_to(self: T, shape: Any) -> T:
        """A view that repeats the dimensions of size 1 (stride 0); it cannot be written."""
        wanted = as_integers(shape, "broadcast_to")
        whole = self._as_tile()
        return whole._derive(broadcast(whole, wanted), whole._partition_axis)

    def _reinterpret(self: T, dtype: DType) -> T:
        """The same bytes as elements of another dtype, the last dimension scaled: a view."""
        self._check_bounds()
        pattern = reinterpreted(self, dtype)
        return self._derive(pattern, self._partition_axis, self._held_as(dtype))

    def _with_pattern(self: T, pattern: Pattern, dtype: DType | None = None) -> T:
        """A pattern made by hand on the whole tensor, whatever part of it this tile is.

        Steps and offset are in elements of ``dtype``, None for the tensor's own. On chip the first
        axis walks the partitions.
        """
        storage = self._storage
        wanted = storage.dtype if dtype is None else dtype
        named = by_hand(self, pattern, wanted)
        return type(self)(storage, named, 0, self._held_as(wanted))

    def _held_as(self, dtype: DType) -> DType:
        """``dtype``, once memory holds what elements of that dtype can be read from."""
        storage = self._storage
        if dtype == storage.dtype:
            return storage.dtype
        storage.hold_bits()
        storage.allocation.viewed = True
        return dtype


# -- what a debugger shows of a tile ---------------------------------------------------------------

_DEBUGGERS = frozenset({"pdb", "bdb", "IPython", "pydevd", "_pydevd_bundle", "_pydev_bundle"})
"""Packages that ask for a repr to show it to a person: Python's, IPython's, those of editors."""
_ON_THE_WAY = frozenset({"pprint", "reprlib"})
_FEW = 48
"""Elements that are shown; of more, the ends of each axis."""


def is_for_a_person(depth: int = 2) -> bool:
    """Whether a debugger called the function ``depth`` frames up, such as a ``__repr__``."""
    frame = sys._getframe(depth)
    while frame.f_back is not None and _package(frame.f_globals) in _ON_THE_WAY:
        frame = frame.f_back
    return _package(frame.f_globals) in _DEBUGGERS


def _package(names: dict[str, Any]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]


def contents(values: Array, unwritten: Array | None) -> str:
    """Statistics of what was written, and the values, indented under a headline.

    >>> print(contents(np.float32([[1, 2], [np.nan, 5]]), np.array([[False] * 2, [False, True]])))
      min 1, max 2, mean 1.5; 1 of 4 never written, 1 NaN, 0 infinite
      [[ 1.  2.]
       [nan  5.]]
    """
    numbers = values.astype(np.float64)
    written = numbers if unwritten is None else numbers[~unwritten]
    finite = written[np.isfinite(written)]
    missing = 0 if unwritten is None else int(unwritten.sum())
    text = "nothing finite was written"
    if finite.size:
        text = f"min {finite.min():g}, max {finite.max():g}, mean {finite.mean():g}"
    text += (
        f"; {missing} of {numbers.size} never written, {int(np.isnan(written).sum())} NaN, "
        f"{int(np.isinf(written).sum())} infinite"
    )
    shown = np.array2string(numbers, threshold=_FEW, edgeitems=3, precision=6)
    return "\n".join(f"  {line}" for line in (text, *shown.splitlines()))
