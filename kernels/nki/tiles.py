"""Matrices as lists of tiles: how several kernels load, turn and multiply them."""

import nki.isa as nisa
import nki.language as nl


def load(source):
    """A copy of a tensor in HBM in SBUF: its first dimension becomes the partitions."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def load_rows(matrix):
    """A matrix in HBM as tiles of 128 rows in SBUF; the last may have fewer."""
    rows, pmax = matrix.shape[0], nl.tile_size.pmax
    return [
        load(matrix[first : min(first + pmax, rows), :])
        for first in range(0, rows, pmax)
    ]


def transpose_columns(tile):
    """The transposes of 128 columns each of a tile [rows, N]: tiles [128, rows] in SBUF."""
    rows, columns = tile.shape
    turned = []
    for first in range(0, columns, nl.tile_size.pmax):
        count = min(nl.tile_size.pmax, columns - first)
        bank = nl.ndarray((count, rows), dtype=tile.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=bank, data=tile[:, first : first + count])
        copy = nl.ndarray((count, rows), dtype=tile.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copy, src=bank)
        turned.append(copy)
    return turned


def multiply(stationary, moving):
    """The sum of stationary.T @ moving over pairs of tiles: [columns, columns] in PSUM."""
    shape = (stationary[0].shape[1], moving[0].shape[1])
    total = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    for k in range(len(stationary)):
        nisa.nc_matmul(
            dst=total, stationary=stationary[k], moving=moving[k], accumulate=k > 0
        )
    return total
