"""Exact runs of microscaling: products are within their bounds, and quantizations are sure."""

import ml_dtypes
import numpy as np

from difftest.simulator import TRN3, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import stored, tile

BFLOAT16 = ml_dtypes.bfloat16
RANDOM = np.random.default_rng(0)
ROWS = 128
COLUMNS = 10
PACKED = (
    RANDOM.standard_normal((ROWS, 6, 4))
    .astype(ml_dtypes.float8_e5m2)
    .view(np.uint32)
    .reshape(ROWS, 6)
)
SCALE = RANDOM.integers(120, 134, (ROWS, 6)).astype(np.uint8)
MOVING = RANDOM.standard_normal((ROWS, 4 * COLUMNS)).astype(BFLOAT16)


def product_of(prepare):
    """Return a kernel: the product of quantized weights and ``prepare``'s quantized result."""

    def kernel(stationary, stationary_scale, moving):
        left = nl.ndarray(stationary.shape, nl.float8_e5m2_x4)
        nisa.dma_copy(left, stationary.view(nl.float8_e5m2_x4))
        right = nl.ndarray((ROWS, COLUMNS), nl.float8_e4m3fn_x4)
        scale = nl.ndarray((ROWS, COLUMNS), nl.float8_e8m0fnu)
        nisa.quantize_mx(dst=right, src=prepare(nl.load(moving)), dst_scale=scale)
        result = nl.ndarray((6, COLUMNS), nl.float32, buffer=nl.psum)
        for _ in range(2):  # the second time it adds
            nisa.nc_matmul_mx(result, left, right, nl.load(stationary_scale), scale)
        return stored(result)

    return kernel


def exact_of(prepare, moving=MOVING):
    result = launch(
        product_of(prepare), [PACKED, SCALE, moving], machine=TRN3, exact=True
    )
    return result.outputs[0], result.exact


def dequantized(moving):
    """Return values rounded as quantize_mx does, by groups of 8 partitions and 4 elements."""
    groups = moving.astype(np.float64).reshape(ROWS // 8, 8, COLUMNS, 4)
    largest = np.abs(groups).max(axis=(1, 3), keepdims=True)
    scale = 2.0 ** (np.floor(np.log2(largest)) - 7)
    rounded = (groups / scale).astype(ml_dtypes.float8_e4m3fn).astype(
        np.float64
    ) * scale
    return rounded.reshape(ROWS, COLUMNS, 4)


def test_a_product_of_quantized_values_is_exact():
    got, run = exact_of(lambda tile: tile)
    assert run.has_meaning
    assert not run.doubts
    (output,) = run.outputs
    weights = PACKED.view(ml_dtypes.float8_e5m2).reshape(ROWS, 6, 4).astype(np.float64)
    places = np.arange(ROWS) // 32 * 32 + np.arange(ROWS) % 32 // 8
    weights *= 2.0 ** (SCALE[places].astype(np.float64) - 127)[..., None]
    reference = 2 * np.einsum("pif,pjf->ij", weights, dequantized(MOVING))
    np.testing.assert_allclose(output.value, reference, rtol=1e-12, atol=1e-9)
    assert (np.abs(got - output.value) <= output.error).all()
    sizes = np.einsum("pif,pjf->ij", np.abs(weights), np.abs(dequantized(MOVING)))
    assert (output.error <= 4 * ROWS * 2.0**-22 * sizes).all()


def scaled(factor, dtype):
    def prepare(data):
        out = tile((ROWS, 4 * COLUMNS), dtype)
        nisa.tensor_scalar(out, data, nl.multiply, factor)
        return out

    return prepare


@every("factor, lost", [(0.5, False), (0.3, True)])
def test_rounded_values_that_are_quantized_are_a_doubt(factor, lost):
    """Half of a number is not rounded; where 0.3 of many are, some quantize either way."""
    _, run = exact_of(scaled(factor, nl.bfloat16))
    reasons = {doubt.reason for doubt in run.doubts if doubt.lost}
    assert reasons == ({"rounded values are quantized to MX"} if lost else set())


def test_rounded_values_that_can_only_quantize_so_are_none():
    """Around 1 + 2**-5, far from where float8 rounds the other way, and below 2."""
    _, run = exact_of(scaled(1.0101, nl.float16), np.full_like(MOVING, 1.0))
    assert run.has_meaning
