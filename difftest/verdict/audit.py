"""Whether a spec can tell a kernel from an impostor: ``difftest verdict --audit PATH::TEST``.

The spec's own kernel runs on each case. Then its outputs are replaced by what an impostor gives
without computing anything: zeros, ones, NaN, an input, the mean of one. Each is compared as the
kernel's own outputs would be. A spec is weak if an impostor passes all cases that prove anything,
or if no case does.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field, replace

import click
import numpy as np

from difftest.backends.base import Ran
from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.case import Case
from difftest.harness.explicit import explicit_cases
from difftest.harness.runner import Runner, make_call, run_kernel, verdict_on
from difftest.harness.spec import KernelSpec
from difftest.harness.strategies import cases, examples
from difftest.harness.verdict import Match
from difftest.host.collecting import with_spec
from difftest.simulator.dtypes import Array, is_float
from difftest.verdict.outcome import EXIT_CODES, Outcome

CASES = 50


def impostors(output: Array, inputs: tuple[Array, ...]) -> dict[str, Array]:
    """What each gives in the place of an output: values of its shape and dtype."""
    same = [one for one in inputs if one.shape == output.shape] or inputs or (np.zeros(1),)
    values = {
        "zeros": 0.0,
        "ones": 1.0,
        "NaN": np.nan,
        "the first input": same[0],
        "the last input": same[-1],
        "the mean of an input": np.mean((*inputs, same[0])[0].astype(np.float64)),
    }
    wide = {name: np.resize(np.float64(one), output.shape) for name, one in values.items()}
    if not is_float(output.dtype):
        wide = {name: np.where(np.isfinite(one), one, 0) for name, one in wide.items()}
    return {name: one.astype(output.dtype) for name, one in wide.items()}


@dataclass
class Audit:
    """What impostors come to, of the cases that ran to a comparison."""

    cases: int = 0
    decided: int = 0
    passed: Counter[str] = field(default_factory=Counter)
    reasons: set[str] = field(default_factory=set)

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """Why the spec is weak, in words; none if it is not."""
        if not self.decided:
            why = "; ".join(sorted(self.reasons)) or "no case ran to a comparison"
            return (f"none of {self.cases} cases decides: {why}",)
        return tuple(
            f"{name} in the place of the kernel's outputs: all {count} cases that decide pass"
            for name, count in self.passed.items()
            if count == self.decided
        )

    def __str__(self) -> str:
        lines = [f"{self.cases} cases, {self.decided} of them decide"]
        lines += [f"  {count:4} of them pass with {name}" for name, count in self.passed.items()]
        lines += [f"weak: {one}" for one in self.weaknesses] or ["no impostor passes all of them"]
        return "\n".join(lines)


def audited(spec: KernelSpec, count: int) -> Audit:
    """Run impostors against a spec: its examples, and drawn cases, the same each time."""
    audit, runner = Audit(), Runner((EmbeddedSimulator(),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in [*explicit_cases(spec), *examples(cases(spec), count)]:
            _look(audit, runner, spec, case)
    return audit


def _look(audit: Audit, runner: Runner, spec: KernelSpec, case: Case) -> None:
    """One case: the kernel's own outputs, then those of each impostor."""
    inputs = spec.inputs_of(case)
    reference = runner.reference(spec, case, inputs)
    call = replace(make_call(spec, case, inputs), exact=runner.settings_of(spec, case))
    outcome = run_kernel(runner.backends[0], call)
    if isinstance(reference, Exception) or not isinstance(outcome, Ran):
        audit.reasons.add("the kernel or the reference refuses cases")
        return
    audit.cases += 1
    verdict = verdict_on(reference, outcome)
    if not (isinstance(verdict, Match) and verdict.elements):
        audit.reasons.add(getattr(verdict, "reason", "") or "the kernel is wrong")
        return
    audit.decided += 1
    unwritten = tuple(None for _ in outcome.outputs)
    given = [impostors(one, inputs) for one in outcome.outputs]
    for name in given[0]:
        made = replace(outcome, outputs=tuple(one[name] for one in given), unwritten=unwritten)
        audit.passed[name] += isinstance(verdict_on(reference, made), Match)


def audit_test(test: str) -> int:
    """Audit the spec of a test, and say what came of it: the exit code of the command."""
    audit = with_spec(test, lambda spec: audited(spec, CASES))
    click.echo(f"{test}: {audit}")
    return EXIT_CODES[Outcome.WEAK_SPEC if audit.weaknesses else Outcome.AGREES]
