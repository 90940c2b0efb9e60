"""Views of the current dialect's tensors: access patterns from indexing and the view methods.

On chip (SBUF, PSUM) the first dimension is the partition dimension. Views keep it, and have at
least two dimensions. In HBM they have at least one. A view with dynamic offsets keeps their
dimension. Source: the stubs of ``nki.language.NkiTensor`` at v2.32.0, and the NKI Language Guide,
"Tensor Values".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numpy as np

from difftest.simulator.errors import (
    Location,
    OutOfBoundsError,
    ShapeError,
    kernel_location,
)
from difftest.simulator.frontend.arguments import DynamicSlice
from difftest.simulator.frontend.levels import public
from difftest.simulator.frontend.loops import LoopRange
from difftest.simulator.frontend.nki.constants import MemoryRegion, NKIObject, region_of
from difftest.simulator.frontend.nki.virtual_registers import DeviceValue
from difftest.simulator.index import (
    as_integer,
    as_integers,
    expand_ellipsis,
    is_index_integer,
    left_tensor,
    no_element,
    no_index,
    slice_bounds,
)
from difftest.simulator.indexing import Patterned, completed, reshaped
from difftest.simulator.pattern import Pattern, Shape
from difftest.simulator.strictness import report_violation

Self = TypeVar("Self", bound="Views")


class Views(Patterned):
    """An object with a pattern, and methods that derive other patterns without a copy."""

    __slots__ = ()

    if TYPE_CHECKING:  # also in tensors and dynamic views

        @property
        def _in_hbm(self) -> bool: ...

        def _view(self: Self, pattern: Pattern) -> Self:
            """Return the same tensor with another pattern."""

        def _select_by(self, dim: int, index: Any) -> Any:
            """Select as :meth:`select` does, by an index that is not a Python integer."""

    @property
    def buffer(self) -> MemoryRegion:
        """The memory of the tensor."""
        return region_of(self._storage.space)

    @property
    def name(self) -> str:
        """The kernel's name for the tensor, or empty."""
        return self._storage.allocation.name

    @property
    def _kept(self) -> int:
        """The number of leading dimensions that views keep."""
        if self._in_hbm:
            return 0
        return 1

    def _axis(self, dim: object, what: str, *, first: int = 0, extra: int = 0) -> int:
        """Return ``dim`` as an axis number, from ``first`` on."""
        number = as_integer(dim, f"{what} with dim")
        ndim = len(self.shape) + extra
        at = number + ndim if number < 0 else number
        if not first <= at < ndim:
            kind = "dimension"
            remedy = None
            if first:
                kind = "free dimension"
                remedy = "the partition dimension, 0, stays as it is on chip"
            raise ShapeError(
                f"{what} names a {kind} of the tensor",
                happened=f"{what} got dimension {dim} of {ndim}",
                received=f"dim {dim} of {_describe(self)}",
                limit=f"{first} to {ndim - 1}",
                remedy=remedy,
            )
        return at

    # -- indexing ----------------------------------------------------------------------------------

    def __getitem__(self: Self, key: Any) -> Self:
        """Return ``tensor[key]``: integers, slices with positive steps, ``...``, ``nl.ds``.

        In HBM a dimension may become empty.

        Raises
        ------
        OutOfBoundsError, ShapeError, KernelError : the key leaves the tensor or is invalid.
        """
        if key is Ellipsis:
            return self
        pattern = _indexed(self, key if isinstance(key, tuple) else (key,))
        if 0 in pattern.shape:
            return cast(Self, EmptyView(pattern.shape, self.dtype, self.buffer))
        return self._view(pattern)

    @public
    def select(self, dim: int, index: Any) -> Any:
        """Select one element of a dimension, which is removed.

        ``index`` an integer, or held in SBUF.
        """
        if isinstance(index, DeviceValue) or not is_index_integer(index):
            return self._select_by(dim, index)
        key: list[object] = [slice(None)] * len(self.shape)
        key[self._axis(dim, "select")] = index
        return self._view(_indexed(self, tuple(key)))

    # -- views -------------------------------------------------------------------------------------

    @public
    def is_contiguous(self) -> bool:
        """Return whether the elements are adjacent in row-major order.

        On chip in each partition.
        """
        first = 0 if self._in_hbm else 1
        return Pattern(0, self.shape[first:], self.strides[first:]).in_order()

    def get_pattern(self) -> list[list[int]]:
        """Return the access pattern as ``[[stride, count], ...]``."""
        return [list(pair) for pair in zip(self.strides, self.shape, strict=True)]

    @public
    def slice(self: Self, dim: int, start: int, end: int, step: int = 1) -> Self:
        """Slice one dimension by ``start:end:step``, with ``0 <= start < end <= size``."""
        axis = self._axis(dim, "slice")
        first = as_integer(start, "slice's start")
        last = as_integer(end, "slice's end")
        if not 0 <= first < last:
            raise _impossible(
                self,
                f"slice({dim}, {start}, {end})",
                "takes 0 <= start < end <= the dimension's size",
                f"was to cut {start} to {end}",
            )
        return self._view(
            self._pattern.slice(axis, *_range(self, axis, slice(first, last, step)))
        )

    @public
    def permute(self: Self, dims: Sequence[int]) -> Self:
        """Reorder the dimensions; on chip the first stays."""
        order = as_integers(dims, "permute with dims")
        if sorted(order) != list(range(len(self.shape))):
            raise _impossible(
                self,
                f"permute({order})",
                "takes each dimension once",
                f"got dims {order} for {len(self.shape)} dimensions",
            )
        if self._kept and order[0] != 0:
            raise _impossible(
                self,
                f"permute({order})",
                "keeps the partition dimension first on chip",
                f"was to move dimension {order[0]} to the partitions",
                "use nisa.nc_transpose",
            )
        return self._view(self._pattern.permute(order))

    @public
    def broadcast(self: Self, dim: int, size: int) -> Self:
        """Repeat a dimension of size 1 ``size`` times (stride 0)."""
        axis = self._axis(dim, "broadcast", first=self._kept)
        count = as_integer(size, "broadcast with size")
        if self.shape[axis] != 1 or count < 1:
            raise _impossible(
                self,
                f"broadcast({dim}, {size})",
                "repeats a dimension of size 1",
                f"was to repeat a dimension of {self.shape[axis]} to {size}",
            )
        return self._view(self._pattern.slice(axis, 0, count, 0))

    @public
    def expand_dim(self: Self, dim: int) -> Self:
        """Insert a dimension of size 1."""
        axis = self._axis(dim, "expand_dim", first=self._kept, extra=1)
        last = axis == len(self.shape)
        stride = 1 if last else self.strides[axis] * self.shape[axis]
        return self._view(self._pattern.splice(axis, axis, (1,), (stride,)))

    @public
    def squeeze_dim(self: Self, dim: int) -> Self:
        """Remove a dimension of size 1."""
        axis = self._axis(dim, "squeeze_dim", first=self._kept)
        if self.shape[axis] != 1:
            raise _impossible(
                self,
                f"squeeze_dim({dim})",
                "removes a dimension of size 1",
                f"was to remove a dimension of {self.shape[axis]}",
            )
        return self._view(self._pattern.select(axis, 0))

    @public
    def reshape_dim(self: Self, dim: int, shape: Any) -> Self:
        """Split one dimension into several; one size of ``shape`` may be -1."""
        axis = self._axis(dim, "reshape_dim")
        given = shape if isinstance(shape, (tuple, list)) else (shape,)
        numbers = tuple([as_integer(size, "reshape_dim to") for size in given])
        sizes = completed(numbers, self.shape[axis])
        call = f"reshape_dim({dim}, {shape})"
        if axis < self._kept and len(sizes) > 1:
            raise _impossible(
                self,
                call,
                "keeps the partition dimension on chip",
                "was to split the partition dimension",
            )
        if math.prod(sizes) != self.shape[axis]:
            raise _impossible(
                self,
                call,
                "keeps the number of elements",
                f"was to split {self.shape[axis]} elements into {list(sizes)}",
            )
        steps = [
            self.strides[axis] * math.prod(sizes[k + 1 :]) for k in range(len(sizes))
        ]
        return self._view(self._pattern.splice(axis, axis + 1, sizes, tuple(steps)))

    @public
    def flatten_dims(self: Self, start_dim: int, end_dim: int) -> Self:
        """Merge adjacent dimensions, both ends included, into one."""
        first = self._axis(start_dim, "flatten_dims", first=self._kept)
        end = self._axis(end_dim, "flatten_dims", first=first) + 1
        parts = Pattern(0, self.shape[first:end], self.strides[first:end])
        merged = parts.reshape((parts.size,))
        if merged is None:
            raise _impossible(
                self,
                f"flatten_dims({start_dim}, {end_dim})",
                "merges dimensions that are contiguous in memory",
                f"met dimensions that are not contiguous in memory, of strides {self.strides}",
                "flatten before permute or slice, or copy the view first",
            )
        steps = merged.strides if merged.size > 1 else parts.strides[-1:]
        return self._view(self._pattern.splice(first, end, merged.shape, steps))

    @public
    def reshape(self: Self, shape: Any) -> Self:
        """Reshape the tensor, with its elements in the same order; one size may be -1.

        Raises
        ------
        ShapeError : the number of elements differs, the partitions change on chip, or no view has
            that shape.
        """
        return self._view(reshaped(self, as_integers(shape, "reshape to"), self._kept))

    @public
    def rearrange(
        self: Self,
        src_pattern: Sequence[Any],
        dst_pattern: Sequence[Any],
        fixed_sizes: Mapping[str, int] | None = None,
    ) -> Self:
        """Split, permute and merge dimensions by name, as in einops."""
        call = (
            f"rearrange({src_pattern!r:.80}, {dst_pattern!r:.80}, {fixed_sizes!r:.40})"
        )
        sources, targets = (
            _groups(self, call, pattern) for pattern in (src_pattern, dst_pattern)
        )
        if len(sources) != len(self.shape) or not isinstance(
            fixed_sizes, (Mapping, NoneType)
        ):
            raise _impossible(
                self,
                call,
                "names each dimension in its source, and maps names to sizes in fixed_sizes",
                f"got {len(sources)} names for {len(self.shape)} dimensions",
            )
        lengths = dict(fixed_sizes or {})
        parts = _split(self, sources, lengths)
        names = list(itertools.chain.from_iterable(sources))
        wanted = list(itertools.chain.from_iterable(targets))
        if sorted(names) != sorted(wanted) or len(set(names)) != len(names):
            raise _impossible(
                self,
                call,
                "takes patterns of the same names, each once",
                "got patterns with different names, or one twice",
            )
        have = dict(zip(names, parts.shape, strict=True))
        for name, size in lengths.items():
            if have.get(name, size) != size:
                raise _impossible(
                    self,
                    call,
                    "takes the sizes of the tensor",
                    f"got {name}={size} for {have[name]} elements",
                )
        return _merge(parts.permute([names.index(name) for name in wanted]), targets)


