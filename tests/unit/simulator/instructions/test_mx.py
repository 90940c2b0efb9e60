"""quantize_mx, nc_matmul_mx and the packed dtypes (nki.isa and mxfp-matmul.rst at v2.32.0)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from difftest.simulator import TRN3, NkiError, Space, launch
from difftest.simulator.core import current
from difftest.simulator.dtypes import (
    FLOAT4_E2M1FN_X4,
    FLOAT8_E4M3FN_X4,
    FLOAT8_E5M2_X4,
    FLOAT8_E8M0FNU,
)
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.copy import memset, tensor_copy
from difftest.simulator.instructions.mx import nc_matmul_mx, quantize_mx, scale_places, unpack
from difftest.simulator.trace_json import trace_from_json, trace_to_json
from tests.every import every
from tests.unit.simulator.on_tiles import normal

UINT8 = np.dtype(np.uint8)
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def tile(shape, dtype, space=Space.SBUF):
    """Of a dtype that the classic dialect cannot name."""
    core = current()
    return core.tile._whole(core.allocate(shape, np.dtype(dtype), space))


def quantized(x, dtype=FLOAT8_E4M3FN_X4, scales=UINT8, scale_shape=None):
    partitions, free = x.shape[0], x.shape[1] // 4
    data = tile((partitions, free), dtype)
    scale = tile(scale_shape or (4 if partitions == 32 else partitions, free), scales)
    gate.issue(quantize_mx, (x,), dst=data, others=(scale,))
    return data, scale


def observed(compute, *arrays, machine=TRN3):
    """What ``compute`` returns for the arrays as tiles, as arrays of the launch's memory."""
    seen = []

    def kernel(*tensors):
        seen.extend(t._elements().copy() for t in compute(*(nl.load(t) for t in tensors)))

    launch(kernel, arrays, machine=machine)
    return seen


