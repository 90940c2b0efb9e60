"""Reductions, scans and statistics: one element after the other, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32, as_dtype, is_float
from difftest.simulator.errors import KernelError, LimitError, ShapeError
from difftest.simulator.frontend.arguments import reduce_cmd
from difftest.simulator.frontend.classic.destination import AwaitsTarget, assignment_target
from difftest.simulator.plain import rules
from difftest.simulator.plain.elementwise import OPERAND, binary, each_element
from difftest.simulator.plain.indices import Shape, integers, mask_over
from difftest.simulator.plain.meanings import means, meant
from difftest.simulator.plain.operators import (
    BITVEC,
    LOGICAL,
    REDUCING,
    UNARY,
    apply,
    math_operator,
    number_as_float32,
    operator_of,
    vector_operator,
)
from difftest.simulator.plain.registers import accumulate_lanes
from difftest.simulator.plain.rounding import Array, promoted, to_float32, wrapped
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainTensor
from difftest.simulator.strictness import note
from difftest.simulator.trace import Space


def fold(op: str, lanes: Array, where: Array) -> Array:
    """Each row's elements combined from the first to the last that ``where`` keeps.

    ``lanes`` [rows, n] are bit patterns for bitvec operators, else float32.
    """
    lanes = lanes != 0 if op in LOGICAL else lanes
    total, started = lanes[:, 0].copy(), where[:, 0].copy()
    for column, kept in zip(lanes.T[1:], where.T[1:], strict=True):
        combined = apply(op, total, column).astype(lanes.dtype)
        total = np.where(kept & started, combined, np.where(kept, column, total))
        started |= kept
    return total


def _free_axes(axis: Any, data: PlainTensor, where: str) -> tuple[int, ...]:
    """The reduced axes, ascending: free ones."""
    given = integers(axis, f"{where}'s axis")
    axes = sorted(number + data.ndim if number < 0 else number for number in given)
    fits = all(0 < one < data.ndim for one in axes) and len(set(axes)) == len(axes)
    rules.require(fits, f"{where} reduces free axes", axis, data)
    return tuple(axes)


def _reduced(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return kept if len(kept) > 1 else (*kept, 1)


def _rows_of(array: Array, axes: tuple[int, ...]) -> Array:
    """The array as [everything else, what is reduced], in order."""
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    moved = array.transpose(*kept, *axes)
    count = int(np.prod([array.shape[axis] for axis in axes]))
    return moved.reshape(-1, count)


def _reduce(
    op: str,
    data: PlainTensor,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    mask: Any,
    shape: Shape,
    *,
    negate: bool = False,
) -> PlainTensor:
    where = mask_over(mask, data.shape)
    elements, holes = data.readable(where, carries=bool(where.all()))
    lanes = elements if op in BITVEC else to_float32(elements)
    kept = _rows_of(where, axes)
    total = fold(op, _rows_of(lanes, axes), kept)
    if negate:
        total = -to_float32(total)
    lost = np.any(_rows_of(holes, axes), axis=1)
    if lost.all():
        data.read(where)  # raises: no element of the result follows from what was written alone
    result = current().allocate(shape, dtype)
    written = np.any(kept, axis=1).reshape(shape)
    values = wrapped(total, dtype) if op in BITVEC else total
    result.put(values.reshape(shape), written)
    result.leave_out(written)
    result.forget(lost.reshape(shape))
    return result


@means(
    "nisa.tensor_reduce",
    op=operator_of(*REDUCING),
    data=rules.tile(),
    dtype=rules.dtype,
)
def tensor_reduce(
    op: str, data: PlainTensor, axis: Any, mask: Any, dtype: Any, negate: bool, keepdims: bool
) -> PlainTensor:
    """A reduction of the last free axes."""
    axes = _free_axes(axis, data, "tensor_reduce")
    if axes != tuple(range(data.ndim - len(axes), data.ndim)):
        error = ShapeError(
            "tensor_reduce reduces the last consecutive axes of the tile",
            happened=f"tensor_reduce was to reduce axes {list(axes)}",
            received=repr(data),
        )
        note(error)
    result = dtype or data.dtype
    if op in BITVEC:
        rules.integers_only("tensor_reduce", data.dtype, result)
        rules.require(not negate, "negate goes with arithmetic operators", op, error=KernelError)
    shape = _reduced(data.shape, axes, keepdims)
    return _reduce(op, data, axes, result, mask, shape, negate=negate)


@means(
    "nisa.tensor_partition_reduce",
    op=operator_of("add", "maximum", "bitwise_or", "bitwise_and"),
    data=rules.tile(Space.SBUF),
    dtype=rules.dtype,
)
def tensor_partition_reduce(op: str, data: PlainTensor, mask: Any, dtype: Any) -> PlainTensor:
    """A reduction across partitions, on the GpSimd Engine."""
    result = dtype or data.dtype
    if op in BITVEC:
        rules.integers_only("tensor_partition_reduce", data.dtype, result)
    return _reduce(op, data, (0,), result, mask, (1, *data.shape[1:]))


@means(
    "nisa.tensor_scalar_reduce",
    data=rules.tile(),
    op0=math_operator,
    operand0=OPERAND,
    reduce_op=operator_of("add", "subtract", "multiply", "maximum", "minimum"),
    reduce_res=rules.tile(),
    reverse0=rules.absent,
    dtype=rules.dtype,
)
def tensor_scalar_reduce(
    data: PlainTensor,
    op0: str,
    operand0: Any,
    reduce_op: str,
    reduce_res: PlainTensor,
    reverse0: None,
    dtype: Any,
    mask: Any,
) -> PlainTensor:
    """``data <op0> operand0``, and its reduction along the free axes into ``reduce_res``."""
    where = "tensor_scalar_reduce"
    rules.require(op0 not in BITVEC, f"{where} takes arithmetic", op0, error=KernelError)
    operand = rules.one_element_each(operand0, data, where)
    into_fits = reduce_res.shape[0] == reduce_res.size == data.shape[0]
    rules.require(into_fits, f"{where}'s reduce_res is [P, 1]", reduce_res)
    operands = (data, operand) if isinstance(operand, PlainTensor) else (data,)
    results: list[Array] = []

    def compute(x: Array, *vectors: Array) -> Array:
        y = vectors[0] if vectors else number_as_float32(operand)
        results.append(apply(op0, x, y))
        return results[0]

    dst = each_element(data.shape, dtype or data.dtype, operands, compute, mask)
    if reduce_op != "subtract":
        accumulate_lanes(
            "vector", data.shape, results, reduce_op, reduce_cmd.reset_reduce, reduce_res, mask, dst
        )
        return dst
    kept = mask_over(mask, data.shape)
    lanes = np.zeros(data.shape, np.float32)
    gone = np.zeros(data.shape, np.bool_) if dst.storage.masked else dst.missing()
    lanes[kept & ~gone] = to_float32(results[0]) if results else 0
    kept = kept.reshape(data.shape[0], -1)
    total = fold(reduce_op, lanes.reshape(kept.shape), kept)
    rows = kept.any(axis=1).reshape(reduce_res.shape)
    reduce_res.put(total.reshape(reduce_res.shape), rows)
    reduce_res.leave_out(rows)
    reduce_res.forget(gone.reshape(data.shape[0], -1).any(axis=1).reshape(reduce_res.shape))
    return dst


# -- nl.sum and kin -------------------------------------------------------------------------------


def _sum_meaning(op: str) -> Callable[..., PlainTensor]:
    def meaning(x: PlainTensor, axis: Any, dtype: Any, mask: Any, keepdims: bool) -> PlainTensor:
        return reduce_free(op, x, axis, dtype or x.dtype, mask, keepdims=keepdims)

    return meaning


def reduce_free(
    op: str, x: PlainTensor, axis: Any, dtype: np.dtype[Any], mask: Any = None, *, keepdims: bool
) -> PlainTensor:
    """A reduction of any free axes."""
    axes = _free_axes(axis, x, f"reduction with {op}")
    return _reduce(op, x, axes, dtype, mask, _reduced(x.shape, axes, keepdims))


for _name, _op in (("max", "maximum"), ("min", "minimum"), ("sum", "add"), ("prod", "multiply")):
    means(f"nl.{_name}", x=rules.tile(), dtype=rules.dtype)(_sum_meaning(_op))


@means("nl.mean", x=rules.tile(), dtype=rules.dtype)
def mean(x: PlainTensor, axis: Any, dtype: Any, mask: Any, keepdims: bool) -> PlainTensor:
    """The sum in float32 times one over the number of elements of the unmasked tile."""
    total = reduce_free("add", x, axis, FLOAT32, mask, keepdims=keepdims)
    result = dtype or (x.dtype if is_float(x.dtype) else FLOAT32)
    return binary("multiply", total, 1.0 / (x.size // total.size), result)


@means("nl.var", x=rules.tile(), dtype=rules.dtype)
def var(x: PlainTensor, axis: Any, dtype: Any, mask: Any) -> PlainTensor:
    """The mean of the squared differences from the mean, in float32."""
    centre = mean(x, axis, FLOAT32, mask, True)
    away = binary("subtract", x, centre, FLOAT32)
    return mean(binary("multiply", away, away, FLOAT32), axis, dtype or x.dtype, None, False)


@means("nl.softmax", x=rules.tile(), dtype=rules.dtype, compute_dtype=rules.dtype)
def softmax(x: PlainTensor, axis: Any, dtype: Any, compute_dtype: Any, mask: Any) -> PlainTensor:
    """``exp(x - max) / sum(exp(x - max))``, in float32."""
    peak = reduce_free("maximum", x, axis, FLOAT32, mask, keepdims=True)
    shifted = binary("subtract", x, peak, FLOAT32)
    power = meant("nl.exp", x=shifted, dtype=FLOAT32, mask=None)
    total = reduce_free("add", power, axis, FLOAT32, keepdims=True)
    scale = meant("nl.reciprocal", x=total, dtype=None, mask=None)
    return binary("multiply", power, scale, dtype or compute_dtype or x.dtype)


@means("nl.loop_reduce", x=rules.tile(), op=math_operator)
def loop_reduce(x: PlainTensor, op: str, loop_indices: Any, dtype: Any, mask: Any) -> Any:
    """``b = nl.loop_reduce(x, op, [i])`` is ``b = b <op> x``, in place."""

    def into(target: PlainTensor) -> Any:
        wanted = target.dtype if dtype is None else as_dtype(dtype)
        return meant(
            "in place", target=target, op=op, other=x, mask=mask, begins=True, dtype=wanted
        )

    target = assignment_target("nl.loop_reduce", PlainTensor)
    return AwaitsTarget("nl.loop_reduce", into) if target is None else into(target)


# -- scans and statistics -------------------------------------------------------------------------


def _scan_operator(op: Any, name: str, where: str) -> str:
    """A role: a binary arithmetic operator of the Vector Engine."""
    found = vector_operator(op, name, where)
    fits = found not in BITVEC and found not in UNARY
    rules.require(fits, f"{where} takes binary arithmetic operators", found, error=KernelError)
    return found


@means(
    "nisa.tensor_tensor_scan",
    data0=rules.tile(),
    data1=rules.tile(),
    initial=OPERAND,
    op0=_scan_operator,
    op1=_scan_operator,
    dtype=rules.dtype,
)
def tensor_tensor_scan(
    data0: PlainTensor,
    data1: PlainTensor,
    initial: Any,
    op0: str,
    op1: str,
    reverse0: bool,
    reverse1: bool,
    dtype: Any,
    mask: Any,
) -> PlainTensor:
    """``r[i] = (data0[i] <op0> r[i-1]) <op1> data1[i]`` over the free elements in order."""
    where = "tensor_tensor_scan"
    rules.not_both_in_psum(where, data0, data1)
    rules.same_elements(where, data0, data1)
    start = rules.one_element_each(initial, data0, where)
    chosen = mask_over(mask, data0.shape)
    rows = chosen.reshape(data0.shape[0], -1)
    carries, gone = bool(chosen.all()), np.zeros(rows.shape, np.bool_)
    sides = []
    for tile in (data0, data1):
        held, holes = tile.readable(chosen.reshape(tile.shape), carries=carries)
        sides.append(to_float32(held).reshape(rows.shape))
        line = np.logical_or.accumulate(holes.reshape(rows.shape), axis=1)
        if line.all():
            tile.read()  # raises: no element of the result follows from what was written alone
        gone |= line
    first, second = sides
    if isinstance(start, PlainTensor):
        held, holes = start.readable(np.any(rows, axis=1, keepdims=True), carries=carries)
        state: Array = to_float32(held).reshape(-1)
        gone |= holes.reshape(-1, 1)
    else:
        state = np.full(len(rows), number_as_float32(start))
    result = np.zeros(rows.shape, np.float32)
    for i, kept in enumerate(rows.T):
        x, y = first[:, i], second[:, i]
        partial = apply(op0, state, x) if reverse0 else apply(op0, x, state)
        new = to_float32(apply(op1, y, partial) if reverse1 else apply(op1, partial, y))
        state = np.where(kept, new, state)
        result[:, i] = state
    dst = current().allocate(data0.shape, dtype or promoted(data0.dtype, data1.dtype))
    dst.put(result.reshape(dst.shape), chosen)
    dst.leave_out(chosen)
    dst.forget(gone.reshape(dst.shape))
    return dst


def _each_partition(
    data: PlainTensor, count: int, dtype: np.dtype[Any], mask: Any, compute: Callable[[Array], Any]
) -> PlainTensor:
    """``compute`` of each partition's unmasked elements: [P, count]."""
    chosen = mask_over(mask, data.shape).reshape(data.shape[0], -1)
    held, holes = data.rows().readable(chosen, carries=bool(chosen.all()))
    rows, lost = to_float32(held), np.any(holes, axis=1)
    if lost.all():
        data.read()  # raises: no element of the result follows from what was written alone
    result = current().allocate((data.shape[0], count), dtype)
    values = np.zeros(result.shape, np.float32)
    for p, (row, kept) in enumerate(zip(rows, chosen, strict=True)):
        if kept.any() and not lost[p]:
            values[p] = compute(row[kept])
    written = np.broadcast_to(chosen.any(axis=1, keepdims=True), result.shape)
    result.put(values, written)
    result.leave_out(written)
    result.forget(np.broadcast_to(lost[:, None], result.shape))
    return result


