"""The failures and warnings of a kernel test: errors whose text is the report.

A report says which elements are wrong, which values were expected, and how to run the case again.
"""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from difftest.analysis.finding import Finding, Severity
from difftest.analysis.inspection import finding_text
from difftest.simulator.trace import Event
from difftest.support.tracebacks import (
    format_error,
    inner_frames,
    is_user_file,
    without_files,
)
from difftest.testing.backends.base import (
    Completed,
    Crashed,
    Outcome,
    Rejected,
    Unsupported,
)
from difftest.testing.contract.case import Case, Edge, value_texts
from difftest.testing.contract.recipes import Random, Recipe
from difftest.testing.contract.reference import ReferenceDefect
from difftest.testing.contract.spec import KernelSpec, Rejection
from difftest.testing.harness.explanation import CaseHistory
from difftest.testing.harness.verdict import (
    BothRejected,
    Inconclusive,
    Match,
    Mismatch,
    OneSided,
    Verdict,
)

Row = tuple[str, str]
"""A label and a text."""
_LABEL = 13
_RANDOM_SIZES = 8
"""The number of failed cases that are tried with random data."""
_FEW_LINES = 2
"""The number of lines on rounding errors in a report that is not verbose."""
_ONE_SIDED = {
    ("kernel", "refused"): "only the kernel rejects the case",
    ("reference", "refused"): "only the reference rejects the case",
    ("kernel", "crashed"): "the kernel crashed",
    ("backend", "crashed"): "the backend crashed: a bug of its own, not the kernel's",
    ("backend", "unsupported"): "the backend cannot run the kernel",
}
"""The text of a one-sided failure, by the side that failed and the kind of failure."""
_WRONG = {
    "unwritten": "unwritten elements",
    "nan": "NaN",
    "outputs": "number of outputs",
}
"""The name of a failed check in a headline, if it differs from the kind."""


class Reproduction(NamedTuple):
    """The pytest node of a test, and the options that chose the backends.

    Attributes
    ----------
    case_option : the option that takes the case; a long one if another plugin owns ``--case``.
    edges : a description of a call that no case can express. Then all edge calls run again.
    """

    node: str
    options: tuple[str, ...] = ()
    case_option: str = "--case"
    edges: str = ""

    def arguments(self, case: Case) -> list[str]:
        """Return the arguments of pytest for exactly this case."""
        if self.edges:
            return [*self.options, f"{self.node}[edges]"]
        return [*self.options, self.node, self.case_option, case.to_json()]

    def command(self, case: Case) -> str:
        """Return the shell command that runs exactly this case."""
        return quote_command(["pytest", *self.arguments(case)])


def quote_command(words: Sequence[str], *, windows: bool = os.name == "nt") -> str:
    """Return a command quoted for a POSIX shell, or for the shell of Windows."""
    return subprocess.list2cmdline(words) if windows else shlex.join(words)


def format_report(
    title: str, rows: Iterable[Row], findings: Iterable[Finding] = ()
) -> str:
    """Return a report: its title, its rows that are not empty, and its findings."""
    lines = []
    for label, text in rows:
        if text:
            head = f"{label}:" if label else ""
            indented = textwrap.indent(text, " " * _LABEL).lstrip()
            lines.append(f"{head:<{_LABEL}}{indented}")
    body = textwrap.indent("\n".join(lines), "  ")
    return "\n".join([title, body, *map(finding_text, findings)])


def case_rows(spec: KernelSpec, case: Case) -> list[Row]:
    """Return the rows that show a case: its values, and the data of each input."""
    values = value_texts(case.values)
    data = [
        (name, f"{spec.shape_of(case, name)} {case.data[name]!r}")
        for name in spec.inputs
    ]
    return [("case", ", ".join([*values, case.dtype])), *data]


