"""Selections by predicates, bounds and conditions; elements left out by chance."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.oracle.numbers import to_float32
from difftest.simulator.oracle.operators import apply
from difftest.simulator.oracle.places import Literal
from difftest.simulator.oracle.use import Made, Use, accumulated, means


@means("affine_select")
def affine_select(use: Use) -> Made:
    """``on_true_tile`` where an affine value of the indices compares with 0, else a number."""
    data, pred = use["on_true_tile"], use["pred"]
    pred = pred.reshape(data.shape) if pred.size == data.size else pred
    chosen = getattr(np, str(use.op("cmp_op")))(pred, 0)
    return Made(np.where(chosen, to_float32(data), np.float32(use["on_false_value"])))


@means("range_select")
def range_select(use: Use) -> tuple[Any, Any]:
    """``on_true_tile`` where the free index lies between two bounds, else the least float32."""
    rows = to_float32(use.rows("on_true_tile"))
    line = (use["range_start"] + np.arange(rows.shape[1])).astype(np.float32)[None]
    low, high = (to_float32(use.vector(name, 2)) for name in ("bound0", "bound1"))
    first, last = str(use.op("comp_op0")), str(use.op("comp_op1"))
    chosen = apply(first, line, low) & apply(last, line, high)
    result = np.where(chosen, rows, np.float32(use["on_false_value"]))
    # A result that is asked for with no command is of this instruction alone.
    alone = use["reduce_cmd"].name == "IDLE" and "reduce_res" in use.call.destinations
    if alone:
        command = type(use["reduce_cmd"]).RESET_REDUCE
        use.call.options, options = {**use.call.options, "reduce_cmd": command}, use.call.options
    held = accumulated(use, "vector", result, "maximum")
    if alone:
        use.call.options = options
    return Made(result.reshape(use.shape)), held


@means("select_reduce")
def select_reduce(use: Use) -> tuple[Any, Any]:
    """``predicate ? on_true : on_false``, and optionally its maximum a partition."""
    data = to_float32(use.rows("on_true"))
    chosen = (use.rows("predicate") != 0) ^ bool(use["reverse_pred"])
    result = np.where(chosen, data, to_float32(use.vector("on_false", 2)))
    return Made(result.reshape(use.shape)), accumulated(use, "vector", result, "maximum")


@means("where")
def where(use: Use) -> Made:
    """``condition ? x : y``; of one dtype bit by bit, else through float32."""
    same = all(use.dtype_of(name) == use.dtype for name in ("x", "y"))
    sides = [
        use[name] if same else to_float32(use.vector(name, 1) if number else use[name])
        for name in ("x", "y")
        for number in [not isinstance(use.literals[name], Literal)]
    ]
    return Made(np.where(use["condition"] != 0, *sides))


@means("dropout")
def dropout(use: Use) -> Made:
    """``data``, or 0 where the launch's random numbers say so: which, is taken from the launch."""
    data = use["data"]
    return Made(np.where(use.taken == 0, use.taken.astype(data.dtype), data))
