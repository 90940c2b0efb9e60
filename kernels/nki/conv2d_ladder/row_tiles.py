"""Rung 8: several rows of the output share a PSUM tile."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.conv2d import (
    check_contract,
    convolve,
    convolved_size,
    load_bias,
    load_block,
    load_weights,
    output_shape,
    pool,
    psum_tile,
)


@nki.jit
def conv2d_row_tiles(X, W, bias, pool_size=1):
    """`conv2d_broadcast_bias` with as many rows of whole pooling windows as a PSUM bank holds.

    A product's moving operand is three-dimensional: channels, rows, columns of the image. A
    32 x 16 image is one tile.

    Why it is slow:
        Two rows of a 224 x 224 image still load four, and store two: twice the traffic that the
        data need, in DMAs too short for the full rate.

    Measured ("Tensor Tetris"; trn1, it says):
        32 x 16: 45 us in float32 (58 us in its table of results), 38 us in float16.

    Next:
        `fused_conv2d_maxpool` loads and stores blocks of many tiles, and pools before it adds the
        bias.
    """
    check_contract(X, W, bias, pool_size)
    pmax = nl.tile_size.pmax
    out_height, out_width = convolved_size(X, W)
    tile_rows, tile_columns = psum_tile(out_height, out_width, pool_size)
    halo = W.shape[2] - 1

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    weights = load_weights(W)
    offsets = load_bias(bias)
    for image in range(X.shape[0]):
        for first in range(0, out_height, tile_rows):
            rows = min(tile_rows, out_height - first)
            block = load_block(X, image, first, rows + halo)
            for o in range(W.shape[0] // pmax):
                for column in range(0, out_width, tile_columns):
                    right = min(column + tile_columns, out_width)
                    place = slice(0, rows), slice(column, right)
                    total = convolve(weights, block, o, place, W.shape[2])
                    tile = nl.ndarray(total.shape, dtype=X.dtype, buffer=nl.sbuf)
                    nisa.tensor_scalar(
                        dst=tile, data=total, op0=nl.add, operand0=offsets[:, o : o + 1]
                    )
                    if pool_size > 1:
                        tile = pool(tile, pool_size)
                    pooled_rows = slice(first // pool_size, (first + rows) // pool_size)
                    pooled_columns = slice(column // pool_size, right // pool_size)
                    nisa.dma_copy(
                        dst=out[
                            image,
                            o * pmax : (o + 1) * pmax,
                            pooled_rows,
                            pooled_columns,
                        ],
                        src=tile,
                    )
    return out
