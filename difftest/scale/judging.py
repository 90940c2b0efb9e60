"""What comes of a kernel at one point: a row of plain values."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
from hypothesis import HealthCheck

from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.case import Case
from difftest.harness.failures import (
    BrokenReferenceError,
    DifferentialFailure,
    failure_of,
    line_of,
)
from difftest.harness.nature import Nature, nature_of
from difftest.harness.runner import Runner
from difftest.harness.spec import KernelSpec, elements_of
from difftest.harness.strategies import cases_like
from difftest.harness.verdict import BothRejected, Match, Verdict
from difftest.inspection import fails
from difftest.scale.placing import PlacedSpec, placed
from difftest.verdict.judge import outcome_of
from difftest.verdict.judgement import Judgement
from difftest.verdict.outcome import Outcome
from difftest.verdict.prediction import add_memory, add_time

_TIMES = ("predicted_us", "low_us", "high_us", "limited_by", "caution")

_TRIES, _BYTES = 10, 2**14
"""For each case so many draws are tried, each from so many random bytes."""
_SAMPLES = 9
"""Cases on which a reference shows its nature."""


def cases_of(spec: KernelSpec, nature: Nature, count: int) -> list[Case]:
    """So many cases, or all that are soon found, the smallest first; the same in each process.

    They are made of random bytes, always the same. What Hypothesis draws by itself depends on the
    numbers in whatever modules a process has imported.
    """
    drawn: dict[str, Case] = {}

    @hypothesis.settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @hypothesis.given(cases_like(spec, nature))
    def keep(case: Case) -> None:
        drawn.setdefault(case.to_json(), case)

    draw: Callable[[bytes], object] = keep.hypothesis.fuzz_one_input  # type: ignore[attr-defined]
    for number in range(_TRIES * count):
        if len(drawn) == count:
            break
        draw(random.Random(number).randbytes(_BYTES))
    if not drawn:
        raise ValueError("none is found soon")
    return sorted(drawn.values(), key=lambda case: elements_of(spec, case.values))


@dataclass
class PointJudge:
    """Judges a spec at points.

    Attributes
    ----------
    count : cases drawn at each point.
    """

    spec: KernelSpec
    count: int
    _natures: dict[str | None, Nature] = field(default_factory=dict)

    def row(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Run drawn cases at a point, the smallest first, and predict the time of the largest.

        docs/how-to/sweep.md says what each column is.
        """
        began, judgement = time.monotonic(), Judgement({"name": self.spec.name}, "", 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                place = placed(self.spec, point)
                judgement.kernel = {"name": place.spec.name}
                drawn = cases_of(place.spec, self._nature(place.spec), self.count)
            except Exception as error:  # a function of the domain, Hypothesis, names together
                judgement.outcome = Outcome.INCONCLUSIVE
                told = f"no case can be drawn: {type(error).__name__}: {error}"
                judgement.reason = told.splitlines()[0]
            else:
                with place.in_place():
                    judge_cases(place, drawn, judgement)
        return {**row_of(judgement), "seconds": time.monotonic() - began}

    def _nature(self, spec: KernelSpec) -> Nature:
        """Of the reference over the whole domain, found once, for the dtypes of the spec."""
        if spec.reduction == 0:
            return Nature(moves=True, selects=True)
        if spec.machine not in self._natures:
            whole = replace(self.spec, machine=spec.machine)
            samples = cases_of(whole, Nature(), _SAMPLES)
            self._natures[spec.machine] = nature_of(whole, samples)
        found = self._natures[spec.machine]
        known = found.exponents.items()
        return replace(found, exponents={name: e for name, e in known if name in spec.dtypes})


def judge_cases(place: PlacedSpec, drawn: list[Case], judgement: Judgement) -> None:
    """Judge these cases in their order; memory and time are those of the last, if all agree."""
    runner, last = Runner((EmbeddedSimulator(place.level),)), drawn[-1]
    for case in drawn:
        runner.record = case is last
        if not _agrees(runner, place.spec, case, judgement):
            return
    judgement.case = last.to_json()
    for _, case, one in runner.hazards:
        judgement.add("hazards", one)
        if fails(one, strict=False) and judgement.outcome is Outcome.AGREES:
            judgement.outcome, judgement.case = Outcome.HAZARD, case.to_json()
            judgement.reason = one.happened
    if not judgement.evidence.decided:
        reasons = "; ".join(sorted(runner.tally.reasons))
        judgement.outcome = Outcome.WEAK_SPEC
        judgement.reason = f"no case has an element that decides{': ' * bool(reasons)}{reasons}"
    for trace in runner.traces.values():
        add_memory(judgement, trace)
        if judgement.outcome is Outcome.AGREES:
            add_time(judgement, trace, last, place.spec)
            judgement.reason = judgement.reason or "; ".join(judgement.notes)


def _agrees(runner: Runner, spec: KernelSpec, case: Case, judgement: Judgement) -> bool:
    """Whether a case is right, or proves nothing; what is wrong with it is told."""
    judgement.evidence.cases += 1
    checked: dict[str, Verdict] = {}
    failure = failure_of(lambda: checked.update(runner.check(spec, case)))
    for verdict in checked.values():
        if isinstance(verdict, BothRejected):
            runner.tally.reasons[f"both refuse: {verdict.kernel_error}".splitlines()[0]] += 1
        judgement.evidence.decided += isinstance(verdict, Match) and verdict.elements > 0
    if failure is not None:
        judgement.case, judgement.reason = case.to_json(), line_of(failure)
        if isinstance(failure, DifferentialFailure):
            judgement.outcome = outcome_of(failure.verdict)
            for one in failure.findings:
                judgement.add("hazards", one)
        elif isinstance(failure, BrokenReferenceError):
            judgement.outcome, judgement.reason = Outcome.INCONCLUSIVE, failure.title()
    return failure is None


def row_of(judgement: Judgement) -> dict[str, Any]:
    """What a row has of a judgement; None where nothing is known."""
    times = judgement.time or {}
    bounds = [times[name] for name in ("arithmetic_bound_us", "memory_bound_us") if times]
    peaks = {"sbuf": None, "psum": None}
    for one in judgement.memory:
        peaks[one["memory"]] = max(one["needed"], peaks[one["memory"]] or 0)
    return {
        "kernel": judgement.kernel["name"],
        "outcome": judgement.outcome.value,
        "reason": judgement.reason,
        "findings": sorted({one["id"] for one in judgement.findings}),
        "cases": judgement.evidence.cases,
        "case": judgement.case,
        **{name: times.get(name) for name in _TIMES},
        "bound_us": max(bounds, default=None),
        **{f"{name}_bytes": needed for name, needed in peaks.items()},
    }
