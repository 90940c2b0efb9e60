"""Measure how often a correct kernel fails, and how soon a planted error is found.

``python -m tests.meta.campaign`` prints a table of tests/meta/operators.py: for each correct kernel
how many of its drawn cases are red, for each wrong one the first case that is. ``--cases`` is how
many are drawn, ``--seed`` from what, and names choose among the operators.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings

from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Inconclusive
from tests.meta.drawing import Enough
from tests.meta.operators import OPERATORS

ROUND = 500
"""Cases drawn for one seed; beyond that Hypothesis repeats itself more and more."""


@dataclass
class Findings:
    """The results of a kernel's cases.

    Attributes
    ----------
    counts : verdicts by kind.
    first : number of the first red case, from 1, its question and the report.
    unsure : the inconclusive cases.
    """

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    first: tuple[int, str, str] | None = None
    unsure: list[Case] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(
            f"{count} {kind}" for kind, count in sorted(self.counts.items())
        )
        return counts + (
            f"; first red: case {self.first[0]}, {self.first[1]}" if self.first else ""
        )


def drawn(
    spec: KernelSpec,
    count: int,
    seed: int = 0,
    ends: Callable[[Case], bool] = lambda case: False,
) -> list[Case]:
    """Return drawn cases, up to the first for which ``ends`` is true; equal in each run."""
    found: list[Case] = []
    ended = False
    while len(found) < count and not ended:

        @hypothesis.seed(seed)
        @settings(
            max_examples=min(ROUND, count - len(found)),
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            backend=BACKEND,
        )
        @hypothesis.given(cases(spec))
        def draw(case: Case) -> None:
            nonlocal ended
            if not ended:
                found.append(case)
                ended = ends(case)
            if ended:
                raise Enough

        with contextlib.suppress(Enough):
            draw()
        seed += 1
    return found[:count]


def examined(
    spec: KernelSpec, count: int, seed: int = 0, *, until_red: bool = False
) -> Findings:
    """Run drawn cases of a spec on the embedded simulator."""
    runner = Runner((EmbeddedSimulator(),), verbose=True)
    findings, numbers = Findings(), itertools.count(1)

    def is_red(case: Case) -> bool:
        number = next(numbers)
        try:
            (verdict,) = runner.check(spec, case).values()
            findings.counts[type(verdict).__name__.lower()] += 1
            if isinstance(verdict, Inconclusive):
                findings.unsure.append(case)
        except DifferentialFailure as failure:
            (wrong,) = failure.verdicts.values()
            findings.counts["red"] += 1
            question: Any = getattr(wrong, "question", "")
            findings.first = findings.first or (number, question, str(failure))
        return until_red and findings.first is not None

    drawn(spec, count, seed, is_red)
    return findings


def main() -> int:
    """Print the table; 1 if a correct kernel was red or a planted error was not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operators; all by default")
    parser.add_argument(
        "--cases", type=int, default=1000, help="of each correct kernel"
    )
    parser.add_argument(
        "--planted-cases", type=int, default=50, help="of each wrong one"
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    failed = False
    for name in given.names or OPERATORS:
        operator = OPERATORS[name]
        findings = examined(operator.spec(), given.cases, given.seed)
        print(f"{name}: {findings}", flush=True)
        if findings.first is not None:
            failed = True
            print(findings.first[2], flush=True)
        for kernel, question in operator.planted.items():
            spec = operator.spec(kernel)
            found = examined(spec, given.planted_cases, given.seed, until_red=True)
            print(f"  {spec.name}: {found}", flush=True)
            failed |= found.first is None or found.first[1] != question
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