def rejection_text(
    spec: KernelSpec, rejection: Rejection, backend: str, outcome: Outcome
) -> str:
    """Return the report of a call that a backend did not reject, or rejected for another reason."""
    parts = value_texts(rejection.values)
    parts += [f"{name} of shape {shape}" for name, shape in rejection.shapes.items()]
    wanted = f"an error of the kernel's contract whose text matches {rejection.match!r}"
    return format_report(
        f"{spec.name} must reject {', '.join(parts)}",
        [("accepted", wanted), (backend, _describe_outcome(outcome))],
    )


def _describe_outcome(outcome: Outcome) -> str:
    """Return in words the outcome of a call that a backend must reject."""
    match outcome:
        case Completed():
            return "accepted it"
        case Rejected(error):
            return f"rejected it, but with {format_error(error)}"
        case Unsupported(error):
            return f"cannot run it: {format_error(error)}"
        case Crashed(error, in_backend):
            itself = " itself" if in_backend else ""
            return f"crashed{itself}: {format_error(error)}"


def _labelled(label: str, lines: Sequence[str]) -> list[Row]:
    """Return the rows of some lines; the label is in front of the first."""
    return [("" if number else label, line) for number, line in enumerate(lines)]


def format_sizes(spec: KernelSpec, case: Case) -> str:
    """Return the sizes and dtypes of a case, for use within a line."""
    parts = []
    for name, size in case.values.items():
        if name not in spec.parameters:
            parts.append(f"{name}={size}")
    parts.append(case.dtype)
    parts += [f"{name} of {dtype}" for name, dtype in case.dtypes.items()]
    parts += [f"{name} of {shape}" for name, shape in case.shapes.items()]
    return ", ".join(parts)


def element_name(spec: KernelSpec, mismatch: Mismatch) -> str:
    """Return the name of the first wrong element, such as ``out[128, 0]``."""
    name = mismatch.argument or "out"
    if mismatch.output and not mismatch.argument:
        name = f"output {mismatch.output} at "
    if mismatch.first is None:
        return name
    return f"{name}{list(mismatch.first.index)}"


def _describe_verdict(verdict: Verdict) -> str:
    """Return the verdict on one backend in words."""
    match verdict:
        case Match(elements, exact, nonfinite):
            how = "bit for bit" if exact else "within rounding"
            text = f"agrees on {elements} elements, {how}"
            if nonfinite:
                text += f"; {nonfinite} more are not finite, and prove nothing"
            return text
        case Mismatch():
            return verdict.message
        case OneSided(failed, error, how):
            return f"{_ONE_SIDED[failed, how]}: {format_error(error)}"
        case BothRejected(_, error):
            return f"kernel and reference both reject the case: {format_error(error)}"
        case Inconclusive(reason):
            return f"inconclusive: {reason}"


def unrounded(mismatch: Mismatch) -> str:
    """Return a note on the judged value if it is not the kernel's own; else empty."""
    first = mismatch.first
    if first is None or not first.exact:
        return ""
    text = f"{first.exact} is the kernel's value without rounding, which is judged"
    return f"{text}; rounding hides the difference" if mismatch.hidden else text


def describe_box(mismatch: Mismatch) -> str:
    """Return the box that holds all wrong elements, and the axes whose tail it reaches."""
    if mismatch.wrong == mismatch.elements:
        return "which is all of them"
    slices = ", ".join(f"{start}:{stop}" for start, stop in mismatch.box)
    volume = math.prod(stop - start for start, stop in mismatch.box)
    text = f"{'filling' if volume == mismatch.wrong else 'all in'} [{slices}]"
    tails = []
    for axis, (start, stop) in enumerate(mismatch.box):
        if start > 0 and stop == mismatch.shape[axis]:
            tails.append(str(axis))
    if tails:
        text += f", the tail of axis {' and '.join(tails)}"
    return text


class ReportedFailure(AssertionError):
    """The failure of a kernel test whose text is the whole report: it needs no traceback."""

    raised: BaseException | None = None
    """The error of the kernel or of the reference, if an error is the failure."""
    beside: Sequence[str] = ()
    """The texts of the test's other failures, one of each kind."""

    @property
    def headline(self) -> str:
        return str(self).partition("\n")[0]


