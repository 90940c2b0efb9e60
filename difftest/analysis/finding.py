"""What a finding on a kernel is, whoever found it, and what a detector of hazards is.

A comment silences a finding at one place: ``# difftest: ignore[id, other] a reason``. It stands
anywhere in a statement, or alone on the line before it. ``allow`` is the same word: detectors of
hazards have it in their texts.
"""

from __future__ import annotations

import ast
import functools
import io
import linecache
import re
import tokenize
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Event, Location, Trace


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"
    """The kernel breaks a rule: it can give a wrong result, or no device runs it."""
    WARNING = "warning"
    """The result is not in danger; the kernel does what it should not."""
    NOTE = "note"
    """Nothing need be done about it as such."""


ERROR, WARNING, NOTE = Severity
Thing = TypeVar("Thing")
Key = TypeVar("Key")


def group_by(things: Iterable[Thing], key: Callable[[Thing], Key]) -> dict[Key, list[Thing]]:
    """The things that have one key together, in the order in which they come."""
    groups: dict[Key, list[Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is to be said of a kernel."""

    id: str
    """Of the kind of finding, in lower case with hyphens; a reader can count on it."""
    severity: Severity
    happened: str
    """What the kernel does, in words, with its numbers."""
    rule: str
    """What holds on the machine, or for good kernels, in one sentence."""
    locations: tuple[Location, ...]
    """The kernel's lines, the most telling first; empty if it is nowhere in particular."""
    remedy: str
    evidence: tuple[int, ...] = ()
    """Numbers of the trace's events that show it; empty where the source alone does."""

    @property
    def location(self) -> Location | None:
        """The first of the lines."""
        return self.locations[0] if self.locations else None

    def as_mapping(self) -> dict[str, object]:
        """All of it, in what JSON has."""
        return {
            "id": self.id,
            "severity": self.severity.value,
            "happened": self.happened,
            "rule": self.rule,
            "locations": [_as_mapping(at) for at in self.locations],
            "remedy": self.remedy,
            "evidence": list(self.evidence),
        }


def _as_mapping(at: Location) -> dict[str, object]:
    calls = [{"file": line.file, "line": line.line} for line in at.calls]
    return {"file": at.file, "line": at.line} | ({"called_at": calls} if calls else {})


def unique_locations(*locations: Location | None) -> tuple[Location, ...]:
    """The lines that are known, each once."""
    return tuple(dict.fromkeys(line for line in locations if line is not None))


@dataclass(frozen=True)
class Hazard:
    """One kind of finding, which the page of its group has a section on."""

    id: str
    """Of its findings, in lower case with hyphens: what ``# difftest: allow[id]`` names."""
    severity: Severity
    """The worst that its findings have."""
    title: str
    """What the kernel does wrong, in a few words."""

    def finding(
        self,
        happened: str,
        rule: str,
        remedy: str,
        *events: Event,
        severity: Severity | None = None,
        lines: Iterable[Location | None] | None = None,
    ) -> Finding:
        """What is to be said of some events, with their numbers: at their lines, or at others."""
        places = (event.location for event in events) if lines is None else lines
        return Finding(
            id=self.id,
            severity=severity or self.severity,
            happened=happened,
            rule=rule,
            locations=unique_locations(*places),
            remedy=remedy,
            evidence=tuple(sorted(event.number for event in events)),
        )


PAGES = "docs/reference/detectors"


class InconclusiveFinding(NamedTuple):
    """What a trace alone cannot settle: whether the outputs depend on the order of what has none.

    Runs of the same case in other orders do: see :mod:`difftest.analysis.inspection.inspector`.
    """

    differs: Finding
    """What is to be said if another order gives other outputs."""
    agrees: Finding | None = None
    """What is to be said if none does; None for nothing."""
    loop: Location | None = None
    """The line of the loop whose iterations it is about; None for the programs."""


Found = Iterable[Finding | InconclusiveFinding]
Reader = Callable[[Trace, Machine], Found]
"""Reads a trace of a kernel and the machine that it ran on. Several detectors may share one, which
then reads once for all of them."""


def deduplicated(reader: Reader) -> Reader:
    """A reader that says the same of the same lines once."""

    @functools.wraps(reader)
    def read(trace: Trace, machine: Machine) -> Found:
        said: set[tuple[object, ...]] = set()
        for result in reader(trace, machine):
            finding = result.differs if isinstance(result, InconclusiveFinding) else result
            if (finding.id, finding.locations) not in said:
                said.add((finding.id, finding.locations))
                yield result

    return read


@dataclass(frozen=True, kw_only=True)
class Detector(Hazard):
    """A hazard and who looks for it."""

    group: str
    """The title of its page."""
    reader: Reader

    @property
    def page(self) -> str:
        """Where the documentation says more of it."""
        name = self.group.lower().replace("'", "").replace(" ", "-")
        return f"{PAGES}/{name}.md#{self.id}"


_COMMENT = re.compile(r"#\s*difftest:\s*(?:allow|ignore)\[([^\]]*)\]")


class Suppression(NamedTuple):
    """One comment: where it begins, the ids that it names, and the lines that it is about."""

    line: int
    column: int
    ids: frozenset[str]
    lines: range

    def applies_to(self, id: str, line: int) -> bool:
        """Whether it is about an id at a line."""
        return id in self.ids and line in self.lines


def is_suppressed(id: str, *places: Location) -> bool:
    """Whether a comment silences an id at one of these lines, or at a line that called it."""
    return any(
        comment.applies_to(id, line.line)
        for place in places
        for line in (place, *place.calls)
        for comment in suppressions_in("".join(linecache.getlines(line.file)))
    )


@functools.lru_cache(maxsize=64)
def suppressions_in(text: str) -> tuple[Suppression, ...]:
    """The comments of a file; none of what is no Python."""
    if "difftest:" not in text:
        return ()
    try:
        nodes = ast.walk(ast.parse(text))
        statements = [_lines(node) for node in nodes if isinstance(node, ast.stmt)]
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError):
        return ()
    comments = []
    for token in tokens:
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if match:
            line, column = token.start
            ids = frozenset(map(str.strip, match.group(1).split(",")))
            own = [lines for lines in statements if line in lines] or [range(line, line + 2)]
            comments.append(Suppression(line, column + 1, ids, min(own, key=len)))
    return tuple(comments)


def _lines(node: ast.AST) -> range:
    """The lines of a statement; of one with a body, those before it."""
    first = getattr(node, "lineno", 1)
    body = getattr(node, "body", None)
    last = max(first, body[0].lineno - 1) if body else getattr(node, "end_lineno", None) or first
    return range(first, last + 1)
