"""Grids of tiles and of blocks (nl.tiles, nl.blocks, nl.alloc_tiles, nl.alloc_blocks; NKI 0.7)."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import raised


def counted(*shape):
    """Float32 values that are all different."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def run(kernel, *arrays):
    """The one output of a kernel."""
    (output,) = launch(kernel, arrays).outputs
    return output


def facts(grid):
    """The attributes of a grid."""
    return grid.shape, grid.element_shape, grid.index_step_elements


# -- coordinates -----------------------------------------------------------------------------------


def test_a_copy_by_tiles_with_remainders():
    def kernel(src):
        src_tiles = nl.tiles(src, tile_shape=(128, 256))
        dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
        dst_tiles = nl.tiles(dst, tile_shape=(128, 256))
        assert src_tiles.shape == (3, 3)
        for i in range(src_tiles.shape[0]):
            for j in range(src_tiles.shape[1]):
                src_tile = src_tiles[i, j]
                tile = nl.ndarray(
                    src_tile.element_shape, dtype=src.dtype, buffer=nl.sbuf
                )
                nisa.dma_copy(dst=tile.data, src=src_tile.data)
                nisa.dma_copy(dst=dst_tiles[i, j].data, src=tile.data)
        return dst

    a = counted(300, 600)
    assert_array_equal(run(kernel, a), a, strict=True)


def test_indexing_a_grid_changes_its_shape():
    seen = []

    def kernel(src):
        grid = nl.tiles(src, tile_shape=(128, 256))
        for one in (grid, grid[1], grid[:, 2], grid[2, -1], grid[1:, ...], grid[0][1]):
            assert isinstance(one, nl.NkiTileGrid)
            assert isinstance(one, nl.NkiGrid)
            seen.append(facts(one))
        assert grid.tile_shape == (128, 256)
        assert (len(grid), grid.dtype, grid.buffer) == (3, nl.float32, src.buffer)
        assert grid[2, 2].is_remainder
        assert not grid[1, 1].is_remainder
        return src

    launch(kernel, [counted(300, 600)])
    assert seen == [
        ((3, 3), (300, 600), (128, 256)),
        ((3,), (128, 600), (256,)),
        ((3,), (300, 88), (128,)),
        ((), (44, 88), ()),
        ((2, 3), (172, 600), (128, 256)),
        ((), (128, 256), ()),
    ]


def test_dimensions_before_the_tiles_are_slabs():
    def kernel(src):
        grid = nl.tiles(src, tile_shape=(4, 8))
        assert facts(grid) == ((3, 2, 2), (3, 6, 16), (1, 4, 8))
        assert facts(grid[1]) == ((2, 2), (1, 6, 16), (4, 8))
        out = nl.ndarray((2, 8), src.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, grid[2, 1, 0].data)
        return out

    a = counted(3, 6, 16)
    assert_array_equal(run(kernel, a), a[2, 4:, :8], strict=True)


def test_blocks_group_tiles_and_tiles_show_them_again():
    def kernel(src):
        grid = nl.blocks(src, tile_shape=(4, 8), block_shape=(2, 2))
        assert isinstance(grid, nl.NkiBlockGrid)
        assert facts(grid) == ((2, 2), (14, 30), (8, 16))
        assert (grid.block_shape, grid.tile_shape) == ((2, 2), (4, 8))
        block = grid[1, 1]
        assert block.is_remainder
        inner = nl.tiles(block)
        assert isinstance(inner, nl.NkiTileGrid)
        assert facts(inner) == ((2, 2), (6, 14), (4, 8))
        assert facts(
            nl.blocks(nl.tiles(src, tile_shape=(4, 8)), block_shape=(4, 1))
        ) == (
            (1, 4),
            (14, 30),
            (16, 8),
        )
        assert facts(nl.tiles(block, tile_shape=(3, 7))) == ((2, 2), (6, 14), (3, 7))
        out = nl.ndarray((2, 6), src.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, inner[1, 1].data)
        return out

    a = counted(14, 30)
    assert_array_equal(run(kernel, a), a[12:, 24:], strict=True)


# -- allocation in tiles ---------------------------------------------------------------------------


