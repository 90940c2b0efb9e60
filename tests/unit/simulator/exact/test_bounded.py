"""Arithmetic with bounds, against every corner of the operands' intervals."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from difftest.simulator.dtypes import BOOL, FLOAT32, round_to
from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import FUNCTIONS, ROUNDINGS, SLOPES, Bounded
from difftest.simulator.instructions.alu import ACTIVATIONS, VALID_RANGES
from tests.every import every

RNG = np.random.default_rng(5)
SIZE = 400


@pytest.fixture(autouse=True)
def no_warnings():
    """Run without NumPy's floating-point warnings, as a launch does."""
    with np.errstate(all="ignore"):
        yield


def drawn(low=-4.0, high=4.0, relative=1e-3):
    value = RNG.uniform(low, high, SIZE).astype(np.float32).astype(np.float64)
    return Bounded(value, np.abs(value) * RNG.uniform(1e-5, relative, SIZE), FLOAT32)


def ends(x, count=5):
    """Float32 values all over an interval; rounding them leads none out of it."""
    return (x.value + np.linspace(-0.98, 0.98, count)[:, None] * x.error).astype(
        np.float32
    )


def farthest(function, value, *operands):
    """Return the largest distance of a value from exact results at the operands' ends."""
    sides = ((x.value - x.error, x.value, x.value + x.error) for x in operands)
    return np.max(
        [np.abs(function(*at) - value) for at in itertools.product(*sides)], axis=0
    )


def assert_tight(made, most, roundings):
    """Assert that the bound is the operands' contribution plus this number of roundings."""
    size = np.abs(made.value) + most
    assert (
        made.error <= most * (1 + 1e-9) + roundings * 1.001 * bounded.UNIT * size
    ).all()


OF_TWO = {
    **{
        name: getattr(bounded, name)
        for name in ("add", "subtract", "multiply", "divide", "power")
    },
    **{
        name: bounded.exact_extreme(getattr(np, name))
        for name in ("maximum", "minimum")
    },
}


@every("name", OF_TWO)
def test_two_operands_within_their_bounds_give_a_result_within_its(name):
    """And no looser bound than their ends and a few roundings make it."""
    left = drawn(0.5 if name == "power" else -4.0)
    right = drawn(0.5, 4.0)
    made = OF_TWO[name](left, right)
    function = getattr(np, name)
    for one, other in itertools.product(ends(left), ends(right)):
        got = function(one, other)
        assert (np.abs(got - made.value) <= made.error * (1 + 1e-6)).all()
    most = farthest(function, made.value, left, right)
    assert_tight(made, most, 8 if name == "power" else 1)


ROUNDS_ONCE = ("abs", "copy", "reciprocal", "relu", "sqrt", "square")


@every("name", sorted(FUNCTIONS))
def test_the_result_of_a_function_is_within_its_bound(name):
    """The result is within its bound, which is as tight as the ends or the slope allow."""
    low, high = (0.25, 4.0) if name in VALID_RANGES else (-4.0, 4.0)
    if name == "arctan":
        high = 1.5
    elif name == "sin":
        high = 3.0
    else:
        high = high
    x = drawn(low, high)
    for at, arguments in (
        (x, ends(x)),
        (replace(x, error=None), [x.value.astype(np.float32)]),
    ):
        made = FUNCTIONS[name](replace(at, sums=3))
        assert made.sums == (3 if name in ("abs", "copy", "relu", "square") else 0)
        error = 0.0 if made.error is None else made.error
        for one in arguments:
            got = np.asarray(ACTIVATIONS[name](one), np.float32)
            assert (np.abs(got - made.value) <= error * (1 + 1e-6)).all()
    if name in SLOPES:
        along = np.linspace(-8.0, 8.0, 20001)
        steepest = np.abs(
            np.gradient(FUNCTIONS[name](Bounded(along)).value, along)
        ).max()
        assert steepest * 0.999 <= SLOPES[name] <= steepest * 1.05
        return
    most = farthest(lambda value: FUNCTIONS[name](Bounded(value)).value, made.value, x)
    assert_tight(FUNCTIONS[name](x), most, 1 if name in ROUNDS_ONCE else 8)


@every("name", ["sigmoid", "gelu", "silu", "mish", "gelu_apprx_sigmoid"])
def test_the_exact_functions_keep_float64s_digits_far_from_0(name):
    """There 1 + tanh or 1 + erf would lose the digits of the machine's own float64."""
    (value,) = FUNCTIONS[name](Bounded(np.array([-30.0]))).value
    assert 0 < abs(value) < 1e-10


@every("dtype", sorted(ROUNDINGS, key=str))
def test_the_largest_number_of_a_dtype_is_one_of_it(dtype):
    largest = ROUNDINGS[dtype].largest
    assert round_to(np.array([largest], np.float32), dtype) == largest


def test_a_rounded_value_may_become_several_integers():
    """A rounded value may become several integers, or surely one. NaN becomes 0, as on the machine.

    A NaN is only sure without a bound, or with a bound other than NaN.
    """
    x = Bounded(np.array([0.0, 0.25, 2.0, 0.0]), np.array([0.0, 0.5, 0.5, 0.5]))
    made = bounded.into_integers(x, BOOL)
    assert [made.value.tolist(), made.error.tolist()] == [[0, 1, 1, 0], [0, 1, 0, 1]]
    assert bounded.into_integers(x.shaped(lambda array: array[2:3]), BOOL) is None
    x = Bounded(
        np.array([0.4, 1.5, 300, np.nan, np.inf]),
        np.array([0.25, 0.25, 0.25, 0, np.inf]),
    )
    made = bounded.into_integers(x, np.dtype(np.int8))
    assert made.value.tolist() == [0, 2, 127, 0, 127]
    assert made.error.tolist() == [1, 1, 0, np.inf, np.inf]


def test_a_power_of_minus_infinity_is_0_for_sure():
    far = Bounded(np.array([-np.inf, -1e30]), np.array([0.0, 1e22]), FLOAT32)
    made = FUNCTIONS["exp"](far)
    assert made.value.tolist() == [0.0, 0.0]
    assert (made.error < 1e-40).all()