def _total(values: Array) -> Any:
    """A sum from left to right in float32."""
    total = np.float32(0)
    for value in values:
        total = total + value
    return total


def _moments(values: Array) -> list[Any]:
    count = np.float32(len(values))
    average = _total(values) / count if len(values) else np.float32(0)
    return [count, average, _total((values - average) ** 2)]


@means("nisa.bn_stats", data=rules.tile(), dtype=rules.dtype)
def bn_stats(data: PlainTensor, mask: Any, dtype: Any) -> PlainTensor:
    """Count, mean and variance * count of the even elements, then of the odd ones."""
    chosen = mask_over(mask, data.shape).reshape(data.shape[0], -1)
    most = current().machine.bn_stats_fmax
    rules.require(
        chosen.shape[1] <= most,
        f"bn_stats takes at most {most} elements",
        data,
        error=LimitError,
    )
    return _each_partition(
        data,
        6,
        dtype or data.dtype,
        mask,
        lambda row: _moments(row[0::2]) + _moments(row[1::2]),
    )


def _aggregate(row: Array) -> list[Any]:
    rules.require(len(row) % 3 == 0, "bn_aggr takes tuples of three", f"{len(row)} elements")
    count, average, spread = row[0::3], row[1::3], row[2::3]
    total = _total(count)
    centre = _total(count * average) / total
    return [centre, _total(spread + count * (average - centre) ** 2) / total]


