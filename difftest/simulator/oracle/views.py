"""The view methods, applied to arrays of the elements' places by NumPy's own indexing.

In a launch with the oracle, the tensors' classes are :func:`tracked`: each method of the tables
below also computes the places of its result. An element outside its tensor has the place OUTSIDE.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from operator import index as as_int
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import as_nki_dtype
from difftest.simulator.errors import not_modelled
from difftest.simulator.index import Index
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.oracle.operators import Array
from difftest.simulator.oracle.use import OUTSIDE, Literal
from difftest.simulator.pattern import Shape
from difftest.simulator.tile import Tile

Rule = Callable[..., Literal]
"""A rule computes the result's literal from the method's tensor and arguments."""


def indices(expr: Index) -> Array:
    """Return the values of an index expression, int64."""
    axes = np.indices(expr.shape, dtype=np.int64)
    along = [step * axis for step, axis in zip(expr.steps, axes, strict=True)]
    return np.asarray(sum(along, start=np.full(expr.shape, expr.start, np.int64)))


def literal_view(tile: Any) -> Literal:
    """Return the literal view of a tensor or view.

    Raises
    ------
    NotModelledError : the oracle has no rule for the method that made the view.
    """
    try:
        literal: Literal = tile._literal
    except AttributeError:
        raise not_modelled(
            "a view that the oracle did not see made", repr(tile)
        ) from None
    return literal


def pick(places: Array, chosen: list[Array]) -> Array:
    """Return the places at indices, one array a dimension; OUTSIDE if out of bounds."""
    inside = np.ones((), np.bool_)
    within = []
    for index, size in zip(chosen, places.shape, strict=True):
        inside = inside & (index >= 0) & (index < size)
        within.append(np.clip(index, 0, size - 1))
    return np.where(inside, places[tuple(within)], OUTSIDE)


# -- the classic dialect --------------------------------------------------------------------------


def _named_axes(items: tuple[Any, ...]) -> int:
    """Return the number of axes that items index."""
    return len([item for item in items if item is not None and item is not Ellipsis])


def _filled(items: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Return the items with whole axes in place of '...' and for unnamed axes."""
    named = _named_axes(items)
    at = next((k for k, item in enumerate(items) if item is Ellipsis), len(items))
    return items[:at] + (slice(None),) * (ndim - named) + items[at + 1 :]


def _walk(item: Any, size: int, *, wraps: bool = False) -> range:
    """Return the indices of a slice, a start and a size, or a loop; they may exceed the axis.

    Only the current dialect (``wraps``) counts negative ends of a slice from the end.
    """
    if isinstance(item, slice):
        start = 0 if item.start is None else as_int(item.start)
        stop = size if item.stop is None else as_int(item.stop)
        start, stop = (
            end + size if wraps and end < 0 else end for end in (start, stop)
        )
        return range(start, stop, 1 if item.step is None else as_int(item.step))
    if hasattr(item, "numbers") or isinstance(item, range):
        walk: range = getattr(item, "numbers", item)
        return walk
    return range(item.start, item.start + item.size)


def _classic_item(source: Literal, tile: Any, key: Any) -> Literal:
    """Return the view of an indexed tile of the classic dialect."""
    items = key if isinstance(key, tuple) else (key,)
    if tile.ndim == 1 and not tile._in_hbm and _named_axes(items) == 2:
        source = source.viewed(lambda places: places.reshape(tile._tile_shape()))
    if any(map(_holds_index, items)):
        return _by_tiles(source, items)
    if any(isinstance(item, Index) for item in items):
        arrays = [_held_index(item, partial=False) for item in items]
        return source.viewed(
            lambda places: pick(places, _aligned(arrays, places.shape))
        )
    return source.viewed(lambda places: _basic(places, tile, items))


