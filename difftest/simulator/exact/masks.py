"""Reductions under masks that are no box: what is left out of them changes nothing."""

from __future__ import annotations

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.exact.bounded import Bounded
from difftest.simulator.instructions.record import Call
from difftest.simulator.instructions.unboxed import NEUTRAL, first_to_front


def left_by_mask(call: Call, data: Bounded, inner: Array) -> Bounded:
    """The operand of a reduction which does not notice what a mask leaves out of it."""
    if call["op"].name == "subtract":
        assert call.instruction.reduced is not None
        axes = call.instruction.reduced(call)
        return data.shaped(lambda array: first_to_front(array, inner, axes))
    value = np.where(inner, data.value, float(NEUTRAL[call["op"].name]))
    error = None if data.error is None else np.where(inner, data.error, 0.0)
    return Bounded(value, error, data.dtype, data.sums, data.adds)