def expected_scales(x, largest_exponent):
    """One exponent for each group of 8 partitions and 4 elements, by Python's own arithmetic."""
    exponents = np.empty((len(x) // 8, x.shape[1] // 4), int)
    for (group, column), _ in np.ndenumerate(exponents):
        values = x[8 * group : 8 * group + 8, 4 * column : 4 * column + 4].astype(float)
        most = np.abs(values).max()
        exponents[group, column] = int(np.floor(np.log2(most))) - (largest_exponent - 1)
    return exponents


FORMATS = {"e4m3": (FLOAT8_E4M3FN_X4, E4M3, 8), "e5m2": (FLOAT8_E5M2_X4, E5M2, 15)}


@every("name", FORMATS)
@every("partitions", [32, 96])
@every("source", [np.float16, ml_dtypes.bfloat16])
def test_quantize_mx(name, partitions, source):
    packed, element, largest = FORMATS[name]
    x = normal(partitions, 12, dtype=source)
    data, scale = observed(lambda t: quantized(t, packed), x)
    exponents = expected_scales(x, largest)
    for group, row in enumerate(exponents):
        place = 32 * (group // 4) + group % 4
        assert_array_equal(scale[place], row + 127)
    factors = 2.0 ** np.repeat(np.repeat(exponents, 8, axis=0), 4, axis=1)
    wanted = (x.astype(np.float64) / factors).astype(np.float32).astype(element)
    assert_array_equal(data.view(element).reshape(x.shape), wanted)


def test_the_documented_scale_of_zeros():
    (_, scale) = observed(quantized, np.zeros((32, 4), np.float16))
    assert_array_equal(scale, np.zeros((4, 1), np.uint8))  # 2**-127


def test_scales_keep_the_other_partitions():
    """Those of 64 partitions lie in rows 0 to 3 and 32 to 35; a trace says so."""

    def kernel(x):
        data, scale = tile((64, 2), FLOAT8_E4M3FN_X4), tile((64, 2), UINT8)
        gate.issue(memset, (9,), ((64, 2),), dst=scale)
        gate.issue(quantize_mx, (nl.load(x),), dst=data, others=(scale,))
        out = nl.ndarray((64, 2), nl.uint8, buffer=nl.shared_hbm)
        nl.store(out, scale)
        return out

    result = launch(kernel, [normal(64, 8, dtype=np.float16)], machine=TRN3)
    kept = np.delete(np.arange(64), [0, 1, 2, 3, 32, 33, 34, 35])
    assert (result.outputs[0][kept] == 9).all()
    assert (np.delete(result.outputs[0], kept, axis=0) > 100).all()
    (event,) = [event for event in result.trace if event.opcode == "quantize_mx"]
    assert [(region.role, region.whole) for region in event.writes] == [
        ("dst", True),
        ("dst_scale", False),
    ]
    assert_array_equal(scale_places(64), [0, 1, 2, 3, 32, 33, 34, 35])
    again = trace_from_json(trace_to_json(result.trace))
    assert [one.dtype for one in again.allocations] == [
        one.dtype for one in result.trace.allocations
    ]


@every("scales", [UINT8, FLOAT8_E8M0FNU])
@every("partitions", [32, 128])
def test_a_product_of_what_was_quantized(scales, partitions):
    """Equal to the product of the dequantized operands; near that of the original ones."""
    x, y = normal(partitions, 4 * 6, dtype=np.float16), normal(partitions, 4 * 10, seed=1)
    y = y.astype(ml_dtypes.bfloat16)

    def compute(a, b):
        left, left_scale = quantized(a, FLOAT8_E4M3FN_X4, scales)
        right, right_scale = quantized(b, FLOAT8_E5M2_X4, scales)
        product = tile((6, 10), np.float32, Space.PSUM)
        operands = (left, right, left_scale, right_scale)
        gate.issue(nc_matmul_mx, operands, (False, (), ()), dst=product)
        narrow = tile((6, 10), ml_dtypes.bfloat16, Space.PSUM)
        gate.issue(nc_matmul_mx, operands, (False, (0, 0), (128, 128)), dst=narrow)
        twice = tile((6, 10), np.float32, Space.PSUM)
        for more in (False, True):
            gate.issue(nc_matmul_mx, operands, (more, (), ()), dst=twice)
        return left, right, product, narrow, twice

    left, right, product, narrow, twice = observed(compute, x, y)

    def dequantized(packed, element, original, largest):
        exponents = np.repeat(expected_scales(original, largest), 8, axis=0)
        values = packed.view(element).reshape(partitions, -1, 4).astype(np.float64)
        return values * 2.0 ** exponents[..., None]

    a, b = dequantized(left, E4M3, x, 8), dequantized(right, E5M2, y, 15)
    exact = np.einsum("pmk,pnk->mn", a, b)
    assert_allclose(product, exact, rtol=1e-5, atol=1e-5)
    assert_array_equal(narrow, product.astype(ml_dtypes.bfloat16).astype(np.float32))
    assert_array_equal(twice, product + product)
    x, y = x.astype(float).reshape(partitions, 6, 4), y.astype(float).reshape(partitions, 10, 4)
    half_units = 2.0**-4 + 2.0**-3 + 2.0**-7  # of e4m3fn, of e5m2, and their product
    away = np.abs(product - np.einsum("pmk,pnk->mn", x, y))
    assert (away < half_units * np.einsum("pmk,pnk->mn", np.abs(x), np.abs(y))).all()


def test_float4_elements_begin_in_the_lowest_bits():
    """0, 0.5, 1, 1.5, 2, 3, 4, 6 are the codes 0 to 7; bit 3 is the sign."""
    packed = np.array([[0x7654, 0x3210, 0xFEDC]], np.uint16).view(FLOAT4_E2M1FN_X4)
    values = unpack(packed, FLOAT4_E2M1FN_X4)
    assert_array_equal(values[0], [[2, 3, 4, 6], [0, 0.5, 1, 1.5], [-2, -3, -4, -6]])


def test_float4_operands_multiply():
    codes = np.random.default_rng(0).integers(0, 2**16, (32, 2)).astype(np.uint16)
    values = unpack(codes.view(FLOAT4_E2M1FN_X4), FLOAT4_E2M1FN_X4).astype(np.float64)

    def compute(bits):
        data, scale = tile((32, 2), FLOAT4_E2M1FN_X4), tile((4, 2), UINT8)
        data._elements()[...] = codes.view(FLOAT4_E2M1FN_X4)
        data._mark()
        gate.issue(memset, (128,), ((4, 2),), dst=scale)  # 2**1
        product = tile((2, 2), np.float32, Space.PSUM)
        gate.issue(nc_matmul_mx, (data, data, scale, scale), (False, (), ()), dst=product)
        return (product,)

    (product,) = observed(compute, codes)
    assert_array_equal(product, 4 * np.einsum("pmk,pnk->mn", values, values))


def test_packed_elements_are_copied_and_zeroed():
    def compute(x):
        data, _ = quantized(x)
        other, zeros = tile(data.shape, data.dtype), tile(data.shape, data.dtype)
        gate.issue(tensor_copy, (data,), dst=other)
        gate.issue(memset, (0,), (data.shape,), dst=zeros)
        return data, other, zeros

    data, other, zeros = observed(compute, normal(32, 8, dtype=np.float16))
    assert_array_equal(other, data)
    assert not zeros.view(np.uint32).any()


def product_of(x, *, m=6, n=10, dst=None, options=(False, (), ()), scale=None):
    left, left_scale = quantized(x)
    into = tile((m, n), np.float32, Space.PSUM) if dst is None else dst
    operands = (
        left[:, :m],
        left[:, :n],
        (left_scale if scale is None else scale)[:, :m],
        left_scale[:, :n],
    )
    return gate.issue(nc_matmul_mx, operands, options, dst=into)


DATA = normal(32, 40, dtype=np.float16)
REFUSED = {
    "an infinity": (
        TRN3,
        lambda x: quantized(nl.full((32, 4), np.inf, nl.float16)),
        "documented for finite values",
    ),
    "one": (
        TRN3,
        lambda x: gate.issue(memset, (1,), ((4, 4),), dst=tile((4, 4), FLOAT8_E5M2_X4)),
        "MX dtypes are moved",
    ),
}


@every("name", REFUSED)
def test_what_is_refused(name):
    machine, call, rule = REFUSED[name]
    with pytest.raises(NkiError, match=rule):
        observed(lambda x: (call(x),), DATA, machine=machine)


def test_a_scale_that_is_no_number():
    def kernel(x):
        scale = tile((4, 10), UINT8)
        gate.issue(memset, (255,), ((4, 10),), dst=scale)
        product_of(nl.load(x), scale=scale)

    with pytest.raises(NkiError, match="a scale of an MX group is a power of two"):
        launch(kernel, [DATA], machine=TRN3)
