"""Rung 1: whole planes, element by element."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

from kernels.classic.conv2d import (
    check_contract,
    convolved_size,
    load_bias,
    load_filters,
    output_shape,
)
from kernels.classic.conv2d_ladder.operands import float32_copy, transposed_tap


@nki.compiler.skip_middle_end_transformations
@nki.jit
def conv2d_whole_plane(X, W, bias, pool_size=1):
    """The layer of `fused_conv2d_maxpool`, as correct as it is slow.

    The output is one long row of positions, taken 512 at a time. For every tap and every 128
    input channels of such a piece: load the whole plane that the tap sees, copy the piece's
    positions out of it one by one, load and transpose the weights, multiply. Store the piece one
    position at a time.

    Why it is slow:
        A piece of a 224 x 224 image uses 512 of the 49,284 positions that it loads for each
        product. There are 97 pieces, 512 copies of one column for each product of a piece, and
        49,284 stores of 128 elements.

    Measured:
        No latency. "Conv2D Performance Analysis" has these counts, for 3 x 3 filters.

    Next:
        `conv2d_baseline` loads the row that a product uses, and stores rows.
    """
    check_contract(X, W, bias, pool_size)
    pmax = nl.tile_size.pmax
    out_height, out_width = convolved_size(X, W)
    across = out_width // pool_size
    windows = out_height // pool_size * across
    elements = [(y, x) for y in range(pool_size) for x in range(pool_size)]
    piece = nl.tile_size.psum_fmax // len(elements)

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    offsets = load_bias(bias)
    for image in nl.affine_range(X.shape[0]):
        for o in nl.affine_range(W.shape[0] // pmax):
            for first in nl.static_range(0, windows, piece):
                places = [
                    divmod(n, across) for n in range(first, min(first + piece, windows))
                ]
                positions = [
                    (row * pool_size + y, column * pool_size + x)
                    for row, column in places
                    for y, x in elements
                ]
                total = positions_sum(X, W, image, o, positions)
                biased = nisa.tensor_scalar(
                    total, nl.add, offsets[:, o : o + 1], dtype=X.dtype
                )
                store_positions(out, image, o, places, biased)
    return out


def positions_sum(X, W, image, o, positions):
    """The convolution at ``positions``, without bias: [128, positions] in SBUF, float32."""
    pmax = nl.tile_size.pmax
    out_height, out_width = convolved_size(X, W)
    filter_size = W.shape[2]
    total = nl.zeros((pmax, len(positions)), nl.float32, buffer=nl.sbuf)
    for k in nl.sequential_range(X.shape[1] // pmax):
        channels = slice(k * pmax, (k + 1) * pmax)
        for i in nl.sequential_range(filter_size):
            for j in nl.sequential_range(filter_size):
                plane = nl.ndarray(
                    (pmax, out_height, out_width), dtype=X.dtype, buffer=nl.sbuf
                )
                rows, columns = slice(i, i + out_height), slice(j, j + out_width)
                nisa.dma_copy(dst=plane, src=X[image, channels, rows, columns])
                filters = load_filters(W, o, k)
                product = nisa.nc_matmul(
                    transposed_tap(filters, i * filter_size + j),
                    copy_positions(plane, positions),
                )
                total[...] = nisa.tensor_tensor(total, product, nl.add)
    return total


def copy_positions(plane, positions):
    """The columns of a plane at ``positions``, [128, positions] in float32: a copy for each."""
    tile = nl.ndarray(
        (plane.shape[0], len(positions)), dtype=nl.float32, buffer=nl.sbuf
    )
    for n, (row, column) in enumerate(positions):
        tile[:, n : n + 1] = float32_copy(plane[:, row, column : column + 1])
    return tile


def store_positions(out, image, o, places, tile):
    """Store the largest element of each place's window: a DMA for each place."""
    pmax = nl.tile_size.pmax
    channels = slice(o * pmax, (o + 1) * pmax)
    elements = tile.shape[1] // len(places)
    if elements > 1:
        windows = tile.reshape((pmax, len(places), elements))
        tile = nisa.tensor_reduce(nl.max, windows, axis=[2])
    for n, (row, column) in enumerate(places):
        nisa.dma_copy(
            dst=out[image, channels, row : row + 1, column : column + 1],
            src=tile[:, n : n + 1],
        )
