"""Math operators and activation functions: what each computes, and where it may stand.

"Supported Math Operators" and "Supported Activation Functions" of ``nki.api.shared.rst``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL
from difftest.simulator.errors import DtypeError, KernelError
from difftest.simulator.plain.rounding import Array, is_number, to_float32
from difftest.simulator.strictness import note
from difftest.simulator.trace import Engine

VECTOR, SCALAR, GPSIMD = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD

BITVEC: dict[str, Callable[..., Any]] = {
    "invert": np.invert,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": lambda x, y: np.right_shift(unsigned(x), y.astype(unsigned(x).dtype)).view(
        x.dtype
    ),
}
"""On bit patterns; the shift to the right is logical."""

ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater_equal": np.greater_equal,
    "greater": np.greater,
    "less_equal": np.less_equal,
    "less": np.less,
    "logical_not": np.logical_not,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "reciprocal": lambda x: np.float32(1) / x,
    "abs": np.abs,
    "power": np.power,
    "mod": np.mod,
    "fmod": np.fmod,
}
"""On float32."""

UNARY = ("invert", "logical_not", "rsqrt", "reciprocal", "abs")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
COMPARING = (
    *("equal", "not_equal", "greater_equal", "greater", "less_equal", "less", "logical_not"),
    *LOGICAL,
)
"""Their result is 1 or 0."""
REDUCING = (
    *("bitwise_and", "bitwise_or", "bitwise_xor", "add", "subtract", "multiply"),
    *("maximum", "minimum", *LOGICAL),
)
WRAPPING = ("add", "subtract", "multiply")
"""Exact on 32-bit integers, on the GpSimd Engine, and they wrap."""
ENGINES = {
    "add": (VECTOR, GPSIMD, SCALAR),
    "multiply": (VECTOR, GPSIMD, SCALAR),
    "rsqrt": (GPSIMD, SCALAR),
    "reciprocal": (VECTOR, SCALAR),
    "abs": (VECTOR, SCALAR),
    "power": (GPSIMD,),
}
"""Of those that do not run on the Vector Engine alone."""

_NUMPY = {"max": "maximum", "min": "minimum", "sum": "add", "prod": "multiply"}
_SPELLED = {**_NUMPY, "amax": "maximum", "amin": "minimum", "absolute": "abs"}


def unsigned(values: Array) -> Array:
    """The same bits as unsigned integers."""
    return values.view(f"u{values.dtype.itemsize}")


def _name(op: Any, known: dict[str, Any]) -> str | None:
    """The name under which ``known`` has an ``nl`` function or NumPy's equivalent."""
    name = getattr(op, "nki_name", None)
    if name is not None:
        return str(_NUMPY.get(name, name))
    for spelling in (*known, *_SPELLED):
        if op is getattr(np, spelling, None):
            return _SPELLED.get(spelling, spelling)
    return None


def math_operator(op: Any, name: str, where: str) -> str:
    """A role: a math operator, by its name."""
    known = {**BITVEC, **ARITHMETIC}
    found = _name(op, known)
    if found not in known:
        raise KernelError(
            f"{where} takes a math operator as {name}",
            happened=f"{where} got {op!r:.40} as {name}",
            received=f"{op!r:.80}",
        )
    return str(found)


def operator_of(*names: str) -> Callable[[Any, str, str], str]:
    """A role: one of these math operators."""

    def role(op: Any, name: str, where: str) -> str:
        found = math_operator(op, name, where)
        if found not in names:
            raise KernelError(
                f"{where} takes {name} of certain operators",
                happened=f"{where} got {found} as {name}",
                received=found,
                limit=", ".join(names),
            )
        return found

    return role


def vector_operator(op: Any, name: str, where: str) -> str:
    """A role: a math operator of the Vector Engine."""
    found = math_operator(op, name, where)
    if VECTOR not in ENGINES.get(found, (VECTOR,)):
        raise KernelError(
            f"{where} runs on the Vector Engine",
            happened=f"{where} got {found}, which is not the Vector Engine's",
            received=found,
        )
    return found


def apply(op: str, left: Array, right: Array) -> Array:
    """One operator: on bit patterns, or on the operands as float32; the result is not rounded."""
    if op in BITVEC and op not in UNARY:
        return np.asarray(BITVEC[op](*(_stored(side) for side in (left, right))))
    if op in BITVEC:
        return np.asarray(BITVEC[op](left))
    if op in UNARY:
        return np.asarray(ARITHMETIC[op](to_float32(left)))
    return np.asarray(ARITHMETIC[op](to_float32(left), to_float32(right)))


def _stored(values: Array) -> Array:
    """Bools as the uint8 that holds them."""
    return values.astype(np.uint8) if values.dtype == BOOL else values


