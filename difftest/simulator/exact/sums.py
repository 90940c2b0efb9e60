"""Error rules of reductions, scans and the engines' reduction registers."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import LARGEST_SUM, Bounded, spread
from difftest.simulator.exact.elementwise import (
    alu,
    chosen_from,
    column,
    decided,
    doubtful_truth,
    function,
    in_steps,
    scaled,
    with_scalar,
)
from difftest.simulator.exact.shadow import Shadow, rule
from difftest.simulator.instructions.activation import PRELU
from difftest.simulator.instructions.alu import ALU_OPS, NKI_OPS, AluOp
from difftest.simulator.instructions.record import Call
from difftest.simulator.instructions.registers import IDENTITIES, Accumulate
from difftest.simulator.instructions.values import rows

Axes = tuple[int, ...]


def _lines(x: Bounded) -> Bounded:
    """The free axes as one."""
    return x.shaped(rows)


def total(run: Shadow, x: Bounded, axes: Axes, *, keepdims: bool) -> Bounded:
    """A sum in float32, in whatever order."""
    value = x.value
    n = math.prod(value.shape[axis] for axis in axes)
    summed = np.asarray(value.sum(axis=axes, keepdims=keepdims))
    sizes = np.asarray(np.abs(value).sum(axis=axes, keepdims=keepdims))
    error, errors = spread(x), 0.0
    if error is not None:
        errors = error.sum(axis=axes, keepdims=keepdims)
    elif n == 1 or (sizes.max(initial=0.0) <= LARGEST_SUM and bounded.is_integral(value)):
        return Bounded(summed, None, FLOAT32, adds=True)
    carried = errors + run.gamma(n - 1, summed.size, terms=n) * (sizes + errors)
    return Bounded(summed, bounded.defined(summed, carried), FLOAT32, adds=True)


def reduced(run: Shadow, op: AluOp, x: Bounded, axes: Axes, *, keepdims: bool) -> Bounded:
    """A reduction."""
    if op.name in ("add", "average"):
        made = total(run, x, axes, keepdims=keepdims)
        return made if op.name == "add" else bounded.divide(made, bounded.number(len(x.value)))
    if op.name in ("maximum", "minimum"):
        ufunc: Any = op.compute
        value = ufunc.reduce(x.value, axis=axes, keepdims=keepdims)
        error = spread(x)
        if error is not None:
            low, high = (ufunc.reduce(end, axis=axes, keepdims=keepdims) for end in bounded.ends(x))
            error = bounded.between(value, low, high)
        return Bounded(np.asarray(value), error, x.dtype, x.sums)
    if op.name == "multiply":
        return _product(run, x, axes, keepdims=keepdims)
    if op.name == "subtract":
        return _difference(run, x, axes, keepdims=keepdims)
    logical: Any = getattr(np, op.name)
    value = logical.reduce(x.value != 0, axis=axes, keepdims=keepdims)
    unsure = doubtful_truth(x)
    if unsure is not None:
        unsure = spread(Bounded(x.value, unsure)).any(axis=axes, keepdims=keepdims)
    return decided(run, value, unsure)


def _product(run: Shadow, x: Bounded, axes: Axes, *, keepdims: bool) -> Bounded:
    value = np.asarray(x.value.prod(axis=axes, keepdims=keepdims))
    sizes = np.abs(x.value)
    error = spread(x)
    largest = sizes if error is None else sizes + error
    most = np.asarray(largest.prod(axis=axes, keepdims=keepdims))
    carried = most - np.abs(value)
    small = most.max(initial=0.0) <= LARGEST_SUM
    if error is None and small and bounded.is_integral(x.value):
        return Bounded(value, None, FLOAT32)
    n = math.prod(x.value.shape[axis] for axis in axes)
    carried = carried + run.gamma(n, value.size) * most + n * bounded.TINY
    return Bounded(value, bounded.defined(value, carried), FLOAT32)


def _difference(run: Shadow, x: Bounded, axes: Axes, *, keepdims: bool) -> Bounded:
    """The first element minus the others."""
    lead = tuple(k for k in range(x.value.ndim) if k not in axes)

    def lines(array: Any) -> Any:
        moved = array.transpose(*lead, *axes)
        return moved.reshape(*(array.shape[k] for k in lead), -1)

    turned = x.shaped(lines)
    signs = np.full(turned.value.shape[-1], -1.0)
    signs[0] = 1.0
    turned.value = turned.value * signs
    made = total(run, turned, (turned.value.ndim - 1,), keepdims=False)
    return made.shaped(lambda array: np.expand_dims(array, axes)) if keepdims else made


@rule("tensor_reduce")
def tensor_reduce(run: Shadow, call: Call, data: Bounded) -> Bounded:
    """A reduction along free axes."""
    made = reduced(run, call["op"], data, call["axis"], keepdims=False)
    made = made.shaped(lambda array: array.reshape(call.result.shape))
    return bounded.negative(made) if call["negate"] else made


@rule("tensor_partition_reduce")
def tensor_partition_reduce(run: Shadow, call: Call, data: Bounded) -> Bounded:
    """A reduction across partitions."""
    return reduced(run, call["op"], data, (0,), keepdims=True)


# -- the engines' registers ------------------------------------------------------------------------


def registers(
    run: Shadow,
    engine: str,
    values: Bounded,
    op: AluOp | None,
    command: Accumulate,
    start: Any = None,
) -> Bounded | None:
    """As the machine's: reduce along the free axes into an engine's registers, and read them."""
    if command is Accumulate.IDLE:
        return None
    if command is Accumulate.READ:
        return run.accumulators[engine].part(slice(values.value.shape[0]))
    name = "add" if op is None else op.name
    held = held_before(run, engine, values.value.shape[0], name, command, start)
    if command is not Accumulate.RESET:
        held = _joined(run, name, held, values)
    run.accumulators[engine] = held
    return held


def held_before(
    run: Shadow, engine: str, partitions: int, name: str, command: Accumulate, start: Any
) -> Bounded:
    """The registers of the first partitions [P, 1], reset or loaded if the command says so."""
    kept = run.accumulators.get(engine)
    if command is Accumulate.REDUCE and kept is not None:
        if kept.value.shape[0] >= partitions:
            return kept.part(slice(partitions))
        run.doubt("registers of other partitions are used under a mask", lost=True)
    loaded = command is Accumulate.LOAD_REDUCE
    first = run.operand(start if loaded else IDENTITIES[name])
    if first.value.ndim:
        first = first.shaped(lambda array: array.reshape(-1, 1))
    return first.shaped(lambda array: np.broadcast_to(array, (partitions, 1)))


def _joined(run: Shadow, name: str, held: Bounded, values: Bounded) -> Bounded:
    """What the registers hold once ``values`` are reduced into them."""
    lines = _lines(values)
    is_fresh = name == "add" and held.error is None and not held.value.any()
    together = lines if is_fresh else _beside([held, lines])
    if name in ("abs_max", "abs_min"):
        return functools.reduce(functools.partial(alu, run, NKI_OPS[name]), _columns(together))
    op = ALU_OPS["add" if name == "subtract" else name]
    return reduced(run, op, together, (1,), keepdims=True)


@rule("activation")
def activation(run: Shadow, call: Call, data: Bounded, scale: Any, bias: Any) -> tuple[Any, Any]:
    """``op(data * scale + bias)``, and its sum in the registers."""
    made = function(run, call["op"], scaled(run, data, scale, bias))
    return made, registers(run, "scalar", made, call["reduce_op"], call["reduce_cmd"])


@rule("tensor_scalar_reduce")
def tensor_scalar_reduce(
    run: Shadow, call: Call, data: Bounded, operand0: Any, reduce_init: Any
) -> tuple[Any, Any]:
    """``data <op0> operand0``, and its reduction in the registers."""
    result = with_scalar(run, call["op0"], data, operand0, reverse=False)
    op = call["reduce_op"]
    made: Any
    if op.name == "subtract":
        made = reduced(run, op, _lines(result), (1,), keepdims=True)
    else:
        made = registers(run, "vector", result, op, call["reduce_cmd"], reduce_init)
    return result, bounded.negative(made) if call["reduce_res_negate"] else made


# -- scans and moments -----------------------------------------------------------------------------


@rule("tensor_tensor_scan")
def tensor_tensor_scan(
    run: Shadow, call: Call, data0: Bounded, data1: Bounded, initial: Any
) -> Bounded:
    """A recurrence along the free axis, step by step."""
    here, others = _lines(data0), _lines(data1)
    partitions = len(here.value)
    start = column(run.operand(initial), 2)
    state = start.shaped(lambda array: np.broadcast_to(array, (partitions, 1)))
    states = []
    for now, other in zip(_columns(here), _columns(others), strict=True):
        left, right = (state, now) if call["reverse0"] else (now, state)
        partial = alu(run, call["op0"], left, right)
        left, right = (other, partial) if call["reverse1"] else (partial, other)
        state = alu(run, call["op1"], left, right)
        states.append(state)
    return _beside(states).shaped(lambda array: array.reshape(call.result.shape))


def _columns(lines: Bounded) -> list[Bounded]:
    return [lines.part((slice(None), slice(k, k + 1))) for k in range(lines.value.shape[1])]


def _moments(run: Shadow, values: Bounded) -> list[Bounded]:
    """(count, mean, variance * count) of each row."""
    partitions, count = values.value.shape
    if not count:
        return [Bounded(np.zeros((partitions, 1)), None, FLOAT32)] * 3
    many = Bounded(np.full((partitions, 1), float(count)), None, FLOAT32)
    mean = bounded.divide(total(run, values, (1,), keepdims=True), many)
    centred = bounded.subtract(values, mean)
    squares = bounded.multiply(centred, centred)
    return [many, mean, total(run, squares, (1,), keepdims=True)]


def _beside(parts: list[Bounded]) -> Bounded:
    """Columns side by side."""
    value = np.concatenate([part.value for part in parts], axis=1)
    if all(part.error is None for part in parts):
        return Bounded(value, None, FLOAT32)
    errors = [np.zeros_like(p.value) if p.error is None else spread(p) for p in parts]
    error = np.concatenate(errors, axis=1)
    return Bounded(value, error if error.any() else None, FLOAT32)


@rule("bn_stats")
def bn_stats(run: Shadow, call: Call, data: Bounded) -> Bounded:
    """Count, mean and variance * count of even, then of odd elements."""
    lines = _lines(data)
    halves = [lines.part((slice(None), slice(k, None, 2))) for k in (0, 1)]
    return _beside([part for half in halves for part in _moments(run, half)])


@rule("bn_aggr")
def bn_aggr(run: Shadow, call: Call, data: Bounded) -> Bounded:
    """Mean and variance from the tuples of bn_stats."""
    lines = _lines(data)
    count, mean, spreads = (lines.part((slice(None), slice(k, None, 3))) for k in range(3))
    everything = total(run, count, (1,), keepdims=True)
    weighted = total(run, bounded.multiply(count, mean), (1,), keepdims=True)
    centre = bounded.divide(weighted, everything)
    apart = bounded.subtract(mean, centre)
    between = bounded.multiply(count, bounded.multiply(apart, apart))
    variance = total(run, bounded.add(spreads, between), (1,), keepdims=True)
    return _beside([centre, bounded.divide(variance, everything)])


@rule("tensor_scalar_cumulative")
def tensor_scalar_cumulative(
    run: Shadow, call: Call, src: Bounded, imm0: Any, imm1: Any
) -> Bounded:
    """``reg = (src <op0> imm0) <op1> reg`` step by step."""
    lines = _lines(with_scalar(run, call["op0"], src, imm0, reverse=False))
    command, name = call["reduce_cmd"], call["op1"].name
    held = held_before(run, "vector", len(lines.value), name, command, imm1)
    states = []
    for one in _columns(lines):
        held = alu(run, call["op1"], one, held)
        states.append(held)
    run.accumulators["vector"] = held
    return _beside(states).shaped(lambda array: array.reshape(call.result.shape))


@rule("exponential")
def exponential(
    run: Shadow, call: Call, src: Bounded, max_value: Any, reduce_init: Any
) -> tuple[Any, Any]:
    """``exp(src - max_value)``, and its sum in the registers."""
    top = column(run.operand(max_value), src.value.ndim)
    made = function(run, "exp", bounded.subtract(src, top))
    summed = registers(run, "vector", made, ALU_OPS["add"], call["reduce_cmd"], reduce_init)
    return made, summed


@rule("activate2")
def activate2(
    run: Shadow, call: Call, data: Bounded, imm0: Any, imm1: Any, relu_param: Any
) -> tuple[Any, Any]:
    """``op((data <op0> imm0) <op1> imm1)``, and its reduction in the registers."""
    made = in_steps(run, call, data, imm0, imm1)
    if call["op"] == PRELU:
        below = with_scalar(run, ALU_OPS["multiply"], made, relu_param, reverse=False)
        made = chosen_from(made.value > 0, doubtful_truth(made), made, below)
    else:
        made = function(run, call["op"], made)
    return made, registers(run, "scalar", made, call["reduce_op"], call["reduce_cmd"])
