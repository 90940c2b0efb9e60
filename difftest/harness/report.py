"""Failures as text for people: what, where, what was expected, and how to run it again."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from difftest.analysis.finding import Finding
from difftest.backends.base import Outcome, Ran, Rejected, Unsupported
from difftest.harness.case import Case
from difftest.harness.frames import named
from difftest.harness.reference import ReferenceDefect
from difftest.harness.spec import KernelSpec, Rejection
from difftest.harness.verdict import (
    BothRejected,
    Inconclusive,
    Match,
    Mismatch,
    OneSided,
    Verdict,
    is_failure,
)
from difftest.inspection import finding_text

Row = tuple[str, str]
"""A label and a text."""
Shapes = Mapping[str, tuple[int, ...]]
_LABEL = 13
_FEW_LINES = 2
"""How much a report says of rounding errors, unless it is asked for all."""
_ONE_SIDED = {
    ("kernel", "refused"): "the kernel alone refuses",
    ("reference", "refused"): "the reference alone refuses",
    ("kernel", "crashed"): "the kernel broke down",
    ("backend", "crashed"): "the backend broke down; this is a bug of its own, not the kernel's",
    ("backend", "unsupported"): "the backend cannot run the kernel",
}
"""Who failed and how, in words."""


@dataclass(frozen=True)
class Reproduction:
    """How a test was run: its pytest node, and the options that chose the backends.

    ``case_key`` is the ini key that takes the case where ``--case`` is another plugin's; ``edges``
    are words for a call that no case is: all calls at the edges run again.
    """

    node: str
    options: tuple[str, ...] = ()
    case_key: str | None = None
    edges: str = ""

    def arguments(self, case: Case) -> list[str]:
        """What pytest is told to run exactly this case."""
        if self.edges:
            return [*self.options, f"{self.node}[edges]"]
        text = case.to_json()
        given = ["-o", f"{self.case_key}={text}"] if self.case_key else ["--case", text]
        return [*self.options, self.node, *given]

    def command(self, case: Case) -> str:
        """The shell line that runs exactly this case."""
        return quoted(["pytest", *self.arguments(case)])


def quoted(words: Sequence[str], *, windows: bool = os.name == "nt") -> str:
    """A command as this computer's shell reads it: POSIX shells, or the one of Windows."""
    return subprocess.list2cmdline(words) if windows else shlex.join(words)


def text_of(title: str, rows: Iterable[Row], findings: Iterable[Finding] = ()) -> str:
    """A report: its title, its rows, and hazards."""
    return "\n".join([title, *map(_row, rows), *map(finding_text, findings)])


def case_rows(spec: KernelSpec, case: Case, shapes: Shapes) -> list[Row]:
    """What was run; ``shapes`` has those arrays that are not as their dimensions say."""
    values = [f"{name}={value}" for name, value in case.values.items()]
    own = {name: shapes.get(name) or spec.shape(name, case.values) for name in spec.inputs}
    data = [(name, f"{shape} {case.data[name]!r}") for name, shape in own.items()]
    return [("case", ", ".join([*values, case.dtype])), *data]


def rejection_text(spec: KernelSpec, rejection: Rejection, backend: str, outcome: Outcome) -> str:
    """The report of a call that a backend should have refused, or refused for another reason."""
    values = ", ".join(f"{name}={value}" for name, value in rejection.values.items())
    values += "".join(f", {name} of shape {shape}" for name, shape in rejection.shapes.items())
    if isinstance(outcome, Ran):
        happened = "accepted it"
    else:
        broke = "broke down itself" if getattr(outcome, "in_backend", False) else "broke down"
        kinds = {Rejected: "refused it, but said", Unsupported: "cannot run it:"}
        happened = f"{kinds.get(type(outcome), f'{broke}:')} {_describe(outcome.error)}"
    rows = [
        ("accepted", f"an error of the kernel's contract whose text matches {rejection.match!r}"),
        (backend, happened),
    ]
    return text_of(f"{spec.name} must refuse {values}", rows)


def short(spec: KernelSpec, case: Case, shapes: Shapes | None = None) -> str:
    """The sizes of a case and its dtype: enough to know it by, in a line with other words."""
    sizes = {name: value for name, value in case.values.items() if name not in spec.parameters}
    own = [*case.dtypes.items(), *(shapes or {}).items()]
    said = [f"{name}={value}" for name, value in sizes.items()]
    return ", ".join([*said, case.dtype, *(f"{name} of {value}" for name, value in own)])


