"""Kernel tests under HypoFuzz: what leads it, and how what it finds is kept.

HypoFuzz (``hypothesis fuzz -- --simulate PATHS``) collects the tests, ends pytest's session and
runs their cases itself. Of its own accord it would count the branches of the simulator and of
NumPy, which depend on what ran before: a case that it runs twice would never show the same.
"""

from __future__ import annotations

import atexit
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from types import CodeType
from typing import Any

import hypofuzz.provider
import hypothesis
from hypofuzz.coverage import CoverageCollector
from hypofuzz.hypofuzz import FuzzTarget
from hypothesis.internal.conjecture.data import ConjectureResult
from hypothesis.internal.escalation import current_pytest_item
from hypothesis.internal.observability import observability_enabled

from difftest.analysis.finding import Finding
from difftest.simulator.program_scheduler import one_thread
from difftest.simulator.trace import Location, Region, Trace
from difftest.support.tracebacks import is_user_file
from difftest.testing.backends.base import Backend, KernelCall, Outcome
from difftest.testing.harness.case import Case
from difftest.testing.harness.coverage import BranchTracer, Coverage
from difftest.testing.harness.differential import ReferenceResult
from difftest.testing.harness.duplicates import PassedCases
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    CaseFailure,
    DifferentialFailure,
    HazardFailure,
    Reproduction,
)
from difftest.testing.harness.runner import Runner, run_kernel
from difftest.testing.harness.spec import KernelSpec
from difftest.testing.harness.tally import Tally
from difftest.testing.harness.verdict import BothRejected, Verdict
from difftest.tools.scale.findings import (
    CLOSED,
    CampaignFinding,
    FindingStore,
    class_of_size,
    found_of,
)

_TURNS = ("ran", "a second turn", "a third turn")
_BRANCHES = ("true", "false")
_TIMES = 3
"""Times that are told apart: a first tile, a second one, and the others."""


def features(
    coverage: Coverage,
    traces: Iterable[Trace],
    findings: Iterable[Finding],
    verdicts: Mapping[str, Verdict],
) -> set[str]:
    """All that a case did: at branches and loops, by instructions, to detectors, to the judge."""
    return {
        *_of_forks(coverage),
        *(feature for trace in traces for feature in _of_trace(trace)),
        *(f"{_at(finding.location)} {finding.id}" for finding in findings),
        *(_of_verdict(verdict) for verdict in verdicts.values()),
    }


def _of_forks(coverage: Coverage) -> Iterator[str]:
    loops = {fork[:2] for fork in coverage.branches if fork[2]}
    for file, line, what in coverage.done:
        words = _TURNS if (file, line) in loops else _BRANCHES
        yield f"{_at(Location(file, line))} {words[what]}"


def _of_trace(trace: Trace) -> Iterator[str]:
    """Which instruction, at which line, on which sizes, for the how manieth time; what it saw."""
    times: Counter[tuple[Location | None, str]] = Counter()
    for event in trace.events:
        at = _at(event.location)
        which = (event.location, event.opcode)
        times[which] += 1
        for region in event.writes:
            yield f"{at} {event.opcode} {_sizes(region)} time {min(times[which], _TIMES)}"
        yield from (f"{at} {sight.what.value}" for sight in event.seen)


def _sizes(region: Region) -> str:
    free = math.prod(size for size, _ in region.free_axes)
    partitions = 1 if region.allocation.space.is_hbm else region.partitions
    partly = "" if region.whole else " partly"
    return f"{class_of_size(partitions)} x {class_of_size(free)}{partly}"


def _of_verdict(verdict: Verdict) -> str:
    error = verdict.kernel_error if isinstance(verdict, BothRejected) else None
    place = "" if error is None else f" {_at(getattr(error, 'location', None))}"
    return f"{type(verdict).__name__}{place}"


def _at(location: Location | None) -> str:
    return "" if location is None else f"{PurePath(location.file).name}:{location.line}"


_OLD_NAME = "slice_comments"
"""What HypoFuzz 25.11 asks of a failure that it has shrunk, and newer Hypotheses call otherwise."""


class KernelCoverage(CoverageCollector):
    """HypoFuzz's own, of the kernels, their references and tests, and of no library."""

    def trace_branch(self, code: CodeType, source_offset: int, dest_offset: int) -> Any:
        """A branch, as ``sys.monitoring`` tells it."""
        if not is_user_file(code.co_filename):
            return sys.monitoring.DISABLE
        return super().trace_branch(code, source_offset, dest_offset)

    def trace_pre_312(self, frame: Any, event: Any, arg: Any) -> Any:
        """A line, as ``sys.settrace`` tells it."""
        if not is_user_file(frame.f_code.co_filename):
            return None
        return super().trace_pre_312(frame, event, arg)


_enter_fixtures = FuzzTarget._enter_fixtures


