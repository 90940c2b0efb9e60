"""Element by element: ``nisa.tensor_tensor``, ``nisa.activation`` and kin, ``nl.add``, ``nl.exp``.

AWS documents of ``nl.floor`` and a few more what they return, not the instructions. They are made
here of instructions that are documented, computed in float32, and rounded to the result's dtype
once. Source: ``nki.language`` at tag v2.26.0.
"""
# mypy: allow-untyped-defs

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.frontend.arguments import engine, reduce_cmd
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE, issue, on_chip
from difftest.simulator.frontend.classic.operators import binary, one_rank, unary
from difftest.simulator.instructions import activation as activations
from difftest.simulator.instructions import elementwise as instructions
from difftest.simulator.instructions import scan
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.functions import activation_name
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.tile import Tile

_FUNCTION = {"op": lambda op, where: activation_name(op)}

# -- nki.isa ---------------------------------------------------------------------------------------


@ISA.issues(instructions.tensor_tensor)
def tensor_tensor(data1, data2, op, *, dtype=None, mask=None, engine=engine.unknown):
    """``data1 <op> data2``; the same partitions, free dimensions broadcast."""
    if isinstance(data1, Tile) and isinstance(data2, Tile):
        axis, other = data1._partition_axis, data2._partition_axis
        if not (axis == other == 0 and len(data1.shape) == len(data2.shape)):
            data1, data2 = one_rank(data1, data2)
    return locals()


@ISA.issues(instructions.tensor_scalar)
def tensor_scalar(
    data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, *,
    dtype=None, mask=None, engine=engine.unknown,
):  # fmt: skip
    """``(data <op0> operand0) <op1> operand1``, operands numbers or [P, 1] vectors."""


@ISA.issues(instructions.scalar_tensor_tensor)
def scalar_tensor_tensor(
    *, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, dtype=None, mask=None
):
    """``(data <op0> operand0) <op1> operand1``, operand1 of the data's shape."""


