"""The Scalar Engine's functions: their names, limits and ranges."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import KernelError, strictness
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions.alu import ACTIVATIONS, VALID_RANGES
from tests.every import every
from tests.unit.simulator.on_tiles import on_tiles

INF = np.inf
LIMITS = {  # name: (at -inf, at inf), for every function whose valid input range has them
    "copy": (-INF, INF),
    "square": (INF, INF),
    "sigmoid": (0, 1),
    "relu": (0, INF),
    "gelu": (0, INF),
    "gelu_dx": (0, 1),
    "gelu_apprx_tanh": (0, INF),
    "gelu_apprx_sigmoid": (0, INF),
    "silu": (0, INF),
    "silu_dx": (0, 1),
    "tanh": (-1, 1),
    "softplus": (0, INF),
    "mish": (0, INF),
    "erf": (-1, 1),
    "erf_dx": (0, 0),
    "exp": (0, INF),
    "sign": (-1, 1),
    "abs": (INF, INF),
}


INSIDE = np.linspace(0.01, 1.5, 40, dtype=np.float32).reshape(4, 10)
OF_TODAY = {"gelu_apprx_sigmoid_dx"}
"""In the table of v2.32.0 alone."""


def test_the_functions_match_the_table():
    """AWS nki.api.shared.rst at v2.26.0, "Supported Activation Functions"."""
    assert set(ACTIVATIONS) - OF_TODAY == set(LIMITS) | set(VALID_RANGES)
    assert not LIMITS.keys() & VALID_RANGES.keys()


@every("name", sorted({*LIMITS, *VALID_RANGES}))
def test_a_function_by_its_name(name):
    """Names give the right function. exact/test_bounded.py compares it with its definition."""
    results = on_tiles(
        lambda x: (nisa.activation(getattr(nl, name), x), getattr(nl, name)(x)), INSIDE
    )
    for result in results:
        assert_array_equal(
            result, ACTIVATIONS[name](INSIDE).astype(np.float32), strict=True
        )


@every("name", LIMITS)
@every("dtype", [np.float32, np.float16])
def test_a_function_at_infinity_is_its_limit_and_nan_stays(name, dtype):
    """The largest finite numbers are as far out as the limits are."""
    inputs = np.array([[-INF, INF, np.nan]], dtype)
    largest = np.array([[-3e38, 3e38]], np.float32)
    at_infinity, far_out = on_tiles(
        lambda x, y: (
            nisa.activation(getattr(nl, name), x),
            nisa.activation(getattr(nl, name), y),
        ),
        inputs,
        largest,
    )
    assert_array_equal(
        at_infinity, np.array([[*LIMITS[name], np.nan]], dtype), strict=True
    )
    finite = np.isfinite(LIMITS[name])
    assert_array_equal(far_out[0][finite], np.array(LIMITS[name])[finite])
    assert not np.isnan(far_out).any()


def test_the_ranges_match_the_table():
    assert {
        "log": (2.0**-64, 2.0**64),
        "sin": (-math.pi, math.pi),
        "arctan": (-math.pi / 2, math.pi / 2),
        "sqrt": (2.0**-116, 2.0**118),
        "rsqrt": (2.0**-87, 2.0**97),
        "reciprocal": (2.0**-42, 2.0**42),
    } == VALID_RANGES


@every("name", VALID_RANGES)
def test_outside_its_range_a_function_is_a_note(name):
    low, high = (np.float32(limit) for limit in VALID_RANGES[name])
    low = np.nextafter(low, np.float32(np.inf))
    high = np.nextafter(high, np.float32(-np.inf))
    inside = np.array([[low, high]], np.float32)
    assert np.isfinite(
        on_tiles(lambda x: nisa.activation(getattr(nl, name), x), inside)
    ).all()
    for wrong in (low - abs(low) * np.float32(0.1), high * np.float32(1.1)):
        with (
            strictness("documented"),
            pytest.raises(
                KernelError, match=f"computes {name} in a limited range"
            ) as caught,
        ):
            on_tiles(
                lambda x: nisa.activation(getattr(nl, name), x),
                np.array([[wrong, high]], np.float32),
            )
        assert caught.value.received.startswith("1 of 2 inputs outside it")
