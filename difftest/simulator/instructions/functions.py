"""The Scalar Engine's functions, their names and where they are valid.

The hardware approximates the functions with piecewise polynomials; the simulator computes them to
float32 precision. Source: AWS ``nki.isa.activation`` and ``nki.api.shared.rst``, "Supported
Activation Functions", at tag v2.26.0; ``gelu_apprx_sigmoid_dx`` at v2.32.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError
from difftest.simulator.instructions.alu import name_of_operator
from difftest.simulator.instructions.observing import see
from difftest.simulator.lifted import step
from difftest.simulator.strictness import note
from difftest.simulator.trace import Seen

_erf = np.frompyfunc(math.erf, 1, 1)
SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
GELU_CUBIC = 0.044715
"""Hendrycks and Gimpel, Gaussian Error Linear Units (2016), the tanh form."""
GELU_SIGMOID = 1.702
"""The same paper, the sigmoid form."""


def _erf64(x: Array) -> Array:
    return np.asarray(_erf(x.astype(np.float64)), dtype=np.float64)


def _sigmoid(x: Array) -> Array:
    result: Array = 0.5 * (1.0 + np.tanh(0.5 * x.astype(np.float64)))
    return result


def _gated(x: Array, gate: Array) -> Array:
    """``x * gate`` for a gate that closes faster than x grows: 0 at infinity too, where it is."""
    result: Array = np.where(gate == 0, np.clip(x, -1, 1), x) * gate
    return result


def _gelu(x: Array) -> Array:
    result: Array = 0.5 * _gated(x, 1.0 + _erf64(x * SQRT_HALF))
    return result


def _gelu_dx(x: Array) -> Array:
    wide = x.astype(np.float64)
    density = INV_SQRT_2PI * np.exp(-0.5 * wide * wide)
    result: Array = 0.5 * (1.0 + _erf64(wide * SQRT_HALF)) + _gated(wide, density)
    return result


def _gelu_tanh(x: Array) -> Array:
    wide = x.astype(np.float64)
    inner = SQRT_2_OVER_PI * (wide + GELU_CUBIC * wide**3)
    return 0.5 * _gated(wide, 1.0 + np.tanh(inner))


def _gelu_sigmoid_dx(x: Array) -> Array:
    slope = GELU_SIGMOID * x.astype(np.float64)
    gate = _sigmoid(slope)
    return _gated(1.0 + _gated(slope, 1.0 - gate), gate)


def _silu_dx(x: Array) -> Array:
    gate = _sigmoid(x)
    return _gated(1.0 + _gated(x, 1.0 - gate), gate)


def _softplus(x: Array) -> Array:
    result: Array = np.logaddexp(0.0, x.astype(np.float64))
    return result


def _erf_dx(x: Array) -> Array:
    result: Array = 2.0 / math.sqrt(math.pi) * np.exp(-np.square(x.astype(np.float64)))
    return result


ACTIVATIONS: dict[str, Callable[[Array], Any]] = {
    "copy": lambda x: x,
    "square": np.square,
    "sigmoid": _sigmoid,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "gelu": _gelu,
    "gelu_dx": _gelu_dx,
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: _gated(x, _sigmoid(GELU_SIGMOID * x)),
    "gelu_apprx_sigmoid_dx": _gelu_sigmoid_dx,
    "silu": lambda x: _gated(x, _sigmoid(x)),
    "silu_dx": _silu_dx,
    "tanh": np.tanh,
    "softplus": _softplus,
    "mish": lambda x: _gated(x, np.tanh(_softplus(x))),
    "erf": _erf64,
    "erf_dx": _erf_dx,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x.astype(np.float64)),
    "reciprocal": lambda x: np.float32(1) / x,
    "sign": np.sign,
    "abs": np.abs,
}

_NUMPY_NAMES: dict[Any, str] = {
    getattr(np, name): name
    for name in ("copy", "square", "tanh", "exp", "log", "sin", "arctan", "sqrt", "reciprocal")
} | {np.sign: "sign", np.abs: "abs"}

VALID_RANGES = {
    "log": (2.0**-64, 2.0**64),
    "sin": (-math.pi, math.pi),
    "arctan": (-math.pi / 2, math.pi / 2),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (2.0**-42, 2.0**42),
}
"""Outside these the hardware's result is invalid (AWS nki.api.shared.rst); for reciprocal they
hold for the magnitude. Zero is let through for sqrt, where the table's lower end would forbid
it."""


def activation_name(op: object) -> str:
    """The activation function that ``op`` (an ``nl`` or NumPy function) stands for."""
    name = name_of_operator(op, _NUMPY_NAMES)
    if name not in ACTIVATIONS:
        raise KernelError(
            "activation takes an activation function of nki.language",
            happened=f"activation got {op!r:.40} as its function",
            received=f"op={op!r}",
            limit=", ".join(sorted(ACTIVATIONS)),
        )
    return str(name)


@step
def activated(values: Array, name: str) -> Array:
    """What the function of this name makes of float32 values."""
    return np.asarray(ACTIVATIONS[name](values), dtype=values.dtype)


@step
def check_range(values: Array, name: str) -> None:
    """Note a call whose function is not valid for some of the values.

    They may lie in a padded row, which a device would run all the same.
    """
    if name not in VALID_RANGES:
        return
    low, high = VALID_RANGES[name]
    sized = np.abs(values) if name == "reciprocal" else values
    outside = (sized < low) | (sized > high)
    if name == "sqrt":
        outside &= values != 0
    if outside.any():
        worst = float(values[outside].flat[0])
        error = KernelError(
            f"the Scalar Engine computes {name} in a limited range",
            happened=f"{name} got {worst!r}, which is outside its range",
            received=f"{int(outside.sum())} of {values.size} inputs outside it, e.g. {worst!r}",
            limit=f"{low:g} to {high:g}",
            remedy="scale or clamp the input first; outside the range the hardware's result "
            "is invalid",
        )
        see(current(), Seen.OUT_OF_RANGE, "", outside, values)
        note(error)
