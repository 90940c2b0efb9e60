"""Convolutions written in ways that the model once mispredicted; each a plain classic kernel.

X [channels, height, width] and W [taps, channels, c_out], 3 x 3, of 128 channels in and out.
"""

from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl

TAPS = tuple((i, j) for i in range(3) for j in range(3))


def sbuf(*shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def load_weights(W):
    weights = sbuf(128, 9, W.shape[2], dtype=W.dtype)
    for tap in range(9):
        nisa.dma_copy(dst=weights[:, tap], src=W[tap])
    return weights


def new_output(X, W):
    _, height, width = X.shape
    return nl.ndarray(
        (W.shape[2], height - 2, width - 2), dtype=X.dtype, buffer=nl.shared_hbm
    )


def row_of(weights, block, columns):
    """The sum of the taps of a row: three rows of the image in SBUF."""
    total = nl.zeros((128, columns), nl.float32, buffer=nl.psum)
    for tap, (i, j) in enumerate(TAPS):
        total += nisa.nc_matmul(weights[:, tap], block[:, i, j : j + columns])
    return total


@ncc.skip_middle_end_transformations
def tile_in_each_turn(X, W):
    """Three rows of the image in a tile of each turn."""
    out = new_output(X, W)
    weights = load_weights(W)
    _, rows, columns = out.shape
    for y in nl.affine_range(rows):
        block = sbuf(128, 3, X.shape[2], dtype=X.dtype)
        for i in range(3):
            nisa.dma_copy(dst=block[:, i], src=X[:, y + i])
        result = nisa.tensor_copy(row_of(weights, block, columns), dtype=X.dtype)
        nisa.dma_copy(dst=out[:, y], src=result)
    return out


@ncc.skip_middle_end_transformations
def one_tile(X, W):
    """As above, with tiles that are made once and refilled, row by row, in each iteration."""
    out = new_output(X, W)
    weights = load_weights(W)
    _, rows, columns = out.shape
    block = sbuf(128, 3, X.shape[2], dtype=X.dtype)
    result = sbuf(128, columns, dtype=X.dtype)
    for y in nl.affine_range(rows):
        for i in range(3):
            nisa.dma_copy(dst=block[:, i], src=X[:, y + i])
        result[...] = nisa.tensor_copy(row_of(weights, block, columns), dtype=X.dtype)
        nisa.dma_copy(dst=out[:, y], src=result)
    return out


@ncc.skip_middle_end_transformations
def rolling_tile(X, W):
    """A tile that keeps two of its three rows: each iteration needs rows of the previous one."""
    out = new_output(X, W)
    weights = load_weights(W)
    _, rows, columns = out.shape
    block = sbuf(128, 3, X.shape[2], dtype=X.dtype)
    for i in range(2):
        nisa.dma_copy(dst=block[:, i + 1], src=X[:, i])
    for y in nl.sequential_range(rows):
        for i in range(2):
            block[:, i] = nisa.tensor_copy(block[:, i + 1])
        nisa.dma_copy(dst=block[:, 2], src=X[:, y + 2])
        result = nisa.tensor_copy(row_of(weights, block, columns), dtype=X.dtype)
        nisa.dma_copy(dst=out[:, y], src=result)
    return out


@ncc.skip_middle_end_transformations
def copied_operands(X, W, seen=nisa.tensor_copy, taken=nisa.tensor_copy):
    """Each product's operands are copied inside SBUF first, the weights as the image."""
    out = new_output(X, W)
    weights = load_weights(W)
    _, rows, columns = out.shape
    for y in nl.affine_range(rows):
        block = sbuf(128, 3, X.shape[2], dtype=X.dtype)
        nisa.dma_copy(dst=block, src=X[:, y : y + 3])
        total = nl.zeros((128, columns), nl.float32, buffer=nl.psum)
        for tap, (i, j) in enumerate(TAPS):
            total += nisa.nc_matmul(
                taken(weights[:, tap]), seen(block[:, i, j : j + columns])
            )
        nisa.dma_copy(dst=out[:, y], src=nisa.tensor_copy(total, dtype=X.dtype))
    return out


@ncc.skip_middle_end_transformations
def copied_image(X, W):
    """Only the image's operands are copied."""
    return copied_operands(X, W, taken=lambda weight: weight)


@ncc.skip_middle_end_transformations
def copied_in_groups(X, W):
    """Weights [groups, taps, channels, c_out] that each group loads, and copies in each row."""
    out = [copied_operands(X, W[group]) for group in nl.affine_range(W.shape[0])]
    return out[0], out[1]


@ncc.skip_middle_end_transformations
def turned_weights(X, W):
    """Weights [taps, c_out, channels] that are transposed before each product."""

    def turned(weight):
        return nisa.tensor_copy(nisa.nc_transpose(weight), dtype=X.dtype)

    return copied_operands(X, W, lambda image: image, turned)
