"""Rung 5: a flat cache, which has the weights of a tap side by side, and one cast."""

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
def conv2d_flat_weights(X, W, bias, pool_size=1):
    """`conv2d_cached_weights` with contiguous operands.

    The cache has the taps outside and the output channels innermost: each product takes 128 x 128
    adjacent weights. A tile of the image is cast to float32 once, and no longer for each tap.

    Why it is slow:
        Each operand of a product is a copy of what lay in SBUF already. As float32 it also takes
        the Tensor Engine four passes where float16 takes one.

    Measured ("Fused Conv2D Optimization Notes"; trn2, 256 -> 256 channels, 3 x 3, no pooling):
        224 x 224: 3,300 us in float16.

    Next:
        `conv2d_without_copies` hands the tiles themselves to the Tensor Engine.
    """
    check_contract(X, W, bias, pool_size)
    pmax = nl.tile_size.pmax
    out_height, _ = convolved_size(X, W)
    filter_size = W.shape[2]

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    weights = flatten_weights(W)
    offsets = load_bias(bias)
    for image in nl.affine_range(X.shape[0]):
        for row in nl.affine_range(out_height // pool_size):
            block = load_block(X, image, row * pool_size, pool_size + filter_size - 1)
            wide_block = float32_copy(block)
            for o in nl.affine_range(W.shape[0] // pmax):
                rows = new_rows(out, pool_size)
                for r in nl.affine_range(pool_size):
                    total = row_sum(weights, wide_block, o, r, filter_size)
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
                    weights[:, o, k, i * filter_size + j, :],
                    nisa.tensor_copy(block[:, k, rows, columns]),
                )
    return total


def flatten_weights(W):
    """W as [c_in, O // 128, C // 128, tap, c_out] in SBUF, float32."""
    pmax = nl.tile_size.pmax
    out_blocks, in_blocks = W.shape[0] // pmax, W.shape[1] // pmax
    taps = W.shape[2] * W.shape[3]
    weights = nl.ndarray(
        (pmax, out_blocks, in_blocks, taps, pmax), dtype=nl.float32, buffer=nl.sbuf
    )
    for o in nl.affine_range(out_blocks):
        for k in nl.affine_range(in_blocks):
            filters = load_filters(W, o, k)
            for t in nl.affine_range(taps):
                weights[:, o, k, t, :] = transposed_tap(filters, t)
    return weights