def _basic(places: Array, tile: Any, key: Any, *, todays: bool = False) -> Array:
    """Return places by integers, slices, walks, None and '...': one line of indices an axis.

    The current dialect (``todays``) counts negative integers from the end. It keeps the partition
    axis of a tile, and at least one further axis.
    """
    items = key if isinstance(key, tuple) else (key,)
    lines: list[Array] = []
    shape: list[int] = []
    for item in _filled(items, places.ndim):
        if item is None:
            shape.append(1)
            continue
        line = _line(item, places.shape[len(lines)], todays=todays)
        is_kept = todays and not lines and not tile._in_hbm
        if is_kept or not hasattr(item, "__index__"):
            shape.append(len(line))
        lines.append(line)
    if todays:
        shape += [1] * (_least_axes(tile, len(lines)) - len(shape))
    return pick(places, list(np.ix_(*lines))).reshape(shape)


def _least_axes(tile: Any, axes: int) -> int:
    """Return the least number of axes of a view in the current dialect."""
    if tile._in_hbm or axes == 1:
        return 1
    return 2


def _line(item: Any, size: int, *, todays: bool) -> Array:
    """Return the indices of one axis by an integer, a slice or a walk."""
    if not hasattr(item, "__index__"):
        return np.array(_walk(item, size, wraps=todays), np.int64)
    number = as_int(item)
    return np.array([number % size if todays else number], np.int64)


def _aligned(arrays: list[Array], shape: Shape) -> list[Array]:
    """Append whole axes for unnamed dimensions, after the axes of the indices."""
    rest = shape[len(arrays) :]
    arrays = [a.reshape(*a.shape, *(1,) * len(rest)) if a.ndim else a for a in arrays]
    for axis, size in enumerate(rest):
        arrays.append(np.arange(size).reshape(-1, *(1,) * (len(rest) - axis - 1)))
    return list(np.broadcast_arrays(*arrays))


def _holds_index(item: Any) -> bool:
    """Return whether a tile holds an index, or a part of it."""
    return hasattr(item, "tile") or isinstance(item, Tile)


def _by_tiles(source: Literal, items: tuple[Any, ...]) -> Literal:
    """Return a view by indices held in tiles, read when the instruction is issued."""
    held = functools.partial(_held_index, partial=len(items) < source.places.ndim)

    def along(places: Array) -> list[Array]:
        """Return index arrays for all dimensions: slices, and the tiles' current values."""
        if not any(map(_is_slice, items)):
            return _aligned(list(map(held, items)), places.shape)
        filled = _filled(items, places.ndim)
        pairs = zip(filled, places.shape, strict=True)
        lines = [np.array(_walk(item, size)) for item, size in pairs if _is_slice(item)]
        spread = iter(np.ix_(*lines))
        return [next(spread) if _is_slice(item) else held(item) for item in filled]

    return _when_issued(source, lambda places: pick(places, along(places)))


def _held_index(item: Any, *, partial: bool) -> Array:
    """Return the values of an index; a tile's current ones, one each partition if ``partial``."""
    if isinstance(item, Index):
        return indices(item)
    if hasattr(item, "tile"):  # an index held in a tile plus an affine part
        offset = item.offset
        if isinstance(offset, Index):
            offset = indices(offset)
        moved: Array = np.add(_held_index(item.tile, partial=partial), offset)
        return moved
    if not isinstance(item, Tile):
        return np.array(as_int(item))
    shape = item._tile_shape()
    if partial and item.size == shape[0]:
        shape = shape[:1]
    if not partial and item.size == 1:
        shape = ()
    return literal_view(item).read().astype(np.int64).reshape(shape)


def _is_slice(item: Any) -> bool:
    return item is Ellipsis or isinstance(item, slice) or hasattr(item, "_least")


def _when_issued(source: Literal, rule: Callable[[Array], Array]) -> Literal:
    """Return a view of these places that depends on tiles and registers at issue."""
    whole = source.places
    return Literal(source.held, lambda: rule(whole), source.dtype)


