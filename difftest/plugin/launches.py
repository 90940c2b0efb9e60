"""The launches of tests that call kernels themselves: their hazards, and a count a kernel.

Such a test has no reference: its own assertions judge the kernel's results. The detectors inspect
each launch, and the session's strictness applies to it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from difftest.analysis.finding import Finding, Severity
from difftest.analysis.inspection import Inspector, finding_text
from difftest.plugin.summary import padded_table
from difftest.simulator.entry.install import ROOTS
from difftest.simulator.errors import relative_path, warn
from difftest.simulator.launch_listeners import LaunchRecord, listening
from difftest.simulator.strictness import strictness
from difftest.support.signature import distinct_names, function_name, module_name
from difftest.testing.harness.failures import HazardWarning, ReportedFailure

if TYPE_CHECKING:
    from difftest.testing.session.options import Session

INSPECTOR = pytest.StashKey["LaunchInspector"]()
"""The inspector of a test's launches, on the test's stash."""
_FEW = 10
"""The most rows of the table, unless the output is verbose."""
_RANKS = "a kernel on ranks"
"""The name of the kernels that communicate: a launch does not name them."""
_PARTS = ("difftest.simulator.entry", "difftest.simulator.frontend")
"""The packages of the embedded modules' functions and kernels."""


class LaunchHazardFailure(ReportedFailure):
    """Hazards in the launches of a test that calls kernels itself.

    Attributes
    ----------
    findings : the hazards that fail the test.
    """

    def __init__(self, findings: Collection[Finding]) -> None:
        self.findings = findings
        super().__init__("\n".join(map(finding_text, findings)))


@dataclass
class KernelLaunches:
    """The launches of one kernel.

    Attributes
    ----------
    launches : their number.
    hazards : the findings as texts, by id and line; each is found once.
    """

    launches: int = 0
    hazards: dict[str, str] = field(default_factory=dict)


@dataclass
class LaunchCounts:
    """The launches of a session's tests.

    Attributes
    ----------
    kernels : the launches of each kernel, by its name and its module.
    importers : files that import the embedded modules, if no kernel was launched.
    loaded_before : names of the modules that the program had loaded before the session.
    """

    kernels: dict[tuple[str, str], KernelLaunches] = field(default_factory=dict)
    importers: set[str] = field(default_factory=set)
    loaded_before: frozenset[str] = frozenset()

    def record(self, launch: LaunchRecord, findings: Collection[Finding]) -> None:
        """Count a launch, with its new findings. Communicating launches count as one."""
        kernel = launch.kernel
        named = (_RANKS, "") if kernel is None else _name_and_module(kernel)
        row = self.kernels.setdefault(named, KernelLaunches())
        if not launch.rank:
            row.launches += 1
        for finding in findings:
            row.hazards[f"{finding.id} at {finding.location}"] = finding_text(finding)

    def as_plain(self) -> list[Any]:
        """Return the counts as lists, which a pytest-xdist worker sends."""
        rows = [
            [name, module, row.launches, row.hazards]
            for (name, module), row in self.kernels.items()
        ]
        return [rows, sorted(self.importers)]

    def merge(self, plain: Collection[Any]) -> None:
        """Add the counts of a worker, in the form of :meth:`as_plain`."""
        rows, importers = plain
        for name, module, launches, hazards in rows:
            row = self.kernels.setdefault((name, module), KernelLaunches())
            row.launches += launches
            row.hazards.update(hazards)
        self.importers.update(importers)

    def as_mappings(self) -> list[dict[str, Any]]:
        """Return the launches and the hazards of each kernel, for a report."""
        return [
            {
                "kernel": label,
                "launches": row.launches,
                "hazards": list(row.hazards.values()),
            }
            for label, row in self.labelled().items()
        ]

    def labelled(self) -> dict[str, KernelLaunches]:
        """Return the launches of each kernel by a distinct label, in the order of the labels."""
        names = [name for name, _ in self.kernels]
        modules = [module for _, module in self.kernels]
        labels = distinct_names(names, modules)
        return dict(sorted(zip(labels, self.kernels.values(), strict=True)))


def _name_and_module(kernel: Any) -> tuple[str, str]:
    return function_name(kernel), module_name(kernel)


