"""Counts of the cases that ran, by kernel and backend. They show a test that checks nothing."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from difftest.testing.contract.limits import NEEDS_LESS, TOO_LITTLE
from difftest.testing.harness.coverage import Coverage, coverage_from_list
from difftest.testing.harness.verdict import BothRejected, Inconclusive, Verdict

_DATA = (
    "give inputs data= whose results are finite and fit their dtype "
    "(docs/how-to/choose-inputs.md); allow_inconclusive=True of the spec accepts it"
)
PROPERTY = "difftest"
"""The name of the tally in a test's report."""


@dataclass
class Counts:
    """The counts of one kernel on one backend.

    Attributes
    ----------
    cases : cases that ran, including those of shrinking.
    elements : elements that were compared with a finite number of the reference.
    nonfinite : elements whose reference is not finite, so that agreement proves nothing.
    exact : cases that matched without any tolerance.
    rejections : calls outside the contract that were rejected.
    both_rejected : cases that reference and kernel rejected.
    inconclusive : cases without a decision.
    """

    cases: int = 0
    elements: int = 0
    nonfinite: int = 0
    exact: int = 0
    rejections: int = 0
    both_rejected: int = 0
    inconclusive: int = 0

    def add(self, other: Counts) -> None:
        """Add other counts to these."""
        for counter in fields(other):
            total = getattr(self, counter.name) + getattr(other, counter.name)
            setattr(self, counter.name, total)


@dataclass
class Tally:
    """The counts of a test or a session.

    Attributes
    ----------
    rows : counts by (kernel, backend).
    reasons : the number of inconclusive cases for each reason.
    doubts : limits of exact runs.
    inferred : domains of specs that were given none, each with its kernel.
    broken : internal checks that crashed (:mod:`difftest.support.internal_errors`).
    agreements : counts by (kernel, kernel, backend), for kernels of one contract.
    homes : the module of each kernel, by name.
    coverage : the branches and loops that cases took in the kernels' own code.
    """

    rows: dict[tuple[str, str], Counts] = field(
        default_factory=lambda: defaultdict(Counts)
    )
    reasons: Counter[str] = field(default_factory=Counter)
    doubts: set[str] = field(default_factory=set)
    inferred: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    agreements: dict[tuple[str, str, str], Counts] = field(default_factory=dict)
    """``exact`` counts cases with equal outputs of both kernels."""
    homes: dict[str, str] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print a line for each kernel and backend in IPython, after a test in a notebook."""
        lines = [
            f"{kernel} on {backend}: {row.cases:,} cases, {row.elements:,} elements, "
            f"{row.exact:,} bit for bit"
            for (kernel, backend), row in self.rows.items()
        ]
        printer.text("\n".join([*lines, *self.inferred_lines()]))

    def inferred_lines(self) -> list[str]:
        """Return a line for each inferred domain."""
        return [f"domain inferred: {text}" for text in sorted(self.inferred)]

    @property
    def nothing_compared(self) -> str:
        """The reason why a test fails that compared no element and no rejection; else empty.

        Each kernel must be checked on each backend that runs it.
        """
        idle = [
            key for key, row in self.rows.items() if not row.elements + row.rejections
        ]
        if self.rows and not idle:
            return ""
        text = "the kernel test compared nothing: no case ran to a comparison"
        if idle:
            kernel, backend = idle[0]
            text += f", of {kernel} on {backend}"
        return "\n  ".join([text, *sorted(self.reasons)])

    @property
    def proves_too_little(self) -> str:
        """The reason why a test fails whose compared cases are half inconclusive; else empty."""
        for (kernel, backend), row in self.rows.items():
            compared = row.cases - row.both_rejected
            if row.inconclusive and 2 * row.inconclusive >= compared:
                reasons = [text for text in self.reasons if text.startswith(kernel)]
                most = max(reasons, key=lambda text: self.reasons[text], default="")
                remedy = NEEDS_LESS if TOO_LITTLE in most else _DATA
                return (
                    f"the test of {kernel} proves too little on {backend}: {row.inconclusive} of "
                    f"{compared} compared cases are inconclusive\n"
                    f"  most:   {most}\n  remedy: {remedy}"
                )
        return ""

    def count(self, kernel: str, backend: str, verdict: Verdict) -> None:
        """Count a case by its verdict."""
        row = self.rows[kernel, backend]
        row.cases += 1
        row.elements += getattr(verdict, "elements", 0)
        row.nonfinite += getattr(verdict, "nonfinite", 0)
        row.exact += getattr(verdict, "exact", False)
        row.both_rejected += isinstance(verdict, BothRejected)
        if isinstance(verdict, Inconclusive):
            row.inconclusive += 1
            self.reasons[f"{kernel}: {verdict.reason}"] += 1

    def merge(self, other: Tally, names: Mapping[str, str] | None = None) -> None:
        """Add the counts of another test or process, with other names for some kernels."""
        names = names or {}
        for (kernel, backend), row in other.rows.items():
            self.rows[names.get(kernel, kernel), backend].add(row)
        for pair, row in other.agreements.items():
            self.agreements.setdefault(pair, Counts()).add(row)
        self.reasons += other.reasons
        self.doubts |= other.doubts
        self.inferred |= other.inferred
        self.broken |= other.broken
        self.coverage.merge(other.coverage, names)

    def to_json(self) -> str:
        """Return the tally as one line, which a pytest-xdist worker sends to its controller."""
        document = {
            **vars(self),
            "rows": [[*key, vars(row)] for key, row in self.rows.items()],
            "agreements": [[*key, vars(row)] for key, row in self.agreements.items()],
            "coverage": self.coverage.to_list(),
        }
        return json.dumps(document, default=sorted)


def tally_from_json(text: str) -> Tally:
    """Return the tally that :meth:`Tally.to_json` wrote."""
    document = json.loads(text)
    for name in ("rows", "agreements"):
        document[name] = {tuple(key): Counts(**row) for *key, row in document[name]}
    document |= {name: set(document[name]) for name in ("doubts", "inferred", "broken")}
    reasons = Counter(document["reasons"])
    coverage = coverage_from_list(document["coverage"])
    return Tally(**{**document, "reasons": reasons, "coverage": coverage})
