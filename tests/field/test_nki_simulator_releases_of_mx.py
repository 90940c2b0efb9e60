"""As `test_nki_simulator_releases.py`, for dtypes of 8 bits and less.

Source: the public release notes of NKI 0.4, 0.5 and 0.6 (Neuron SDK 2.30 to 2.32), "Bug Fixes".
"""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import TRN3, KernelError, launch
from difftest.simulator.entry.nki_kernel import simulate
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, stored, tile

RNG = np.random.default_rng(0)
FLOATS = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
}


def on_trn3(kernel, *arrays):
    outputs = launch(kernel, arrays, machine=TRN3).outputs
    return outputs[0] if len(outputs) == 1 else outputs


def integers(*shape):
    """Return small integers that every scale keeps exact, with equal maxima in all groups."""
    values = RNG.integers(-3, 4, shape)
    values[..., ::4] = 4
    return values.astype(ml_dtypes.bfloat16)


def quantized(packed, x, scale=None):
    """A tile of the packed dtype and its scales."""
    source = nl.load(x)
    rows = source.shape[0]
    columns = source.shape[1] // 4
    out = nl.ndarray((rows, columns), getattr(nl, packed))
    scale = nl.ndarray((rows, columns), nl.uint8) if scale is None else scale
    nisa.quantize_mx(out, source, scale)
    return out, scale


def elements(packed, array):
    """The numbers of a packed array, which came back as whole 32-bit elements."""
    return np.ascontiguousarray(array).view(FLOATS[packed]).astype(np.float32)


@every("packed", FLOATS)
def test_0_4_quantize_mx_into_each_packed_dtype(packed):
    """float8_e4m3fn_x4 came out wrong; on trn3 both packed dtypes did."""
    data = integers(32, 16)

    def kernel(x):
        out, scale = quantized(packed, x)
        bits = nl.ndarray((32, 4), nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(bits, out.view(nl.uint32))
        places = nl.ndarray((4, 4), nl.uint8, buffer=nl.shared_hbm)
        nisa.dma_copy(places, scale[0:4])
        return bits, places

    bits, scale = on_trn3(kernel, data)
    factors = np.ldexp(np.float32(1), scale.astype(int) - 127)
    restored = elements(packed, bits).reshape(4, 8, 4, 4) * factors[:, None, :, None]
    assert_array_equal(restored.reshape(32, 16), data.astype(np.float32))


def test_0_4_a_product_of_packed_operands():
    left = integers(32, 6 * 4)
    right = integers(32, 10 * 4)

    def kernel(a, b):
        (x, x_scale), (y, y_scale) = (
            quantized("float8_e5m2_x4", a),
            quantized("float8_e4m3fn_x4", b),
        )
        out = nl.ndarray((6, 10), nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(out, x, y, x_scale, y_scale)
        return stored(out)

    wide = [array.astype(np.float32).reshape(32, -1, 4) for array in (left, right)]
    assert_array_equal(on_trn3(kernel, left, right), np.einsum("pif,pjf->ij", *wide))


def test_0_4_dma_compute_has_no_scale_but_one():
    """AWS's simulator had an additive mode of scales that the hardware lacks."""

    def compute(x):
        nisa.dma_compute(tile((4, 8)), [x, x], nl.add, scales=[1.0, 2.0])

    with pytest.raises(KernelError, match="scale"):
        on_nki_tiles(compute, np.ones((4, 8), np.float32))


def test_0_4_a_bool_tensor_comes_back_as_one():
    def kernel(x):
        out = nl.ndarray(x.shape, nl.bool_, buffer=nl.shared_hbm)
        nl.store(out, nl.greater(nl.load(x), 0.5, dtype=nl.bool_))
        return out

    result = simulate(kernel)(np.array([[0, 1, 0.25, 0.75]], np.float32))
    assert_array_equal(result, np.array([[False, True, False, True]]), strict=True)


def test_0_5_a_dma_of_packed_elements_that_skips():
    table = RNG.integers(0, 2**32, (6, 4), dtype=np.uint32)
    places = np.array([[5], [99], [0]], np.uint32)

    def kernel(data, index):
        rows = nl.load(index)
        packed = data.view(nl.float8_e5m2_x4)
        out = nl.ndarray((3, 4), nl.float8_e5m2_x4)
        nisa.memset(out, 0)
        source = packed.ap([[4, 3], [1, 4]], vector_offset=rows, indirect_dim=0)
        nisa.dma_copy(out, source, oob_mode=nisa.oob_mode.skip)
        bits = nl.ndarray((3, 4), nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(bits, out.view(nl.uint32))
        return bits

    assert_array_equal(
        on_trn3(kernel, table, places), np.stack([table[5], [0] * 4, table[0]])
    )


def test_0_6_scales_in_a_slice_of_a_common_tile():
    """A sliced scale raised a ValueError, and spoiled the scales that were there before."""
    first = integers(32, 16)
    second = 8 * integers(32, 16).astype(np.float32)
    second = second.astype(ml_dtypes.bfloat16)

    def kernel(a, b):
        scales = nl.ndarray((32, 8), nl.uint8)
        x, _ = quantized("float8_e5m2_x4", a, scales[:, 0:4])
        y, _ = quantized("float8_e5m2_x4", b, scales[:, 4:8])
        out = nl.ndarray((4, 4), nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(out, x, y, scales[:, 0:4], scales[:, 4:8])
        return stored(out)

    wide = [array.astype(np.float32).reshape(32, 4, 4) for array in (first, second)]
    assert_array_equal(on_trn3(kernel, first, second), np.einsum("pif,pjf->ij", *wide))


def test_0_6_double_row_has_the_result_s_own_shape():
    """Where the simulator missed the mode, the result was too large."""
    left = RNG.integers(-4, 5, (64, 2, 16)).astype(ml_dtypes.float8_e4m3)
    right = RNG.integers(-4, 5, (64, 2, 40)).astype(ml_dtypes.float8_e4m3)

    def compute(x, y):
        out = nl.ndarray((16, 40), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, x, y, perf_mode=nisa.matmul_perf_mode.double_row)
        return out

    wide = [array.astype(np.float32) for array in (left, right)]
    assert_array_equal(
        on_nki_tiles(compute, left, right), np.einsum("pkm,pkn->mn", *wide)
    )