@every("buffer", ["sbuf", "shared_hbm"])
def test_a_tensor_of_more_than_128_rows_allocated_in_tiles(buffer):
    def kernel(src):
        held = nl.alloc_tiles(
            tile_shape=(128, 16),
            element_shape=src.shape,
            buffer=getattr(nl, buffer),
            dtype=src.dtype,
        )
        grid = nl.tiles(src, tile_shape=(128, 16))
        out = nl.ndarray(src.shape, src.dtype, buffer=nl.shared_hbm)
        into = nl.tiles(out, tile_shape=(128, 16))
        assert held.shape == grid.shape == (3, 3)
        for i in range(3):
            for j in range(3):
                assert held[i, j].data.shape == grid[i, j].data.shape
                nisa.dma_copy(held[i, j].data, grid[i, j].data)
        for i in range(3):
            assert held[i].is_data_representable
            nisa.dma_copy(into[i].data, held[i].data)
        return out

    a = counted(300, 40)
    assert_array_equal(run(kernel, a), a, strict=True)


def test_rows_of_tiles_share_partitions_on_chip_and_have_no_data():
    def kernel(src):
        held = nl.alloc_blocks(
            tile_shape=(32, 8),
            block_shape=(2, 2),
            element_shape=(64, 16),
            buffer=nl.sbuf,
            dtype=nl.float32,
        )
        assert (held.shape, held.block_shape) == ((1, 1), (2, 2))
        assert not held[0, 0].is_data_representable
        return held[0, 0].data

    with pytest.raises(NkiError, match="no single view") as caught:
        launch(kernel, [counted(2, 2)])
    assert caught.value.location.file == __file__


def test_an_allocation_takes_its_capacity_of_the_memory():
    def kernel(src):
        nl.alloc_tiles(
            tile_shape=(128, 512),
            element_shape=(1280, 512),
            buffer=nl.psum,
            dtype=nl.float32,
        )
        return src

    with pytest.raises(NkiError, match="psum"):
        launch(kernel, [counted(2, 2)])


# -- bad input -------------------------------------------------------------------------------------


def tile_grid():
    return nl.tiles(nl.ndarray((64, 16), nl.float32), tile_shape=(32, 8))


REFUSED = {
    "no tile_shape": (
        lambda: nl.tiles(nl.ndarray((4, 4), nl.float32)),
        "got a tensor and no tile_shape",
    ),
    "a list": (
        lambda: nl.tiles(nl.ndarray((4, 4), nl.float32), tile_shape=[2, 2]),
        "takes tile_shape as a tuple of integers",
    ),
    "one dimension": (
        lambda: nl.tiles(nl.ndarray((4, 4), nl.float32), tile_shape=(2,)),
        "a tile_shape of two dimensions at least",
    ),
    "a size of 0": (
        lambda: nl.tiles(nl.ndarray((4, 4), nl.float32), tile_shape=(2, 0)),
        "a tile_shape of positive sizes",
    ),
    "more dimensions": (
        lambda: nl.tiles(nl.ndarray((4, 4), nl.float32), tile_shape=(2, 2, 2)),
        "no more dimensions than the tensor",
    ),
    "fewer on chip": (
        lambda: nl.tiles(nl.ndarray((4, 4, 4), nl.float32), tile_shape=(2, 2)),
        "all dimensions of a tensor on chip",
    ),
    "an array": (
        lambda: nl.tiles(np.ones((4, 4)), tile_shape=(2, 2)),
        "takes a tensor or a grid",
    ),
    "blocks of other dimensions": (
        lambda: nl.blocks(tile_grid(), block_shape=(2,)),
        "a block_shape with the dimensions of tile_shape",
    ),
    "an index beyond": (lambda: tile_grid()[2, 0], "index left its grid: 2 of 2 tiles"),
    "too many indices": (lambda: tile_grid()[0, 0, 0], "one item for each coordinate"),
    "a step": (lambda: tile_grid()[::2], "slices without a step"),
    "a float": (lambda: tile_grid()[1.0], "was indexed with 1.0"),
    "several remainders": (
        lambda: tile_grid().is_remainder,
        "is_remainder was used on 4 tiles",
    ),
    "a grid as an operand": (
        lambda: nisa.tensor_copy(nl.ndarray((32, 8), nl.float32), tile_grid()[0, 0]),
        ".data is its tensor",
    ),
    "other tiles than allocated": (
        lambda: nl.tiles(
            nl.alloc_tiles(
                tile_shape=(4, 4),
                element_shape=(8, 8),
                buffer=nl.sbuf,
                dtype=nl.float32,
            ),
            tile_shape=(2, 2),
        ),
        "allocated in tiles on chip keeps them",
    ),
}


@every("name", REFUSED)
def test_misuse_of_grids_is_rejected(name):
    use, text = REFUSED[name]
    assert text in raised(NkiError, use)
