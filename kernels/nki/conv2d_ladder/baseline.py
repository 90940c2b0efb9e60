"""Rung 2: correct first, one row at a time."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.conv2d import (
    check_contract,
    convolved_size,
    load_bias,
    load_filters,
    output_shape,
)
from kernels.nki.conv2d_ladder.operands import add_product, float32_copy, transposed_tap
from kernels.nki.conv2d_ladder.rows import new_rows, store_pooled
from kernels.nki.tiles import load


@nki.jit
def conv2d_baseline(X, W, bias, pool_size=1):
    """The layer of `fused_conv2d_maxpool`, by its definition, a row of the output at a time.

    For every output row, every 128 input channels and every tap: load the pixels that the tap
    sees and the filters, transpose the filters' tap, multiply, and add to the sum in SBUF. The
    filters arrive with all their taps, since one alone would be 16,384 pieces of an element.

    Why it is slow:
        For 3 x 3 filters and 256 channels, each row of the image is loaded 18 times, and the
        filters 9 times for each output row.

    Measured ("Fused Conv2D Optimization Notes"; trn2, 256 -> 256 channels, 3 x 3, no pooling):
        224 x 224: 13,481 us in float32, 12,303 us in float16. 32 x 16: 430 us in float32.

    Next:
        `conv2d_halo_tiles` loads the input of an output row once for all taps.
    """
    check_contract(X, W, bias, pool_size)
    pmax = nl.tile_size.pmax
    out_height, _ = convolved_size(X, W)

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    offsets = load_bias(bias)
    for image in range(X.shape[0]):
        for row in range(out_height // pool_size):
            for o in range(W.shape[0] // pmax):
                rows = new_rows(out, pool_size)
                for r in range(pool_size):
                    total = row_sum(X, W, image, o, row * pool_size + r)
                    nisa.tensor_scalar(
                        dst=rows[:, r : r + 1, :],
                        data=total,
                        op0=nl.add,
                        operand0=offsets[:, o : o + 1],
                    )
                store_pooled(out, image, o, row, rows)
    return out


def row_sum(X, W, image, o, y):
    """Row ``y`` of the convolution, without bias: [128, 1, columns] in SBUF, float32."""
    pmax = nl.tile_size.pmax
    _, out_width = convolved_size(X, W)
    filter_size = W.shape[2]
    total = nl.zeros((pmax, 1, out_width), nl.float32, buffer=nl.sbuf)
    for k in range(X.shape[1] // pmax):
        channels = slice(k * pmax, (k + 1) * pmax)
        for i in range(filter_size):
            for j in range(filter_size):
                rows, columns = slice(y + i, y + i + 1), slice(j, j + out_width)
                seen = load(X[image, channels, rows, columns])
                filters = load_filters(W, o, k)
                tap = transposed_tap(filters, i * filter_size + j)
                add_product(total, stationary=tap, moving=float32_copy(seen))
    return total