def by_places(rule: Callable[..., Array]) -> Rule:
    """Return the rule of a method that needs only the elements' places."""
    return lambda source, tile, *args, **named: source.viewed(
        lambda places: rule(places, tile, *args, **named)
    )


def _sizes(shape: Any) -> list[int]:
    return [
        as_int(size)
        for size in (shape if isinstance(shape, (tuple, list)) else (shape,))
    ]


@by_places
def _in_shape(places: Array, tile: Any, *shape: Any) -> Array:
    argument = shape[0] if len(shape) == 1 else shape
    sizes = argument if isinstance(argument, (tuple, list)) else (argument,)
    # integral floats are accepted with a note
    return places.reshape([int(size) for size in sizes])


@by_places
def _repeated(places: Array, tile: Any, shape: Any) -> Array:
    return np.broadcast_to(_as_tile(places, tile), _sizes(shape))


def _as_tile(places: Array, tile: Any) -> Array:
    if tile._in_hbm:
        return places
    return places.reshape(tile._tile_shape())


def _bits(source: Literal, tile: Any, dtype: Any) -> Literal:
    """Return the same bytes as elements of another dtype, the last dimension scaled."""
    wanted = as_nki_dtype(dtype)
    old = source.dtype.itemsize

    def rule(places: Array) -> Array:
        each = (places[..., None] + np.arange(old)).reshape(*places.shape[:-1], -1)
        return each[..., :: wanted.itemsize]

    return source.viewed(rule, wanted)


CLASSIC: dict[str, Rule] = {
    "__getitem__": _classic_item,
    "reshape": _in_shape,
    "_broadcast_to": _repeated,
    "expand_dims": by_places(
        lambda places, tile, axis: np.expand_dims(places, as_int(axis))
    ),
    "view": _bits,
    "_as_tile": by_places(_as_tile),
}


# -- the current dialect ---------------------------------------------------------------------------


_item = functools.partial(_basic, todays=True)


def _along(places: Array, tile: Any, dim: Any, item: Any) -> Array:
    return _item(places, tile, (slice(None),) * (as_int(dim) % places.ndim) + (item,))


def _select(source: Literal, tile: Any, dim: Any, index: Any) -> Literal:
    """Return the view of ``select``: one index of an axis."""
    is_held = isinstance(index, (Tile, IndirectTile)) or hasattr(index, "device_value")
    if hasattr(index, "__index__") and not is_held:
        return source.viewed(lambda places: _along(places, tile, dim, index))
    held = _numbers(index)

    def rule(whole: Array) -> Array:
        axis = as_int(dim) % whole.ndim
        number = int(held()[0])
        size = whole.shape[axis]
        places = np.take(whole, number % size, axis)
        while places.ndim < (2 if source.on_chip else 1):
            places = places[..., None]
        return places if 0 <= number < size else np.full_like(places, OUTSIDE)

    return _when_issued(source, rule)


def _numbers(index: Any) -> Callable[[], Array]:
    """Return a function for integer indices: a tile's when called, by columns; a register's now."""
    if not isinstance(index, Tile):
        values = np.array(index._values(), np.int64).reshape(-1)
        return lambda: values
    held = literal_view(index)
    return lambda: np.asarray(held.read().astype(np.int64).T.reshape(-1))


def _permuted(places: Array, tile: Any, dims: Any) -> Array:
    return places.transpose([as_int(dim) for dim in dims])


def _split(places: Array, tile: Any, dim: Any, shape: Any) -> Array:
    axis = as_int(dim) % places.ndim
    sizes = _sizes(shape)
    rest = places.shape[axis] // max(abs(int(np.prod(sizes))), 1)
    extents = [rest if size == -1 else size for size in sizes]
    return places.reshape(
        places.shape[:axis] + tuple(extents) + places.shape[axis + 1 :]
    )


def _merged(places: Array, tile: Any, start_dim: Any, end_dim: Any) -> Array:
    first, last = (as_int(dim) % places.ndim for dim in (start_dim, end_dim))
    size = int(np.prod(places.shape[first : last + 1]))
    return places.reshape(places.shape[:first] + (size,) + places.shape[last + 1 :])


