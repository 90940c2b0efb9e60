"""``nki.language``: tensors cut into tiles, blocks of tiles, and allocated in them (NKI 0.7)."""

from __future__ import annotations

import math
from typing import Any

from difftest.simulator.errors import ShapeError
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import space_of
from difftest.simulator.frontend.nki.grids import (
    Backing,
    NkiBlockGrid,
    NkiGrid,
    NkiTileGrid,
    TiledBacking,
    whole,
)
from difftest.simulator.frontend.nki.language.creation import new_tensor
from difftest.simulator.frontend.nki.tensor import NkiTensor
from difftest.simulator.instructions.operands import wrong_kind
from difftest.simulator.memory import Shape

GRIDS = {"NkiGrid": NkiGrid, "NkiTileGrid": NkiTileGrid, "NkiBlockGrid": NkiBlockGrid}
"""The classes, for annotations and ``isinstance``."""


@public
def tiles(source, *, tile_shape=None):
    """A tensor, or what a grid selects, as a grid of tiles; the last ones are what is left.

    ``tile_shape`` counts elements of the last dimensions; those before it, in HBM alone, have a
    coordinate for each element. Without it a grid keeps its tiles.
    """
    return _cut("nl.tiles", source, tile_shape)


@public
def blocks(source, *, tile_shape=None, block_shape):
    """A tensor, or what a grid selects, as a grid of blocks; ``block_shape`` counts tiles."""
    return _cut("nl.blocks", source, tile_shape, block_shape=block_shape)


@public
def alloc_tiles(*, tile_shape, element_shape, buffer, dtype, address=None, name=""):
    """A new tensor of ``element_shape`` as a grid of tiles; on chip they lie side by side."""
    return _allocated("nl.alloc_tiles", **locals())


@public
def alloc_blocks(*, tile_shape, block_shape, element_shape, buffer, dtype, address=None, name=""):
    """What :func:`alloc_tiles` makes, as a grid of blocks; ``block_shape`` counts tiles."""
    return _allocated("nl.alloc_blocks", **locals())


def _cut(where: str, source: Any, tile_shape: Any, **blocks: Any) -> NkiGrid:
    """A tensor or a grid in tiles, or in blocks of the ``block_shape`` that is given."""
    block = _sizes(where, **blocks) if blocks else None
    tile = None if tile_shape is None else _sizes(where, tile_shape=tile_shape)
    if isinstance(source, NkiGrid):
        _check_ranks(tile or source.tile_shape, block, source.element_shape, where)
        return source.cut(tile, block, where)
    if not isinstance(source, NkiTensor):
        raise wrong_kind(source, "a tensor or a grid", where)
    if tile is None:
        takes = "tile_shape for a tensor"
        raise not_taken(where, takes, "a tensor and no tile_shape", repr(source))
    _check_ranks(tile, block, source.shape, where)
    if not source._in_hbm and len(tile) != len(source.shape):
        raise not_taken(
            where,
            "a tile_shape with all dimensions of a tensor on chip",
            f"{len(source.shape)} dimensions on chip to cut into tiles of {len(tile)}",
            f"tile_shape={tile} for {source!r}",
            error=ShapeError,
            remedy="name the partitions in tile_shape too; dimensions without tiles are for HBM",
        )
    return whole(Backing(source), tile, block)


def _allocated(
    where: str,
    *,
    tile_shape: Any,
    element_shape: Any,
    buffer: Any,
    dtype: object,
    address: Any,
    name: str,
    **blocks: Any,
) -> NkiGrid:
    block = _sizes(where, **blocks) if blocks else None
    tile = _sizes(where, tile_shape=tile_shape)
    shape = _sizes(where, element_shape=element_shape)
    _check_ranks(tile, block, shape, where)
    if space_of(buffer, where).is_hbm:
        tensor = new_tensor(shape, dtype, buffer, name, where, address)
        return whole(Backing(tensor), tile, block)
    head = len(shape) - len(tile)
    counts = (-(-size // step) for size, step in zip(shape[head:], tile, strict=True))
    columns = math.prod(shape[:head]) * math.prod(counts) * math.prod(tile[1:])
    tensor = new_tensor((tile[0], columns), dtype, buffer, name, where, address)
    return whole(TiledBacking(tensor, shape, tile), tile, block)


def _sizes(where: str, **shapes: Any) -> Shape:
    """A shape by its parameter's name: a tuple of positive integers of Python's own type."""
    ((name, shape),) = shapes.items()
    got = f"{name}={shape!r:.60}"
    if not isinstance(shape, tuple) or any(type(size) is not int for size in shape):
        raise not_taken(where, f"{name} as a tuple of integers", got, got)
    if any(size < 1 for size in shape):
        raise not_taken(where, f"a {name} of positive sizes", got, got, error=ShapeError)
    if name == "tile_shape" and len(shape) < 2:
        takes = "a tile_shape of two dimensions at least"
        raise not_taken(where, takes, got, got, error=ShapeError)
    return shape


def _check_ranks(tile: Shape, block: Shape | None, shape: Shape, where: str) -> None:
    if len(tile) > len(shape):
        takes = "a tile_shape of no more dimensions than the tensor"
        got = f"{len(shape)} dimensions to cut into tiles of {len(tile)}"
        received = f"tile_shape={tile} for {list(shape)} elements"
        raise not_taken(where, takes, got, received, error=ShapeError)
    if block is not None and len(block) != len(tile):
        takes = "a block_shape with the dimensions of tile_shape"
        got = f"block_shape={block} for tiles of {len(tile)} dimensions"
        raise not_taken(
            where, takes, got, f"block_shape={block}, tile_shape={tile}", error=ShapeError
        )
