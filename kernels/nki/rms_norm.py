"""Root mean square normalization of the rows of a matrix."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.tiles import load


@nki.jit
def rms_norm_rows(x, gamma, eps=1e-6):
    """gamma * x / sqrt(mean(x ** 2) + eps), the mean along each row.

    Dimensions:
        T: rows, any number
        N: elements of a row; two tiles of 128 rows of it fit SBUF, in float32, beside gamma

    Args:
        x: [T, N] in HBM; float32, float16 or bfloat16
        gamma: [N] in HBM, one of these dtypes
        eps: added to the mean square

    Returns:
        [T, N] in HBM, dtype of x

    Pseudocode:
        for each 128 rows: out = x * rsqrt(mean(x ** 2) + eps) * gamma
    """
    T, N = x.shape
    assert gamma.shape == (N,), (
        f"gamma has one value for each of {N} elements: got {gamma.shape}"
    )
    pmax = nl.tile_size.pmax
    out = nl.ndarray((T, N), dtype=x.dtype, buffer=nl.shared_hbm)
    factors = load(gamma.reshape((1, N)).broadcast(0, min(pmax, T)))
    for first in range(0, T, pmax):
        rows = slice(first, min(first + pmax, T))
        tile = load(x[rows, :])
        normed = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=normed,
            data=tile,
            op0=nl.multiply,
            operand0=inverse_root_mean_square(tile, eps),
            op1=nl.multiply,
            operand1=factors[: tile.shape[0], :],
        )
        nisa.dma_copy(dst=out[rows, :], src=normed)
    return out


def inverse_root_mean_square(tile, eps):
    """1 / sqrt(mean(tile ** 2) + eps) of each row: a column in SBUF, float32."""
    rows, N = tile.shape
    squares = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(
        dst=squares, op=nl.square, data=tile, reduce_op=nl.add, reduce_res=total
    )
    offset = nl.full((rows, 1), eps, dtype=nl.float32, buffer=nl.sbuf)
    inverse = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=inverse, op=nl.rsqrt, data=total, scale=1 / N, bias=offset)
    return inverse
