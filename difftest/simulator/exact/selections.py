"""Error rules of selections and searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.exact.bounded import Bounded, between, ends, number
from difftest.simulator.exact.elementwise import alu, chosen_from, column, compared, doubtful_truth
from difftest.simulator.exact.shadow import Shadow, rule
from difftest.simulator.exact.sums import registers
from difftest.simulator.instructions import topk as snakes
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.carrying import holds
from difftest.simulator.instructions.record import Call, Masked
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.instructions.values import rows


@rule("affine_select")
def affine_select(
    run: Shadow, call: Call, on_true_tile: Bounded, pred: Any, on_false_value: Any
) -> Bounded:
    """One side or the other by index."""
    chosen = call["cmp_op"].compute(pred.array(), 0)
    if chosen.size == on_true_tile.value.size:
        chosen = chosen.reshape(on_true_tile.value.shape)
    return chosen_from(chosen, None, on_true_tile, number(on_false_value))


@rule("range_select")
def range_select(
    run: Shadow, call: Call, on_true_tile: Bounded, bound0: Bounded, bound1: Bounded
) -> tuple[Any, Any]:
    """One side or the other by whether the index lies between two bounds."""
    shape = on_true_tile.value.shape
    places = call["range_start"] + np.arange(on_true_tile.value[0].size, dtype=np.float64)
    index = Bounded(places.reshape(1, *shape[1:]), None, FLOAT32)
    sides = [
        compared(run, call[op], index, column(bound, len(shape)))
        for op, bound in (("comp_op0", bound0), ("comp_op1", bound1))
    ]
    both = alu(run, ALU_OPS["logical_and"], *sides)
    chosen, other = both.value != 0, number(call["on_false_value"])
    made = chosen_from(chosen, doubtful_truth(both), on_true_tile, other)
    command: Accumulate = call["reduce_cmd"]
    if "reduce_res" in call.destinations and command is Accumulate.IDLE:
        command = Accumulate.RESET_REDUCE
    return made, registers(run, "vector", made, call["reduce_op"], command)


@rule("select_reduce")
def select_reduce(
    run: Shadow, call: Call, on_true: Bounded, predicate: Bounded, on_false: Any
) -> tuple[Any, Any]:
    """One side or the other by an integer predicate, and the largest."""
    run.sure(predicate)
    shape = on_true.value.shape
    other = column(run.operand(on_false), len(shape))
    made = chosen_from(holds(call, predicate.value).reshape(shape), None, on_true, other)
    made = made.shaped(lambda array: array.reshape(call.result.shape))
    return made, registers(run, "vector", made, call["reduce_op"], call["reduce_cmd"])


@rule("where")
def where(run: Shadow, call: Call, condition: Bounded, x: Any, y: Any) -> Bounded:
    """One side or the other by a condition, which may be a rounded value."""
    doubtful = doubtful_truth(condition)
    if doubtful is not None and not doubtful.any():
        doubtful = None
    if doubtful is not None:
        run.doubt("a rounded value decides", lost=False)
    return chosen_from(condition.value != 0, doubtful, run.operand(x), run.operand(y))


# -- searches --------------------------------------------------------------------------------------


@rule("max8")
def max8(run: Shadow, call: Call, src: Bounded) -> Bounded:
    """The k-th largest of all ends is an end of the k-th largest."""
    lines = src.shaped(rows)
    value, low, high = (
        -np.sort(-numbers, axis=1)[:, :8] for numbers in (lines.value, *ends(lines))
    )
    error = None if lines.error is None else between(value, low, high)
    return Bounded(value, error, src.dtype, src.sums)


@rule("topk")
def topk(run: Shadow, call: Call, src: Bounded) -> Masked:
    """Of rounded values the machine may take others; those that it takes keep their errors."""
    lines = src.shaped(rows).shaped(lambda array: snakes.snakes(call, array)[:, : call["n"]])
    if src.error is not None:
        run.doubt("places of rounded values are looked up", lost=False)
    chosen = snakes.largest(call, lines.value)
    made = lines.shaped(
        lambda array: snakes.laid(call, np.take_along_axis(array, chosen, axis=1)).values
    )
    return Masked(made, snakes.laid(call, chosen).chosen)  # type: ignore[arg-type]