def _split(
    view: Self, groups: Sequence[tuple[str, ...]], lengths: Mapping[str, int]
) -> Self:
    """Split each dimension with several names into one dimension a name."""
    axis = 0
    for members in groups:
        if len(members) > 1:
            sizes = [lengths.get(name, -1) for name in members]
            view = view.reshape_dim(axis, sizes)
        axis += len(members)
    return view


def _merge(view: Self, groups: Sequence[tuple[str, ...]]) -> Self:
    """Merge the dimensions of each group of names into one."""
    for axis, members in enumerate(groups):
        if len(members) > 1:
            view = view.flatten_dims(axis, axis + len(members) - 1)
    return view


def _describe(view: Views) -> str:
    return f"a tensor of shape {list(view.shape)}"


def _impossible(
    view: Views, call: str, rule: str, happened: str, remedy: str | None = None
) -> ShapeError:
    """Return the error of a method for an impossible view: its rule, and the request."""
    method = call.partition("(")[0]
    return ShapeError(
        f"{method} {rule}",
        happened=f"{method} {happened}",
        received=f"{call} of {_describe(view)}",
        remedy=remedy,
    )


def _groups(view: Views, call: str, pattern: Any) -> list[tuple[str, ...]]:
    """Return the names of each dimension on one side of rearrange."""
    named = pattern if isinstance(pattern, (str, tuple, list)) else (pattern,)
    groups = [
        tuple(group) if isinstance(group, (tuple, list)) else (group,)
        for group in named
    ]
    if all(isinstance(name, str) for group in groups for name in group):
        return groups
    raise _impossible(
        view,
        call,
        "takes tuples of names, and of tuples of names",
        "got a pattern that is not made of names",
        "write tensor.rearrange(('p', ('h', 'w')), ('p', 'w', 'h'), {'h': 4})",
    )


