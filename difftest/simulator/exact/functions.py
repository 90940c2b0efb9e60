"""The Scalar Engine's functions in the exact run.

Its definitions are not those of :mod:`difftest.simulator.instructions.functions`, deliberately:
those are what the machine computes, these what it is measured by, and they share constants alone.
Each is written so that float64 keeps its relative precision (``1 + tanh`` and ``1 - erf`` lose it),
and says how the argument's error carries over: by its values at both ends where it is monotone, by
the steepest slope that it has anywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from difftest.simulator.exact.bounded import (
    Bounded,
    Float64,
    absolute,
    ends,
    rounded,
)
from difftest.simulator.instructions.functions import (
    GELU_CUBIC,
    GELU_SIGMOID,
    INV_SQRT_2PI,
    SQRT_2_OVER_PI,
    SQRT_HALF,
)

FUNCTION_ROUNDINGS = 8.0
"""Of an elementary function: 4 units in the last place, the most that NumPy promises in float32
(NumPy 1.20 release notes and SIMD accuracy tables: exp 2.5, log 3.8, others below 4)."""

_erfc = np.frompyfunc(math.erfc, 1, 1)
_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Float64) -> Float64:
    small = np.exp(-np.abs(x))
    upper: Float64 = 1.0 / (1.0 + small)
    return np.where(x < 0, small * upper, upper)


def _normal(x: Float64) -> Float64:
    """The normal distribution's share below x."""
    return 0.5 * np.asarray(_erfc(-SQRT_HALF * x), dtype=np.float64)


def _gated(x: Float64, gate: Float64) -> Float64:
    return np.where(gate == 0, 0.0 * np.clip(x, -1, 1), x * gate)


def _gelu_dx(x: Float64) -> Float64:
    return _normal(x) + _gated(x, INV_SQRT_2PI * np.exp(-0.5 * x * x))


def _gelu_tanh(x: Float64) -> Float64:
    return _gated(x, _sigmoid(2.0 * SQRT_2_OVER_PI * (x + GELU_CUBIC * x**3)))


def _silu_dx(x: Float64) -> Float64:
    gate = _sigmoid(x)
    return gate + _gated(x, gate * _sigmoid(-x))


def _gelu_sigmoid_dx(x: Float64) -> Float64:
    return _silu_dx(GELU_SIGMOID * x)


def _softplus(x: Float64) -> Float64:
    result: Float64 = np.logaddexp(0.0, x)
    return result


SMOOTH: dict[str, tuple[Callable[[Float64], Float64], float]] = {
    "sigmoid": (_sigmoid, 0.25),
    "gelu": (lambda x: _gated(x, _normal(x)), 1.13),
    "gelu_dx": (_gelu_dx, 0.8),
    "gelu_apprx_tanh": (_gelu_tanh, 1.13),
    "gelu_apprx_sigmoid": (lambda x: _gated(x, _sigmoid(GELU_SIGMOID * x)), 1.1),
    "gelu_apprx_sigmoid_dx": (_gelu_sigmoid_dx, 0.86),
    "silu": (lambda x: _gated(x, _sigmoid(x)), 1.1),
    "silu_dx": (_silu_dx, 0.5),
    "tanh": (np.tanh, 1.0),
    "softplus": (_softplus, 1.0),
    "mish": (lambda x: _gated(x, np.tanh(_softplus(x))), 1.09),
    "erf": (lambda x: np.asarray(_erf(x), dtype=np.float64), 1.13),
    "erf_dx": (lambda x: 2.0 / math.sqrt(math.pi) * np.exp(-np.square(x)), 0.97),
    "sin": (np.sin, 1.0),
    "arctan": (np.arctan, 1.0),
}
"""Function and steepest slope."""

_MONOTONE: dict[str, Callable[[Float64], Float64]] = {
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "reciprocal": lambda x: 1.0 / x,
}
"""On positive arguments; the reciprocal also on negative ones."""


def exponential(x: Bounded) -> Bounded:
    """``exp(x)``: an error of the argument is a relative one of the result."""
    value = np.exp(x.value)
    error = None
    if x.error is not None:
        error = value * np.expm1(x.error)
        vague = x.error > 1.0
        if vague.any():  # far below 0 the power stays 0 whatever the error
            error = np.where(vague, np.exp(x.value + x.error) - value, error)
    return rounded(value, error, _fresh(x), times=FUNCTION_ROUNDINGS)


def square(x: Bounded) -> Bounded:
    """``x * x``."""
    error = None if x.error is None else (2 * np.abs(x.value) + x.error) * x.error
    return rounded(x.value * x.value, error, x)


def relu(x: Bounded) -> Bounded:
    """``max(x, 0)``, which rounds nothing."""
    return Bounded(np.maximum(x.value, 0.0), x.error, x.dtype, x.sums)


def monotone(name: str) -> Callable[[Bounded], Bounded]:
    """``log``, ``sqrt``, ``rsqrt`` or ``reciprocal``: no bound where the argument may reach 0."""
    function = _MONOTONE[name]
    times = 1.0 if name in ("sqrt", "reciprocal") else FUNCTION_ROUNDINGS

    def computed(x: Bounded) -> Bounded:
        value = function(x.value)
        if x.error is None:
            return rounded(value, None, _fresh(x), times=times)
        low, high = ends(x)
        if name == "sqrt":
            low = np.maximum(low, 0.0)
        error = np.maximum(np.abs(function(low) - value), np.abs(function(high) - value))
        if name != "sqrt":
            error = np.where((low > 0) | (high < 0), error, np.inf)
        return rounded(value, error, _fresh(x), times=times)

    return computed


def smooth(name: str) -> Callable[[Bounded], Bounded]:
    """A function that is steep nowhere; machines compute it to float32's precision around 0.

    Near where it vanishes the error is one of its argument's size, not of its own.
    """
    function, slope = SMOOTH[name]

    def computed(x: Bounded) -> Bounded:
        value = function(x.value)
        own = np.minimum(np.abs(x.value), 1.0) * (FUNCTION_ROUNDINGS * 2.0**-24)
        error = own if x.error is None else own + slope * x.error
        return rounded(value, error, _fresh(x), times=FUNCTION_ROUNDINGS)

    return computed


def _fresh(x: Bounded) -> Bounded:
    """Its result begins a new sum, should it be added up."""
    return Bounded(x.value, x.error, x.dtype)


FUNCTIONS: dict[str, Callable[[Bounded], Bounded]] = {
    "copy": lambda x: x,
    "square": square,
    "relu": relu,
    "exp": exponential,
    "abs": absolute,
    **{name: monotone(name) for name in _MONOTONE},
    **{name: smooth(name) for name in SMOOTH},
}
"""By the name of the activation; ``sign``, which decides, is :mod:`.decisions`' own."""
