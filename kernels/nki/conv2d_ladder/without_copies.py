"""Rung 6: operands are slices of tiles in SBUF, not copies."""

import nki
import nki.language as nl

from kernels.nki.conv2d import (
    check_contract,
    convolve,
    convolved_size,
    load_bias,
    load_block,
    load_weights,
    output_shape,
)
from kernels.nki.conv2d_ladder.rows import add_spread_bias, new_rows, store_pooled


@nki.jit
def conv2d_without_copies(X, W, bias, pool_size=1):
    """`conv2d_flat_weights` without copies and casts on the way to the Tensor Engine.

    Its instructions take strided slices: a tap of the filters is transposed, and a tap's view of
    the image multiplied, where they lie. Operands keep the input's dtype; PSUM stays float32.

    Why it is slow:
        Each row of the output has the bias copied to its own length before it is added.

    Measured:
        "Tensor Tetris" (trn1, it says), large image in float16: 1,600 us with the copies, 1,203 us
        without them.

    Next:
        `conv2d_broadcast_bias` adds the bias as the column that it is.
    """
    check_contract(X, W, bias, pool_size)
    pmax = nl.tile_size.pmax
    out_height, out_width = convolved_size(X, W)
    halo = W.shape[2] - 1

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    weights = load_weights(W)
    offsets = load_bias(bias)
    for image in range(X.shape[0]):
        for row in range(out_height // pool_size):
            block = load_block(X, image, row * pool_size, pool_size + halo)
            for o in range(W.shape[0] // pmax):
                rows = new_rows(out, pool_size)
                for r in range(pool_size):
                    place = slice(r, r + 1), slice(0, out_width)
                    total = convolve(weights, block, o, place, W.shape[2])
                    add_spread_bias(rows, r, total, offsets[:, o : o + 1])
                store_pooled(out, image, o, row, rows)
    return out