# -- indexing --------------------------------------------------------------------------------------


def _indexed(view: Views, items: tuple[Any, ...]) -> Pattern:
    """Return the pattern of ``view[items]``."""
    offset, shape, strides = view._pattern
    in_hbm = view._in_hbm
    if len(items) != len(shape) or [item for item in items if item is Ellipsis]:
        items = expand_ellipsis(items, len(shape), view)
    sizes: list[int] = []
    steps: list[int] = []
    for axis, (item, count, stride) in enumerate(
        zip(items, shape, strides, strict=True)
    ):
        kind = type(item)
        # hasattr, in is_index_integer, is slow for False, and every access runs this
        if kind is int or (kind not in _RANGES and is_index_integer(item)):
            number = item if kind is int else as_integer(item, "index")
            if not -count <= number < count:
                raise _outside(view, axis, f"index {number}", least=-count)
            offset += number % count * stride
            if axis or in_hbm:
                continue
            count = 1
        elif (
            kind is slice
            and (type(item.start), type(item.stop), type(item.step)) == _BOUNDS
            and (0 <= item.start < item.stop <= count)
        ):
            offset += item.start * stride
            count = item.stop - item.start
        elif kind is not slice or not item.start is item.stop is item.step is None:
            start, count, step = _range(view, axis, item)
            offset += start * stride
            stride *= step
        sizes.append(count)
        steps.append(stride)
    least = 1 if in_hbm or len(shape) < 2 else 2
    while len(sizes) < least:
        sizes.append(1)
        steps.append(strides[-1])
    return Pattern(offset, tuple(sizes), tuple(steps))