def _name_groups(pattern: Any) -> list[list[str]]:
    """Return the names of each dimension on one side of rearrange."""
    return [[entry] if isinstance(entry, str) else list(entry) for entry in pattern]


def _rearranged(
    places: Array,
    tile: Any,
    src_pattern: Any,
    dst_pattern: Any,
    fixed_sizes: Any = None,
) -> Array:
    """Return the places of ``rearrange``: split axes, permute them, and merge them."""
    names: list[str] = []
    for group in _name_groups(src_pattern):
        if len(group) > 1:
            sizes = [(fixed_sizes or {}).get(name, -1) for name in group]
            places = _split(places, tile, len(names), sizes)
        names += group
    wanted = _name_groups(dst_pattern)
    order = [names.index(name) for name in itertools.chain(*wanted)]
    places = _permuted(places, tile, order)
    for axis, group in enumerate(wanted):
        if len(group) > 1:
            places = _merged(places, tile, axis, axis + len(group) - 1)
    return places


_AP = {"offset": None, "scalar_offset": None, "vector_offset": None, "indirect_dim": 0}
"""Arguments of ``ap`` after its pattern, and their defaults; ``dtype`` is the last."""


def _pattern(
    source: Literal, tile: Any, pattern: Any, *values: Any, **named: Any
) -> Literal:
    """Return ``[[stride, count], ...]`` on the tensor, by the nested loops of AWS's page."""
    arguments = {
        **_AP,
        "dtype": None,
        **dict(zip((*_AP, "dtype"), values, strict=False)),
        **named,
    }
    offset, scalar_offset, vector_offset, indirect_dim, dtype = arguments.values()
    wanted = source.dtype if dtype is None else as_nki_dtype(dtype)
    size = wanted.itemsize
    held = source.held
    whole = source.places
    start = int(whole.flat[0]) if offset is None else as_int(offset) * size
    pairs = [(as_int(step), as_int(count)) for step, count in pattern]
    if held.on_chip:  # the first pair walks the partitions, whatever its step
        row = int(np.prod(held.shape[1:])) * held.dtype.itemsize // size
        pairs[0] = (row, pairs[0][1])

    if scalar_offset is None and vector_offset is None:
        return Literal(held, _loops(np.array(start), pairs, size), wanted)
    dim = as_int(indirect_dim)
    unit = _unit_along(source, dim)

    def moved(numbers: Array, loops: list[tuple[int, int]]) -> Array:
        """Return the places of nested loops that begin at each number."""
        places = _loops(start + numbers * unit, loops, size)
        lines = places.reshape(len(numbers), -1)
        fits = (numbers >= 0) & (numbers < whole.shape[dim])
        fits &= (lines.min(axis=1) >= 0) & (lines.max(axis=1) < held.size)
        return np.where(fits[:, None], lines, OUTSIDE).reshape(places.shape)

    if vector_offset is not None:
        rows = _numbers(vector_offset)
        return Literal(held, lambda: moved(rows()[: pairs[0][1]], pairs[1:]), wanted)
    offset_of_all = _numbers(scalar_offset)
    return Literal(held, lambda: moved(offset_of_all()[:1], pairs)[0], wanted)


def _loops(first: Array, loops: list[tuple[int, int]], size: int) -> Array:
    """Return the places of nested loops of [step, count], in elements of ``size`` bytes."""
    places = first
    for step, count in loops:
        places = places[..., None] + step * size * np.arange(count)
    return places


def _unit_along(source: Literal, dim: int) -> int:
    """Return the distance from one index of a dimension to the next, in places."""
    whole = source.places
    inner = int(np.prod(whole.shape[dim + 1 :]))
    if whole.shape[dim] == 1:
        return inner * source.dtype.itemsize
    ends = np.take(whole, [0, -1], dim).reshape(-1)
    return int(ends[inner] - ends[0]) // int(whole.shape[dim] - 1)


