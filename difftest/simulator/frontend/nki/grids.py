"""Tensors in tile or block coordinates: ``nl.tiles``, ``nl.blocks`` and others (NKI 0.7).

A grid is a box of elements of a tensor, and the steps that divide it. The last tile or block of a
dimension may be smaller. Making, dividing and indexing grids moves no data. Source: the pages
``nki/api/generated/nki.language.{tiles,blocks,alloc_tiles,alloc_blocks,NkiGrid,NkiTileGrid,NkiBlockGrid}``
of AWS's documentation at v2.33. Open questions of these pages raise, or are noted in the code.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple, TypeVar

from difftest.simulator.errors import KernelError, OutOfBoundsError, ShapeError
from difftest.simulator.frontend.nki.constants import MemoryRegion
from difftest.simulator.frontend.nki.tensor import NkiTensor
from difftest.simulator.index import as_integer, is_index_integer
from difftest.simulator.memory import Shape
from difftest.simulator.misuses import DATA_OF_SEVERAL_TILES

AnyGrid = TypeVar("AnyGrid", bound="NkiGrid")


class Box(NamedTuple):
    """Adjacent elements of a tensor: the first index and the size in each dimension."""

    starts: Shape
    sizes: Shape


class Backing:
    """The tensor behind a grid; all boxes are views of it."""

    def __init__(self, tensor: NkiTensor) -> None:
        self.tensor = tensor
        self.shape: Shape = tensor.shape

    def view(self, box: Box) -> NkiTensor | None:
        """Return the elements of a box as a tensor of its shape; None if there is no such view."""
        ends = (start + size for start, size in zip(box.starts, box.sizes, strict=True))
        return self.tensor[tuple(map(slice, box.starts, ends))]


class TiledBacking(Backing):
    """An on-chip tensor whose tiles are adjacent in the free dimension, in row-major order.

    The pages say that such storage is dense and of rank two. The order of the tiles is an
    assumption.
    """

    def __init__(self, tensor: NkiTensor, shape: Shape, tile_shape: Shape) -> None:
        super().__init__(tensor)
        self.shape = shape
        self.tile_shape = tile_shape
        head = (1,) * (len(shape) - len(tile_shape))
        self.steps = head + tile_shape
        self.counts = _counts(shape, self.steps)

    def view(self, box: Box) -> NkiTensor | None:
        """Return a box in one tile, or in a row of tiles of two dimensions."""
        free = self.tile_shape[1:]
        tile = [
            start // step for start, step in zip(box.starts, self.steps, strict=True)
        ]
        number = 0
        for at, count in zip(tile, self.counts, strict=True):
            number = number * count + at
        first = number * math.prod(free)
        if all(size <= step for size, step in zip(box.sizes, self.steps, strict=True)):
            length = math.prod(free)
            held = self.tensor[
                0 : box.sizes[-len(self.tile_shape)], first : first + length
            ]
            held = held.reshape((held.shape[0], *free))
            cuts = (slice(None), *(slice(0, size) for size in box.sizes[-len(free) :]))
            return held[cuts]
        if len(self.shape) == 2 and box.sizes[0] <= self.tile_shape[0]:
            return self.tensor[0 : box.sizes[0], first : first + box.sizes[1]]
        return None


class NkiGrid:
    """A tensor in tile or block coordinates; ``nl.tiles`` and ``nl.blocks`` make them.

    Attributes
    ----------
    shape : the number of tiles or blocks along each coordinate that no integer has consumed.
    tile_shape : elements of a tile along each tiled dimension.
    element_shape : selected elements along each dimension of the source.
    index_step_elements : for each coordinate, the elements of the source in one step.
    """

    word: ClassVar[str] = "cell"

    def __init__(
        self, backing: Backing, box: Box, tile_shape: Shape, steps: Shape, axes: Shape
    ) -> None:
        self._backing = backing
        self._box = box
        self._steps = steps
        self._axes = axes
        self.tile_shape = tile_shape

    # -- properties ------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Tiles or blocks along each coordinate."""
        counts = _counts(self._box.sizes, self._steps)
        return tuple(counts[axis] for axis in self._axes)

    @property
    def element_shape(self) -> Shape:
        """Selected elements along each dimension of the source."""
        return self._box.sizes

    @property
    def index_step_elements(self) -> Shape:
        """Elements of the source in a step of each coordinate."""
        return tuple(self._steps[axis] for axis in self._axes)

    @property
    def dtype(self) -> Any:
        """The elements' dtype."""
        return self._backing.tensor.dtype

    @property
    def buffer(self) -> MemoryRegion:
        """The memory of the tensor."""
        return self._backing.tensor.buffer

    @property
    def is_remainder(self) -> bool:
        """True if the one selected tile or block is smaller than the others.

        Raises
        ------
        KernelError : several are selected. The pages do not define this case.
        """
        if math.prod(self.shape) != 1:
            raise KernelError(
                f"is_remainder is for one {self.word}",
                happened=f"is_remainder was used on {math.prod(self.shape)} {self.word}s",
                received=repr(self),
                remedy=f"index one {self.word} first",
            )
        return any(
            size < step for size, step in zip(self._box.sizes, self._steps, strict=True)
        )

    @property
    def is_data_representable(self) -> bool:
        """True if :attr:`data` has all selected elements."""
        return self._backing.view(self._box) is not None

    @property
    def data(self) -> NkiTensor:
        """All selected elements as one tensor, a view of shape :attr:`element_shape`.

        Raises
        ------
        ShapeError : there is no such view: on chip, tiles of several rows, which share partitions.
        """
        view = self._backing.view(self._box)
        if view is None:
            raise DATA_OF_SEVERAL_TILES(repr(self))
        return view

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__} (.data is its tensor) of shape {list(self.shape)}, "
            f"tile_shape {list(self.tile_shape)}, element_shape {list(self.element_shape)}"
        )

    # -- indexing --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self: AnyGrid, key: Any) -> AnyGrid:
        """Index the grid: integers consume a coordinate, slices narrow it, ``...`` keeps all."""
        items = key if isinstance(key, tuple) else (key,)
        indices = [item for item in items if item is not Ellipsis]
        if len(indices) > len(self._axes) or len(items) - len(indices) > 1:
            raise ShapeError(
                "a grid is indexed with one item for each coordinate, and one '...' at most",
                happened=f"{len(items)} items were to index {len(self._axes)} coordinates",
                received=f"{list(map(repr, items))} for {self!r}",
            )
        rest = [slice(None)] * (len(self._axes) - len(indices))
        at = items.index(Ellipsis) if Ellipsis in items else len(items)
        spread = [*items[:at], *rest, *items[at + 1 :]]
        starts = list(self._box.starts)
        sizes = list(self._box.sizes)
        kept = []
        for axis, count, item in zip(self._axes, self.shape, spread, strict=True):
            first, last = self._range(item, count)
            if not is_index_integer(item):
                kept.append(axis)
            step = self._steps[axis]
            starts[axis] += first * step
            sizes[axis] = min(last * step, sizes[axis]) - first * step
        box = Box(tuple(starts), tuple(sizes))
        return type(self)(self._backing, box, self.tile_shape, self._steps, tuple(kept))

    def _range(self, item: Any, count: int) -> tuple[int, int]:
        """Return the first tile or block that an item selects, and the one after the last."""
        if is_index_integer(item):
            first = as_integer(item, "index")
            if first < 0:
                first = first + count
            last = 0
            last = first + 1
        elif isinstance(item, slice) and item.step in (None, 1):
            ends = (
                default if end is None else as_integer(end, "slice of a grid")
                for end, default in ((item.start, 0), (item.stop, count))
            )
            first, last = (end + count if end < 0 else end for end in ends)
        else:
            raise KernelError(
                "a grid is indexed with integers, slices without a step and '...'",
                happened=f"a grid was indexed with {item!r:.60}",
                received=f"{item!r:.60} for {self!r}",
            )
        if not 0 <= first < last <= count:
            raise OutOfBoundsError(
                "an index stays inside its grid",
                happened=f"an index left its grid: {item!r} of {count} {self.word}s",
                received=f"{item!r} for {self!r}",
                limit=f"0 to {count - 1}",
            )
        return first, last

    # -- dividing again --------------------------------------------------------------------------

    def cut(
        self, tile_shape: Shape | None, block_shape: Shape | None, where: str
    ) -> NkiGrid:
        """Return the elements in new tiles, or in blocks of tiles, with new coordinates.

        A dimension that has no tiles and whose coordinate was consumed stays consumed.
        """
        tile = self.tile_shape if tile_shape is None else tile_shape
        backing = self._backing
        if isinstance(backing, TiledBacking) and tile != backing.tile_shape:
            raise KernelError(
                "a tensor that was allocated in tiles on chip keeps them",
                happened=f"{where} was to cut tiles of {list(tile)} from tiles of "
                f"{list(backing.tile_shape)}",
                received=f"tile_shape={tile} for {self!r}",
                remedy="leave tile_shape out",
            )
        head = len(self._box.sizes) - len(tile)
        axes = tuple(
            a for a in range(len(self._box.sizes)) if a >= head or a in self._axes
        )
        return make(backing, self._box, tile, block_shape, axes)


