"""What indexing and the view methods make of a tensor's shape and strides: no data, no tensor.

A view is an offset, a shape and strides, in elements of its storage. On chip (SBUF, PSUM) the
first dimension is the partitions': views keep it, and have two dimensions at least; in HBM they
have one at least. Source: the stubs of ``nki.language.NkiTensor`` at v2.32.0, and the NKI Language
Guide, "Tensor Values".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple

from difftest.simulator.errors import KernelError, OutOfBoundsError, ShapeError
from difftest.simulator.frontend.loops import LoopRange
from difftest.simulator.frontend.slices import DynamicSlice
from difftest.simulator.index import as_integer, as_integers, is_integer
from difftest.simulator.memory import Shape
from difftest.simulator.strictness import note


class Layout(NamedTuple):
    """Where a view's elements lie: ``offset + sum(strides[k] * i[k])``."""

    offset: int
    shape: Shape
    strides: Shape
    on_chip: bool

    def __str__(self) -> str:
        return f"a tensor of shape {list(self.shape)}"


def _axis(layout: Layout, dim: object, what: str, *, first: int = 0, extra: int = 0) -> int:
    """``dim`` as an axis number, from ``first`` on."""
    number = as_integer(dim, f"{what} with dim")
    ndim = len(layout.shape) + extra
    at = number + ndim if number < 0 else number
    if not first <= at < ndim:
        raise ShapeError(
            f"{what} names a {'free ' if first else ''}dimension of the tensor",
            happened=f"{what} was asked of dimension {dim} of {ndim}",
            received=f"dim {dim} of {layout}",
            limit=f"{first} to {ndim - 1}",
            remedy="the partition dimension, 0, stays as it is on chip" if first else None,
        )
    return at


def _free(layout: Layout) -> int:
    """The first axis that a view of this tensor may change."""
    return 1 if layout.on_chip else 0


# -- indexing --------------------------------------------------------------------------------------


def index(layout: Layout, key: object) -> Layout:
    """``tensor[key]``: integers, slices with positive steps, ``...``, ``nl.ds``.

    In HBM a dimension may be left with no element.

    Raises
    ------
    OutOfBoundsError, ShapeError, KernelError : the key leaves the tensor, or is none of these.
    """
    items = _spread(layout, key if isinstance(key, tuple) else (key,))
    offset, shape, strides = layout.offset, layout.shape, layout.strides
    sizes: list[int] = []
    steps: list[int] = []
    for axis, item in enumerate(items):
        stride = strides[axis]
        # hasattr, of is_integer, is slow where it says no, and every access comes by here
        if isinstance(item, (slice, DynamicSlice)) or not is_integer(item):
            start, count, step = _range(layout, axis, item)
        else:
            start, count, step = _place(layout, axis, as_integer(item, "index")), 1, 1
            if axis or not layout.on_chip:
                offset += start * stride
                continue
        offset += start * stride
        sizes.append(count)
        steps.append(stride * step)
    least = 2 if layout.on_chip and len(shape) > 1 else 1
    while len(sizes) < least:
        sizes.append(1)
        steps.append(strides[-1])
    return Layout(offset, tuple(sizes), tuple(steps), layout.on_chip)


def _spread(layout: Layout, items: tuple[Any, ...]) -> Sequence[Any]:
    """One item for each dimension: what ``...`` stands for, and full slices for the rest."""
    ellipses = [k for k, item in enumerate(items) if item is Ellipsis]
    if not ellipses and len(items) == len(layout.shape):
        return items
    missing = len(layout.shape) - len(items) + len(ellipses)
    if len(ellipses) > 1 or missing < 0:
        raise ShapeError(
            "an index has one item for each dimension, and one '...' at most",
            happened=f"{len(items)} items were to index {len(layout.shape)} dimensions",
            received=f"{len(items) - len(ellipses)} items for {layout}",
        )
    at = ellipses[0] if ellipses else len(items)
    rest = [slice(None)] * missing
    return [*items[:at], *rest, *items[at + 1 if ellipses else at :]]