@ISA.issues(scan.tensor_tensor_scan)
def tensor_tensor_scan(
    data0, data1, initial, op0, op1, reverse0=False, reverse1=False, *, dtype=None, mask=None
):
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` along the free axis."""


@ISA.issues(instructions.reciprocal)
def reciprocal(data, *, dtype=None, mask=None):
    """``1 / data`` on the Vector Engine."""


@ISA.issues(activations.activation, **_FUNCTION)
def activation(
    op, data, *, bias=None, scale=1.0, reduce_op=None, reduce_res=None,
    reduce_cmd=reduce_cmd.idle, mask=None, dtype=None,
):  # fmt: skip
    """``op(data * scale + bias)`` on the Scalar Engine, with an optional reduction of it."""


@ISA.issues(activations.activation, **_FUNCTION, reduce_cmd=Accumulate.RESET_REDUCE)
def activation_reduce(
    op, data, *, reduce_op, reduce_res, bias=None, scale=1.0, mask=None, dtype=None
):
    """:func:`activation` with ``reduce_cmd.reset_reduce``."""


@ISA.issues(scan.bn_stats)
def bn_stats(data, *, mask=None, dtype=None):
    """Count, mean and variance * count of even, then odd, elements: [P, 6]."""


@ISA.issues(scan.bn_aggr)
def bn_aggr(data, *, mask=None, dtype=None):
    """Mean and variance from bn_stats' tuples: [P, 2]."""


@ISA.issues(scan.dropout)
def dropout(data, prob, *, mask=None, dtype=None):
    """``data`` with elements replaced by 0 at the given probability."""


# -- nki.language ----------------------------------------------------------------------------------

Compute = Callable[[Any, Any, Any], Any]
"""Of a tile on chip, the dtype that the kernel asks for or None, and its mask."""


def _of_tile(name: str, doc: str, compute: Compute, *, keeps_dtype: bool = False) -> None:
    where = f"nl.{name}"

    def function(x: Any, *, dtype: object = None, mask: object = None) -> Any:
        data = on_chip(x, where)
        return compute(data, data.dtype if keeps_dtype and dtype is None else dtype, mask)

    LANGUAGE.add(name, function, doc)


def _operator(name: str) -> None:
    def function(x: Any, y: Any, dtype: object = None, mask: object = None) -> Any:
        return binary(name, x, y, dtype=dtype, mask=mask)

    LANGUAGE.add(name, function, f"``x {name} y``, element by element; shapes broadcast.")


def _unary_operator(name: str) -> None:
    def function(x: Any, dtype: object = None, mask: object = None) -> Any:
        return unary(name, x, dtype=dtype, mask=mask)

    LANGUAGE.add(name, function, f"``{name} x``, element by element.")


def activate(name: str) -> Compute:
    """What ``nl.exp`` and kin do with a tile on chip."""

    def compute(x: Any, dtype: Any, mask: Any) -> Any:
        options, how = (name, None, Accumulate.IDLE), {"dtype": dtype, "mask": mask}
        return issue(activations.activation, (x, 1.0, None), options, others=(None,), **how)

    return compute


for _name, _op in ALU_OPS.items():
    if not _op.unary:
        _operator(_name)
for _name in ("invert", "logical_not"):
    _unary_operator(_name)
for _name in (
    *("abs", "arctan", "erf", "erf_dx", "exp", "gelu", "gelu_apprx_sigmoid", "gelu_apprx_tanh"),
    *("gelu_dx", "log", "mish", "relu", "rsqrt", "sigmoid", "sign", "silu", "silu_dx", "sin"),
    *("softplus", "sqrt", "square", "tanh"),
):
    _of_tile(_name, f"``{_name}(x)``, element by element, on the Scalar Engine.", activate(_name))


def invert_number(x: Any, dtype: Any, mask: Any) -> Any:
    """``1 / x``."""
    return issue(instructions.reciprocal, (x,), dtype=dtype, mask=mask)


_LARGEST_ANGLE = float(np.nextafter(np.float32(np.pi), np.float32(0)))
_sin = activate("sin")


def _floor(x: Any, dtype: Any, mask: Any) -> Any:
    """``x - x mod 1``, exact for finite numbers."""
    part = binary("mod", x, 1.0, dtype=FLOAT32, mask=mask)
    return binary("subtract", x, part, dtype=dtype, mask=mask)


def _ceil(x: Any, dtype: Any, mask: Any) -> Any:
    """``-floor(-x)``."""
    return _negative(_floor(_negative(x, FLOAT32, mask), FLOAT32, mask), dtype, mask)


def _trunc(x: Any, dtype: Any, mask: Any) -> Any:
    """``x - fmod(x, 1)``."""
    part = binary("fmod", x, 1.0, dtype=FLOAT32, mask=mask)
    return binary("subtract", x, part, dtype=dtype, mask=mask)


def _sine(x: Any, shift: float, dtype: Any, mask: Any) -> Any:
    """``sin(x + shift)``, the angle brought into the range that the Scalar Engine takes."""
    angle: Any = x
    for op, number in (
        ("add", shift + np.pi),
        ("mod", 2 * np.pi),
        ("subtract", np.pi),
        ("minimum", _LARGEST_ANGLE),
        ("maximum", -_LARGEST_ANGLE),
    ):
        angle = binary(op, angle, float(number), dtype=FLOAT32, mask=mask)
    return _sin(angle, dtype, mask)


def _cos(x: Any, dtype: Any, mask: Any) -> Any:
    return _sine(x, np.pi / 2, dtype, mask)


def _tan(x: Any, dtype: Any, mask: Any) -> Any:
    inverse = invert_number(_cos(x, FLOAT32, mask), FLOAT32, mask)
    return binary("multiply", _sine(x, 0.0, FLOAT32, mask), inverse, dtype=dtype, mask=mask)


def _negative(x: Any, dtype: Any, mask: Any) -> Any:
    return binary("multiply", x, -1.0, dtype=dtype, mask=mask)


for _compute in (_floor, _ceil, _trunc, _cos, _tan, _negative):
    _name = _compute.__name__[1:]
    _of_tile(_name, f"``{_name}(x)``, element by element.", _compute, keeps_dtype=True)
_of_tile("reciprocal", "``1 / x``, on the Vector Engine.", invert_number)
