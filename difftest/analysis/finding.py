"""Findings on kernels, detectors of hazards, and comments that suppress findings.

A comment suppresses a finding at one place: ``# difftest: ignore[id, other] a reason``. It is
anywhere in a statement, or alone on the line before it. ``allow`` means the same; the texts of
hazard detectors use it.
"""

from __future__ import annotations

import ast
import functools
import io
import linecache
import re
import tokenize
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Event, Location, Trace


class Severity(Enum):
    """The severity of a finding."""

    ERROR = "error"
    """The kernel is proven to give a wrong result, or to run on no device."""
    WARNING = "warning"
    """The kernel may be wrong on some generation or in some release."""
    NOTE = "note"
    """No action is necessary."""


ERROR, WARNING, NOTE = Severity
Thing = TypeVar("Thing")
Key = TypeVar("Key")


def group_by(
    things: Iterable[Thing], key: Callable[[Thing], Key]
) -> dict[Key, list[Thing]]:
    """Return the things grouped by key, in the order of the input."""
    groups: dict[Key, list[Thing]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An observation about a kernel."""

    id: str
    """The stable id of the kind of finding, in lower case with hyphens."""
    severity: Severity
    happened: str
    """The behaviour of the kernel in words, with its numbers."""
    rule: str
    """The rule of the machine, or of good kernels, in one sentence."""
    locations: tuple[Location, ...]
    """The kernel's lines, the most relevant first; empty if no line is responsible."""
    remedy: str
    evidence: tuple[int, ...] = ()
    """Numbers of the trace's events that show it; empty if the source alone does."""

    @property
    def location(self) -> Location | None:
        """Return the first line."""
        if self.locations:
            return self.locations[0]
        return None

    def as_mapping(self) -> dict[str, object]:
        """Return all fields in JSON's types."""
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
    """Return the known locations without duplicates."""
    return tuple(dict.fromkeys(line for line in locations if line is not None))


@dataclass(frozen=True)
class Hazard:
    """A kind of finding; the page of its group has a section on it."""

    id: str
    """The id of its findings, in lower case with hyphens, for ``# difftest: allow[id]``."""
    severity: Severity
    """The highest severity of its findings."""
    title: str
    """The fault of the kernel, in a few words."""

    def finding(
        self,
        happened: str,
        rule: str,
        remedy: str,
        *events: Event,
        severity: Severity | None = None,
        lines: Iterable[Location | None] | None = None,
    ) -> Finding:
        """Return a finding on some events, with their numbers, at their lines or at ``lines``."""
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
    """A possible hazard. Runs in other orders decide whether the outputs change.

    :mod:`difftest.analysis.inspection.inspector` makes these runs.
    """

    differs: Finding
    """The finding if another order gives other outputs."""
    agrees: Finding | None = None
    """The finding if no order does; None for no finding."""
    loop: Location | None = None
    """The line of the loop with the reordered iterations; None for programs."""


Found = Iterable[Finding | InconclusiveFinding]
Reader = Callable[[Trace, Machine], Found]
"""Reads a kernel's trace and the machine that it ran on. Several detectors may share a reader,
which then reads once for all of them."""


def deduplicated(reader: Reader) -> Reader:
    """Return a reader that yields each finding once for the same lines."""

    @functools.wraps(reader)
    def read(trace: Trace, machine: Machine) -> Found:
        reported: set[tuple[object, ...]] = set()
        for result in reader(trace, machine):
            finding = (
                result.differs if isinstance(result, InconclusiveFinding) else result
            )
            if (finding.id, finding.locations) not in reported:
                reported.add((finding.id, finding.locations))
                yield result

    return read


@dataclass(frozen=True, kw_only=True)
class Detector(Hazard):
    """A hazard and its reader."""

    group: str
    """The title of its page."""
    reader: Reader

    @property
    def page(self) -> str:
        """Return the page and section of the documentation."""
        name = self.group.lower().replace("'", "").replace(" ", "-")
        return f"{PAGES}/{name}.md#{self.id}"


COMMENTS_SUPPRESS = ContextVar("difftest_comments_suppress", default=True)
"""Whether comments suppress findings. They do not in the code of a candidate that is judged."""
_COMMENT = re.compile(r"#\s*difftest:\s*(?:allow|ignore)\[([^\]]*)\]")


class Suppression(NamedTuple):
    """A comment: its position, the ids that it names, and the lines that it applies to."""

    line: int
    column: int
    ids: frozenset[str]
    lines: range

    def applies_to(self, id: str, line: int) -> bool:
        """Return whether the comment applies to an id at a line."""
        return id in self.ids and line in self.lines


def is_suppressed(id: str, *places: Location) -> bool:
    """Return whether a comment suppresses an id at one of these lines or at their callers."""
    return COMMENTS_SUPPRESS.get() and any(
        comment.applies_to(id, line.line)
        for place in places
        for line in (place, *place.calls)
        for comment in suppressions_in("".join(linecache.getlines(line.file)))
    )


@functools.lru_cache(maxsize=64)
def suppressions_in(text: str) -> tuple[Suppression, ...]:
    """Return the comments of a file; empty if the file is not Python."""
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
        match = _COMMENT.search(token.string)
        if match and token.type == tokenize.COMMENT:
            line, column = token.start
            ids = frozenset(map(str.strip, match.group(1).split(",")))
            around = [lines for lines in statements if line in lines]
            own = min(around, key=len, default=range(line, line + 2))
            comments.append(Suppression(line, column + 1, ids, own))
    return tuple(comments)


def _lines(node: ast.AST) -> range:
    """Return the lines of a statement, without its body."""
    first = getattr(node, "lineno", 1)
    body = getattr(node, "body", None)
    if body:
        last = max(first, body[0].lineno - 1)
    else:
        last = getattr(node, "end_lineno", None) or first
    return range(first, last + 1)