_RANGES = (slice, DynamicSlice)
_BOUNDS = (int, int, NoneType)
"""The types of most slices."""


def _range(view: Views, axis: int, item: object) -> tuple[int, int, int]:
    """Return the first index, the count and the step of a slice or ``nl.ds``."""
    size = view.shape[axis]
    if isinstance(item, slice):
        start, stop, step = slice_bounds(item, size)
        start = _from_start(start, size)
        stop = _from_start(stop, size)
    elif isinstance(item, DynamicSlice):
        start = item.start
        stop = item.start + item.size
        step = 1
    else:
        start, stop, step = slice_bounds(_slice_of(view, axis, item), size)
    count = -(-(stop - start) // step)
    if start == stop and view._in_hbm and 0 <= start <= size:
        return start, 0, step
    if count < 1:
        raise no_element(
            slice(start, stop, step), f"dimension {axis} of {_describe(view)}"
        )
    if start < 0 or stop > size:
        raise _outside(view, axis, f"elements {start} to {stop - 1}")
    return start, count, step


def _from_start(place: int, size: int) -> int:
    """Return a place counted from the start; a negative one counts from the end."""
    if place < 0:
        return place + size
    return place


def _slice_of(view: Views, axis: int, item: object) -> slice:
    """Return the slice of a range; raise for any other object, which is not an index."""
    kinds = "integers, slices, nl.ds and '...'"
    remedy = _INSTEAD.get(type(item).__name__)
    remedy = remedy and remedy.format(axis=axis)
    error = no_index(item, kinds, f"dimension {axis} of {_describe(view)}", remedy)
    if not isinstance(item, (range, LoopRange)):
        raise error
    report_violation(error)  # an example of AWS's migration to NKI 0.2 has such indices
    walk: range = item[:]
    end = walk[-1] + 1 if walk else walk.start
    return slice(walk.start, end, walk.step)


_INSTEAD = {
    "NoneType": "insert a dimension with tensor.expand_dim({axis}); a column [P, 1] is repeated "
    "along a tile as it is: nisa.tensor_scalar(dst, tile, nl.add, column)",
    "NkiTensor": "use tensor.select(dim, index), tensor.vector_select(0, offsets), or "
    "tensor.ap(..., scalar_offset=... or vector_offset=...)",
    "VirtualRegister": "use tensor.select(dim, index) or tensor.ap(..., scalar_offset=register)",
    "LoopRange": "write a slice for all that it walks, or loop over it",
    "range": "write a slice for all that it walks, or loop over it",
}
"""The replacement for an invalid index, by its type."""


def _outside(view: Views, axis: int, what: str, least: int = 0) -> OutOfBoundsError:
    return left_tensor(
        "an access",
        f"{what} of {view.shape[axis]} elements",
        f"{what} at dimension {axis} of {_describe(view)}",
        f"{least} to {view.shape[axis] - 1}",
        "correct the bounds: min(start + size, tensor.shape[k]) for a last, smaller tile",
    )


# -- no elements -----------------------------------------------------------------------------------

_OF_TENSORS = ("ap", "indirect", "reinterpret_cast", "vector_select", "view")
"""Methods of tensors besides those of :class:`Views`; a view without elements lacks them."""


class EmptyView(NKIObject):
    """A part of a tensor in HBM with an empty dimension: kernels may create it, but not use it.

    A kernel that divides rows among cores makes one on a core without rows, and then skips its loop
    (aws-neuron/nki-library 2.29, ``experimental/loss/cross_entropy.py``).

    Attributes
    ----------
    shape, dtype, buffer : as those of a tensor.
    """

    __slots__ = ("_made", "buffer", "dtype", "shape")
    size = 0

    def __init__(
        self, shape: Shape, dtype: np.dtype[Any], buffer: MemoryRegion
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.buffer = buffer
        self._made: Location | None = kernel_location()

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not (name in _OF_TENSORS or hasattr(Views, name)):
            raise AttributeError(f"{name} of {self!r}")
        raise self._used(f".{name}")

    def __getitem__(self, key: Any) -> NoReturn:
        raise self._used("an index")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise self._used("an assignment")

    def _used(self, what: str) -> ShapeError:
        return ShapeError(
            "a view that is used selects at least one element",
            happened=f"{what} was applied to a view without elements",
            received=f"{what} of {self!r}",
            remedy="leave the program's part out where it has no rows",
        )

    def __repr__(self) -> str:
        where = "" if self._made is None else f" at {self._made.short_place}"
        return f"{list(self.shape)} without elements, made{where}"