def headline_of(
    spec: KernelSpec, case: Case, verdicts: Mapping[str, Verdict], shapes: Shapes
) -> str:
    """A failure in one line: the kernel, what is wrong, the case, the first wrong element."""
    name, verdict = next(one for one in verdicts.items() if is_failure(one[1]))
    what, end = "", ""
    if isinstance(verdict, Mismatch):
        kinds = {"unwritten": "unwritten elements", "nan": "NaN", "outputs": "number of outputs"}
        what = f"wrong {verdict.question or kinds.get(verdict.kind, verdict.kind)}"
        end = "" if verdict.first is None else f": {element_name(spec, verdict)}"
    elif isinstance(verdict, OneSided):
        error = _describe(verdict.error).partition("\n")[0]
        what, end = _ONE_SIDED[verdict.failed, verdict.how], f": {error}"
        if verdict.failed == "kernel":
            what, _, end = error.partition(":")
            end = end and f":{end}"
    where = f" on {name}" if len(verdicts) > 1 else ""
    return f"{spec.name}: {what}{where} at {short(spec, case, shapes)}{end}"


def element_name(spec: KernelSpec, mismatch: Mismatch) -> str:
    """The first wrong element: ``out[128, 0]``."""
    several = {0: "out", **dict(enumerate(spec.outputs))}
    name = several.get(mismatch.output or 0, f"output {mismatch.output} at ")
    return f"{name}{[*mismatch.first.index] if mismatch.first else ''}"


def _row(row: Row) -> str:
    label, text = row
    return textwrap.indent(f"{label and label + ':':<{_LABEL}}{text}", "  ")


def defect_rows(defect: ReferenceDefect) -> list[Row]:
    """What is wrong with a reference, beside what happened."""
    received = textwrap.indent(defect.received, " " * (_LABEL + 2)).lstrip()
    rows = [("rule", defect.rule), ("received", received)]
    return rows + [("where", defect.where)] * bool(defect.where) + [("remedy", defect.remedy)]


def verdict_rows(
    spec: KernelSpec, backend: str, verdict: Verdict, verbose: bool = False
) -> list[Row]:
    """What came of a case on a backend; ``verbose`` has all that is known of rounding errors."""
    match verdict:
        case Match(elements, exact, nonfinite):
            how = "bit for bit" if exact else "within rounding"
            more = f"; {nonfinite} more are not finite, and prove nothing" if nonfinite else ""
            return [(backend, f"agrees on {elements} elements, {how}{more}")]
        case Mismatch():
            return [(backend, verdict.message), *_mismatch_rows(spec, verdict, verbose)]
        case OneSided(failed, error, how):
            return [(backend, f"{_ONE_SIDED[failed, how]}: {_describe(error)}")]
        case BothRejected(_, error):
            return [(backend, f"kernel and reference both refuse: {_describe(error)}")]
        case Inconclusive(reason):
            return [(backend, f"inconclusive: {reason}")]


def _mismatch_rows(spec: KernelSpec, mismatch: Mismatch, verbose: bool) -> list[Row]:
    first = mismatch.first
    if first is None:
        return []
    at = element_name(spec, mismatch)
    how = mismatch.how if verbose else mismatch.how[:_FEW_LINES]
    return [
        ("first wrong", f"{at}: got {first.got}, expected {first.expected}"),
        ("allowed", f"{first.allowed}; the error is {first.error}"),
        *[("because" if line is how[0] else "", line) for line in how],
        ("wrong", f"{mismatch.wrong} of {mismatch.elements} elements, {describe_box(mismatch)}"),
    ]


def describe_box(mismatch: Mismatch) -> str:
    """Where the wrong elements lie: the box that holds them, and which ends it touches."""
    if mismatch.wrong == mismatch.elements:
        return "which is all of them"
    slices = ", ".join(f"{start}:{stop}" for start, stop in mismatch.box)
    volume = math.prod(stop - start for start, stop in mismatch.box)
    text = f"{'filling' if volume == mismatch.wrong else 'all in'} [{slices}]"
    tails = [
        str(axis)
        for axis, ((start, stop), size) in enumerate(zip(mismatch.box, mismatch.shape, strict=True))
        if start > 0 and stop == size
    ]
    return text + (f", the tail of axis {' and '.join(tails)}" if tails else "")


def _describe(error: BaseException) -> str:
    return textwrap.indent(named(error), " " * _LABEL).lstrip()
