"""How many digits a kernel may lose: what its task excuses, whatever its own instructions do.

A bound that follows from a kernel's steps forgives a step that is there to be forgiven, such as to
add a large number and to take it away again. The task knows none of these steps.
"""

from __future__ import annotations

import numpy as np

from difftest.backends.base import Backend, KernelCall, Ran
from difftest.harness.compare import around, check_values
from difftest.harness.questions import ARITHMETIC, EXCUSED_UNITS, FLOAT32_UNIT, Reference
from difftest.harness.rounding import Array, is_float, unit_roundoff
from difftest.harness.runner import Runner, Trial
from difftest.harness.verdict import Mismatch
from difftest.simulator.dtypes import NKI_NAMES

_TERMS = 2.0**11
"""Of a sum whose roundings the factor covers: they move it by the square root of half as many times
what half a unit of each term does."""


class StrictRunner(Runner):
    """A runner that asks of each output whether its task excuses it, too."""

    def suspected(
        self, trial: Trial, backend: Backend, call: KernelCall, ran: Ran
    ) -> Mismatch | None:
        """Or the first output that has lost too many digits."""
        wrong = super().suspected(trial, backend, call, ran)
        reference, exact = trial.reference, ran.exact
        if wrong or not isinstance(reference, Reference) or exact is None or not exact.has_meaning:
            return wrong
        values = reference.precise if exact.doubts else [one.value for one in exact.outputs]
        wrongs = (
            coarse(reference, index, got, value.astype(np.float64))
            for index, (got, value) in enumerate(zip(ran.outputs, values, strict=False))
        )
        return next(filter(None, wrongs), None)


def coarse(reference: Reference, index: int, got: Array, value: Array) -> Mismatch | None:
    """What is wrong with an output that is farther from its values than its task excuses.

    That is how far the reference moves where its inputs move by half a unit of the coarsest dtype
    of the contract, and half a unit of each value, times a small factor and the growth of a sum.
    """
    spec, case, dtype = reference.spec, reference.case, reference.dtype_of(index)
    if not is_float(dtype) or got.shape != value.shape or not got.size:
        return None
    names = [dtype.name, spec.accumulation, *(case.dtype_of(name) for name in spec.inputs)]
    unit = max(unit_roundoff(one) for name in names if is_float(one := NKI_NAMES[name]))
    terms = max((array.size for array in reference.inputs.values()), default=0) / got.size
    factor = unit * EXCUSED_UNITS * max(1.0, terms / _TERMS) ** 0.5
    known = np.isfinite(value) & np.isfinite(got.astype(np.float64))
    value = np.where(known, value, got)
    allowed = factor * np.where(known, np.abs(value), 0.0) + np.finfo(np.float32).tiny
    wrong = check_values(index, around(value, dtype, allowed, ARITHMETIC), got)
    if isinstance(wrong, Mismatch) and reference.swings is not None:
        allowed = allowed + factor / FLOAT32_UNIT * reference.swings[index]
        wrong = check_values(index, around(value, dtype, allowed, ARITHMETIC), got)
    return wrong if isinstance(wrong, Mismatch) else None