class LaunchInspector:
    """A listener to the launches of one test.

    Attributes
    ----------
    inspector : the detectors, which show a hazard of a line once a test.
    """

    def __init__(self, counts: LaunchCounts, *, strict: bool) -> None:
        self.inspector = Inspector(strict=strict)
        self._counts = counts
        self._reported = 0

    def __call__(self, record: LaunchRecord) -> None:
        """Inspect and count a launch."""
        before = len(self.inspector.findings)
        self.inspector(record)
        self._counts.record(record, _shown(self.inspector.findings[before:]))

    def report(self, *, strict: bool) -> None:
        """Warn of each new hazard at its line.

        Raises
        ------
        LaunchHazardFailure : the session or its warning filters make the hazard a failure; the
            session alone only if ``strict``.
        """
        found = _shown(self.inspector.findings[self._reported :])
        self._reported = len(self.inspector.findings)
        if strict and self.inspector.strict and found:
            raise LaunchHazardFailure(found)
        for finding in found:
            try:
                warn(HazardWarning(finding_text(finding)), finding.location)
            except HazardWarning:
                raise LaunchHazardFailure([finding]) from None


def _shown(findings: Collection[Finding]) -> list[Finding]:
    return [hit for hit in findings if hit.severity is not Severity.NOTE]


def is_inspected(item: pytest.Item, session: Session) -> bool:
    """Return whether a test may launch kernels on the embedded simulator without a reference."""
    is_kernel_test = "difftest_runner" in getattr(item, "fixturenames", ())
    return session.launches is not None and not is_kernel_test


@contextlib.contextmanager
def inspecting(item: pytest.Item, session: Session) -> Iterator[None]:
    """Inspect the launches of a test within the block, with the session's strictness."""
    assert session.launches is not None
    inspector = LaunchInspector(session.launches, strict=session.request.strict)
    item.stash[INSPECTOR] = inspector
    with contextlib.ExitStack() as stack:
        if session.request.strictness is not None:
            stack.enter_context(strictness(session.request.strictness))
        stack.enter_context(listening(inspector))
        yield


def report_hazards(item: pytest.Item, *, strict: bool = False) -> None:
    """Report the hazards of an inspected test; do nothing for another test.

    Raises
    ------
    LaunchHazardFailure : see :meth:`LaunchInspector.report`.
    """
    inspector = item.stash.get(INSPECTOR, None)
    if inspector is not None:
        inspector.report(strict=strict)


def note_importers(counts: LaunchCounts) -> None:
    """Note which files import the embedded modules, if no kernel was launched."""
    if not counts.kernels:
        counts.importers.update(_importers(counts.loaded_before))


def _importers(loaded_before: Collection[str]) -> Iterator[str]:
    """Yield the files of the session's modules that hold an embedded module, or a part of one."""
    embedded = set()
    users = {}
    for name, module in list(sys.modules.items()):
        root = name.partition(".")[0]
        file = getattr(module, "__file__", None)
        if root in ROOTS:
            embedded.add(id(module))
        elif file is not None and root != "difftest" and name not in loaded_before:
            users[file] = module
    for file, module in users.items():
        values = list(vars(module).values())
        if any(id(value) in embedded or _is_embedded_part(value) for value in values):
            yield file


def _is_embedded_part(value: object) -> bool:
    """Return whether an object is a kernel, or a function of the embedded modules."""
    homes = getattr(value, "__module__", None), type(value).__module__
    return any(isinstance(home, str) and home.startswith(_PARTS) for home in homes)


def launch_lines(counts: LaunchCounts, *, verbose: bool) -> list[str]:
    """Return the table of the launches, or the reason why there is none; empty without imports."""
    if not counts.kernels:
        return _no_launch_lines(counts.importers, verbose=verbose)
    rows = counts.labelled()
    shown = dict(rows)
    if not verbose and len(rows) > _FEW:
        quiet = {label: row for label, row in rows.items() if not row.hazards}
        shown = {label: row for label, row in rows.items() if row.hazards}
        total = sum(row.launches for row in quiet.values())
        shown[f"{len(quiet)} kernels without hazards (-v)"] = KernelLaunches(total)
    return padded_table(_columns(shown))


def _columns(rows: Mapping[str, KernelLaunches]) -> dict[str, list[str]]:
    """Return the columns of the table by their titles."""
    return {
        "kernel": list(rows),
        "launches": [str(row.launches) for row in rows.values()],
        "hazards": [str(len(row.hazards)) for row in rows.values()],
    }


def _no_launch_lines(importers: Collection[str], *, verbose: bool) -> list[str]:
    """Return lines for a session that imported the simulator and launched no kernel."""
    if not importers:
        return []
    files = [relative_path(file) for file in sorted(importers)]
    named = ", ".join(files if verbose else files[:3])
    if len(files) > 3 and not verbose:
        named += f" and {len(files) - 3} more (-v)"
    return [
        f"no kernel was launched, although the simulator was imported by {named}",
        "  a switch or an `except` of these files may choose another path without a message",
    ]
