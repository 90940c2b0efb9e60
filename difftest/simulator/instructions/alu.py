"""Math operators that instructions take as ``op``, the Scalar Engine's functions, and their names.

Bitvec operators work on integers as bit patterns; arithmetic operators work in float32. The
hardware approximates the functions with piecewise polynomials; the simulator computes them to
float32 precision. Source: AWS ``nki.isa.activation`` and ``nki.api.shared.rst``, "Supported Math
Operators for NKI ISA" and "Supported Activation Functions", at tags v2.26.0 and v2.32.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import BOOL, Array
from difftest.simulator.errors import KernelError, NkiError, call_error
from difftest.simulator.instructions.anomalies import record_anomaly
from difftest.simulator.lifted import step
from difftest.simulator.machine import Machine
from difftest.simulator.strictness import report_violation
from difftest.simulator.trace import AnomalyKind, Engine

VECTOR_ONLY = (Engine.VECTOR,)


@dataclass(frozen=True, eq=False)
class AluOp:
    """An operator: its NumPy meaning, and the engines and instructions that take it."""

    name: str
    compute: Callable[..., Any]
    _: KW_ONLY
    bitvec: bool = False
    unary: bool = False
    reduction: bool = False
    """True if it may be the ``op`` of a reduction."""
    comparison: bool = False
    """True if the result is 1 or 0."""
    engines: tuple[Engine, ...] = VECTOR_ONLY
    nc_version: int = 2
    """The first NeuronCore generation that has it."""


def _float_logic(name: str) -> Callable[[Array, Array], Array]:
    """Return a logical operator on numbers: every number but 0 is true."""
    function = getattr(np, name)
    return lambda x, y: function(np.not_equal(x, 0), np.not_equal(y, 0))


def _logical_shift_right(x: Array, y: Array) -> Array:
    """Shift right with zeros: the hardware lacks an arithmetic right shift."""
    unsigned = x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x
    shifted: Array = np.right_shift(unsigned, y.astype(unsigned.dtype))
    return shifted.view(x.dtype)


@step
def rsqrt(x: Array) -> Array:
    """Return ``1 / sqrt(x)``; both operations round."""
    result: Array = np.float32(1) / np.sqrt(x)
    return result


def _by_magnitude(before: np.ufunc) -> Callable[[Array, Array], Array]:
    """Return the operator that selects by magnitude, sign kept; of equal ones the second."""
    return lambda x, y: np.where(before(np.abs(x), np.abs(y)), x, y)


def _relu(x: Array, _: Any = None) -> Array:
    return np.maximum(x, np.float32(0))


_EVERYWHERE = (Engine.VECTOR, Engine.GPSIMD, Engine.SCALAR)
_WITHOUT_GPSIMD = (Engine.VECTOR, Engine.SCALAR)
_COMPARISONS = ("equal", "not_equal", "greater_equal", "greater", "less_equal", "less")

_OPS = (
    AluOp("invert", np.invert, bitvec=True, unary=True),
    AluOp("bitwise_and", np.bitwise_and, bitvec=True, reduction=True),
    AluOp("bitwise_or", np.bitwise_or, bitvec=True, reduction=True),
    AluOp("bitwise_xor", np.bitwise_xor, bitvec=True, reduction=True),
    AluOp("left_shift", np.left_shift, bitvec=True),
    AluOp("right_shift", _logical_shift_right, bitvec=True),
    AluOp("add", np.add, reduction=True, engines=_EVERYWHERE),
    AluOp("subtract", np.subtract, reduction=True),
    AluOp("multiply", np.multiply, reduction=True, engines=_EVERYWHERE),
    AluOp("divide", np.divide),
    AluOp("maximum", np.maximum, reduction=True),
    AluOp("minimum", np.minimum, reduction=True),
    *(AluOp(name, getattr(np, name), comparison=True) for name in _COMPARISONS),
    AluOp("logical_not", np.logical_not, unary=True, comparison=True),
    *(
        AluOp(name, _float_logic(name), reduction=True, comparison=True)
        for name in ("logical_and", "logical_or", "logical_xor")
    ),
    AluOp("rsqrt", rsqrt, unary=True, engines=(Engine.GPSIMD, Engine.SCALAR)),
    AluOp("reciprocal", np.reciprocal, unary=True, engines=_WITHOUT_GPSIMD),
    AluOp("abs", np.abs, unary=True, engines=_WITHOUT_GPSIMD),
    AluOp("power", np.power, engines=(Engine.GPSIMD,)),
    AluOp("mod", np.mod),
    AluOp("fmod", np.fmod),
)

_NEW_OPS = (
    AluOp("abs_max", _by_magnitude(np.greater), nc_version=4),
    AluOp("abs_min", _by_magnitude(np.less), nc_version=4),
    AluOp("square", np.square, unary=True, nc_version=4),
    AluOp("relu", _relu, unary=True, nc_version=4),
)

ALU_OPS = {op.name: op for op in _OPS}
NKI_OPS = {**ALU_OPS, **{op.name: op for op in _NEW_OPS}}
"""The operators of the current dialect (release notes of NKI 0.4)."""

_REDUCTION_NAMES = {
    "max": "maximum",
    "min": "minimum",
    "sum": "add",
    "prod": "multiply",
}

_NUMPY_NAMES: dict[Any, str] = {
    **{getattr(np, name): name for name in ALU_OPS if hasattr(np, name)},
    **{getattr(np, name): op for name, op in _REDUCTION_NAMES.items()},
    np.amax: "maximum",
    np.amin: "minimum",
    np.logical_not: "logical_not",
    np.absolute: "abs",
}


def kept_bits(op: AluOp, values: Array, dtype: np.dtype[Any]) -> Array:
    """Cast a bitvec result to ``dtype`` by its low bits.

    Return values of other operators unchanged: they are rounded when they are written.
    """
    if op.bitvec and dtype != BOOL:
        return values.astype(dtype)
    return values


def name_of_operator(op: object, names: Mapping[Any, str]) -> str | None:
    """Return the name of an ``nl`` or NumPy function; None for anything else."""
    known = names.get(op) if callable(op) and isinstance(op, Hashable) else None
    name: str | None = getattr(op, "nki_name", None) or known
    return name


def _unknown_operator(ops: Iterable[str], op: Any, where: str, what: str) -> NkiError:
    """Return the error for an operator, with its name instead of its address."""
    name = getattr(op, "nki_name", None) or getattr(op, "__name__", repr(op))
    return call_error(
        where,
        f"takes an {what} of nki.language (or its NumPy equivalent)",
        f"got {name:.40} as its {what.split()[-1]}",
        f"op={name}",
        limit=", ".join(sorted(ops)),
    )


def alu_op(op: object, where: str, ops: Mapping[str, AluOp] = ALU_OPS) -> AluOp:
    """Return the operator among ``ops`` for ``op``, an ``nl`` or NumPy function.

    Raises
    ------
    KernelError : ``op`` is not an operator of the instruction ``where``.
    """
    name = name_of_operator(op, _NUMPY_NAMES)
    operation = ops.get(_REDUCTION_NAMES.get(name, name) if name else "")
    if operation is None:
        raise _unknown_operator(ops, op, where, "operator")
    return operation


def check_generation(op: AluOp, where: str, machine: Machine) -> None:
    """Raise :class:`KernelError` if the machine does not have the operator."""
    if machine.nc_version < op.nc_version:
        raise KernelError(
            f"the operator {op.name} needs NeuronCore-v{op.nc_version}",
            happened=f"{where} got the operator {op.name} on {machine.name}",
            received=f"op={op.name} on {machine.name} (NeuronCore-v{machine.nc_version})",
            remedy="launch with machine=TRN3, or compute it of the operators that the machine has",
        )


# -- the Scalar Engine's functions -----------------------------------------------------------------

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)
SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
GELU_CUBIC = 0.044715
"""Hendrycks and Gimpel, Gaussian Error Linear Units (2016), the tanh form."""
GELU_SIGMOID = 1.702
"""Same source, the sigmoid form."""


def _erf64(x: Array) -> Array:
    return np.asarray(_erf(x.astype(np.float64)), dtype=np.float64)


def _normal(x: Array) -> Array:
    """Return the normal distribution's probability below x, precise where ``1 + erf`` is not."""
    wide = x.astype(np.float64)
    return 0.5 * np.asarray(_erfc(wide * -SQRT_HALF), dtype=np.float64)


