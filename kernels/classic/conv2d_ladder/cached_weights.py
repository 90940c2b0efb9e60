"""Rung 4: the weights are loaded and transposed once, and sums stay in PSUM."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

from kernels.classic.conv2d import (
    check_contract,
    convolved_size,
    load_bias,
    load_block,
    load_filters,
    output_shape,
)
from kernels.classic.conv2d_ladder.operands import float32_copy, transposed_tap
from kernels.classic.conv2d_ladder.rows import add_spread_bias, new_rows, store_pooled


@nki.compiler.skip_middle_end_transformations
@nki.jit
def conv2d_cached_weights(X, W, bias, pool_size=1):
    """`conv2d_halo_tiles` with the weights loaded and transposed before the first image.

    The cache keeps the order of W, the taps innermost. The products of an output row add up in
    one PSUM tile that is float32 for every input dtype, and tensor_tensor adds the bias.

    Notes:
        The notes had PSUM tiles of the input's dtype before this step. In float16 that rounds
        every partial sum, and the differential test fails (tests/meta/test_conv2d_bugs.py plants
        it). So the rungs below this one add up in SBUF instead, in float32.

    Why it is slow:
        The weights of a tap lie F * F elements apart, so that loading them into the Tensor Engine
        takes longer than multiplying.

    Measured ("Fused Conv2D Optimization Notes"; trn2, 256 -> 256 channels, 3 x 3):
        224 x 224: 3,700 us in float32, with and without pooling; 4,100 us in float16.

    Next:
        `conv2d_flat_weights` keeps the weights of a tap side by side.
    """
    check_contract(X, W, bias, pool_size)
    pmax = nl.tile_size.pmax
    out_height, _ = convolved_size(X, W)
    filter_size = W.shape[2]

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    weights = cache_weights(W)
    offsets = load_bias(bias)
    for image in nl.affine_range(X.shape[0]):
        for row in nl.affine_range(out_height // pool_size):
            block = load_block(X, image, row * pool_size, pool_size + filter_size - 1)
            for o in nl.affine_range(W.shape[0] // pmax):
                rows = new_rows(out, pool_size)
                for r in nl.affine_range(pool_size):
                    total = row_sum(weights, block, o, r, filter_size)
                    add_spread_bias(rows, r, total, offsets[:, o : o + 1, None])
                store_pooled(out, image, o, row, rows)
    return out


def row_sum(weights, block, o, r, filter_size):
    """Row ``r`` of the convolution of a block, without bias: [128, 1, columns] in PSUM."""
    pmax, in_blocks, _, width = block.shape
    out_width = width - filter_size + 1
    total = nl.zeros((pmax, 1, out_width), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(in_blocks):
        for i in nl.affine_range(filter_size):
            for j in nl.affine_range(filter_size):
                rows, columns = slice(r + i, r + i + 1), slice(j, j + out_width)
                total += nisa.nc_matmul(
                    weights[:, o, k, :, i * filter_size + j],
                    float32_copy(block[:, k, rows, columns]),
                )
    return total


def cache_weights(W):
    """W as [c_in, O // 128, C // 128, c_out, tap] in SBUF, float32: the order that it came in."""
    pmax = nl.tile_size.pmax
    out_blocks, in_blocks = W.shape[0] // pmax, W.shape[1] // pmax
    taps = W.shape[2] * W.shape[3]
    weights = nl.ndarray(
        (pmax, out_blocks, in_blocks, pmax, taps), dtype=nl.float32, buffer=nl.sbuf
    )
    for o in nl.affine_range(out_blocks):
        for k in nl.affine_range(in_blocks):
            filters = load_filters(W, o, k)
            for t in nl.affine_range(taps):
                weights[:, o, k, :, t] = transposed_tap(filters, t)
    return weights
