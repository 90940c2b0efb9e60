"""The Scalar Engine's functions in the exact run: how an argument's error carries over.

What they are, is what the oracle has of them, and not the machine's: those definitions are what is
measured. The error follows from the values at both ends where a function is monotone, and from the
steepest slope that it has anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import Bounded, ends, rounded
from difftest.simulator.oracle.operators import FUNCTIONS as DEFINITIONS

FUNCTION_ROUNDINGS = 8.0
"""Of an elementary function: 4 units in the last place, the most that NumPy promises in float32
(NumPy 1.20 release notes and SIMD accuracy tables: exp 2.5, log 3.8, others below 4)."""

SLOPES = {
    "sigmoid": 0.25,
    "gelu": 1.13,
    "gelu_dx": 0.8,
    "gelu_apprx_tanh": 1.13,
    "gelu_apprx_sigmoid": 1.1,
    "gelu_apprx_sigmoid_dx": 0.86,
    "silu": 1.1,
    "silu_dx": 0.5,
    "tanh": 1.0,
    "softplus": 1.0,
    "mish": 1.09,
    "erf": 1.13,
    "erf_dx": 0.97,
    "sin": 1.0,
    "arctan": 1.0,
}
"""The steepest of each function that is steep nowhere."""
_MONOTONE = ("log", "sqrt", "rsqrt", "reciprocal")
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


def monotone(name: str) -> Callable[[Bounded], Bounded]:
    """``log``, ``sqrt``, ``rsqrt`` or ``reciprocal``: no bound where the argument may reach 0."""
    function = DEFINITIONS[name]
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
    function, slope = DEFINITIONS[name], SLOPES[name]

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
    "square": lambda x: bounded.multiply(x, x),
    "relu": lambda x: bounded.extreme(np.maximum)(x, bounded.number(0.0)),
    "exp": exponential,
    "abs": bounded.absolute,
    **{name: monotone(name) for name in _MONOTONE},
    **{name: smooth(name) for name in SLOPES},
}
"""By the name of the activation; ``sign``, which decides, is in :mod:`.elementwise`."""
