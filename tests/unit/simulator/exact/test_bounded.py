"""Arithmetic with bounds, against every corner of the operands' intervals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from difftest.simulator.dtypes import BFLOAT16, FLOAT8_E4M3, FLOAT16, FLOAT32, round_to
from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import FUNCTIONS, ROUNDINGS, Bounded
from difftest.simulator.instructions.alu import ACTIVATIONS, VALID_RANGES
from tests.every import every

RNG = np.random.default_rng(5)
SIZE = 400


@pytest.fixture(autouse=True)
def no_warnings():
    """A launch knows no floating-point exceptions."""
    with np.errstate(all="ignore"):
        yield


def drawn(low=-4.0, high=4.0, relative=1e-3):
    value = RNG.uniform(low, high, SIZE)
    return Bounded(value, np.abs(value) * RNG.uniform(1e-5, relative, SIZE), FLOAT32)


def ends(x, count=5):
    """Float32 values all over an interval; rounding them leads none out of it."""
    share = np.linspace(-0.98, 0.98, count)[:, None]
    return (x.value + share * x.error).astype(np.float32)


@every("name", ["add", "subtract", "multiply", "divide"])
def test_two_operands_within_their_bounds_give_a_result_within_its(name):
    left, right = drawn(), drawn(0.5, 4.0)
    made = getattr(bounded, name)(left, right)
    for one, other in itertools.product(ends(left), ends(right)):
        got = getattr(np, name)(one, other)
        assert (np.abs(got - made.value) <= made.error * (1 + 1e-6)).all()


@every("function", [np.maximum, np.minimum])
def test_the_larger_of_two(function):
    left, right = drawn(), drawn()
    made = bounded.extreme(function)(left, right)
    for one, other in itertools.product(ends(left), ends(right)):
        assert (np.abs(function(one, other) - made.value) <= made.error + 1e-6).all()


def test_a_large_bound_far_below_the_other_operand_does_not_count():
    """A row's first maximum is taken with -1e30, which float32 rounds by 1e22."""
    low = bounded.number(-1e30)
    made = bounded.extreme(np.maximum)(low, Bounded(np.ones(1), np.full(1, 1e-7)))
    assert made.error.max() == pytest.approx(1e-7)


@every("name", sorted(FUNCTIONS))
def test_functions(name):
    low, high = (0.25, 4.0) if name in VALID_RANGES else (-4.0, 4.0)
    high = 1.5 if name == "arctan" else 3.0 if name == "sin" else high
    x = drawn(low, high)
    made = FUNCTIONS[name](x)
    for one in ends(x):
        got = np.asarray(ACTIVATIONS[name](one), np.float32)
        assert (np.abs(got - made.value) <= made.error * (1 + 1e-6) + 1e-12).all()


@every("name", ["sigmoid", "gelu", "silu", "mish", "gelu_apprx_sigmoid"])
def test_the_exact_functions_keep_float64s_digits_far_from_0(name):
    """Where 1 + tanh or 1 + erf of the machine's own float64 has lost them."""
    (value,) = FUNCTIONS[name](Bounded(np.array([-30.0]))).value
    assert 0 < abs(value) < 1e-10


@every("dtype", [BFLOAT16, FLOAT16, FLOAT8_E4M3])
def test_a_rounding_into_a_narrow_dtype_subnormals_too(dtype):
    value = RNG.standard_normal(SIZE) * np.exp2(RNG.uniform(-16, 3, SIZE))
    value = value.astype(np.float32).astype(np.float64)
    made = bounded.into(Bounded(value), dtype, ROUNDINGS[dtype])
    assert (np.abs(round_to(value.astype(np.float32), dtype) - value) <= made.error).all()


def test_what_float32_holds_is_exact():
    assert bounded.add(Bounded(np.arange(5.0)), bounded.number(1)).error is None
    assert bounded.multiply(Bounded(np.arange(5.0)), bounded.number(0.1)).error is not None


def test_a_power_of_minus_infinity_is_0_for_sure():
    far = Bounded(np.array([-np.inf, -1e30]), np.array([0.0, 1e22]), FLOAT32)
    made = FUNCTIONS["exp"](far)
    assert made.value.tolist() == [0.0, 0.0]
    assert (made.error < 1e-40).all()


def test_a_divisor_that_may_be_0_leaves_no_bound():
    made = bounded.divide(bounded.number(1.0), Bounded(np.array([1e-3]), np.array([1e-2])))
    assert np.isinf(made.error).all()