class NkiTileGrid(NkiGrid):
    """A tensor in tile coordinates."""

    word = "tile"


class NkiBlockGrid(NkiGrid):
    """A tensor in block coordinates; :attr:`block_shape` counts tiles."""

    word = "block"

    @property
    def block_shape(self) -> Shape:
        """Tiles of a block along each tiled dimension."""
        tiled = self._steps[len(self._steps) - len(self.tile_shape) :]
        return tuple(
            step // tile for step, tile in zip(tiled, self.tile_shape, strict=True)
        )


def make(
    backing: Backing,
    box: Box,
    tile_shape: Shape,
    block_shape: Shape | None,
    axes: Shape,
) -> NkiGrid:
    """Return the grid of a box: of blocks if there is a ``block_shape``."""
    blocks = (1,) * len(tile_shape) if block_shape is None else block_shape
    tiled = (tile * block for tile, block in zip(tile_shape, blocks, strict=True))
    steps = (*(1,) * (len(box.sizes) - len(tile_shape)), *tiled)
    kind = NkiTileGrid if block_shape is None else NkiBlockGrid
    return kind(backing, box, tile_shape, steps, axes)


def whole(backing: Backing, tile_shape: Shape, block_shape: Shape | None) -> NkiGrid:
    """Return the grid of a whole tensor."""
    shape = backing.shape
    box = Box((0,) * len(shape), shape)
    return make(backing, box, tile_shape, block_shape, tuple(range(len(shape))))


def _counts(sizes: Shape, steps: Shape) -> Shape:
    return tuple(-(-size // step) for size, step in zip(sizes, steps, strict=True))
