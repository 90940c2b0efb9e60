"""Error rules of reductions, scans, matrix products and the engines' reduction registers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, FLOAT32
from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import LARGEST_SUM, Bounded, Float64
from difftest.simulator.exact.elementwise import (
    ARITHMETIC,
    alu,
    column,
    decided,
    doubtful_truth,
    function,
    scaled,
    with_scalar,
)
from difftest.simulator.exact.shadow import Settle, Shadow, move, rule
from difftest.simulator.instructions.alu import ALU_OPS, AluOp
from difftest.simulator.instructions.record import Call
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.memory import pattern_view
from difftest.simulator.tile import Tile

Axes = tuple[int, ...]


def spread(x: Bounded) -> Any:
    """The bound of each element."""
    if x.error is None or x.error.shape == x.value.shape:
        return x.error
    return np.broadcast_to(x.error, x.value.shape)


def total(run: Shadow, x: Bounded, axes: Axes, *, keepdims: bool) -> Bounded:
    """A sum in float32, in whatever order."""
    value = x.value
    n = math.prod(value.shape[axis] for axis in axes)
    summed = np.asarray(value.sum(axis=axes, keepdims=keepdims))
    sizes = np.asarray(np.abs(value).sum(axis=axes, keepdims=keepdims))
    error = spread(x)
    if error is None:
        if n == 1 or (sizes.max(initial=0.0) <= LARGEST_SUM and bounded.is_integral(value)):
            return Bounded(summed, None, FLOAT32, adds=True)
        carried = run.gamma(n - 1, summed.size) * sizes
    else:
        errors = error.sum(axis=axes, keepdims=keepdims)
        carried = errors + run.gamma(n - 1, summed.size) * (sizes + errors)
    return Bounded(summed, bounded.defined(summed, carried), FLOAT32, adds=True)


def reduced(run: Shadow, op: AluOp, x: Bounded, axes: Axes, *, keepdims: bool) -> Bounded | None:
    """A reduction; None of bit patterns, which are exact."""
    if op.bitvec:
        return None
    if op.name == "add":
        return total(run, x, axes, keepdims=keepdims)
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
def tensor_reduce(run: Shadow, call: Call, data: Bounded) -> Bounded | None:
    """A reduction along free axes."""
    made = reduced(run, call["op"], data, call["axes"], keepdims=False)
    if made is None:
        return None
    made = made.shaped(lambda array: array.reshape(call.result.shape))
    return bounded.negative(made) if call["negate"] else made


@rule("tensor_partition_reduce")
def tensor_partition_reduce(run: Shadow, call: Call, data: Bounded) -> Bounded | None:
    """A reduction across partitions."""
    return reduced(run, call["op"], data, (0,), keepdims=True)


# -- the engines' registers ------------------------------------------------------------------------


_IDENTITIES = {"add": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}


def registers(
    run: Shadow, engine: str, values: Bounded, op: AluOp | None, command: Accumulate
) -> Bounded | None:
    """As the machine's: reduce along the free axes into an engine's registers, and read them."""
    if command is Accumulate.IDLE:
        return None
    partitions = values.value.shape[0]
    if command is Accumulate.READ:
        return _head(run.accumulators[engine], partitions)
    name = "maximum" if op is not None and op.name == "maximum" else "add"
    made = None
    if command in (Accumulate.REDUCE, Accumulate.RESET_REDUCE):
        made = _along(run, name, values)
    return fold(run, engine, partitions, made, name, command)


def _along(run: Shadow, name: str, values: Bounded) -> Bounded:
    flat = values.shaped(lambda array: array.reshape(array.shape[0], -1))
    made = reduced(run, ALU_OPS[name], flat, (1,), keepdims=True)
    assert made is not None
    return made


def fold(
    run: Shadow,
    engine: str,
    partitions: int,
    made: Bounded | None,
    name: str,
    command: Accumulate,
    start: Any = None,
) -> Bounded:
    """Take up a result [P, 1] into an engine's registers; what they hold then."""
    if command is not Accumulate.REDUCE or engine not in run.accumulators or start is not None:
        first = run.operand(_IDENTITIES[name] if start is None else start)
        held = first.shaped(lambda array: np.broadcast_to(array, (partitions, 1)))
    else:
        held = _head(run.accumulators[engine], partitions)
    if made is not None:
        held = ARITHMETIC[name](held, made)
    run.accumulators[engine] = held
    return held


def _head(held: Bounded, partitions: int) -> Bounded:
    return held.part(slice(partitions))


@rule("activation")
def activation(run: Shadow, call: Call, data: Bounded, scale: Any, bias: Any) -> tuple[Any, Any]:
    """``op(data * scale + bias)``, and its sum in the registers."""
    made = function(run, call["op"], scaled(run, data, scale, bias))
    return made, registers(run, "scalar", made, call["reduce_op"], call["command"])


@rule("tensor_scalar_reduce")
def tensor_scalar_reduce(
    run: Shadow, call: Call, data: Bounded, operand0: Any, reduce_init: Any
) -> tuple[Any, Any]:
    """``data <op0> operand0``, and its reduction in the registers."""
    result = with_scalar(run, call["op0"], data, operand0, reverse=False)
    partitions = result.value.shape[0]
    op = call["reduce_op"]
    axes = tuple(range(1, result.value.ndim))
    made = reduced(run, op, result, axes, keepdims=True)
    assert made is not None
    made = made.shaped(lambda array: array.reshape(partitions, 1))
    if op.name != "subtract":
        made = fold(run, "vector", partitions, made, op.name, call["command"], reduce_init)
    return result, bounded.negative(made) if call["negate"] else made


