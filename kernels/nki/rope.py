"""Rotary position embedding."""

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.nki.tiles import load


@nki.jit
def rope_rows(x, cos, sin):
    """x with element i of each row rotated against element i + D / 2.

    Dimensions:
        T: rows, any number
        D: elements of a row, an even number

    Args:
        x: [T, D] in HBM; float32, float16 or bfloat16
        cos, sin: [T, D // 2] in HBM, of each position's angles; one of these dtypes

    Returns:
        [T, D] in HBM, dtype of x

    Pseudocode:
        for each 128 rows, with their halves a and b:
            out = a * cos - b * sin, b * cos + a * sin
    """
    T, D = x.shape
    assert D % 2 == 0, f"rope_rows takes rows of an even number of elements, got {D}"
    half = D // 2
    assert cos.shape == (T, half), f"cos has shape {(T, half)}: got {cos.shape}"
    assert sin.shape == (T, half), f"sin has shape {(T, half)}: got {sin.shape}"
    out = nl.ndarray((T, D), dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, T, nl.tile_size.pmax):
        rows = slice(first, min(first + nl.tile_size.pmax, T))
        tile, cosines, sines = load(x[rows, :]), load(cos[rows, :]), load(sin[rows, :])
        a, b = tile[:, :half], tile[:, half:]
        turned = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        combine(turned[:, :half], a, cosines, nl.subtract, b, sines)
        combine(turned[:, half:], b, cosines, nl.add, a, sines)
        nisa.dma_copy(dst=out[rows, :], src=turned)
    return out


def combine(dst, a, cosines, op, b, sines):
    """dst = a * cosines op b * sines, rounded once into dst's dtype."""
    products = []
    for pair in ((a, cosines), (b, sines)):
        tile, table = pair
        product = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=product, data1=tile, data2=table, op=nl.multiply)
        products.append(product)
    nisa.tensor_tensor(dst=dst, data1=products[0], data2=products[1], op=op)
