"""quantize_mx, nc_matmul_mx and the packed dtypes (nki.isa and mxfp-matmul.rst at v2.32.0)."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import TRN3, NkiError, Space, launch
from difftest.simulator.core import current
from difftest.simulator.dtypes import FLOAT4_E2M1FN_X4, FLOAT8_E4M3FN_X4, FLOAT8_E5M2_X4
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.copy import memset
from difftest.simulator.instructions.mx import (
    nc_matmul_mx,
    quantize_mx,
    scale_places,
    unpack,
)
from difftest.simulator.trace_json import trace_from_json, trace_to_json
from tests.every import every
from tests.unit.simulator.on_tiles import normal

UINT8 = np.dtype(np.uint8)
E4M3 = ml_dtypes.float8_e4m3fn
E5M2 = ml_dtypes.float8_e5m2


def tile(shape, dtype, space=Space.SBUF):
    """Return a new tile, of a dtype that the classic dialect cannot name."""
    core = current()
    return core.tile._whole(core.allocate(shape, np.dtype(dtype), space))


def quantized(x, dtype=FLOAT8_E4M3FN_X4, scales=UINT8, scale_shape=None):
    partitions = x.shape[0]
    free = x.shape[1] // 4
    data = tile((partitions, free), dtype)
    scale = tile(scale_shape or (4 if partitions == 32 else partitions, free), scales)
    gate.issue(quantize_mx, (x,), dst=data, others=(scale,))
    return data, scale


def observed(compute, *arrays, machine=TRN3):
    """Return the arrays in a launch's memory after ``compute`` on tiles of the given arrays."""
    seen = []

    def kernel(*tensors):
        seen.extend(
            t._elements().copy() for t in compute(*(nl.load(t) for t in tensors))
        )

    launch(kernel, arrays, machine=machine)
    return seen


def expected_scales(x, largest_exponent):
    """Return the exponents by Python's own arithmetic, each for 8 partitions and 4 elements."""
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
def test_quantize_mx_divides_groups_by_their_powers_of_two(name, partitions, source):
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


def test_scales_keep_the_other_partitions():
    """Those of 64 partitions lie in rows 0 to 3 and 32 to 35; a trace says so."""

    def kernel(x):
        data = tile((64, 2), FLOAT8_E4M3FN_X4)
        scale = tile((64, 2), UINT8)
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


def test_float4_elements_begin_in_the_lowest_bits():
    """0, 0.5, 1, 1.5, 2, 3, 4, 6 are the codes 0 to 7; bit 3 is the sign."""
    packed = np.array([[0x7654, 0x3210, 0xFEDC]], np.uint16).view(FLOAT4_E2M1FN_X4)
    values = unpack(packed, FLOAT4_E2M1FN_X4)
    assert_array_equal(values[0], [[2, 3, 4, 6], [0, 0.5, 1, 1.5], [-2, -3, -4, -6]])


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
def test_misuse_of_mx_operands_is_rejected(name):
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