def _sigmoid(x: Array) -> Array:
    """Return ``1 / (1 + exp(-x))`` without overflow, precise where ``1 + tanh`` is not."""
    wide = x.astype(np.float64)
    power = np.exp(-np.abs(wide))
    result: Array = np.where(wide < 0, power, 1.0) / (1.0 + power)
    return result


def _gated(x: Array, gate: Array) -> Array:
    """Return ``x * gate``; 0 at infinity, for a gate that decreases faster than x grows."""
    result: Array = np.where(gate == 0, np.clip(x, -1, 1), x) * gate
    return result


def _gelu(x: Array) -> Array:
    return _gated(x, _normal(x))


def _gelu_dx(x: Array) -> Array:
    wide = x.astype(np.float64)
    density = INV_SQRT_2PI * np.exp(-0.5 * wide * wide)
    return _normal(wide) + _gated(wide, density)


def _gelu_tanh(x: Array) -> Array:
    wide = x.astype(np.float64)
    inner = SQRT_2_OVER_PI * (wide + GELU_CUBIC * wide**3)
    return _gated(wide, _sigmoid(2.0 * inner))


def _gelu_sigmoid(x: Array) -> Array:
    wide = x.astype(np.float64)
    return _gated(wide, _sigmoid(GELU_SIGMOID * wide))


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
    "gelu_apprx_sigmoid": _gelu_sigmoid,
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

_FUNCTION_NAMES: dict[Any, str] = {
    getattr(np, name): name
    for name in (
        "copy",
        "square",
        "tanh",
        "exp",
        "log",
        "sin",
        "arctan",
        "sqrt",
        "reciprocal",
    )
} | {np.sign: "sign", np.abs: "abs"}

VALID_RANGES = {
    "log": (2.0**-64, 2.0**64),
    "sin": (-math.pi, math.pi),
    "arctan": (-math.pi / 2, math.pi / 2),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (2.0**-42, 2.0**42),
}
"""Outside these ranges the hardware's result is invalid (AWS nki.api.shared.rst). For reciprocal
the range is of the magnitude. Zero is accepted for sqrt, although the table's lower end excludes
it.
"""


def activation_name(op: object, where: str) -> str:
    """Return the name of the activation function for ``op``, an ``nl`` or NumPy function."""
    name = name_of_operator(op, _FUNCTION_NAMES)
    if name not in ACTIVATIONS:
        raise _unknown_operator(ACTIVATIONS, op, where, "activation function")
    return str(name)


@step
def activated(values: Array, name: str) -> Array:
    """Return the named function of float32 values."""
    return np.asarray(ACTIVATIONS[name](values), dtype=values.dtype)


@step
def check_range(values: Array, name: str) -> None:
    """Report values outside a function's valid range.

    They may be in a padded row, which a device would run all the same.
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
        record_anomaly(current(), AnomalyKind.OUT_OF_RANGE, "", outside, values)
        report_violation(error, detected=True)
