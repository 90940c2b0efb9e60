"""Totals kept in the operands' bfloat16 where the output is float32, and near misses.

An operand may be rounded into the operands' dtype, for a matmul wants it so. What is added to again
may be as coarse as the output's dtype, and no coarser.
"""

from dataclasses import replace

import numpy as np
import pytest

from difftest.simulator.entry.install import embedded
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.sizes import multiples
from tests.kernels.budget import NIGHTLY
from tests.meta.search import judged

with embedded():
    import neuronxcc.nki as classic_nki
    import neuronxcc.nki.isa as classic_isa
    import neuronxcc.nki.language as cl
    import nki
    import nki.isa as nisa
    import nki.language as nl


def classic(compute):
    """A classic kernel that stores ``compute(lhsT, rhs)`` as float32."""

    @classic_nki.jit
    def kernel(lhsT, rhs):
        made = compute(lhsT, rhs)
        out = cl.ndarray(made.shape, cl.float32, buffer=cl.shared_hbm)
        cl.store(out, cl.copy(made, dtype=cl.float32))
        return out

    return kernel


@classic_nki.jit
def taps_into_bfloat16(lhsT, rhs):
    out = cl.ndarray((128, 61), cl.bfloat16, buffer=cl.shared_hbm)
    cl.store(out, taps(cl.bfloat16)(lhsT, rhs))
    return out


def todays(dtype):
    """Adds partial products to a total of ``dtype`` in SBUF; in PSUM there is float32 alone."""

    @nki.jit
    def kernel(lhsT, rhs):
        K, M = lhsT.shape
        out = nl.ndarray((M, rhs.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.ndarray(out.shape, dtype=dtype, buffer=nl.sbuf)
        nisa.memset(total, 0)
        for k in nl.sequential_range(K // 128):
            left, right = (
                nl.ndarray((128, side.shape[1]), dtype=side.dtype, buffer=nl.sbuf)
                for side in (lhsT, rhs)
            )
            nisa.dma_copy(left, lhsT[nl.ds(k * 128, 128), :])
            nisa.dma_copy(right, rhs[nl.ds(k * 128, 128), :])
            part = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(part, left, right)
            nisa.tensor_tensor(total, total, part, op=nl.add)
        made = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(made, total)
        nisa.dma_copy(out, made)
        return out

    return kernel


def parts(lhsT, rhs):
    """The products of each tile of K."""
    for k in range(lhsT.shape[0] // 128):
        rows = slice(k * 128, k * 128 + 128)
        yield classic_isa.nc_matmul(cl.load(lhsT[rows]), cl.load(rhs[rows]))


def in_psum(dtype):
    def compute(lhsT, rhs):
        total = cl.zeros((lhsT.shape[1], rhs.shape[1]), dtype, buffer=cl.psum)
        for part in parts(lhsT, rhs):
            total += part
        return total

    return compute


def in_sbuf(dtype):
    def compute(lhsT, rhs):
        total = cl.zeros((lhsT.shape[1], rhs.shape[1]), dtype, buffer=cl.sbuf)
        for part in parts(lhsT, rhs):
            total = cl.add(total, part, dtype=dtype)
        return total

    return compute


def product_of_rounded(lhsT, rhs):
    """Round the operand of the second product, as it must."""
    scores = in_psum(cl.float32)(lhsT, rhs)
    square = cl.copy(scores[:, 0:64], dtype=cl.bfloat16)
    return classic_isa.nc_matmul(square, square)


def taps(dtype):
    """Four neighbours, each with a weight."""

    def compute(lhsT, rhs):
        tile = cl.load(lhsT[0:128])
        total = None
        for tap, weight in enumerate((0.3, 0.7, 1.1, 0.9)):
            part = cl.multiply(tile[:, tap : tap + 61], weight, dtype=cl.bfloat16)
            total = part if total is None else cl.add(total, part, dtype=dtype)
        return total

    return compute


def powers(dtype):
    """x**2, x**4, x**8, each rounded."""

    def compute(lhsT, rhs):
        power = cl.load(lhsT[0:128], dtype=dtype)
        for _ in range(3):
            power = cl.multiply(power, power, dtype=dtype)
        return power

    return compute


def normalized(lhsT, rhs):
    """One subtraction, one product and one addition in bfloat16: nothing accumulates."""
    tile = cl.load(lhsT[0:128])
    mean = cl.mean(tile, axis=1, keepdims=True)
    centred = cl.subtract(tile, mean, dtype=cl.bfloat16)
    return cl.add(cl.multiply(centred, 0.3, dtype=cl.bfloat16), 0.7, dtype=cl.bfloat16)


def matmul(lhsT, rhs):
    return lhsT.astype(np.float64).T @ rhs.astype(np.float64)


def wide(function):
    return lambda lhsT, rhs: function(lhsT.astype(np.float64))


def square_of_scores(lhsT, rhs):
    square = matmul(lhsT, rhs)[:, :64]
    return square.T @ square


def tapped(x):
    return sum(x[:128, t : t + 61] * w for t, w in enumerate((0.3, 0.7, 1.1, 0.9)))


def affine(x):
    return (x[:128] - x[:128].mean(axis=1, keepdims=True)) * 0.3 + 0.7


def spec_of(kernel, reference, tiles):
    return KernelSpec(
        kernel=kernel,
        reference=reference,
        domain={"M": (64,), "K": multiples(128, at_most=128 * tiles), "N": (96,)},
        inputs={"lhsT": "K M", "rhs": "K N"},
        dtypes=("bfloat16",),
        output_dtype="float32",
    )


FAMILIES = {
    "classic PSUM": (lambda dtype: classic(in_psum(dtype)), matmul),
    "classic SBUF": (lambda dtype: classic(in_sbuf(dtype)), matmul),
    "today's SBUF": (todays, matmul),
    "taps": (lambda dtype: classic(taps(dtype)), wide(tapped)),
    "powers": (lambda dtype: classic(powers(dtype)), wide(lambda x: x[:128] ** 8)),
}
"""A kernel whose total has a dtype, and the reference."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_total_in_bfloat16_is_found_for_all_tiles(family):
    kernel_of, reference = FAMILIES[family]
    for tiles in (2, 8):
        spec = spec_of(kernel_of("bfloat16"), reference, tiles)
        for seed in range(3 if NIGHTLY else 1):
            assert judged(spec, seed, cases=10).question == "arithmetic", (tiles, seed)
        assert not judged(spec_of(kernel_of("float32"), reference, tiles), 0, cases=5)


def test_a_value_rounded_once_is_as_coarse_as_an_operand():
    for compute, reference in (
        (product_of_rounded, square_of_scores),
        (normalized, wide(affine)),
    ):
        assert not judged(spec_of(classic(compute), reference, 2), 0, cases=10)


def test_an_output_of_bfloat16_allows_its_rounding():
    spec = spec_of(taps_into_bfloat16, wide(tapped), 1)
    assert not judged(replace(spec, output_dtype="bfloat16"), 0, cases=10)
