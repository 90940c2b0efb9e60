"""Who looks at launches for hazards, and remembers what was found."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from difftest.analysis.detectors import DETECTORS, Detected, detect
from difftest.analysis.finding import Finding, Severity
from difftest.breakdown import unless_broken
from difftest.inspection.orders import depends_on_order
from difftest.simulator.witness import Testimony

_PAGES = {detector.id: detector.page for detector in DETECTORS}


def finding_text(finding: Finding) -> str:
    """What happened, the rule, the kernel's lines, the remedy, and where more is said."""
    first, *others = finding.locations or (None,)
    rows = [
        ("rule", finding.rule),
        ("where", str(first) if first else None),
        *(("and", str(location)) for location in others),
        ("remedy", finding.remedy),
        ("more", _more(finding.id)),
    ]
    head = f"{finding.severity.value} {finding.id}: {finding.happened}"
    return "\n".join([head, *(f"  {name + ':':<10}{text}" for name, text in rows if text)])


def _more(id: str) -> str:
    """Where more is said of a finding, and the comment that silences it."""
    if id in _PAGES:
        return f"{_PAGES[id]}, or # difftest: allow[{id}] on the line"
    return f"difftest lint --explain {id}, or # difftest: ignore[{id}] on the line"


@dataclass
class Inspector:
    """Is told of launches (``with witnessing(inspector)``), and keeps what is found, each once.

    What a launch shows at a line where an earlier one has shown the same is not said again: with
    other shapes other lines may have part in it.

    Attributes
    ----------
    strict : whether a warning counts as a failure.
    findings : of all launches so far, in the order in which they were found.
    launches, silenced : how many launches were looked at, each rank as one, and findings that a
        comment allows.
    """

    strict: bool = False
    findings: list[Finding] = field(default_factory=list)
    launches: int = 0
    silenced: int = 0
    _said: set[tuple[object, ...]] = field(default_factory=set)

    def __call__(self, testimony: Testimony) -> None:
        """Look at one launch."""
        self.launches += 1
        with unless_broken("the search for hazards"):
            self._look(testimony)

    def _look(self, testimony: Testimony) -> None:
        detected = inspect(testimony)
        self.silenced += len(detected.silenced)
        before = {(one.id, one.severity, one.location) for one in self.findings}
        for finding in detected.findings:
            key = finding.id, finding.severity, finding.locations
            if key not in self._said and (*key[:2], finding.location) not in before:
                self._said.add(key)
                self.findings.append(_of_rank(testimony.rank, finding))

    @property
    def failures(self) -> list[Finding]:
        """The findings that fail a test."""
        return [finding for finding in self.findings if fails(finding, strict=self.strict)]


def inspect(testimony: Testimony) -> Detected:
    """What the detectors say of a launch, its suspicions settled by runs in other orders."""
    detected = detect(testimony.trace, testimony.machine)
    if not detected.suspicions:
        return detected
    held = {one.differs.location for one in detected.suspicions if one.loop is None} - {None}
    return detected.settled(functools.cache(functools.partial(depends_on_order, testimony, held)))


def _of_rank(rank: int | None, finding: Finding) -> Finding:
    """A finding of one of several ranks says of which; the others may well do the same."""
    if rank is None:
        return finding
    return replace(finding, happened=f"on rank {rank}, {finding.happened}")


def fails(finding: Finding, *, strict: bool) -> bool:
    """Whether a finding fails a test: it is proven wrong, or a warning where those count."""
    if finding.severity is Severity.ERROR:
        return True
    return strict and finding.severity is Severity.WARNING
