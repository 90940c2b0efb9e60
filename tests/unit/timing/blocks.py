"""Blocks that begin with the transposes for their products: [n, 128, 512] of X and W.

X [n * 128, 512] is turned in tiles of 128 x 128, W [4, 128, 512] is what they are multiplied with.
"""

from difftest.simulator.frontend.classic import compiler as ncc
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl


def turned(X, block):
    """A block's four tiles, turned, in SBUF."""
    tile = nl.ndarray((128, 512), dtype=X.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=X[block * 128 : block * 128 + 128])
    result = nl.ndarray((128, 4, 128), dtype=X.dtype, buffer=nl.sbuf)
    for t in range(4):
        result[:, t] = nisa.tensor_copy(
            nisa.nc_transpose(tile[:, t * 128 : t * 128 + 128])
        )
    return result


def multiply(out, block, tiles, weights):
    """Sum the products of a block and store them."""
    total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for t in range(4):
        total += nisa.nc_matmul(tiles[:, t], weights[:, t])
    nisa.dma_copy(dst=out[block], src=nisa.tensor_copy(total, dtype=out.dtype))


def operands(X, W):
    blocks = X.shape[0] // 128
    weights = nl.ndarray((128, 4, 512), dtype=W.dtype, buffer=nl.sbuf)
    for t in range(4):
        nisa.dma_copy(dst=weights[:, t], src=W[t])
    return (
        nl.ndarray((blocks, 128, 512), dtype=X.dtype, buffer=nl.shared_hbm),
        weights,
        blocks,
    )


@ncc.skip_middle_end_transformations
def turned_in_each_block(X, W):
    out, weights, blocks = operands(X, W)
    for block in nl.affine_range(blocks):
        multiply(out, block, turned(X, block), weights)
    return out


@ncc.skip_middle_end_transformations
def turned_first(X, W):
    out, weights, blocks = operands(X, W)
    tiles = [turned(X, block) for block in range(blocks)]
    for block in nl.affine_range(blocks):
        multiply(out, block, tiles[block], weights)
    return out


@ncc.skip_middle_end_transformations
def turned_through_hbm(X, W):
    """The turned tiles of a block are stored and loaded again before its products."""
    out, weights, blocks = operands(X, W)
    scratch = nl.ndarray((blocks, 128, 4, 128), dtype=X.dtype, buffer=nl.private_hbm)
    for block in nl.affine_range(blocks):
        nisa.dma_copy(dst=scratch[block], src=turned(X, block))
        again = nl.ndarray((128, 4, 128), dtype=X.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=again, src=scratch[block])
        multiply(out, block, again, weights)
    return out
