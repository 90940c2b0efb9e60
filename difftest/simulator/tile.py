"""Tiles: typed access patterns on memory.

A :class:`Tile` is a :class:`~difftest.simulator.pattern.Pattern` and a dtype on one tensor: the
operand of the hardware's instructions. Indexing and views copy nothing. An index that leaves its
tensor makes a tile that records the violation. A mask may still limit the tile to its tensor
(``frontend/classic/calls.py``). Any use without a mask raises.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import BOOL, Array, DType, dtype_name, from_bits
from difftest.simulator.elements import Elements, unwritten_error
from difftest.simulator.errors import NkiError, frame_at
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
from difftest.simulator.trace import Region, Space

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
"""Python's operators -> the names in NumPy and ``nki.language``."""
_REFLECTED = {
    **{getattr(np, name): f"__r{symbol}__" for symbol, name in OPERATORS.items()},
    np.less: "__gt__",
    np.less_equal: "__ge__",
    np.greater: "__lt__",
    np.greater_equal: "__le__",
    np.equal: "__eq__",
    np.not_equal: "__ne__",
}
"""NumPy's function -> the method of a tile that is its second operand."""


class Tile(Elements, Patterned):
    """An access pattern on a tensor, in elements of ``dtype``.

    ``partition_axis`` is the axis that runs over partitions; None where an integer index removed
    it.
    ``axes`` is set only if the pattern leaves its tensor: the walk of each dimension, or the error
    that any use raises.
    """

    __slots__ = (
        "_axes",
        "_literal",
        "_partition_axis",
        "_pattern",
        "_regions",
        "_storage",
        "dtype",
        "shape",
    )

    _may_collide = False
    """True if a destination may get different values for one element.

    AWS does not document which value stays, so the element then counts as unwritten.
    """

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
        """The NKI dtype of the elements: the tensor's own unless a view changed it."""
        self._axes = axes
        self._regions: tuple[Region, ...] = ()
        """The regions of recorded accesses to the tile, one for each role."""

    @classmethod
    def _whole(cls: type[T], storage: Storage) -> T:
        """Return the tile of a whole tensor."""
        return cls(storage, storage.whole, storage.allocation.partition_axis)

    def _derive(
        self: T,
        pattern: Pattern,
        partition_axis: int | None,
        dtype: DType | None = None,
        axes: tuple[Axis, ...] | None = None,
    ) -> T:
        """Return another pattern on the same tensor; ``dtype`` defaults to the tile's own."""
        if self._axes is not None:
            self._check_bounds()
        if dtype is None:
            dtype = self.dtype
        return type(self)(self._storage, pattern, partition_axis, dtype, axes)

    @property
    def size(self) -> int:
        return self._pattern.size

    _in_place: ClassVar[bool] = False
    """True if kernels of the tile's dialect write to their arguments."""

    def _is_whole(self) -> bool:
        """Return whether the tile is its whole tensor in order, in any shape or dtype.

        A tile of equal size may differ: its indices may swap or reverse axes, or repeat a part.
        """
        storage = self._storage
        if self._pattern is storage.whole and self.dtype is storage.dtype:
            return True
        size = storage.size
        if self.dtype is not storage.dtype:
            size = size * storage.dtype.itemsize // self.dtype.itemsize
        return self._pattern.is_whole(size)

    def _repeats(self) -> bool:
        """Return whether the tile contains an element more than once; an indirect tile may."""
        return self._strided and self._pattern.repeats()

    def __repr__(self) -> str:
        name = self._storage.allocation.name
        dtype = dtype_name(self.dtype)
        text = f"{name or 'tile'} {list(self.shape)} {dtype} in {self._space.value}"
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
        """Apply the tile's operator in ``np.float32(2) * tile``; raise for all other functions."""
        operator = getattr(type(given[-1]), _REFLECTED.get(ufunc, ""), None)
        numpys = isinstance(given[0], (np.ndarray, np.generic))
        if operator is None or not numpys or method != "__call__" or how:
            name = (
                ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            )
            raise TILE_AS_ARRAY(f"np.{name} of {self!r}")
        # NumPy has converted the number to a 0-d array
        return operator(given[1], given[0][()])

    # -- data --------------------------------------------------------------------------------

    def _named(self) -> tuple[Pattern, DType]:
        return self._pattern, self.dtype

    def _check_bounds(self) -> None:
        """Raise :class:`OutOfBoundsError` if the pattern leaves its tensor."""
        if isinstance(self._axes, NkiError):
            raise self._axes
        if self._axes is not None:
            raise out_of_bounds(self, self._axes)

    def _check_written(self, where: Array | None) -> None:
        """Report unwritten elements, of those where ``where`` is true."""
        missing = self._unwritten(UNWRITTEN)
        if missing is None:
            return
        if where is not None:
            missing = missing & where.reshape(missing.shape)
        if missing.any():
            report_undefined(unwritten_error(self, missing))
            self._storage.poison()

    def _read(self, where: Array | None = None, *, unwritten: bool = False) -> Array:
        """Return the elements in memory; raise if some are out of bounds or unwritten.

        ``where`` is a bool array of the tile's size: only the true elements must have been written.
        With ``unwritten``, unwritten elements are returned as they are.
        """
        if self._axes is not None:
            self._check_bounds()
        storage = self._storage
        if storage.validity is not None:
            if storage.blank:
                storage.poison()
            if not unwritten:
                self._check_written(where)
        dtype = self.dtype
        array = storage.elements(self._pattern, dtype)
        if not self._strided:
            array = self._take(array)
        if dtype is BOOL and storage.holds_bits:
            # memory may hold any byte for a bool
            array = np.not_equal(array.view(np.uint8), 0)
        return array

    def _values(self, where: Array | None = None, *, unwritten: bool = False) -> Array:
        """Return :meth:`_read` as an engine's input: narrow floats as float32, from any memory."""
        array = self._read(where, unwritten=unwritten)
        if self._storage.holds_bits:
            return from_bits(array, self.dtype)
        return array

    def _engine_values(self, *, unwritten: bool = False) -> Array:
        """Return :meth:`_values` with the partition axis first and at least two dimensions."""
        array = self._read(unwritten=unwritten)
        storage = self._storage
        if storage.holds_bits:
            array = from_bits(array, self.dtype)
        if storage.in_hbm or (self._partition_axis == 0 and len(self.shape) > 1):
            return array
        return array.reshape(self._tile_shape())

    def _signature(self) -> tuple[object, ...]:
        """Return the key of :meth:`_descriptor`: tiles of one signature satisfy the same rules."""
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
        """Return the tile's descriptor; with ``blocks``, block dimensions count as free ones."""
        storage = self._storage
        if storage.in_hbm:
            return Descriptor(storage.space, self.dtype, self.shape, 0, None, role)
        start = self._first_partition()
        axis = self._partition_axis
        if blocks and axis:
            shape = (self.shape[axis], *self.shape[:axis], *self.shape[axis + 1 :])
            return Descriptor(storage.space, self.dtype, shape, start, None, role)
        span = self._span() if storage.space is Space.PSUM else None
        return Descriptor(
            storage.space, self.dtype, self._tile_shape(), start, span, role
        )

    def _step(self) -> int:
        """Return the distance from one partition to the next, in elements of the tile's dtype."""
        storage = self._storage
        step = storage.allocation.partition_step
        if self.dtype is storage.dtype:
            return step
        return step * storage.dtype.itemsize // self.dtype.itemsize

    def _first_partition(self) -> int:
        """Return the partition of the first element."""
        storage = self._storage
        number = self._pattern[0] // self._step()
        if number:
            number %= storage.allocation.partitions
        return storage.start[0] + number

    def _span(self) -> tuple[int, int]:
        """Return the first and the last byte within each partition."""
        free = 0 if self._partition_axis is None else 1
        first = self._pattern.offset % self._step()
        low, high = Pattern(first, self.shape[free:], self.strides[free:]).extent()
        start = self._storage.start[1]
        return start + low * self._itemsize, start + (high + 1) * self._itemsize - 1

    def _tile_shape(self) -> Shape:
        """Return the shape with the partition axis first and at least two dimensions."""
        if self._partition_axis is None:
            if self.shape:
                return (1, *self.shape)
            return (1, 1)
        if self._partition_axis != 0:
            raise BLOCKS_AS_TILE(
                f"{self!r} with its partition dimension at axis {self._partition_axis}"
            )
        if len(self.shape) > 1:
            return self.shape
        return (self.shape[0], 1)

    def _as_tile(self: T) -> T:
        """Return the same elements in :meth:`_tile_shape`; in HBM the tile itself."""
        shape = self.shape if self._in_hbm else self._tile_shape()
        if shape == self.shape:
            return self
        if isinstance(self._axes, NkiError):
            raise self._axes
        missing = (0,) * (len(shape) - len(self.shape))

        def padded(steps: Shape) -> Shape:
            if self._partition_axis is None:
                return missing + steps
            return steps + missing

        axes = self._axes and tuple(
            axis._replace(steps=padded(axis.steps)) for axis in self._axes
        )
        pattern = Pattern(self.offset, shape, padded(self.strides))
        return type(self)(self._storage, pattern, 0, self.dtype, axes)

    # -- parts and views ---------------------------------------------------------------------

    def __getitem__(self: T, key: Any) -> T:
        if key is Ellipsis:
            return self
        items = key if isinstance(key, tuple) else (key,)
        part = indexed_view(self, items)
        if part is not None:
            return type(self)(self._storage, part[0], part[1], self.dtype, part[2])
        if len(self.shape) == 1 and not self._in_hbm and names_two(items):
            self._check_bounds()
            self = self._as_tile()  # a column or a row of a tile has two dimensions
        return self._indexed(items)

    def _indexed(self: T, items: tuple[Any, ...]) -> T:
        """Return the part for less common indices: '...', other integers, a dialect's own."""
        if isinstance(self._axes, NkiError):
            raise self._axes
        items = expand_ellipsis(items, len(self.shape), self, adds=True)
        part = indexed_view(
            self,
            tuple(as_integer(k, "index") if is_index_integer(k) else k for k in items),
        )
        if part is None:
            other = next(k for k in items if not isinstance(k, (slice, NoneType)))
            kinds = "integers, slices, None and '...', or as its dialect has it"
            raise no_index(other, kinds, f"axis {items.index(other)} of {self!r}")
        return self._part(part)

    def _part(self: T, part: Named) -> T:
        """Return the tile of an index's result."""
        pattern, partition, axes = part
        return type(self)(self._storage, pattern, partition, self.dtype, axes)

    def reshape(self: T, shape: Any) -> T:
        """Return a view of the same elements in another shape."""
        wanted = as_integers(shape, "reshape to")
        self._check_bounds()
        return self._derive(reshaped(self, wanted), self._partition_axis)

    def _broadcast_to(self: T, shape: Any) -> T:
        """Return a view that repeats dimensions of size 1 (stride 0); it cannot be written."""
        wanted = as_integers(shape, "broadcast_to")
        whole = self._as_tile()
        return whole._derive(broadcast(whole, wanted), whole._partition_axis)

    def _reinterpret(self: T, dtype: DType) -> T:
        """Return a view of the bytes as elements of another dtype; the last dimension is scaled."""
        self._check_bounds()
        pattern = reinterpreted(self, dtype)
        return self._derive(pattern, self._partition_axis, self._held_as(dtype))

    def _with_pattern(self: T, pattern: Pattern, dtype: DType | None = None) -> T:
        """Return a handmade pattern on the whole tensor, regardless of this tile's part of it.

        Steps and offset are in elements of ``dtype``, which defaults to the tensor's own. On chip
        the first axis walks the partitions.
        """
        storage = self._storage
        wanted = storage.dtype if dtype is None else dtype
        named = by_hand(self, pattern, wanted)
        return type(self)(storage, named, 0, self._held_as(wanted))

    def _held_as(self, dtype: DType) -> DType:
        """Return ``dtype`` after making memory readable in elements of that dtype."""
        storage = self._storage
        if dtype == storage.dtype:
            return storage.dtype
        storage.hold_bits()
        storage.allocation.viewed = True
        return dtype


# -- tiles in a debugger ---------------------------------------------------------------------------

_DEBUGGERS = frozenset(
    {"pdb", "bdb", "IPython", "pydevd", "_pydevd_bundle", "_pydev_bundle"}
)
"""Packages that show a repr to a person: the debuggers of Python, IPython and editors."""
_ON_THE_WAY = frozenset({"pprint", "reprlib"})
_FEW = 48
"""The number of elements to show; larger arrays show the ends of each axis."""


def is_for_a_person(depth: int = 2) -> bool:
    """Return whether a debugger called the function ``depth`` frames up, such as a ``__repr__``."""
    frame = frame_at(depth)
    while frame.f_back is not None and _package(frame.f_globals) in _ON_THE_WAY:
        frame = frame.f_back
    return _package(frame.f_globals) in _DEBUGGERS


def _package(names: dict[str, Any]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]


def contents(values: Array, unwritten: Array | None) -> str:
    """Return statistics of the written elements, and the values, indented under a headline.

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