class CaseFailure(ReportedFailure):
    """A case that fails its test. The report ends with the command that runs it again.

    Attributes
    ----------
    minimal : the coordinates of the case that are proven to be minimal; empty without a proof.
    fresh : the result in a process of its own, if it differs; else empty.
    saved : the file of the case for ``difftest replay``; empty without one.
    """

    def __init__(
        self,
        spec: KernelSpec,
        case: Case,
        again: Reproduction | None,
        findings: Iterable[Finding] = (),
    ) -> None:
        self.spec = spec
        self.case = case
        self.again = again
        self.findings = tuple(
            hit for hit in findings if hit.severity is not Severity.NOTE
        )
        self.minimal = ""
        self.fresh = ""
        self.saved = ""
        super().__init__()

    @property
    def headline(self) -> str:
        return (
            f"{self.spec.name} {self.title()} at {format_sizes(self.spec, self.case)}"
        )

    @property
    def kind(self) -> tuple[object, ...]:
        """The kind of error, which does not depend on the case."""
        return type(self), self.headline.partition(" at ")[0]

    def title(self) -> str:
        """Return the first line of the report, without the kernel's name."""
        raise NotImplementedError

    def case_rows(self) -> list[Row]:
        """Return the rows that show the case, and how small it is."""
        return [*case_rows(self.spec, self.case), ("minimal", self.minimal)]

    def rows(self) -> list[Row]:
        """Return the rows between the case and the command that runs it again."""
        return []

    def end_in_kernel(self) -> None:
        """Cut the traceback so that a debugger stops where the kernel or the reference raised.

        For wrong values it ends in the author's test. Call it after the failure was raised:
        Hypothesis takes failures at different lines for different bugs.
        """
        steps = inner_frames(self)
        if self.raised is not None:
            if steps:
                steps[0].tb_next = without_files(self.raised)
            return
        for step in steps:
            if is_user_file(step.tb_frame.f_code.co_filename):
                step.tb_next = None
                return

    def __str__(self) -> str:
        return format_report(self._full_title(), self._all_rows(), self.findings)

    def _repr_html_(self) -> str:
        """Return the report as HTML, which a notebook displays."""
        from difftest.testing.harness.failure_html import report_html

        return report_html(
            self._full_title(), self._all_rows(), self.findings, self.wrong_outputs()
        )

    def wrong_outputs(self) -> list[tuple[str, Mismatch]]:
        """Return the verdicts on wrong outputs, each after the sizes of its case."""
        return []

    def _full_title(self) -> str:
        return f"{self.spec.name} {self.title()}"

    def _all_rows(self) -> list[Row]:
        """Return the rows of the report: the case, the error, and the command to run it again."""
        rows = self.case_rows() + self.rows()
        if self.again is not None:
            rows.append(("run again", self.again.command(self.case)))
        rows.append(("fresh run", self.fresh))
        if self.saved:
            command = quote_command(["difftest", "replay", self.saved])
            rows.append(("replay", command))
        return rows


