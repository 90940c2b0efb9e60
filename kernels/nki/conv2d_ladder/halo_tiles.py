"""Rung 3: the image is loaded in tiles with a halo, which all taps share."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.conv2d import (
    check_contract,
    convolved_size,
    load_bias,
    load_block,
    load_filters,
    output_shape,
)
from kernels.nki.conv2d_ladder.operands import add_product, float32_copy, transposed_tap
from kernels.nki.conv2d_ladder.rows import new_rows, store_pooled


@nki.jit
def conv2d_halo_tiles(X, W, bias, pool_size=1):
    """`conv2d_baseline` with its DMAs moved out of the loops over taps.

    A tile of the image has all rows that the taps of an output row see, the row and its halo. It
    is loaded once for all taps and output channels, and the filters once for all taps. A tap's
    operand is a slice of the tile, copied inside SBUF and cast to float32.

    Why it is slow:
        The filters are still loaded for each output row, and transposed for each product.

    Measured ("Fused Conv2D Optimization Notes"; trn2, 256 -> 256 channels, 3 x 3, no pooling):
        224 x 224: 6,289 us in float32, 5,600 us in float16. 32 x 16: 384 to 505 us.

    Next:
        `conv2d_cached_weights` loads and transposes the weights once, and sums in PSUM.
    """
    check_contract(X, W, bias, pool_size)
    pmax = nl.tile_size.pmax
    out_height, _ = convolved_size(X, W)
    halo = W.shape[2] - 1

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    offsets = load_bias(bias)
    for image in range(X.shape[0]):
        for row in range(out_height // pool_size):
            block = load_block(X, image, row * pool_size, pool_size + halo)
            for o in range(W.shape[0] // pmax):
                rows = new_rows(out, pool_size)
                for r in range(pool_size):
                    total = row_sum(W, block, o, r)
                    nisa.tensor_scalar(
                        dst=rows[:, r : r + 1, :],
                        data=total,
                        op0=nl.add,
                        operand0=offsets[:, o : o + 1],
                    )
                store_pooled(out, image, o, row, rows)
    return out


def row_sum(W, block, o, r):
    """Row ``r`` of the convolution of a block, without bias: [128, 1, columns] in SBUF, float32."""
    pmax, in_blocks, _, width = block.shape
    filter_size = W.shape[2]
    out_width = width - filter_size + 1
    total = nl.zeros((pmax, 1, out_width), nl.float32, buffer=nl.sbuf)
    for k in range(in_blocks):
        filters = load_filters(W, o, k)
        for i in range(filter_size):
            for j in range(filter_size):
                rows, columns = slice(r + i, r + i + 1), slice(j, j + out_width)
                tap = transposed_tap(filters, i * filter_size + j)
                seen = float32_copy(block[:, k, rows, columns])
                add_product(total, stationary=tap, moving=seen)
    return total
