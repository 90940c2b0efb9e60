"""The axes of a tile as arguments name them, in both dialects."""

from __future__ import annotations

from difftest.simulator.errors import ShapeError
from difftest.simulator.index import as_integers
from difftest.simulator.tile import Tile


def ascending(axis: object, data: Tile, where: str) -> tuple[int, ...]:
    """``axis``, one or several, as ascending axes counted from the front."""
    ndim = len(data.tile_shape())
    given = as_integers(axis, f"{where}'s axis")
    return tuple(sorted(one + ndim if -ndim <= one < 0 else one for one in given))


def not_last(axes: tuple[int, ...], data: Tile, where: str) -> ShapeError | None:
    """The error of a call that reduces the last consecutive axes alone; None if these are.

    The instruction reduces any free axes, since its access pattern takes them in any order, and the
    classic ``nl.sum`` uses that. So this is a rule of calls; that the axes are free ones is the
    instruction's.
    """
    ndim = len(data.tile_shape())
    free = all(0 < one < ndim for one in axes)
    if not free or axes == tuple(range(ndim - len(axes), ndim)):
        return None
    return ShapeError(
        f"{where} reduces the last consecutive axes of the tile",
        happened=f"{where} got the axes {list(axes)} of {ndim} dimensions",
        received=f"axis={axes[0] if len(axes) == 1 else list(axes)} of {data!r}",
        limit=f"{[list(range(k, ndim)) for k in range(ndim - 1, 0, -1)]}",
        remedy="index the tile so that the axes to reduce come last",
    )


def last_axes(axis: object, data: Tile, where: str) -> tuple[int, ...]:
    """:func:`ascending`, of a call that reduces the last consecutive axes alone.

    Raises
    ------
    ShapeError : other free axes come after a reduced one.
    """
    axes = ascending(axis, data, where)
    error = not_last(axes, data, where)
    if error is not None:
        raise error
    return axes


def need_two(tile: Tile, where: str) -> None:
    """Raise :class:`ShapeError` unless a tile, or a tensor in HBM, has two dimensions."""
    ndim = tile.ndim if tile.in_hbm else len(tile.tile_shape())
    if ndim != 2:
        raise ShapeError(
            f"{where} takes two dimensions",
            happened=f"{where} got a tensor of {ndim} dimensions",
            received=f"{tile!r}",
        )
