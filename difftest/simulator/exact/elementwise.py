"""Error rules of what computes element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import Bounded, Float64
from difftest.simulator.exact.functions import FUNCTIONS
from difftest.simulator.exact.shadow import Shadow, rule
from difftest.simulator.instructions.alu import ALU_OPS, AluOp
from difftest.simulator.instructions.record import Call

OPERATORS: dict[str, Callable[[Bounded, Bounded], Bounded]] = {
    "add": bounded.add,
    "subtract": bounded.subtract,
    "multiply": bounded.multiply,
    "divide": bounded.divide,
    "maximum": bounded.extreme(np.maximum),
    "minimum": bounded.extreme(np.minimum),
    "power": bounded.power,
}
"""Binary operators that decide nothing."""


def alu(run: Shadow, op: AluOp, left: Bounded, right: Bounded) -> Bounded:
    """``left <op> right``; a unary operator takes ``left``."""
    if op.name in OPERATORS:
        return OPERATORS[op.name](left, right)
    if op.name in ("mod", "fmod"):
        return _remainder(run, op, left, right)
    if op.name in ("abs_max", "abs_min"):
        return larger_size(run, op, left, right)
    if not op.comparison:
        return FUNCTIONS[op.name](left)
    return _logic(run, op, left, right) if "logical" in op.name else compared(run, op, left, right)


def decided(run: Shadow, value: Any, unsure: Any) -> Bounded:
    """What a decision gives, 1 or 0, with a doubt where a rounding may have turned it round."""
    truth = np.asarray(value, dtype=np.float64)
    if unsure is None or not np.any(unsure):
        return Bounded(truth, None, FLOAT32)
    run.doubt("a rounded value decides", lost=False)
    return Bounded(truth, np.where(unsure, 1.0, 0.0), FLOAT32)


def compared(run: Shadow, op: AluOp, left: Bounded, right: Bounded) -> Bounded:
    """A comparison of exact values: unsure where the bounds let the machine decide otherwise."""
    error = bounded.both(left.error, right.error)
    unsure = None
    if error is not None:
        unsure = (np.abs(left.value - right.value) <= error) & (error > 0)
    return decided(run, op.compute(left.value, right.value), unsure)


def larger_size(run: Shadow, op: AluOp, left: Bounded, right: Bounded) -> Bounded:
    """The operand of the larger or smaller magnitude, with its sign; of equal ones the second."""
    size, other = bounded.absolute(left), bounded.absolute(right)
    first = compared(run, ALU_OPS["greater" if op.name == "abs_max" else "less"], size, other)
    return chosen_from(first.value != 0, first.error, left, right)


def doubtful_truth(x: Bounded) -> Any:
    """Where it is not sure that a number is not 0; None if it is everywhere."""
    return None if x.error is None else (np.abs(x.value) <= x.error) & (x.error > 0)


def _logic(run: Shadow, op: AluOp, left: Bounded, right: Bounded) -> Bounded:
    unsure = doubtful_truth(left)
    if op.unary:
        return decided(run, left.value == 0, unsure)
    other = doubtful_truth(right)
    both = other if unsure is None else unsure if other is None else unsure | other
    return decided(run, op.compute(left.value, right.value), both)


def _remainder(run: Shadow, op: AluOp, left: Bounded, right: Bounded) -> Bounded:
    """``left - k * right`` for a whole number k, which a rounding may change."""
    value = op.compute(left.value, right.value)
    if left.error is None and right.error is None:
        return bounded.rounded(value, None, left, right)
    turns = np.abs(np.round((left.value - value) / right.value))
    error = np.zeros_like(value)
    for part, times in ((left.error, 1.0), (right.error, turns)):
        if part is not None:
            error = error + part * times
    size = np.abs(right.value)
    near = error if right.error is None else error + right.error
    unsure = (np.abs(value) <= near) | (size - np.abs(value) <= near)
    if unsure.any():
        run.doubt("a rounded value decides", lost=False)
        error = np.where(unsure, size + near, error)
    return bounded.rounded(value, error, left, right)


def chosen_from(condition: Any, unsure: Any, yes: Bounded, no: Bounded) -> Bounded:
    """``condition ? yes : no``; where the condition is not sure, within a bound that holds both."""
    value = np.where(condition, yes.value, no.value)
    sums = max(yes.sums, no.sums)
    dtype = yes.dtype if yes.dtype == no.dtype else FLOAT32
    if yes.error is None and no.error is None and unsure is None:
        return Bounded(value, None, dtype, sums)
    zero = np.zeros(())
    left, right = (zero if side.error is None else side.error for side in (yes, no))
    error = np.where(condition, left, right)
    if unsure is not None:
        apart = np.abs(yes.value - no.value) + np.maximum(left, right)
        error = np.where(unsure, apart, error)
    return Bounded(value, error, dtype, sums)


def column(vector: Bounded, ndim: int) -> Bounded:
    """A vector with one element in each partition, shaped to broadcast against ``ndim`` axes."""
    if vector.value.ndim in (0, ndim):
        return vector
    return vector.shaped(lambda a: a.reshape(a.shape[:1] + (1,) * (ndim - 1)))


def with_scalar(run: Shadow, op: AluOp, values: Bounded, operand: Any, *, reverse: bool) -> Bounded:
    """``values <op> operand``, or the other way round, for a number, a [P, 1] vector or a tile."""
    other = column(_like(run.operand(operand), values), values.value.ndim)
    return alu(run, op, other, values) if reverse and not op.unary else alu(run, op, values, other)


def _like(x: Bounded, other: Bounded) -> Bounded:
    """``x`` in the shape of ``other`` where it has as many elements in another one."""
    shape = other.value.shape
    if x.value.shape == shape or x.value.size != other.value.size or not x.value.ndim:
        return x
    return x.shaped(lambda a: a.reshape(shape))


@rule("tensor_tensor")
def tensor_tensor(run: Shadow, call: Call, data1: Bounded, data2: Bounded) -> Bounded:
    """``data1 <op> data2``."""
    if call.into_existing:
        data2 = _like(data2, data1)
    return alu(run, call["op"], data1, data2)


@rule("tensor_scalar", "scalar_tensor_tensor")
def in_steps(run: Shadow, call: Call, data: Bounded, *operands: Any) -> Bounded:
    """``(data <op0> operand0) <op1> operand1``; an operator that is None does nothing."""
    for number, operand in enumerate(operands):
        op = call[f"op{number}"]
        if op is not None:
            data = with_scalar(run, op, data, operand, reverse=call[f"reverse{number}"])
    return data


@rule("reciprocal")
def reciprocal(run: Shadow, call: Call, data: Bounded) -> Bounded:
    """``1 / data``."""
    return FUNCTIONS["reciprocal"](data)


def function(run: Shadow, name: str, x: Bounded) -> Bounded:
    """An activation function by its name."""
    if name == "sign":
        value: Float64 = np.sign(x.value)
        unsure = doubtful_truth(x)
        if unsure is None or not unsure.any():
            return Bounded(value, None, FLOAT32)
        run.doubt("a rounded value decides", lost=False)
        return Bounded(value, np.where(unsure, 2.0, 0.0), FLOAT32)
    return FUNCTIONS[name](x)


def scaled(run: Shadow, data: Bounded, scale: Any, bias: Any) -> Bounded:
    """``data * scale + bias``, each of them left out where it changes nothing."""
    ndim = data.value.ndim
    if isinstance(scale, Bounded) or scale != 1.0:
        data = bounded.multiply(data, column(run.operand(scale), ndim))
    if bias is not None:
        data = bounded.add(data, column(run.operand(bias), ndim))
    return data
