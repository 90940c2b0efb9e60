"""Whether a spec can tell a kernel from an impostor: ``difftest verdict --audit PATH::TEST``.

The spec's own kernel runs on each case. Then its outputs are replaced by what an impostor gives
without computing anything: zeros, ones, NaN, an input, the mean of one. Each is compared as the
kernel's own outputs would be. A spec is weak if an impostor passes all cases that prove anything,
or if no case does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import click
import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity

from difftest.backends.base import Ran
from difftest.backends.embedded import EmbeddedSimulator
from difftest.cli.collecting import with_spec
from difftest.harness.case import Case
from difftest.harness.explicit import explicit_cases
from difftest.harness.runner import Runner, make_call, run_kernel, verdict_on
from difftest.harness.spec import KernelSpec
from difftest.harness.strategies import cases
from difftest.harness.verdict import Match
from difftest.simulator.dtypes import Array, is_float
from difftest.verdict.outcome import EXIT_CODES, Outcome

CASES, SEED = 50, 1
"""Drawn for the option, the same each time."""

Impostor = Callable[[Array, tuple[Array, ...]], Array]
"""Makes the values of an output of its shape and dtype, from the inputs."""


def _full(value: float) -> Impostor:
    def fill(output: Array, inputs: tuple[Array, ...]) -> Array:
        fits = is_float(output.dtype) or np.isfinite(value)
        return np.full(output.shape, value if fits else 0).astype(output.dtype)

    return fill


def _input(number: int) -> Impostor:
    def copy(output: Array, inputs: tuple[Array, ...]) -> Array:
        given = inputs[number % len(inputs)] if inputs else np.zeros(1)
        same = [one for one in inputs if one.shape == output.shape]
        chosen = same[number % len(same)] if same else given
        return np.resize(chosen.astype(np.float64), output.shape).astype(output.dtype)

    return copy


def _mean(output: Array, inputs: tuple[Array, ...]) -> Array:
    mean = np.mean(inputs[0].astype(np.float64)) if inputs else 0.0
    value = mean if is_float(output.dtype) or np.isfinite(mean) else 0
    return np.full(output.shape, value).astype(output.dtype)


IMPOSTORS: dict[str, Impostor] = {
    "zeros": _full(0.0),
    "ones": _full(1.0),
    "NaN": _full(np.nan),
    "the first input": _input(0),
    "the last input": _input(-1),
    "the mean of an input": _mean,
}


@dataclass
class Audit:
    """What impostors come to.

    Attributes
    ----------
    cases : that ran to a comparison. decided : of them, those that prove anything.
    passed : by impostor, of the cases that decide, how many it passes.
    reasons : why cases prove nothing.
    """

    cases: int = 0
    decided: int = 0
    passed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(IMPOSTORS, 0))
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


def audited(spec: KernelSpec, count: int, seed: int) -> Audit:
    """Run impostors against a spec: its examples, and drawn cases.

    Parameters
    ----------
    count : cases that are drawn.
    """
    audit, runner = Audit(), Runner((EmbeddedSimulator(),))
    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in explicit_cases(spec):
            _look(audit, runner, spec, case)
        look: Any = hypothesis.given(case=cases(spec))(
            lambda case: _look(audit, runner, spec, case)
        )
        hypothesis.seed(seed)(settings(look))()
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
    for name, impostor in IMPOSTORS.items():
        outputs = tuple(impostor(one, inputs) for one in outcome.outputs)
        unwritten = tuple(None for _ in outputs)
        made = replace(outcome, outputs=outputs, unwritten=unwritten)
        audit.passed[name] += isinstance(verdict_on(reference, made), Match)


# -- the option ------------------------------------------------------------------------------------


def _ask(context: click.Context, option: click.Parameter, test: str | None) -> None:
    """Audit the spec of a test in the place of judging a kernel by it, and end the command."""
    if test is None or context.resilient_parsing:
        return
    audit = with_spec(test, lambda spec: audited(spec, CASES, SEED))
    click.echo(f"{test}: {audit}")
    context.exit(EXIT_CODES[Outcome.WEAK_SPEC if audit.weaknesses else Outcome.AGREES])


audit_option = click.option(
    "--audit",
    metavar="PATH::TEST",
    is_eager=True,
    expose_value=False,
    callback=_ask,
    help="Judge no kernel: ask whether zeros, ones, NaN, an input or a mean pass this test.",
)