def _place(layout: Layout, axis: int, number: int) -> int:
    size = layout.shape[axis]
    if not -size <= number < size:
        raise _outside(layout, axis, f"index {number}")
    return number % size


def _range(layout: Layout, axis: int, item: object) -> tuple[int, int, int]:
    """First index, number and step of what a slice or ``nl.ds`` selects."""
    size = layout.shape[axis]
    if isinstance(item, DynamicSlice):
        start, stop, step = item.start, item.start + item.size, 1
    elif isinstance(item, slice):
        start, stop, step = item.start, item.stop, item.step
        step = 1 if step is None else as_integer(step, "slice step")
        start = 0 if start is None else as_integer(start, "slice start")
        stop = size if stop is None else as_integer(stop, "slice stop")
        if start < 0:
            start += size
        if stop < 0:
            stop += size
    else:
        error = KernelError(
            "a tensor is indexed with integers, slices, nl.ds and '...'",
            happened=f"a tensor was indexed with a {type(item).__name__}",
            received=f"{item!r:.60} at dimension {axis} of {layout}",
            remedy=_INSTEAD.get(type(item).__name__),
        )
        if not isinstance(item, (range, LoopRange)):
            raise error
        note(error)  # an example of AWS's migration to NKI 0.2 has such indices
        walk: range = item[:]
        start, stop, step = walk.start, walk[-1] + 1 if walk else walk.start, walk.step
    if step < 1:
        raise KernelError(
            "a slice has a positive step",
            happened=f"a slice has the step {step}",
            received=f"step {step} at dimension {axis} of {layout}",
        )
    count = -(-(stop - start) // step)
    if start == stop and not layout.on_chip and 0 <= start <= size:
        return start, 0, step
    if count < 1:
        raise ShapeError(
            "a slice selects at least one element",
            happened=f"the slice {start}:{stop}:{step} selects no element",
            received=f"{start}:{stop}:{step} at dimension {axis} of {layout}",
        )
    if start < 0 or stop > size:
        raise _outside(layout, axis, f"elements {start} to {stop - 1}")
    return start, count, step


_INSTEAD = {
    "NoneType": "insert a dimension with tensor.expand_dim(dim)",
    "NkiTensor": "use tensor.select(dim, index), tensor.vector_select(0, offsets), or "
    "tensor.ap(..., scalar_offset=... or vector_offset=...)",
    "VirtualRegister": "use tensor.select(dim, index) or tensor.ap(..., scalar_offset=register)",
    "LoopRange": "write a slice for all that it walks, or loop over it",
    "range": "write a slice for all that it walks, or loop over it",
}
"""What to write instead of an index that is none, by its type."""


def _outside(layout: Layout, axis: int, what: str) -> OutOfBoundsError:
    return OutOfBoundsError(
        "an access stays inside its tensor",
        happened=f"an access left its tensor: {what} of {layout.shape[axis]} elements",
        received=f"{what} at dimension {axis} of {layout}",
        limit=f"0 to {layout.shape[axis] - 1}",
        remedy="correct the bounds: min(start + size, tensor.shape[k]) for a last, smaller tile",
    )


def pick(layout: Layout, dim: object, number: object) -> Layout:
    """``tensor.select(dim, index)`` with an integer: one element of a dimension, which goes."""
    axis = _axis(layout, dim, "select")
    key: list[object] = [slice(None)] * len(layout.shape)
    key[axis] = number
    return index(layout, tuple(key))


# -- views -----------------------------------------------------------------------------------------


def cut(layout: Layout, dim: object, start: object, end: object, step: object) -> Layout:
    """``tensor.slice(dim, start, end, step)``, with ``0 <= start < end <= size``."""
    axis = _axis(layout, dim, "slice")
    first, last = as_integer(start, "slice's start"), as_integer(end, "slice's end")
    if not 0 <= first < last:
        raise ShapeError(
            "slice takes 0 <= start < end <= the dimension's size",
            happened=f"slice was to cut {start} to {end}",
            received=f"slice({dim}, {start}, {end}) of {layout}",
        )
    first, count, stride = _range(layout, axis, slice(first, last, step))
    return layout._replace(
        offset=layout.offset + first * layout.strides[axis],
        shape=(*layout.shape[:axis], count, *layout.shape[axis + 1 :]),
        strides=(
            *layout.strides[:axis],
            layout.strides[axis] * stride,
            *layout.strides[axis + 1 :],
        ),
    )


def permute(layout: Layout, dims: Sequence[Any]) -> Layout:
    """``tensor.permute(dims)``; on chip ``dims[0]`` is 0."""
    order = as_integers(dims, "permute with dims")
    if sorted(order) != list(range(len(layout.shape))):
        raise ShapeError(
            "permute takes each dimension once",
            happened=f"permute got dims {order} for {len(layout.shape)} dimensions",
            received=f"permute({order}) of {layout}",
        )
    if layout.on_chip and order[0] != 0:
        raise ShapeError(
            "permute keeps the partition dimension first on chip",
            happened=f"permute was to move dimension {order[0]} to the partitions",
            received=f"permute({order}) of {layout}",
            limit="dims[0] == 0",
            remedy="transpose with nisa.nc_transpose",
        )
    return layout._replace(
        shape=tuple(layout.shape[k] for k in order),
        strides=tuple(layout.strides[k] for k in order),
    )


def broadcast(layout: Layout, dim: object, size: object) -> Layout:
    """``tensor.broadcast(dim, size)``: a dimension of size 1 repeats (stride 0)."""
    axis = _axis(layout, dim, "broadcast", first=_free(layout))
    count = as_integer(size, "broadcast with size")
    if layout.shape[axis] != 1 or count < 1:
        raise ShapeError(
            "broadcast repeats a dimension of size 1",
            happened=f"broadcast was to repeat a dimension of {layout.shape[axis]} to {size}",
            received=f"broadcast({dim}, {size}) of {layout}",
        )
    return layout._replace(
        shape=(*layout.shape[:axis], count, *layout.shape[axis + 1 :]),
        strides=(*layout.strides[:axis], 0, *layout.strides[axis + 1 :]),
    )


def expand(layout: Layout, dim: object) -> Layout:
    """``tensor.expand_dim(dim)``: a new dimension of size 1."""
    axis = _axis(layout, dim, "expand_dim", first=_free(layout), extra=1)
    stride = layout.strides[axis] * layout.shape[axis] if axis < len(layout.shape) else 1
    return layout._replace(
        shape=(*layout.shape[:axis], 1, *layout.shape[axis:]),
        strides=(*layout.strides[:axis], stride, *layout.strides[axis:]),
    )


def squeeze(layout: Layout, dim: object) -> Layout:
    """``tensor.squeeze_dim(dim)``: a dimension of size 1 goes."""
    axis = _axis(layout, dim, "squeeze_dim", first=_free(layout))
    if layout.shape[axis] != 1:
        raise ShapeError(
            "squeeze_dim removes a dimension of size 1",
            happened=f"squeeze_dim was to remove a dimension of {layout.shape[axis]}",
            received=f"squeeze_dim({dim}) of {layout}",
        )
    return layout._replace(
        shape=(*layout.shape[:axis], *layout.shape[axis + 1 :]),
        strides=(*layout.strides[:axis], *layout.strides[axis + 1 :]),
    )


def split(layout: Layout, dim: object, shape: Any) -> Layout:
    """``tensor.reshape_dim(dim, shape)``: one dimension becomes several."""
    axis = _axis(layout, dim, "reshape_dim")
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    sizes = _completed([as_integer(n, "reshape_dim to") for n in given], layout.shape[axis])
    if axis < _free(layout) and len(sizes) > 1:
        raise ShapeError(
            "reshape_dim keeps the partition dimension on chip",
            happened="reshape_dim was to split the partition dimension",
            received=f"reshape_dim({dim}, {shape}) of {layout}",
        )
    if math.prod(sizes) != layout.shape[axis]:
        raise ShapeError(
            "reshape_dim keeps the number of elements",
            happened=f"reshape_dim was to split {layout.shape[axis]} elements into {list(sizes)}",
            received=f"reshape_dim({dim}, {shape}) of {layout}",
            limit=f"a product of {layout.shape[axis]}",
        )
    stride = layout.strides[axis]
    strides = tuple(stride * math.prod(sizes[k + 1 :]) for k in range(len(sizes)))
    return layout._replace(
        shape=(*layout.shape[:axis], *sizes, *layout.shape[axis + 1 :]),
        strides=(*layout.strides[:axis], *strides, *layout.strides[axis + 1 :]),
    )


def _completed(sizes: Sequence[int], total: int) -> Shape:
    """``sizes`` with what -1 stands for."""
    if -1 not in sizes:
        return tuple(sizes)
    rest = math.prod(size for size in sizes if size != -1)
    return tuple(total // max(rest, 1) if size == -1 else size for size in sizes)


def flatten(layout: Layout, start_dim: object, end_dim: object) -> Layout:
    """``tensor.flatten_dims(start_dim, end_dim)``: adjacent dimensions, both included, merge."""
    first = _axis(layout, start_dim, "flatten_dims", first=_free(layout))
    last = _axis(layout, end_dim, "flatten_dims", first=first)
    merged = _merged(layout.shape[first : last + 1], layout.strides[first : last + 1])
    if merged is None:
        raise ShapeError(
            "flatten_dims merges dimensions that are contiguous in memory",
            happened="flatten_dims met dimensions that are not contiguous in memory",
            received=f"flatten_dims({start_dim}, {end_dim}) of {layout} with strides "
            f"{list(layout.strides)}",
            remedy="flatten before permute or slice, or copy the view first",
        )
    return layout._replace(
        shape=(*layout.shape[:first], merged[0], *layout.shape[last + 1 :]),
        strides=(*layout.strides[:first], merged[1], *layout.strides[last + 1 :]),
    )


def _merged(shape: Shape, strides: Shape) -> tuple[int, int] | None:
    """Size and stride of dimensions as one; None if no stride walks them."""
    size, stride = 1, 0
    for n, step in zip(reversed(shape), reversed(strides), strict=True):
        if n == 1:
            continue
        if size == 1:
            size, stride = n, step
        elif step == stride * size:
            size *= n
        else:
            return None
    return size, stride if size > 1 else (strides[-1] if strides else 1)


def reshape(layout: Layout, shape: Any) -> Layout:
    """``tensor.reshape(shape)``: the same elements in the same order, without a copy.

    Raises
    ------
    ShapeError : the number of elements differs, the partitions change on chip, or no view has
        that shape.
    """
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    sizes = _completed([as_integer(n, "reshape to") for n in given], math.prod(layout.shape))
    if math.prod(sizes) != math.prod(layout.shape) or min(sizes, default=0) < 1:
        raise ShapeError(
            "reshape keeps the number of elements",
            happened=f"reshape was to make {math.prod(layout.shape)} elements {math.prod(sizes)}",
            received=f"{layout} to {list(sizes)}: {math.prod(layout.shape)} to "
            f"{math.prod(sizes)} elements",
        )
    if layout.on_chip and sizes[0] != layout.shape[0]:
        raise ShapeError(
            "reshape keeps the partition dimension on chip",
            happened=f"reshape was to make {layout.shape[0]} partitions {sizes[0]}",
            received=f"{layout} to {list(sizes)}",
            limit=f"shape[0] == {layout.shape[0]}",
            remedy="reshape the free dimensions only, or the tensor in HBM",
        )
    head = 1 if layout.on_chip else 0
    strides = _reshaped(layout.shape[head:], layout.strides[head:], sizes[head:])
    if strides is None:
        raise ShapeError(
            "reshape is a view, so the elements that it merges are contiguous in memory",
            happened="reshape met elements that are not contiguous in memory",
            received=f"{layout} with strides {list(layout.strides)} to {list(sizes)}",
            remedy="reshape before permute or slice, or copy the view first",
        )
    return layout._replace(shape=sizes, strides=(*layout.strides[:head], *strides))


def _reshaped(shape: Shape, strides: Shape, sizes: Shape) -> Shape | None:
    """The strides of ``sizes`` over the same elements; None if there are none."""
    result: list[int] = []
    old = [(n, step) for n, step in zip(shape, strides, strict=True) if n != 1]
    at = 0
    pending = list(sizes)
    while pending:
        group = [pending.pop(0)]
        if group[0] == 1:
            result.append(0)
            continue
        end = at + 1
        total = old[at][0]
        while math.prod(group) != total:
            if math.prod(group) < total:
                if not pending:
                    return None
                group.append(pending.pop(0))
            elif end < len(old):
                total *= old[end][0]
                end += 1
            else:
                return None
        merged = _merged(tuple(n for n, _ in old[at:end]), tuple(s for _, s in old[at:end]))
        if merged is None:
            return None
        result += [merged[1] * math.prod(group[k + 1 :]) for k in range(len(group))]
        at = end
    return tuple(result)


def rearrange(
    layout: Layout, source: Sequence[Any], target: Sequence[Any], sizes: Mapping[str, int] | None
) -> Layout:
    """``tensor.rearrange(source, target, sizes)``: split, permute and merge dimensions by name."""
    sources, targets, parts = _groups(source), _groups(target), layout
    if len(sources) != len(layout.shape) or not isinstance(sizes, (Mapping, NoneType)):
        raise ShapeError(
            "rearrange's source pattern names each dimension, and fixed_sizes maps names to sizes",
            happened=f"rearrange got {len(sources)} names for {len(layout.shape)} dimensions",
            received=f"{source!r:.80} for {layout}, fixed_sizes={sizes!r:.40}",
        )
    known = dict(sizes or {})
    names: list[str] = []
    for members in sources:
        if len(members) > 1:
            parts = split(parts, len(names), [known.get(name, -1) for name in members])
        names += members
    wanted = [name for members in targets for name in members]
    if sorted(names) != sorted(wanted) or len(set(names)) != len(names):
        raise ShapeError(
            "rearrange's patterns have the same names, each once",
            happened="rearrange got patterns with different names, or one twice",
            received=f"{source!r:.80} to {target!r:.80}",
        )
    for name, size in known.items():
        if name in names and parts.shape[names.index(name)] != size:
            raise ShapeError(
                "rearrange's sizes are those of the tensor",
                happened=f"rearrange got {name}={size} for a dimension of another size",
                received=f"{name}={size} for {parts.shape[names.index(name)]} elements",
            )
    parts = permute(parts, [names.index(name) for name in wanted])
    for axis, members in enumerate(targets):
        if len(members) > 1:
            parts = flatten(parts, axis, axis + len(members) - 1)
    return parts


def _groups(pattern: Any) -> list[tuple[str, ...]]:
    """The names that one side of rearrange has for each dimension."""
    named = pattern if isinstance(pattern, (str, tuple, list)) else (pattern,)
    groups = [tuple(one) if isinstance(one, (tuple, list)) else (one,) for one in named]
    if all(isinstance(name, str) for group in groups for name in group):
        return groups
    raise ShapeError(
        "rearrange's patterns are tuples of names, and of tuples of names",
        happened="rearrange got a pattern that is not made of names",
        received=f"{pattern!r:.80}",
        remedy="write tensor.rearrange(('p', ('h', 'w')), ('p', 'w', 'h'), {'h': 4})",
    )


def contiguous(layout: Layout) -> bool:
    """Whether the elements are adjacent in row-major order; on chip within each partition."""
    first = _free(layout)
    merged = _merged(layout.shape[first:], layout.strides[first:])
    return merged is not None and (merged[0] == 1 or merged[1] == 1)
