"""The Scalar Engine's functions against decimal numbers of 160 digits, far from 0 and near it."""

from decimal import Context, Decimal, localcontext

import numpy as np
import pytest

from difftest.simulator.exact.bounded import FUNCTIONS, SLOPES, TINY, Bounded
from difftest.simulator.instructions.alu import (
    ACTIVATIONS,
    GELU_CUBIC,
    GELU_SIGMOID,
    VALID_RANGES,
    activated,
)
from tests.every import every

DIGITS = 160
"""So many that 1 - erf(14) keeps 60: the terms of its series grow to 1e85."""
UNITS = 4
"""In the last place of float32: the promise of docs/explanation/tolerance.md."""
ONE = Decimal(1)
PI = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534"
    "21170679821480865132823066470938446095505822317253594081284811174502841027019385211055596446229"
)
LARGE = 15
"""Beyond it ``1 - erf`` is below all numbers of float32."""


@pytest.fixture(autouse=True)
def in_decimal_numbers():
    """Infinities are results, as in a limit."""
    context = Context(prec=DIGITS, Emin=-(10**6), Emax=10**6, traps=[])
    with localcontext(context), np.errstate(all="ignore"):
        yield


def series(x, factor):
    """Return the sum of terms from ``x`` on, each ``factor(n)`` times the term before."""
    total = term = x
    n = 0
    while abs(term) > Decimal(10) ** -(DIGITS - 5):
        n += 1
        term = term * factor(n)
        total += term
    return total


def sigmoid(x):
    return ONE / (ONE + (-x).exp())


def sigmoid_slope(x):
    """The derivative of ``x * sigmoid(x)``."""
    return sigmoid(x) * (ONE + x * sigmoid(-x))


def erf(x):
    if abs(x) > LARGE:
        return ONE.copy_sign(x)
    terms = series(x, lambda n: -x * x * (2 * n - 1) / (n * (2 * n + 1)))
    return 2 / PI.sqrt() * terms


def normal(x):
    """The share of the normal distribution below x."""
    return (ONE + erf(x / Decimal(2).sqrt())) / 2


def density(x):
    return (-x * x / 2).exp() / (2 * PI).sqrt()


def arctan(x):
    halves = 0
    while abs(x) > Decimal("0.1"):
        x = x / (ONE + (ONE + x * x).sqrt())
        halves += 1
    powers = x
    total = x
    n = 1
    while abs(powers) > Decimal(10) ** -(DIGITS - 5):
        powers = -powers * x * x
        n += 2
        total += powers / n
    return total * 2**halves


def softplus(x):
    return x if x > 10**4 else (ONE + x.exp()).ln()


def tanh(x):
    return 2 * sigmoid(2 * x) - 1


def gelu_tanh(x):
    inner = (2 / PI).sqrt() * (x + Decimal(GELU_CUBIC) * x**3)
    return x * sigmoid(2 * inner)


TRUTHS = {
    "square": lambda x: x * x,
    "sigmoid": sigmoid,
    "gelu": lambda x: x * normal(x),
    "gelu_dx": lambda x: normal(x) + x * density(x),
    "gelu_apprx_tanh": gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(Decimal(GELU_SIGMOID) * x),
    "gelu_apprx_sigmoid_dx": lambda x: sigmoid_slope(Decimal(GELU_SIGMOID) * x),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": sigmoid_slope,
    "tanh": tanh,
    "softplus": softplus,
    "mish": lambda x: x * tanh(softplus(x)),
    "erf": erf,
    "erf_dx": lambda x: 2 / PI.sqrt() * (-x * x).exp(),
    "exp": lambda x: x.exp(),
    "log": lambda x: x.ln(),
    "sin": lambda x: series(x, lambda n: -x * x / ((2 * n) * (2 * n + 1))),
    "arctan": arctan,
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: ONE / x.sqrt(),
    "reciprocal": lambda x: ONE / x,
}
SIGNS = {"copy", "relu", "sign", "abs"}
"""Functions that give their argument back, or its sign."""
SIZES = np.array(
    [
        0.0,
        2.0**-149,
        1e-38,
        1e-30,
        1e-20,
        1e-10,
        1e-5,
        1e-3,
        0.01,
        0.1,
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        4.0,
        5.0,
        7.0,
        8.0,
        9.0,
        10.0,
        12.0,
        13.0,
        14.0,
        20.0,
        30.0,
        36.0,
        37.0,
        38.0,
        40.0,
        50.0,
        64.0,
        80.0,
        86.0,
        87.0,
        88.0,
        90.0,
        95.0,
        100.0,
        103.0,
        104.0,
        200.0,
        1e3,
        1e10,
        1e30,
        3e38,
    ],
    np.float32,
)


def arguments_of(name):
    """Return arguments of both signs, within a function's range."""
    values = np.concatenate([-SIZES[::-1], SIZES])
    if name not in VALID_RANGES:
        return values
    low, high = VALID_RANGES[name]
    sizes = np.abs(values) if name == "reciprocal" else values
    return values[(low <= sizes) & (sizes <= high)]


def truths_of(name, arguments):
    return [TRUTHS[name](Decimal(float(argument))) for argument in arguments]


def test_each_function_has_a_truth():
    assert TRUTHS.keys() | SIGNS == ACTIVATIONS.keys()


@every("name", TRUTHS)
def test_the_machine_is_within_four_units(name):
    """The result has four units everywhere: far below 0, float64's 1 + tanh and 1 + erf are 0."""
    arguments = arguments_of(name)
    got = activated(arguments, name)
    largest = Decimal(float(np.finfo(np.float32).max))
    for argument, value, truth in zip(
        arguments, got, truths_of(name, arguments), strict=True
    ):
        if abs(truth) > largest:
            assert np.isinf(value), argument
            continue
        unit = Decimal(float(np.spacing(np.float32(abs(truth)))))
        assert abs(Decimal(float(value)) - truth) <= UNITS * unit, (
            argument,
            value,
            truth,
        )


@every("name", TRUTHS)
def test_the_exact_run_has_float64s_digits(name):
    """The exact run's own error is a small share of the machine's four units."""
    arguments = arguments_of(name)
    made = FUNCTIONS[name](Bounded(arguments.astype(np.float64)))
    assert name in SLOPES or name in VALID_RANGES or name in ("exp", "square")
    for argument, value, truth in zip(
        arguments, made.value, truths_of(name, arguments), strict=True
    ):
        if np.isinf(value):
            assert abs(truth) > Decimal(10) ** 300, argument
            continue
        room = abs(truth) * Decimal(2.0**-43) + Decimal(TINY * 2.0**-28)
        assert abs(Decimal(float(value)) - truth) <= room, (argument, value, truth)


def test_a_nan_stays_one():
    for name in ACTIVATIONS:
        assert np.isnan(activated(np.array([np.nan], np.float32), name)).all(), name


@every("name", [name for name in TRUTHS if name not in VALID_RANGES])
def test_infinity_gives_the_limit(name):
    ends = np.array([-np.inf, np.inf], np.float32)
    far = np.array([-3e38, 3e38], np.float32)
    got = activated(ends, name)
    limit = activated(far, name)
    grows = np.abs(limit) > 1e30
    assert (np.isinf(got) == grows).all(), (got, limit)
    assert (got[~grows] == limit[~grows]).all()
