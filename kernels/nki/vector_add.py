"""Vector addition in three forms: one tile, tiles of rows, and streamed tiles.

As the course assignment specifies them; its tile constants are parameters here.
"""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.tiles import load


@nki.jit
def vector_add_naive(a_vec, b_vec):
    """Add two vectors that fit the partitions of one tile.

    Dimensions:
        n: elements, at most 128 (nl.tile_size.pmax)

    Args:
        a_vec: [n] in HBM
        b_vec: [n] in HBM, same dtype

    Returns:
        [n] in HBM, a_vec + b_vec
    """
    n = common_length(a_vec, b_vec)
    assert n <= nl.tile_size.pmax, (
        f"vector_add_naive takes at most {nl.tile_size.pmax} elements, got {n}"
    )
    out = nl.ndarray((n, 1), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    add_tile(out, a_vec.reshape((n, 1)), b_vec.reshape((n, 1)))
    return out.reshape((n,))


@nki.jit
def vector_add_tiled(a_vec, b_vec, ROW_CHUNK=128):
    """Add two vectors in tiles of ROW_CHUNK partitions with one element each.

    Dimensions:
        n: elements, a multiple of ROW_CHUNK

    Args:
        a_vec: [n] in HBM
        b_vec: [n] in HBM, same dtype
        ROW_CHUNK: elements in a tile; the hardware has 128 partitions for them

    Returns:
        [n] in HBM, a_vec + b_vec
    """
    n = common_length(a_vec, b_vec)
    assert n % ROW_CHUNK == 0, (
        f"{n} elements are not a multiple of ROW_CHUNK={ROW_CHUNK}"
    )
    a_rows, b_rows = a_vec.reshape((n, 1)), b_vec.reshape((n, 1))
    out = nl.ndarray((n, 1), dtype=a_vec.dtype, buffer=nl.shared_hbm)
    for m in range(n // ROW_CHUNK):
        rows = slice(m * ROW_CHUNK, (m + 1) * ROW_CHUNK)
        add_tile(out[rows, :], a_rows[rows, :], b_rows[rows, :])
    return out.reshape((n,))


@nki.jit
def vector_add_stream(a_vec, b_vec, FREE_DIM=2):
    """Add two vectors in tiles of 128 partitions with FREE_DIM elements each.

    Dimensions:
        n: elements, a multiple of 128 * FREE_DIM

    Args:
        a_vec: [n] in HBM
        b_vec: [n] in HBM, same dtype
        FREE_DIM: elements a partition in a tile; larger tiles mean fewer DMAs

    Returns:
        [n] in HBM, a_vec + b_vec
    """
    n = common_length(a_vec, b_vec)
    partitions = nl.tile_size.pmax
    assert n % (partitions * FREE_DIM) == 0, (
        f"{n} elements are not a multiple of {partitions} * FREE_DIM={FREE_DIM}"
    )
    shape = (partitions, n // partitions)
    a_rows, b_rows = a_vec.reshape(shape), b_vec.reshape(shape)
    out = nl.ndarray(shape, dtype=a_vec.dtype, buffer=nl.shared_hbm)
    for m in range(shape[1] // FREE_DIM):
        columns = slice(m * FREE_DIM, (m + 1) * FREE_DIM)
        add_tile(out[:, columns], a_rows[:, columns], b_rows[:, columns])
    return out.reshape((n,))


def common_length(a_vec, b_vec):
    """The number of elements that both vectors have."""
    (n,) = a_vec.shape
    assert b_vec.shape == (n,), f"a_vec has shape {a_vec.shape}, b_vec {b_vec.shape}"
    return n


def add_tile(out, a, b):
    """out = a + b for [partitions, elements] in HBM: load both, add, store the sum."""
    a_tile, b_tile = load(a), load(b)
    total = nl.ndarray(a.shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=total, data1=a_tile, data2=b_tile, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