def bit_pattern(value: Any, op: str, dtype: np.dtype[Any]) -> Array:
    """A number as a bitvec operator's operand, spelled signed or unsigned in the data's width."""
    bits = 8 * dtype.itemsize
    if op in UNARY:
        return np.zeros((), dtype)
    fits = float(value).is_integer() and -(2 ** (bits - 1)) <= float(value) < 2**bits
    if not fits:
        raise DtypeError(
            f"{op} takes an integer of the data's width",
            happened=f"{op} got a number that the data's width does not hold",
            received=f"{value!r}",
        )
    pattern = np.array(int(value) % 2**bits, f"u{dtype.itemsize}")
    return pattern if dtype == BOOL else pattern.view(dtype)


def _erf(x: Array) -> Array:
    return np.array([math.erf(one) for one in x.reshape(-1)]).reshape(x.shape)


def _normal(x: Array) -> Array:
    """The cumulative normal distribution."""
    halves = [0.5 * math.erfc(-one * math.sqrt(0.5)) for one in x.reshape(-1)]
    return np.array(halves).reshape(x.shape)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1.0, small) / (1 + small))


def _times(x: Array, factor: Array) -> Array:
    """``x * factor`` where a factor of 0 wins over an infinite x: the limit."""
    return np.where(factor == 0, 0.0 * np.sign(x), x * factor)


_PHI = 1 / math.sqrt(2 * math.pi)
_CUBIC = 0.044715
_STEEP = 1.702


def _gelu_tanh(x: Array) -> Array:
    return _times(x, 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + _CUBIC * x**3))))


ACTIVATIONS: dict[str, Callable[[Array], Any]] = {
    "copy": lambda x: x,
    "square": np.square,
    "sigmoid": _sigmoid,
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: _times(x, _normal(x)),
    "gelu_dx": lambda x: _normal(x) + _times(x, _PHI * np.exp(-0.5 * x * x)),
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: _times(x, _sigmoid(_STEEP * x)),
    "silu": lambda x: _times(x, _sigmoid(x)),
    "silu_dx": lambda x: _sigmoid(x) + _times(x, _sigmoid(x) * _sigmoid(-x)),
    "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "mish": lambda x: _times(x, np.tanh(np.logaddexp(0.0, x))),
    "erf": _erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sign": np.sign,
    "abs": np.abs,
}
"""In float64, to be rounded once to float32."""

_VALID: dict[str, Callable[[Array], Array]] = {
    "log": lambda x: (x >= 2.0**-64) & (x <= 2.0**64),
    "sin": lambda x: np.abs(x) <= np.float32(math.pi),
    "arctan": lambda x: np.abs(x) <= np.float32(math.pi / 2),
    "sqrt": lambda x: (x == 0) | ((x >= 2.0**-116) & (x <= 2.0**118)),
    "rsqrt": lambda x: (x >= 2.0**-87) & (x <= 2.0**97),
    "reciprocal": lambda x: (np.abs(x) >= 2.0**-42) & (np.abs(x) <= 2.0**42),
}
"""The valid input ranges; NaN and a zero under the root are let through."""


def activation_function(op: Any, name: str, where: str) -> str:
    """A role: an activation function, by its name."""
    found = _name(op, ACTIVATIONS)
    if found not in ACTIVATIONS:
        raise KernelError(
            f"{where} takes an activation function",
            happened=f"{where} got {op!r:.40} as its function",
            received=f"{op!r:.80}",
        )
    return str(found)


def activate(name: str, x: Array) -> Array:
    """``name(x)``, float32.

    Raises
    ------
    KernelError : an element lies outside the function's valid range, where that is no warning.
    """
    if name in _VALID and not (_VALID[name](x) | np.isnan(x)).all():
        error = KernelError(
            f"the Scalar Engine computes {name} in a limited range",
            happened=f"{name} got an input outside its range",
            received=f"{x.min()} to {x.max()}",
        )
        note(error)
    return np.asarray(ACTIVATIONS[name](x.astype(np.float64))).astype(np.float32)


def is_bitvec(*ops: str) -> bool:
    """Whether the operators are bitvec ones.

    Raises
    ------
    KernelError : some are and some are not, in one instruction.
    """
    kinds = {op in BITVEC for op in ops}
    if len(kinds) > 1:
        raise KernelError(
            "operators are all bitvec or all arithmetic",
            happened="bitvec and arithmetic operators met in one instruction",
            received=", ".join(ops),
        )
    return kinds == {True}


def number_as_float32(value: Any) -> Array:
    """A number as the float32 that arithmetic takes."""
    assert is_number(value)
    return np.array(value).astype(np.float32)
