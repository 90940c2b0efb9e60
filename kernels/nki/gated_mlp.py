"""The gated multi-layer perceptron of current language models."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.tiles import load_rows, multiply, transpose_columns


@nki.jit
def gated_mlp_rows(x, gate, up, down):
    """(silu(x @ gate) * (x @ up)) @ down for each row of x.

    Dimensions:
        T: rows of x, any number
        N: elements of a row, any number
        F: elements of the hidden layer, any number; the three weights fit SBUF

    Args:
        x: [T, N] in HBM; float32, float16 or bfloat16
        gate, up: [N, F] in HBM, dtype of x
        down: [F, N] in HBM, dtype of x

    Returns:
        [T, N] in HBM, dtype of x

    Notes:
        - The hidden layer is computed transposed, [F, T]: the last product then
          contracts over its columns, with no transpose between the products.
        - Sums are float32; the hidden layer is rounded into the dtype of x, and overflows
          where that is too narrow for it.

    Pseudocode:
        for each 128 rows of x: turn them
            for each 128 elements of F: hidden.T = silu(gate.T @ x.T) * (up.T @ x.T)
            for each 512 elements of N: out = hidden @ down
    """
    (T, N), F = x.shape, gate.shape[1]
    assert gate.shape == up.shape == (N, F), (
        f"gate and up have shape {(N, F)}: got {gate.shape} and {up.shape}"
    )
    assert down.shape == (F, N), f"down has shape {(F, N)}: got {down.shape}"
    assert x.dtype == gate.dtype == up.dtype == down.dtype, (
        f"x and the weights have one dtype: got {x.dtype}, {gate.dtype}, {up.dtype}, {down.dtype}"
    )
    pmax = nl.tile_size.pmax
    out = nl.ndarray((T, N), dtype=x.dtype, buffer=nl.shared_hbm)
    gates, ups, downs = load_rows(gate), load_rows(up), load_rows(down)
    for first in range(0, T, pmax):
        rows = slice(first, min(first + pmax, T))
        turned = transpose_columns(load_rows(x[rows, :])[0])
        hidden = []
        for left in range(0, F, pmax):
            columns = slice(left, min(left + pmax, F))
            product = gate_and_multiply(
                multiply(columns_of(gates, columns), turned),
                multiply(columns_of(ups, columns), turned),
                x.dtype,
            )
            hidden.append(product)
        for left in range(0, N, nl.tile_size.gemm_moving_fmax):
            columns = slice(left, min(left + nl.tile_size.gemm_moving_fmax, N))
            total = multiply(hidden, columns_of(downs, columns))
            rounded = nl.ndarray(total.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=rounded, src=total)
            nisa.dma_copy(dst=out[rows, columns], src=rounded)
    return out


def columns_of(tiles, columns):
    """The same columns of each tile."""
    parts = []
    for tile in tiles:
        parts.append(tile[:, columns])
    return parts


def gate_and_multiply(gated, upper, dtype):
    """silu(gated) * upper for two PSUM tiles: in SBUF, rounded into ``dtype``."""
    weight = nl.ndarray(gated.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=weight, op=nl.silu, data=gated)
    product = nl.ndarray(gated.shape, dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=product, data1=weight, data2=upper, op=nl.multiply)
    return product