def _rows(source: Literal, tile: Any, dim: Any, vector_offset: Any) -> Literal:
    """Return one row for each offset."""
    count = vector_offset.shape[0]
    held = _numbers(vector_offset)
    return _when_issued(
        source,
        lambda whole: pick(
            whole, list(np.ix_(held()[:count], *map(np.arange, whole.shape[1:])))
        ),
    )


def _gathered(view: Any) -> Literal:
    """Return a view by tensor indirection, whose offset i is at [i % group, i // group]."""
    source = literal_view(view._owner)
    numbers = literal_view(view._index).read().astype(np.int64)
    group = view._group
    count = view.shape[1]
    flat = source.places.reshape(len(source.places), -1)
    chosen = [int(numbers[i % group, i // group]) for i in range(count)]
    return Literal(source.held, flat[:, chosen], source.dtype)


TODAYS: dict[str, Rule] = {
    "__getitem__": by_places(_item),
    "slice": by_places(
        lambda places, tile, dim, start, end, step=1: _along(
            places, tile, dim, slice(start, end, step)
        )
    ),
    "select": _select,
    "vector_select": _rows,
    "permute": by_places(_permuted),
    "broadcast": by_places(
        lambda places, tile, dim, size: np.repeat(places, as_int(size), as_int(dim))
    ),
    "expand_dim": by_places(
        lambda places, tile, dim: np.expand_dims(places, as_int(dim))
    ),
    "squeeze_dim": by_places(lambda places, tile, dim: np.squeeze(places, as_int(dim))),
    "reshape_dim": by_places(_split),
    "flatten_dims": by_places(_merged),
    "reshape": _in_shape,
    "rearrange": by_places(_rearranged),
    "view": _bits,
    "reinterpret_cast": _bits,
    "_broadcast_to": _repeated,
    "ap": _pattern,
    "_as_tile": CLASSIC["_as_tile"],
    "_settled": lambda source, tile: source.settled(),
    "indirect": lambda source, *_: source,
    "_grouped": lambda source, *_: source,
}


# -- tracked tensors -------------------------------------------------------------------------------


@functools.cache
def tracked(kind: Any) -> Any:
    """Return a subclass of tensors or views with a literal view on each instance."""
    if "_watched" in vars(kind):
        return kind
    table = TODAYS if ".nki." in kind.__module__ else CLASSIC
    methods: dict[str, Any] = {
        name: _watched(kind, name, rule)
        for name, rule in table.items()
        if hasattr(kind, name) and not (name == "ap" and issubclass(kind, IndirectTile))
    }
    if issubclass(kind, Tile):
        methods["_whole"] = classmethod(_whole_of)
    methods |= {
        "__slots__": (),
        "__hash__": kind.__hash__,
        "__module__": kind.__module__,
    }
    return type(kind.__name__, (kind,), {**methods, "_watched": True})


def _watched(kind: type[Any], name: str, rule: Rule) -> Callable[..., Any]:
    """Return a method of a tile that also makes the literal view of its result."""

    @functools.wraps(getattr(kind, name))
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = getattr(kind, name)(self, *args, **kwargs)
        if result is self or not isinstance(result, (Tile, IndirectTile)):
            return result
        if hasattr(result, "_group"):  # by tensor indirection
            return track_view(result, _gathered(result))
        return track_view(result, rule(literal_view(self), self, *args, **kwargs))

    return call


def _whole_of(kind: type[Any], storage: Any) -> Any:
    tensor = kind(storage, storage.whole, storage.allocation.partition_axis)
    oracle: Any = current().followers.oracle
    if oracle is not None:
        tensor._literal = oracle.tensor(storage)
    return tensor


def track_view(view: Any, literal: Literal) -> Any:
    """Attach a literal view to a tensor or a view, and return it."""
    kind: Any = type(view)
    view.__class__ = tracked(kind)
    view._literal = literal
    return view
