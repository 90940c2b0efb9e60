"""Rung 7: the instruction that adds the bias broadcasts it."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

from kernels.classic.conv2d import (
    check_contract,
    convolve,
    convolved_size,
    load_bias,
    load_block,
    load_weights,
    output_shape,
)
from kernels.classic.conv2d_ladder.rows import new_rows, store_pooled


@nki.compiler.skip_middle_end_transformations
@nki.jit
def conv2d_broadcast_bias(X, W, bias, pool_size=1):
    """`conv2d_without_copies` with a [128, 1] operand for the bias: tensor_tensor repeats it.

    Why it is slow:
        A PSUM tile holds one row of the output. On a 32 x 16 image that is 14 elements of 512,
        and each product takes as long as loading its weights.

    Measured ("Tensor Tetris"; trn1, it says):
        200 us less at the start. 32 x 16: 65 us in float32, 46 us in float16.

    Next:
        `conv2d_row_tiles` fills PSUM with several rows.
    """
    check_contract(X, W, bias, pool_size)
    pmax = nl.tile_size.pmax
    out_height, out_width = convolved_size(X, W)
    halo = W.shape[2] - 1

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    weights = load_weights(W)
    offsets = load_bias(bias)
    for image in nl.affine_range(X.shape[0]):
        for row in nl.affine_range(out_height // pool_size):
            block = load_block(X, image, row * pool_size, pool_size + halo)
            for o in nl.affine_range(W.shape[0] // pmax):
                rows = new_rows(out, pool_size)
                for r in nl.affine_range(pool_size):
                    place = slice(r, r + 1), slice(0, out_width)
                    total = convolve(weights, block, o, place)
                    rows[:, r : r + 1, :] = nisa.tensor_tensor(
                        total, offsets[:, o : o + 1, None], nl.add, dtype=X.dtype
                    )
                store_pooled(out, image, o, row, rows)
    return out
