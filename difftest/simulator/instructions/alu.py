"""The math operators that instructions take as ``op``, and how they are named.

Source: AWS ``nki.api.shared.rst`` at tags v2.26.0 and v2.32.0, "Supported Math Operators for NKI
ISA". Bitvec operators work on integers as bit patterns; arithmetic ones work in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, Array
from difftest.simulator.errors import KernelError
from difftest.simulator.lifted import step
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine

VECTOR_ONLY = (Engine.VECTOR,)


@dataclass(frozen=True, kw_only=True, eq=False)
class AluOp:
    """One operator: its NumPy meaning and where it may be used."""

    name: str
    compute: Callable[..., Any]
    bitvec: bool = False
    unary: bool = False
    reduction: bool = False
    """Legal as the ``op`` of a reduction."""
    comparison: bool = False
    """The result is 1 or 0."""
    engines: tuple[Engine, ...] = VECTOR_ONLY
    nc_version: int = 2
    """The first NeuronCore that has it."""


def _float_logic(name: str) -> Callable[[Array, Array], Array]:
    """A logical operator on numbers, where anything but 0 is true."""
    function = getattr(np, name)
    return lambda x, y: function(np.not_equal(x, 0), np.not_equal(y, 0))


def _logical_shift_right(x: Array, y: Array) -> Array:
    """The hardware has no arithmetic shift to the right: the bits move in as zeros."""
    unsigned = x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x
    shifted: Array = np.right_shift(unsigned, y.astype(unsigned.dtype))
    return shifted.view(x.dtype)


@step
def rsqrt(x: Array) -> Array:
    """``1 / sqrt(x)``, each of which rounds."""
    result: Array = np.float32(1) / np.sqrt(x)
    return result


def _larger_magnitude(x: Array, y: Array) -> Array:
    """The one of the larger magnitude, with its sign; y if they are equal."""
    return np.where(np.abs(x) > np.abs(y), x, y)


def _smaller_magnitude(x: Array, y: Array) -> Array:
    """The one of the smaller magnitude, with its sign; y if they are equal."""
    return np.where(np.abs(x) < np.abs(y), x, y)


def _relu(x: Array, _: Any = None) -> Array:
    return np.maximum(x, np.float32(0))


_EVERYWHERE = (Engine.VECTOR, Engine.GPSIMD, Engine.SCALAR)
_WITHOUT_GPSIMD = (Engine.VECTOR, Engine.SCALAR)
_COMPARISONS = ("equal", "not_equal", "greater_equal", "greater", "less_equal", "less")

_OPS = (
    AluOp(name="invert", compute=np.invert, bitvec=True, unary=True),
    AluOp(name="bitwise_and", compute=np.bitwise_and, bitvec=True, reduction=True),
    AluOp(name="bitwise_or", compute=np.bitwise_or, bitvec=True, reduction=True),
    AluOp(name="bitwise_xor", compute=np.bitwise_xor, bitvec=True, reduction=True),
    AluOp(name="left_shift", compute=np.left_shift, bitvec=True),
    AluOp(name="right_shift", compute=_logical_shift_right, bitvec=True),
    AluOp(name="add", compute=np.add, reduction=True, engines=_EVERYWHERE),
    AluOp(name="subtract", compute=np.subtract, reduction=True),
    AluOp(name="multiply", compute=np.multiply, reduction=True, engines=_EVERYWHERE),
    AluOp(name="divide", compute=np.divide),
    AluOp(name="maximum", compute=np.maximum, reduction=True),
    AluOp(name="minimum", compute=np.minimum, reduction=True),
    *(AluOp(name=name, compute=getattr(np, name), comparison=True) for name in _COMPARISONS),
    AluOp(name="logical_not", compute=np.logical_not, unary=True, comparison=True),
    *(
        AluOp(name=name, compute=_float_logic(name), reduction=True, comparison=True)
        for name in ("logical_and", "logical_or", "logical_xor")
    ),
    AluOp(name="rsqrt", compute=rsqrt, unary=True, engines=(Engine.GPSIMD, Engine.SCALAR)),
    AluOp(name="reciprocal", compute=np.reciprocal, unary=True, engines=_WITHOUT_GPSIMD),
    AluOp(name="abs", compute=np.abs, unary=True, engines=_WITHOUT_GPSIMD),
    AluOp(name="power", compute=np.power, engines=(Engine.GPSIMD,)),
    AluOp(name="mod", compute=np.mod),
    AluOp(name="fmod", compute=np.fmod),
)

_NEW_OPS = (
    AluOp(name="abs_max", compute=_larger_magnitude, nc_version=4),
    AluOp(name="abs_min", compute=_smaller_magnitude, nc_version=4),
    AluOp(name="square", compute=np.square, unary=True, nc_version=4),
    AluOp(name="relu", compute=_relu, unary=True, nc_version=4),
)

ALU_OPS = {op.name: op for op in _OPS}
NKI_OPS = {**ALU_OPS, **{op.name: op for op in _NEW_OPS}}
"""Those of today's dialect (release notes of NKI 0.4)."""

_REDUCTION_NAMES = {"max": "maximum", "min": "minimum", "sum": "add", "prod": "multiply"}

_NUMPY_NAMES: dict[Any, str] = {
    **{getattr(np, name): name for name in ALU_OPS if hasattr(np, name)},
    **{getattr(np, name): op for name, op in _REDUCTION_NAMES.items()},
    np.amax: "maximum",
    np.amin: "minimum",
    np.logical_not: "logical_not",
    np.absolute: "abs",
}


def kept_bits(op: AluOp, values: Array, dtype: np.dtype[Any]) -> Array:
    """A bitvec result in ``dtype``: its low bits, for bitvec operators do not cast.

    Values of other operators stay what they are, to be rounded when they are written.
    """
    return values.astype(dtype) if op.bitvec and dtype != BOOL else values


def name_of_operator(op: object, names: Mapping[Any, str]) -> str | None:
    """The name of an ``nl`` function, or of one of NumPy's; None for anything else."""
    try:
        name: str | None = getattr(op, "nki_name", None) or names.get(op)
    except TypeError:  # it has no hash
        name = None
    return name


def alu_op(op: object, where: str, ops: Mapping[str, AluOp] = ALU_OPS) -> AluOp:
    """The operator among ``ops`` that ``op`` (an ``nl`` or NumPy function) stands for.

    Raises
    ------
    KernelError : ``op`` is not an operator of the instruction ``where``.
    """
    name = name_of_operator(op, _NUMPY_NAMES)
    found = ops.get(_REDUCTION_NAMES.get(name, name) if name else "")
    if found is None:
        raise KernelError(
            f"{where} takes an operator of nki.language (or its NumPy equivalent)",
            happened=f"{where} got {op!r:.40} as its operator",
            received=f"op={op!r}",
            limit=", ".join(sorted(ops)),
        )
    return found


def check_generation(op: AluOp, where: str, machine: Machine) -> None:
    """Raise :class:`KernelError` if the machine does not have the operator."""
    if machine.nc_version < op.nc_version:
        raise KernelError(
            f"the operator {op.name} needs NeuronCore-v{op.nc_version}",
            happened=f"{where} got the operator {op.name} on {machine.name}",
            received=f"op={op.name} on {machine.name} (NeuronCore-v{machine.nc_version})",
            remedy="launch with machine=TRN3, or compute it of the operators that the machine has",
        )
