"""Rung 1: whole planes, element by element."""

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
from kernels.nki.conv2d_ladder.operands import add_product, transposed_tap
from kernels.nki.tiles import load


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
    piece = nl.tile_size.psum_fmax // (
        pool_size * pool_size
    )  # difftest: ignore[NKU309] for 0.3

    shape = output_shape(X, W, pool_size)
    out = nl.ndarray(shape, dtype=X.dtype, buffer=nl.shared_hbm)
    offsets = load_bias(bias)
    for image in range(X.shape[0]):
        for o in range(W.shape[0] // pmax):
            for first in range(0, windows, piece):
                places = []
                for n in range(first, min(first + piece, windows)):
                    places.append((n // across, n % across))
                positions = window_positions(places, pool_size)
                total = positions_sum(X, W, image, o, positions)
                biased = nl.ndarray(total.shape, dtype=X.dtype, buffer=nl.sbuf)
                nisa.tensor_scalar(
                    dst=biased, data=total, op0=nl.add, operand0=offsets[:, o : o + 1]
                )
                store_positions(out, image, o, places, biased)
    return out


def window_positions(places, pool_size):
    """The positions in the windows at ``places``, one window after the other."""
    positions = []
    for n in range(len(places)):
        row, column = places[n]
        for y in range(pool_size):
            for x in range(pool_size):
                positions.append((row * pool_size + y, column * pool_size + x))
    return positions


def positions_sum(X, W, image, o, positions):
    """The convolution at ``positions``, without bias: [128, positions] in SBUF, float32."""
    pmax = nl.tile_size.pmax
    out_height, out_width = convolved_size(X, W)
    filter_size = W.shape[2]
    total = nl.zeros((pmax, len(positions)), nl.float32, buffer=nl.sbuf)
    for k in range(X.shape[1] // pmax):
        channels = slice(k * pmax, (k + 1) * pmax)
        for i in range(filter_size):
            for j in range(filter_size):
                rows, columns = slice(i, i + out_height), slice(j, j + out_width)
                plane = load(X[image, channels, rows, columns])
                filters = load_filters(W, o, k)
                tap = transposed_tap(filters, i * filter_size + j)
                add_product(
                    total, stationary=tap, moving=copy_positions(plane, positions)
                )
    return total


def copy_positions(plane, positions):
    """The columns of a plane at ``positions``, [128, positions] in float32: a copy for each."""
    tile = nl.ndarray(
        (plane.shape[0], len(positions)), dtype=nl.float32, buffer=nl.sbuf
    )
    for n in range(len(positions)):
        row, column = positions[n]
        nisa.tensor_copy(dst=tile[:, n : n + 1], src=plane[:, row, column : column + 1])
    return tile


def store_positions(out, image, o, places, tile):
    """Store the largest element of each place's window: a DMA for each place."""
    pmax = nl.tile_size.pmax
    channels = slice(o * pmax, (o + 1) * pmax)
    elements = tile.shape[1] // len(places)
    if elements > 1:
        windows = tile.reshape((pmax, len(places), elements))
        tile = nl.ndarray((pmax, len(places)), dtype=windows.dtype, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=tile, op=nl.maximum, data=windows, axis=2)
    for n in range(len(places)):
        row, column = places[n]
        nisa.dma_copy(
            dst=out[image, channels, row : row + 1, column : column + 1],
            src=tile[:, n : n + 1],
        )
