"""An audit of a spec: whether fake outputs, such as zeros, pass it."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from difftest.simulator.dtypes import Array, is_float
from difftest.testing.backends.base import Completed
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.examples import examples
from difftest.testing.drawing.explicit import explicit_cases
from difftest.testing.harness.judging import verdict_on
from difftest.testing.harness.kernel_calls import make_call, run_kernel
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match

FIRST_INPUT = "the first input"
LAST_INPUT = "the last input"


def constant_outputs(output: Array, inputs: tuple[Array, ...]) -> dict[str, Array]:
    """Return fake outputs by name, each with the shape and dtype of an output."""
    same = [array for array in inputs if array.shape == output.shape]
    same = same or list(inputs) or [np.zeros(1)]
    first = (inputs or same)[0]
    values: dict[str, Any] = {
        "zeros": 0.0,
        "ones": 1.0,
        "NaN": np.nan,
        FIRST_INPUT: same[0],
        LAST_INPUT: same[-1],
        "the mean of an input": np.mean(first.astype(np.float64)),
    }
    wide = {
        name: np.resize(np.float64(value), output.shape)
        for name, value in values.items()
    }
    if not is_float(output.dtype):
        wide = {
            name: np.where(np.isfinite(value), value, 0) for name, value in wide.items()
        }
    return {name: value.astype(output.dtype) for name, value in wide.items()}


@dataclass
class Audit:
    """The result of an audit: how often fake outputs pass.

    Attributes
    ----------
    moves : whether the kernel only moves data, so that an input is a valid output.
    cases : number of cases that ran.
    decided : number of cases with an element that decides.
    passed : number of decided cases that pass, by the name of the fake outputs.
    reasons : why cases do not decide.
    """

    moves: bool = False
    cases: int = 0
    decided: int = 0
    passed: Counter[str] = field(default_factory=Counter)
    reasons: set[str] = field(default_factory=set)

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """The reasons why the spec is weak; empty if it is not."""
        if not self.decided:
            why = "; ".join(sorted(self.reasons)) or "no case ran to a comparison"
            return (f"none of {self.cases} cases decides: {why}",)
        return tuple(
            f"{name} in the place of the kernel's outputs: all {count} cases that decide pass"
            for name, count in self.passed.items()
            if count == self.decided and not self._is_valid(name)
        )

    def _is_valid(self, name: str) -> bool:
        """Return whether the outputs of this name are right for a kernel that only moves data."""
        return self.moves and name in (FIRST_INPUT, LAST_INPUT)

    def __str__(self) -> str:
        lines = [f"{self.cases} cases, {self.decided} of them decide"]
        lines += [
            f"  {count:4} of them pass with {name}"
            for name, count in self.passed.items()
        ]
        lines += [f"weak: {text}" for text in self.weaknesses] or [
            "no fake output passes all of them"
        ]
        return "\n".join(lines)


def audit_spec(spec: KernelSpec, count: int) -> Audit:
    """Judge fake outputs by a spec, on its examples and on drawn cases that are always the same."""
    audit = Audit(moves=spec.reduction == 0)
    runner = Runner((EmbeddedSimulator(),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in [*explicit_cases(spec), *examples(cases(spec), count)]:
            _audit_case(audit, runner, spec, case)
    return audit


def _audit_case(audit: Audit, runner: Runner, spec: KernelSpec, case: Case) -> None:
    """Add one case to an audit."""
    reference = runner.reference(spec, case)
    call = make_call(spec, case, exact=runner.settings_of(spec, case))
    outcome = run_kernel(runner.backends[0], call)
    if isinstance(reference, Exception) or not isinstance(outcome, Completed):
        audit.reasons.add("the kernel or the reference refuses cases")
        return
    audit.cases += 1
    verdict = verdict_on(reference, outcome)
    if not (isinstance(verdict, Match) and verdict.elements):
        audit.reasons.add(getattr(verdict, "reason", "") or "the kernel is wrong")
        return
    audit.decided += 1
    unwritten = tuple(None for _ in outcome.outputs)
    inputs = tuple(reference.inputs.values())
    fakes = [constant_outputs(output, inputs) for output in outcome.outputs]
    for name in fakes[0]:
        result = outcome._replace(
            outputs=tuple(fake[name] for fake in fakes), unwritten=unwritten
        )
        audit.passed[name] += isinstance(verdict_on(reference, result), Match)
