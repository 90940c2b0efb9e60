"""Run kernel tests under HypoFuzz: guide its search by kernel behaviour, and keep its findings.

HypoFuzz (``hypothesis fuzz -- --simulate PATHS``) collects the tests, ends pytest's session and
runs the cases itself. By default it counts branches of the simulator and of NumPy. These depend on
earlier runs, so two runs of a case would differ.
"""

from __future__ import annotations

import atexit
import math
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from types import CodeType
from typing import Any

import hypofuzz.hypofuzz
import hypofuzz.provider
import hypothesis
from hypofuzz.coverage import CoverageCollector
from hypofuzz.hypofuzz import FuzzTarget

from difftest.analysis.finding import Finding
from difftest.simulator.program_scheduler import one_thread
from difftest.simulator.trace import Location, Region, Trace
from difftest.support.tracebacks import is_user_file
from difftest.testing.backends.base import Backend, KernelCall, Outcome
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.passed_cases import PassedCases
from difftest.testing.drawing.provider import (
    Planned,
    is_observed,
    rename_for_hypofuzz,
    running_test,
)
from difftest.testing.harness.coverage import Coverage
from difftest.testing.harness.differential import ReferenceResult
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    CaseFailure,
    DifferentialFailure,
    HazardFailure,
    Reproduction,
)
from difftest.testing.harness.kernel_calls import run_kernel
from difftest.testing.harness.minimal_failure import minimal_failure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.tally import Tally
from difftest.testing.harness.tracer import BranchTracer
from difftest.testing.harness.verdict import BothRejected, Verdict
from difftest.testing.session.pytest_internals import renew_fixture_requests
from difftest.tools.scale.findings import (
    CLOSED,
    CampaignFinding,
    FindingStore,
    class_of_size,
    found_of,
)

_ITERATIONS = ("ran", "a second iteration", "a third iteration")
_BRANCHES = ("true", "false")
_TIMES = 3
"""The largest count of an instruction: the first tile, the second, and all later tiles."""


def features(
    coverage: Coverage,
    traces: Iterable[Trace],
    findings: Iterable[Finding],
    verdicts: Mapping[str, Verdict],
) -> set[str]:
    """Return the features of a case: branches, loops, instructions, findings and verdicts."""
    return {
        *_branch_features(coverage),
        *(feature for trace in traces for feature in _trace_features(trace)),
        *(f"{_at(finding.location)} {finding.id}" for finding in findings),
        *(_verdict_feature(verdict) for verdict in verdicts.values()),
    }


def _branch_features(coverage: Coverage) -> Iterator[str]:
    """Yield each direction taken at a branch, and each iteration of a loop up to the third."""
    loops = {fork[:2] for fork in coverage.branches if fork[2]}
    for file, line, what in coverage.covered:
        words = _ITERATIONS if (file, line) in loops else _BRANCHES
        yield f"{_at(Location(file, line))} {words[what]}"


def _trace_features(trace: Trace) -> Iterator[str]:
    """Yield each instruction with its line, sizes and count, and each event that it observed."""
    times: Counter[tuple[Location | None, str]] = Counter()
    for event in trace.events:
        at = _at(event.location)
        which = (event.location, event.opcode)
        times[which] += 1
        for region in event.writes:
            yield f"{at} {event.opcode} {_sizes(region)} time {min(times[which], _TIMES)}"
        yield from (f"{at} {anomaly.what.value}" for anomaly in event.seen)


def _sizes(region: Region) -> str:
    free = math.prod(size for size, _ in region.free_axes)
    partitions = 1 if region.allocation.space.is_hbm else region.partitions
    partly = "" if region.whole else " partly"
    return f"{class_of_size(partitions)} x {class_of_size(free)}{partly}"


def _verdict_feature(verdict: Verdict) -> str:
    error = verdict.kernel_error if isinstance(verdict, BothRejected) else None
    place = "" if error is None else f" {_at(getattr(error, 'location', None))}"
    return f"{type(verdict).__name__}{place}"


def _at(location: Location | None) -> str:
    return "" if location is None else f"{PurePath(location.file).name}:{location.line}"


class KernelCoverage(CoverageCollector):
    """HypoFuzz's coverage, limited to kernels, references and tests."""

    def trace_branch(self, code: CodeType, source_offset: int, dest_offset: int) -> Any:
        """Record a branch of user code; disable events of other code."""
        if not is_user_file(code.co_filename):
            return sys.monitoring.DISABLE
        return super().trace_branch(code, source_offset, dest_offset)

    def trace_pre_312(self, frame: Any, event: Any, arg: Any) -> Any:
        """Record a line of user code; do not trace other code."""
        if not is_user_file(frame.f_code.co_filename):
            return None
        return super().trace_pre_312(frame, event, arg)


_enter_fixtures = FuzzTarget._enter_fixtures


def _enter_again(target: FuzzTarget) -> None:
    """Set up a test's fixtures, including fixtures that HypoFuzz tore down between targets."""
    if target.pytest_item is not None:
        renew_fixture_requests(target.pytest_item)
    _enter_fixtures(target)