class DifferentialFailure(CaseFailure):
    """A disagreement of a kernel and its reference on a case; the text says where.

    Attributes
    ----------
    verdicts : the verdict of each backend, by name.
    wrong : the verdicts that fail.
    others : a line for each other kernel of the contract.
    verbose : whether the report lists all rounding errors.
    findings : hazards, which may be the cause.
    writers : for each backend, the instruction that wrote the first wrong element last. It is empty
        until :func:`~difftest.testing.harness.writers.locate_writers` runs the case once more.
    """

    def __init__(
        self,
        spec: KernelSpec,
        case: Case,
        verdicts: dict[str, Verdict],
        again: Reproduction | None,
        findings: Iterable[Finding] = (),
    ) -> None:
        super().__init__(spec, case, again, findings)
        self.verdicts = verdicts
        self.wrong = {
            on: v for on, v in verdicts.items() if isinstance(v, (Mismatch, OneSided))
        }
        self.raised = next(
            (v.error for v in self.wrong.values() if isinstance(v, OneSided)), None
        )
        self.others: tuple[str, ...] = ()
        self.writers: Mapping[str, Event] = {}
        self.history = CaseHistory(spec)
        self.verbose = False

    @property
    def headline(self) -> str:
        """The kernel, the kind of error, the case and the first wrong element, in one line."""
        verdict = self.verdict
        if isinstance(verdict, Mismatch):
            what, end = self._headline_of_mismatch(verdict)
        else:
            what, end = _headline_of_error(verdict)
        where = f" on {next(iter(self.wrong))}" if len(self.verdicts) > 1 else ""
        return f"{self.spec.name}: {what}{where} at {format_sizes(self.spec, self.case)}{end}"

    def _headline_of_mismatch(self, verdict: Mismatch) -> tuple[str, str]:
        """Return the kind of error and the first wrong element."""
        kind = verdict.question or _WRONG.get(verdict.kind, verdict.kind)
        if verdict.first is None:
            return f"wrong {kind}", ""
        return f"wrong {kind}", f": {element_name(self.spec, verdict)}"

    @property
    def verdict(self) -> Mismatch | OneSided:
        """The verdict of the first backend that is wrong."""
        return next(iter(self.wrong.values()))

    @property
    def is_hidden(self) -> bool:
        """Return whether only the exact run shows that the case is wrong."""
        verdict = self.verdict
        return isinstance(verdict, Mismatch) and verdict.hidden

    @property
    def kind(self) -> tuple[object, ...]:
        """The kind of error, which does not depend on the case."""
        wrong = self.verdict
        detail = wrong.output if isinstance(wrong, Mismatch) else type(wrong.error)
        return self.headline.partition(" at ")[0], detail

    def in_own_dtype(self, run: Callable[[Case], object]) -> DifferentialFailure:
        """Return a failure of this kind with wrong values of the kernel's own.

        ``run`` runs a case of the test that has shown wrong values, or else random data in sizes
        that failed. The failure returns itself if its own values are wrong, or if no case shows
        wrong values.
        """
        if not self.is_hidden:
            return self
        visible = self.history.visible
        for case in [visible[0]] if visible else self._random_cases():
            try:
                run(case)
            except DifferentialFailure as other:
                if other.kind == self.kind and not other.is_hidden:
                    return other
            except Exception:  # an error of another kind is another bug
                continue
        return self

    def _random_cases(self) -> list[Case]:
        """Return cases with random data in the sizes of failed cases, the smallest first."""
        spec = self.spec
        free = spec.free_inputs
        if not free:
            return []
        data: dict[str, Recipe] = {name: Random(seed) for seed, name in enumerate(free)}
        cases = {}
        for case in (*self.history.failing, self.case):
            cases[repr(case.values)] = replace(case, data={**case.data, **data})

        def count_inputs(case: Case) -> int:
            return sum(math.prod(spec.shape_of(case, name)) for name in spec.inputs)

        return sorted(cases.values(), key=count_inputs)[-_RANDOM_SIZES:]

    def title(self) -> str:
        where = f" on {', '.join(self.wrong)}" if len(self.verdicts) > 1 else ""
        return f"disagrees with its reference{where}"

    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for backend, verdict in self.verdicts.items():
            rows.append((backend, _describe_verdict(verdict)))
            if isinstance(verdict, Mismatch):
                rows += self._mismatch_rows(backend, verdict)
            rows.append(("looks like", self.looks.get(backend, "")))
        return rows + _labelled("beside", self.others)

    def wrong_outputs(self) -> list[tuple[str, Mismatch]]:
        """Return a verdict for each wrong backend, after the sizes of its case.

        It is that of the largest failed case, which shows more than the smallest.
        """
        outputs = []
        for backend, wrong in self.wrong.items():
            if isinstance(wrong, Mismatch):
                smallest = self.case, wrong
                case, shown = self.history.largest.get(backend, smallest)
                outputs.append((format_sizes(self.spec, case), shown))
        return outputs

    def _mismatch_rows(self, backend: str, verdict: Mismatch) -> list[Row]:
        """Return the rows on a backend's wrong elements; empty if no elements were compared."""
        first = verdict.first
        if first is None:
            return []
        at = element_name(self.spec, verdict)
        how = verdict.how if self.verbose else verdict.how[:_FEW_LINES]
        wrong = f"{verdict.wrong} of {verdict.elements} elements"
        return [
            ("first wrong", f"{at}: got {first.got}, expected {first.expected}"),
            ("unrounded", unrounded(verdict)),
            ("written by", self._written_by(backend)),
            ("allowed", f"{first.allowed}; the error is {first.error}"),
            *_labelled("because", how),
            ("wrong", f"{wrong}, {describe_box(verdict)}"),
        ]

    def _written_by(self, backend: str) -> str:
        """Return the kernel's line that wrote the first wrong element last; empty if unknown."""
        event = self.writers.get(backend)
        if event is None or event.location is None:
            return ""
        return str(event.location)

    @cached_property
    def looks(self) -> dict[str, str]:
        """The pattern of the wrong values of each backend that shows one."""
        looks = {}
        for backend, verdict in self.wrong.items():
            if isinstance(verdict, Mismatch):
                text = self.history.describe_pattern(self.case, backend, verdict)
                if text:
                    looks[backend] = text
        return looks