def _enter_anew(target: FuzzTarget) -> None:
    """Make a test's fixtures, those too that were torn down when HypoFuzz left it for another."""
    if target.pytest_item is not None:
        target.pytest_item._initrequest()
    _enter_fixtures(target)


def _lead_hypofuzz() -> None:
    """Let HypoFuzz count as :class:`KernelCoverage` does, and survive its own mistakes."""
    vars(hypofuzz.provider)["CoverageCollector"] = KernelCoverage
    FuzzTarget._enter_fixtures = _enter_anew  # type: ignore[method-assign,assignment]
    if not hasattr(ConjectureResult, _OLD_NAME):
        setattr(ConjectureResult, _OLD_NAME, property(lambda result: result.span_comments))


class _NoRepeats(PassedCases):
    """HypoFuzz runs a case again to see whether it does the same: none is left out or changed."""

    def is_duplicate(self, spec: KernelSpec, case: Case) -> bool:
        return False

    def add(self, spec: KernelSpec, case: Case) -> None:
        pass


class CampaignRunner(Runner):
    """Runs cases for a fuzzer: each on its own, hazards included, and tells it what they did.

    Whatever HypoFuzz runs in this process from now on is led by :class:`KernelCoverage`.

    ``runner`` and ``options`` are of the session that collected the tests, and so is ``setting``,
    which decides whether another is like it. Findings name their files from ``root``.
    """

    def __init__(
        self,
        runner: Runner,
        findings: FindingStore,
        root: Path,
        setting: str,
        options: tuple[str, ...],
    ) -> None:
        watch = BranchTracer()
        atexit.register(watch.close)
        super().__init__(
            runner.backends,
            record=True,
            strict=runner.strict,
            exact=runner.exact,
            beside=runner.beside,
            branch_tracer=watch,
        )
        _lead_hypofuzz()
        self.repeats = _NoRepeats()
        self.findings = findings
        self.root = root
        self.setting = setting
        self.options = options
        self._did = Coverage()
        self._first: dict[tuple[str, str], tuple[CampaignFinding, CampaignFinding | None]] = {}

    def run(self, spec: KernelSpec, backend: Backend, call: KernelCall) -> Outcome:
        """Run a call; what the kernel did in its own code is told, in each case anew."""
        assert self.branch_tracer is not None
        with self.branch_tracer.call(call.kernel) as seen:
            outcome = run_kernel(backend, call)
        self._did.add_function(spec.name, seen.branches)
        self._did.done |= seen.done
        return outcome

    def check(
        self, spec: KernelSpec, case: Case, reference: ReferenceResult | Exception | None = None
    ) -> dict[str, Verdict]:
        """Run the case; a hazard fails it as a wrong value does. The finding is kept."""
        __tracebackhide__ = True
        self.reproduction = Reproduction(_node(), self.options)
        self.tally = Tally()
        self.histories = {}
        self._did = Coverage()
        self.hazards = {}
        self.traces = {}
        try:
            with one_thread():
                verdicts = super().check(spec, case, reference)
            self.check_hazards(warns=False)
        except (DifferentialFailure, HazardFailure) as failure:
            self._keep(failure)
            raise
        seen = [hazard for *_, hazard in self.hazards.values()]
        for feature in sorted(features(self._did, self.traces.values(), seen, verdicts)):
            hypothesis.event(feature)
        return verdicts

    def reference(self, spec: KernelSpec, case: Case) -> ReferenceResult | Exception:
        """See :class:`Runner`; one that breaks down is a finding too."""
        try:
            return super().reference(spec, case)
        except BrokenReferenceError as failure:
            self._keep(failure)
            raise

    def _keep(self, failure: CaseFailure) -> None:
        """Keep the first case of a failure at once, and in its place the one that it shrinks to.

        HypoFuzz listens to the first run and to the one after shrinking, and to none between.
        """
        if not observability_enabled():
            return
        finding = found_of(failure, _node(), self.root, self.setting, self.traces)
        stored = self.findings.get(finding.id)
        which = finding.test, finding.kernel
        if which not in self._first:
            self._first[which] = finding, stored
            if stored is None or stored.state == CLOSED:
                self.findings.put(finding)
            return
        first, before = self._first.pop(which)
        if before is None or before.state == CLOSED:
            self.findings.drop(first)
            stored = before if finding.id == first.id else stored
            if before is not None:
                self.findings.put(before)
        if stored is None or stored.state == CLOSED:
            self.findings.put(finding._replace(found=stored.found) if stored else finding)
            print(f"difftest: {'back: ' if stored else ''}{finding}", file=sys.stderr, flush=True)


def _node() -> str:
    """The test that runs, as pytest names it."""
    item = current_pytest_item.value
    return "" if item is None else item.nodeid.partition("[")[0]