def _patch_hypofuzz() -> None:
    """Make HypoFuzz use :class:`KernelCoverage`, and work around its defects."""
    vars(hypofuzz.provider)["CoverageCollector"] = KernelCoverage
    vars(hypofuzz.hypofuzz)["HypofuzzProvider"] = PlannedFuzz
    FuzzTarget._enter_fixtures = _enter_again  # type: ignore[method-assign,assignment]
    rename_for_hypofuzz()


class PlannedFuzz(Planned, hypofuzz.provider.HypofuzzProvider):
    """HypoFuzz's provider, whose new choices are those of a test's plan.

    Without it a campaign would draw few limits of the hardware, and aim at no condition.
    """

    @property
    def chance(self) -> random.Random:  # type: ignore[override]
        """The random numbers of the campaign."""
        return self.random

    def _fresh_choice(self, choice_type: Any, constraints: Any) -> Any:
        wanted = None
        if choice_type in ("integer", "boolean"):
            wanted = self.next_wanted(constraints)
        if wanted is not None:
            return wanted
        low, high = constraints.get("min_value"), constraints.get("max_value")
        if choice_type == "integer" and None not in (low, high):
            return self.next_integer(low, high)
        return super()._fresh_choice(choice_type, constraints)


class _NoRepeats(PassedCases):
    """A record of cases that skips none: HypoFuzz repeats a case to compare its two runs."""

    def is_duplicate(self, spec: KernelSpec, case: Case) -> bool:
        return False

    def add(self, spec: KernelSpec, case: Case) -> None:
        pass


class CampaignRunner(Runner):
    """A runner for a fuzzer: it runs each case alone, with hazards, and reports its features.

    Creating a runner makes HypoFuzz use :class:`KernelCoverage` in this process from then on.

    Parameters
    ----------
    runner, options : the runner and the options of the session that collected the tests.
    setting : the session's backends, level and strictness. Equal settings give equal results.
    root : the folder to which the file names of findings are relative.
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
        _patch_hypofuzz()
        self.repeats = _NoRepeats()
        self.findings = findings
        self.root = root
        self.setting = setting
        self.options = options
        self._did = Coverage()
        self._is_minimizing = False
        self._first: dict[
            tuple[str, str], tuple[CampaignFinding, CampaignFinding | None]
        ] = {}

    def run(self, spec: KernelSpec, backend: Backend, call: KernelCall) -> Outcome:
        """Run a call, and add the kernel's branches and loops to the coverage of the case."""
        assert self.branch_tracer is not None
        with self.branch_tracer.call(call.kernel) as seen:
            outcome = run_kernel(backend, call)
        self._did.add_function(spec.name, seen.branches)
        self._did.covered |= seen.covered
        return outcome

    def check(
        self,
        spec: KernelSpec,
        case: Case,
        reference: ReferenceResult | Exception | None = None,
    ) -> dict[str, Verdict]:
        """Run the case and keep its finding; a hazard fails the case as a wrong value does."""
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
        for feature in sorted(
            features(self._did, self.traces.values(), seen, verdicts)
        ):
            hypothesis.event(feature)
        return verdicts

    def reference(self, spec: KernelSpec, case: Case) -> ReferenceResult | Exception:
        """Return the reference's result; keep a finding if the reference breaks down."""
        try:
            return super().reference(spec, case)
        except BrokenReferenceError as failure:
            self._keep(failure)
            raise

    def _keep(self, failure: CaseFailure) -> None:
        """Keep the first case of a failure at once, and replace it by the shrunk case.

        HypoFuzz observes the first run and the run after shrinking, but no run between them.
        """
        if not is_observed() or self._is_minimizing:
            return
        if (_node(), failure.spec.name) in self._first:
            failure = self._minimal(failure)
        finding = found_of(failure, _node(), self.root, self.setting, self.traces)
        stored = self.findings.get(finding.id)
        key = finding.test, finding.kernel
        if key not in self._first:
            self._first[key] = finding, stored
            if _is_new(stored):
                self.findings.put(finding)
            return
        first, before = self._first.pop(key)
        if _is_new(before):
            self.findings.drop(first)
            stored = before if finding.id == first.id else stored
            if before is not None:
                self.findings.put(before)
        if _is_new(stored):
            self._put_shrunk(finding, stored)

    def _put_shrunk(
        self, finding: CampaignFinding, closed: CampaignFinding | None
    ) -> None:
        """Store and print the finding of a shrunk case; ``closed`` is its earlier finding."""
        if closed is not None:
            finding = finding._replace(found=closed.found)
        self.findings.put(finding)
        back = "back: " if closed is not None else ""
        print(f"difftest: {back}{finding}", file=sys.stderr, flush=True)

    def _minimal(self, failure: CaseFailure) -> CaseFailure:
        """Return the failure of a minimal case, and keep its traces."""
        by_case = {repr(failure.case): self.traces}

        def run(case: Case) -> None:
            with one_thread():
                try:
                    Runner.check(self, failure.spec, case)
                finally:
                    by_case[repr(case)] = self.traces

        self._is_minimizing = True
        smallest = minimal_failure(failure, run)
        self._is_minimizing = False
        self.traces = by_case[repr(smallest.case)]
        return smallest


def _is_new(stored: CampaignFinding | None) -> bool:
    """Return whether a finding was not stored before, or was closed since."""
    return stored is None or stored.state == CLOSED


def _node() -> str:
    """Return the pytest node of the running test, without its parameters."""
    return running_test().partition("[")[0]
