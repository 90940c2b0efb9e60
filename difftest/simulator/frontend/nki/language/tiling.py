"""``nki.language``: tensors cut into tiles, blocks of tiles, and allocated in them (NKI 0.7)."""

from __future__ import annotations

import math
from typing import Any

from difftest.simulator.errors import KernelError, ShapeError
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
    return _cut(source, tile_shape, None, "nl.tiles")


@public
def blocks(source, *, tile_shape=None, block_shape):
    """A tensor, or what a grid selects, as a grid of blocks; ``block_shape`` counts tiles."""
    return _cut(source, tile_shape, _sizes(block_shape, "block_shape", "nl.blocks"), "nl.blocks")


@public
def alloc_tiles(*, tile_shape, element_shape, buffer, dtype, address=None, name=""):
    """A new tensor of ``element_shape`` as a grid of tiles; on chip they lie side by side."""
    given = (tile_shape, element_shape, buffer, dtype, address, name)
    return _allocated(*given, None, "nl.alloc_tiles")


@public
def alloc_blocks(*, tile_shape, block_shape, element_shape, buffer, dtype, address=None, name=""):
    """What :func:`alloc_tiles` makes, as a grid of blocks; ``block_shape`` counts tiles."""
    block = _sizes(block_shape, "block_shape", "nl.alloc_blocks")
    given = (tile_shape, element_shape, buffer, dtype, address, name)
    return _allocated(*given, block, "nl.alloc_blocks")


def _cut(source: Any, tile_shape: Any, block: Shape | None, where: str) -> NkiGrid:
    tile = None if tile_shape is None else _tile_shape(tile_shape, where)
    if isinstance(source, NkiGrid):
        _check_ranks(tile or source.tile_shape, block, source.element_shape, where)
        return source.cut(tile, block, where)
    if not isinstance(source, NkiTensor):
        raise wrong_kind(source, "a tensor or a grid", where)
    if tile is None:
        raise KernelError(
            f"{where} takes tile_shape for a tensor",
            happened=f"{where} got a tensor and no tile_shape",
            received=repr(source),
        )
    _check_ranks(tile, block, source.shape, where)
    if not source.in_hbm and len(tile) != len(source.shape):
        raise ShapeError(
            f"{where} takes a tile_shape with all dimensions of a tensor on chip",
            happened=f"{where} was to cut {len(source.shape)} dimensions on chip into tiles of "
            f"{len(tile)}",
            received=f"tile_shape={tile} for {source!r}",
            remedy="name the partitions in tile_shape too; dimensions without tiles are for HBM",
        )
    return whole(Backing(source), tile, block)


def _allocated(
    tile_shape: Any,
    element_shape: Any,
    buffer: Any,
    dtype: object,
    address: Any,
    name: str,
    block: Shape | None,
    where: str,
) -> NkiGrid:
    tile = _tile_shape(tile_shape, where)
    shape = _sizes(element_shape, "element_shape", where)
    _check_ranks(tile, block, shape, where)
    if space_of(buffer, where).is_hbm:
        tensor = new_tensor(shape, dtype, buffer, name, where, address)
        return whole(Backing(tensor), tile, block)
    head = len(shape) - len(tile)
    counts = (-(-size // step) for size, step in zip(shape[head:], tile, strict=True))
    columns = math.prod(shape[:head]) * math.prod(counts) * math.prod(tile[1:])
    tensor = new_tensor((tile[0], columns), dtype, buffer, name, where, address)
    return whole(TiledBacking(tensor, shape, tile), tile, block)


def _tile_shape(tile_shape: Any, where: str) -> Shape:
    sizes = _sizes(tile_shape, "tile_shape", where)
    if len(sizes) < 2:
        raise ShapeError(
            f"{where} takes a tile_shape of two dimensions at least",
            happened=f"{where} got tile_shape={sizes}",
            received=f"tile_shape={sizes}",
        )
    return sizes


def _sizes(shape: Any, name: str, where: str) -> Shape:
    """A tuple of positive integers, of Python's own type, as the pages have it."""
    if not isinstance(shape, tuple) or any(type(size) is not int for size in shape):
        raise KernelError(
            f"{where} takes {name} as a tuple of integers",
            happened=f"{where} got {name}={shape!r:.60}",
            received=f"{name}={shape!r:.60}",
        )
    if any(size < 1 for size in shape):
        raise ShapeError(
            f"{where} takes a {name} of positive sizes",
            happened=f"{where} got {name}={shape}",
            received=f"{name}={shape}",
        )
    return shape


def _check_ranks(tile: Shape, block: Shape | None, shape: Shape, where: str) -> None:
    if len(tile) > len(shape):
        raise ShapeError(
            f"{where} takes a tile_shape of no more dimensions than the tensor",
            happened=f"{where} was to cut {len(shape)} dimensions into tiles of {len(tile)}",
            received=f"tile_shape={tile} for {list(shape)} elements",
        )
    if block is not None and len(block) != len(tile):
        raise ShapeError(
            f"{where} takes a block_shape with the dimensions of tile_shape",
            happened=f"{where} got block_shape={block} for tiles of {len(tile)} dimensions",
            received=f"block_shape={block}, tile_shape={tile}",
        )