# -- matrix products -------------------------------------------------------------------------------


def matrix_product(run: Shadow, left: Bounded, right: Bounded) -> Bounded:
    """``left.T @ right`` for [K, M] and [K, N], summed in float32 in whatever order."""
    value = left.value.T @ right.value
    depth = left.value.shape[0]
    sizes = [np.abs(left.value), np.abs(right.value)]
    errors = [spread(left), spread(right)]
    growth = run.gamma(depth, value.size)
    if errors[0] is None and errors[1] is None:
        most = _sizes_product(*sizes)
        if most.max(initial=0.0) <= LARGEST_SUM and all(
            bounded.is_integral(side.value) for side in (left, right)
        ):
            return Bounded(value, None, FLOAT32)
        error = growth * most
    else:
        wide = [s if e is None else s + e for s, e in zip(sizes, errors, strict=True)]
        error = growth * _sizes_product(*wide)
        if errors[0] is not None:
            error += errors[0].T @ wide[1]
        if errors[1] is not None:
            error += sizes[0].T @ errors[1]
    error += bounded.TINY * depth
    return Bounded(value, bounded.defined(value, error), FLOAT32)


def _sizes_product(left: Float64, right: Float64) -> Any:
    """``left.T @ right`` of sizes, at least: float32 is enough where it holds them."""
    peak = float(left.max(initial=0.0)) * float(right.max(initial=0.0)) * left.shape[0]
    if not peak < 1e30:
        return left.T @ right
    narrow = left.astype(np.float32).T @ right.astype(np.float32)
    return narrow.astype(np.float64) * (1 + 2 * left.shape[0] * bounded.UNIT)


@move("nc_matmul")
def nc_matmul(
    run: Shadow, call: Call, dst: Tile, stationary: Tile, moving: Tile, *, where: Any
) -> Settle:
    """``stationary.T @ moving``, added to what ``dst`` holds if it accumulates."""
    left, right = (
        run.take(side).shaped(lambda array: array.reshape(array.shape[0], -1))
        for side in (stationary, moving)
    )
    shape = dst.shape
    made = matrix_product(run, left, right).shaped(lambda array: array.reshape(shape))
    adds = call["accumulate"]
    if adds:
        made = run.sum_of(dst, made)
    elif adds is None:
        made = _partly(run, dst, made)
    return lambda: run.put(dst, made, where)


def _partly(run: Shadow, dst: Tile, made: Bounded) -> Bounded:
    """Added where a matmul was the last to write, and put elsewhere."""
    products = dst.storage.products
    started = None if products is None else pattern_view(products, dst.pattern, BOOL)
    if started is None or not started.any():
        return made
    held = run.stored_anyhow(dst)
    summed = bounded.add(held, made)
    error = np.zeros(()) if made.error is None else made.error
    other = np.zeros(()) if summed.error is None else summed.error
    return Bounded(
        np.where(started, summed.value, made.value),
        np.where(started, other, error),
        FLOAT32,
        summed.sums,
        summed.adds,
    )


# -- scans and moments -----------------------------------------------------------------------------


@rule("tensor_tensor_scan")
def tensor_tensor_scan(
    run: Shadow, call: Call, data0: Bounded, data1: Bounded, initial: Any
) -> Bounded:
    """A recurrence along the free axis, step by step."""

    def lines(array: Any) -> Any:
        return array.reshape(array.shape[0], -1)

    here, others = data0.shaped(lines), data1.shaped(lines)
    start = column(run.operand(initial), 2)
    partitions, length = here.value.shape
    state = start.shaped(lambda array: np.broadcast_to(array, (partitions, 1))[:, 0])
    value, error = np.empty((partitions, length)), np.zeros((partitions, length))
    for i in range(length):
        now, other = here.part((slice(None), i)), others.part((slice(None), i))
        left, right = (state, now) if call["reverse0"] else (now, state)
        partial = alu(run, call["op0"], left, right)
        left, right = (other, partial) if call["reverse1"] else (partial, other)
        state = alu(run, call["op1"], left, right)
        value[:, i] = state.value
        error[:, i] = 0.0 if state.error is None else state.error
    bound = error if error.any() else None
    made = Bounded(value, bound, FLOAT32)
    return made.shaped(lambda array: array.reshape(call.result.shape))


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
    return Bounded(value, np.concatenate(errors, axis=1), FLOAT32)


@rule("bn_stats")
def bn_stats(run: Shadow, call: Call, data: Bounded) -> Bounded:
    """Count, mean and variance * count of even, then of odd elements."""
    lines = data.shaped(lambda array: array.reshape(array.shape[0], -1))
    halves = [lines.part((slice(None), slice(k, None, 2))) for k in (0, 1)]
    return _beside([part for half in halves for part in _moments(run, half)])


@rule("bn_aggr")
def bn_aggr(run: Shadow, call: Call, data: Bounded) -> Bounded:
    """Mean and variance from the tuples of bn_stats."""
    lines = data.shaped(lambda array: array.reshape(array.shape[0], -1))
    count, mean, spreads = (lines.part((slice(None), slice(k, None, 3))) for k in range(3))
    everything = total(run, count, (1,), keepdims=True)
    weighted = total(run, bounded.multiply(count, mean), (1,), keepdims=True)
    centre = bounded.divide(weighted, everything)
    apart = bounded.subtract(mean, centre)
    between = bounded.multiply(count, bounded.multiply(apart, apart))
    variance = total(run, bounded.add(spreads, between), (1,), keepdims=True)
    return _beside([centre, bounded.divide(variance, everything)])