@means("nisa.bn_aggr", data=rules.tile(), dtype=rules.dtype)
def bn_aggr(data: PlainTensor, mask: Any, dtype: Any) -> PlainTensor:
    """Mean and variance from tuples of bn_stats."""
    return _each_partition(data, 2, dtype or data.dtype, mask, _aggregate)


def largest_eight(row: Array) -> Array:
    """The 8 largest values, descending."""
    return -np.sort(-row)[:8]


@means("nisa.max8", src=rules.tile(), dtype=rules.dtype)
def max8(src: PlainTensor, mask: Any, dtype: Any) -> PlainTensor:
    """The 8 largest values of each partition."""
    check_length("max8", src, mask)
    return _each_partition(src, 8, dtype or src.dtype, mask, largest_eight)


def check_length(where: str, data: PlainTensor, mask: Any) -> None:
    """8 to 16384 elements in each partition, and in each of which a mask leaves something."""
    chosen = mask_over(mask, data.shape).reshape(data.shape[0], -1).sum(axis=1)
    least, most = current().machine.max8_range
    counts = np.append(chosen[chosen > 0], data.rows().shape[1])
    fits = ((least <= counts) & (counts <= most)).all()
    rules.require(bool(fits), f"{where}: {least} to {most} elements", data, error=LimitError)