def _headline_of_error(verdict: OneSided) -> tuple[str, str]:
    """Return the kind of error and its text, each with its first line alone."""
    error = format_error(verdict.error).partition("\n")[0]
    if verdict.failed != "kernel":
        return _ONE_SIDED[verdict.failed, verdict.how], f": {error}"
    kind, _, text = error.partition(":")
    return kind, f":{text}" if text else ""


class HazardFailure(CaseFailure):
    """A kernel that agrees with its reference here but has hazards on a device: ``findings``."""

    @property
    def headline(self) -> str:
        ids = ", ".join(dict.fromkeys(finding.id for finding in self.findings))
        return f"{self.spec.name}: {ids} at {format_sizes(self.spec, self.case)}"

    def title(self) -> str:
        return "agrees with its reference here, and can be wrong on a device"


class BrokenReferenceError(CaseFailure):
    """A reference that cannot judge a case: it crashed, or wrote to its arguments (``defect``)."""

    def __init__(
        self,
        spec: KernelSpec,
        case: Case,
        defect: ReferenceDefect,
        again: Reproduction | None,
    ) -> None:
        super().__init__(spec, case, again)
        self.defect = defect
        self.raised = defect.__cause__

    def title(self) -> str:
        return f"cannot be judged: {self.defect.happened}"

    def rows(self) -> list[Row]:
        return [
            (of, getattr(self.defect, of))
            for of in ("rule", "received", "where", "remedy")
        ]


class HazardWarning(UserWarning):
    """A kernel's hazard on some device, or in some release."""


class NotRejectedError(ReportedFailure):
    """A backend did not reject a call that it must reject."""


class EdgeFailure(DifferentialFailure, NotRejectedError):
    """A call near the contract's edge (``edge``) was neither rejected nor correct."""

    def __init__(
        self,
        spec: KernelSpec,
        edge: Edge,
        verdict: tuple[str, Verdict],
        again: Reproduction | None,
    ) -> None:
        case = edge.case
        self.edge = edge
        super().__init__(spec, case, dict([verdict]), again)
        # One command can run this call alone only if a case of the spec can express it.
        has_own_dtypes = set(spec.own_dtypes) == set(case.dtypes)
        is_case = not case.shapes and case.dtype in spec.dtypes and has_own_dtypes
        self.again = again and again._replace(edges="" if is_case else edge.why)

    def title(self) -> str:
        what = "accept this call, and" if self.edge.inside else "reject this call, or"
        return f"must {what} be correct"

    def rows(self) -> list[Row]:
        rows = [*super().rows(), ("call", self.edge.why)]
        if not self.edge.inside:
            remedy = (
                "reject it by an assert in the kernel, or be correct; edges=False leaves these "
                "calls out"
            )
            rows.append(("remedy", remedy))
        return rows


class NothingComparedError(ReportedFailure):
    """A kernel test ended without any comparison."""
