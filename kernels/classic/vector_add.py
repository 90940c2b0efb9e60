"""Vector addition in three forms: one tile, tiles of rows, and streamed tiles.

As the course assignment specifies them; its tile constants are parameters here.
"""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.compiler.skip_middle_end_transformations
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
    (n,) = a_vec.shape
    assert b_vec.shape == (n,), f"a_vec has shape {a_vec.shape}, b_vec {b_vec.shape}"
    assert n <= nl.tile_size.pmax, (
        f"vector_add_naive takes at most {nl.tile_size.pmax} elements, got {n}"
    )
    out = nl.ndarray((n,), dtype=a_vec.dtype, buffer=nl.shared_hbm)

    a_tile = nl.ndarray((n, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
    b_tile = nl.ndarray((n, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a_tile, src=a_vec)
    nisa.dma_copy(dst=b_tile, src=b_vec)

    total = nisa.tensor_scalar(a_tile, nl.add, b_tile)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.compiler.skip_middle_end_transformations
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
    (n,) = a_vec.shape
    assert b_vec.shape == (n,), f"a_vec has shape {a_vec.shape}, b_vec {b_vec.shape}"
    assert n % ROW_CHUNK == 0, (
        f"{n} elements are not a multiple of ROW_CHUNK={ROW_CHUNK}"
    )
    out = nl.ndarray((n,), dtype=a_vec.dtype, buffer=nl.shared_hbm)

    for m in nl.affine_range(n // ROW_CHUNK):
        rows = slice(m * ROW_CHUNK, (m + 1) * ROW_CHUNK)
        a_tile = nl.ndarray((ROW_CHUNK, 1), dtype=a_vec.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((ROW_CHUNK, 1), dtype=b_vec.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a_vec[rows])
        nisa.dma_copy(dst=b_tile, src=b_vec[rows])
        total = nisa.tensor_scalar(a_tile, nl.add, b_tile)
        nisa.dma_copy(dst=out[rows], src=total)
    return out


@nki.compiler.skip_middle_end_transformations
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
    (n,) = a_vec.shape
    partitions = nl.tile_size.pmax
    assert b_vec.shape == (n,), f"a_vec has shape {a_vec.shape}, b_vec {b_vec.shape}"
    assert n % (partitions * FREE_DIM) == 0, (
        f"{n} elements are not a multiple of {partitions} * FREE_DIM={FREE_DIM}"
    )
    width = n // partitions
    a_rows = a_vec.reshape((partitions, width))
    b_rows = b_vec.reshape((partitions, width))
    out = nl.ndarray((partitions, width), dtype=a_vec.dtype, buffer=nl.shared_hbm)

    for m in nl.affine_range(width // FREE_DIM):
        columns = slice(m * FREE_DIM, (m + 1) * FREE_DIM)
        a_tile = nl.ndarray((partitions, FREE_DIM), dtype=a_vec.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((partitions, FREE_DIM), dtype=b_vec.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a_rows[:, columns])
        nisa.dma_copy(dst=b_tile, src=b_rows[:, columns])
        total = nisa.tensor_tensor(a_tile, b_tile, op=nl.add)
        nisa.dma_copy(dst=out[:, columns], src=total)
    return out.reshape((n,))
