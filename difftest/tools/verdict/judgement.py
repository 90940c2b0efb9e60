"""The result of judging a kernel, and its form as JSON.

``data/verdict.schema.json`` describes the form. :data:`VERSION` changes when a member changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from difftest.analysis.finding import Finding
from difftest.analysis.inspection import fails, finding_text
from difftest.analysis.placement import placements
from difftest.simulator.dtypes import NKI_NAMES
from difftest.simulator.errors import NkiError
from difftest.simulator.machine import MACHINES
from difftest.simulator.trace import Trace
from difftest.support.tracebacks import format_error
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.coverage import Coverage, uncovered_branches
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    CaseFailure,
    DifferentialFailure,
    NotRejectedError,
    describe_box,
)
from difftest.testing.harness.tally import Counts
from difftest.testing.harness.verdict import Mismatch, OneSided
from difftest.timing import UnknownCostError, predict
from difftest.timing.report import roofline
from difftest.tools.verdict.backend import CheatError, Disclosure, KernelFailure
from difftest.tools.verdict.outcome import Outcome, Stage
from difftest.tools.verdict.wire import WorkerEnd

FORMAT = "difftest verdict"
VERSION = 6
SHOWN = tuple(shown.value for shown in Disclosure)
_AS_IT_IS = (
    *("reason", "kernel", "test", "report", "findings", "time", "memory"),
    *("instructions", "seed", "seconds", "limits", "versions", "notes"),
)
Failure = CaseFailure | NotRejectedError | CheatError | WorkerEnd
_OF_WRONG = ("kind", "question", "message", "output", "elements", "wrong")


def _no_sizes() -> dict[str, int | None]:
    return {"judged": 0, "of": None}


@dataclass
class VerdictEvidence(Counts):
    """The evidence for a verdict: the counts of the harness without shrinking, and more.

    Attributes
    ----------
    decided : number of cases with an element that was compared with a finite number.
    shown : number of runs of the kernel's Python by the share of the data that it received.
    doubts : reasons why the evidence is weaker than it may look.
    allowed : the modules that ``--allow`` lets the kernel import.
    constants : the constants of the candidate's file that the test reads.
    sizes : the combinations of sizes that were judged, and how many the domain has.
    """

    decided: int = 0
    shown: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(SHOWN, 0))
    doubts: set[str] = field(default_factory=set)
    allowed: list[str] = field(default_factory=list)
    constants: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int | None] = field(default_factory=_no_sizes)


@dataclass
class Judgement:
    """The result of judging one kernel by one spec.

    Attributes
    ----------
    reason : one sentence.
    report : the harness's text of the failure.
    case : the smallest failing case, as ``--case`` takes it.
    time, memory : the prediction for the largest case, if judging reached it.
    instructions : a digest of the instructions of the largest case, if judging reached it.
    seconds : seconds that judging took.
    has_died : whether the kernel's process ended without an answer.
    failure, largest : the data of a page. Their specs' kernels replay recorded instructions.
    """

    kernel: Mapping[str, str]
    test: str
    seed: int
    outcome: Outcome = Outcome.AGREES
    stage: Stage = Stage.IMPORT
    reason: str = ""
    report: str = ""
    case: str | None = None
    wrong: Mismatch | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    evidence: VerdictEvidence = field(default_factory=VerdictEvidence)
    time: dict[str, Any] | None = None
    memory: list[dict[str, Any]] = field(default_factory=list)
    instructions: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    has_died: bool = False
    failure: DifferentialFailure | None = None
    largest: tuple[KernelSpec, Case] | None = None

    def add(self, source: str, finding: Finding) -> None:
        """Keep a finding of ``source`` unless a finding of its kind at its place is there."""
        row = {"source": source, **finding.as_mapping()}
        row.pop("evidence")
        places = [(entry["id"], entry["locations"]) for entry in self.findings]
        if (row["id"], row["locations"]) not in places:
            self.findings.append(row)

    def blame(self, case: Case | None, failure: Failure) -> None:
        """Set the outcome of a failure; without a case, the contract excludes the failing call."""
        self.case = None if case is None else case.to_json()
        self.stage = Stage.RUN
        self.reason = str(failure)
        self.report = str(failure)
        if isinstance(failure, BrokenReferenceError):
            self.outcome = Outcome.INCONCLUSIVE
            self.reason = failure.title()
        elif isinstance(failure, NotRejectedError):
            self.outcome = Outcome.NOT_REFUSED
            self.stage = Stage.COMPARE
            self.reason = self.report.splitlines()[0]
        elif isinstance(failure, DifferentialFailure):
            verdict = failure.verdict
            self.outcome = _outcome_of(verdict)
            if isinstance(verdict, Mismatch):
                self.stage = Stage.COMPARE
                self.wrong = verdict
                self.reason = verdict.message
            elif isinstance(verdict.error, KernelFailure):
                self.reason = verdict.error.reason
            else:
                self.reason = format_error(verdict.error).splitlines()[0]
            for finding in failure.findings:
                self.add("hazards", finding)
        elif isinstance(failure, CheatError | WorkerEnd):
            self.outcome = failure.outcome
            self.has_died = getattr(failure, "is_death", False)

    def need_decision(self, reasons: Iterable[str]) -> bool:
        """Return whether a case decides; if none does, set the outcome and its reasons."""
        if self.evidence.decided:
            return True
        self.outcome = Outcome.WEAK_SPEC
        why = sorted(reasons) or ["none was compared, or all are zeros"]
        self.reason = f"no case has an element that decides: {'; '.join(why)}"
        return False

    def add_hazards(self, hazards: Iterable[tuple[Case, Finding]]) -> None:
        """Keep hazards of cases; the first that fails a correct kernel becomes its outcome."""
        for case, finding in hazards:
            self.add("hazards", finding)
            if fails(finding, strict=False) and self.outcome is Outcome.AGREES:
                self.outcome = Outcome.HAZARD
                self.case = case.to_json()
                self.reason = finding.happened
                self.report = finding_text(finding)

    def reward(self) -> dict[str, float]:
        """Return a suggested reward for a search: its parts, and their sum ``total``, from 0 to 1.

        An honest kernel gets a part for each property that holds. A kernel that agrees gets the
        rest for speed. Its speed is the lower bound of its traffic and arithmetic, divided by its
        predicted time. A kernel that cheats gets 0.
        """
        order = list(Stage)
        reached = order.index(self.stage)
        agrees = self.outcome is Outcome.AGREES
        share = float(self.time["bound_share"] or 0.0) if agrees and self.time else 0.0
        parts = {
            "imports": 0.05 * (reached > order.index(Stage.IMPORT)),
            "runs": 0.15 * (reached >= order.index(Stage.COMPARE)),
            "algorithm": 0.3 * (self._is_right or self._is_coarse),
            "arithmetic": 0.1 * self._is_right,
            "hazards": 0.1 * agrees,
            "speed": 0.3 * min(share, 1.0),
        }
        if self.outcome is Outcome.CHEATS:
            parts = dict.fromkeys(parts, 0.0)
        parts = {name: round(value, 6) for name, value in parts.items()}
        return {**parts, "total": round(sum(parts.values()), 6)}

    @property
    def _is_coarse(self) -> bool:
        return self.outcome is Outcome.COARSE_ARITHMETIC

    @property
    def _is_right(self) -> bool:
        return self.outcome in (Outcome.AGREES, Outcome.NOT_REFUSED, Outcome.HAZARD)

    def as_mapping(self) -> dict[str, Any]:
        missed = uncovered_branches(self.coverage)
        members = ("file", "line", "what", "source")
        missing = [{name: getattr(place, name) for name in members} for place in missed]
        document = {
            "format": FORMAT,
            "version": VERSION,
            **{name: getattr(self, name) for name in _AS_IT_IS},
            "outcome": self.outcome.value,
            "exit_code": self.outcome.exit_code,
            "stage": self.stage.value,
            "first_wrong": None if self.wrong is None else first_wrong(self.wrong),
            "case": None if self.case is None else json.loads(self.case),
            "coverage": {"missed": missing, "unknown": sorted(self.coverage.unknown)},
            "evidence": {**vars(self.evidence), "doubts": sorted(self.evidence.doubts)},
            "reward": self.reward(),
        }
        shown: dict[str, Any] = from_here(document, os.getcwd() + os.sep)
        return shown


def from_here(data: Any, here: str) -> Any:
    """Return data with each file below the working directory, ``here``, named from there.

    The worker that runs the kernel has another working directory, and names files whole.
    """
    if isinstance(data, str):
        return data.replace(here, "")
    if isinstance(data, Mapping):
        return {name: from_here(value, here) for name, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [from_here(value, here) for value in data]
    return data


def _outcome_of(verdict: Mismatch | OneSided) -> Outcome:
    """Return the outcome of wrong values, or of a kernel or reference without a result."""
    if isinstance(verdict, Mismatch):
        coarse = verdict.question == "arithmetic"
        return Outcome.COARSE_ARITHMETIC if coarse else Outcome.WRONG_ALGORITHM
    error = verdict.error
    if verdict.failed == "reference":
        return Outcome.WRONG_ALGORITHM
    if verdict.how == "refused":
        is_rule = isinstance(error, NkiError) or getattr(error, "is_rule", False)
        return Outcome.REFUSED if is_rule else Outcome.REFUSES_PROMISED
    return Outcome.INCONCLUSIVE if verdict.failed == "backend" else Outcome.CRASHED


def first_wrong(wrong: Mismatch) -> dict[str, Any]:
    """Return a mismatch in the form of the JSON document."""
    first = wrong.first
    return {
        **{name: getattr(wrong, name) for name in _OF_WRONG},
        "where": describe_box(wrong) if first is not None else "",
        **dict.fromkeys(("index", "got", "expected", "error", "allowed", "exact")),
        **({} if first is None else {**vars(first), "index": list(first.index)}),
        "how": list(wrong.how),
    }


MOST_EVENTS = 200_000
"""The longest trace whose time is predicted: an event takes tens of microseconds to predict."""


def add_memory(judgement: Judgement, trace: Trace) -> None:
    """Add the peak of each memory in the largest case, in bytes of a partition."""
    judgement.memory = [
        {
            "memory": placement.space.value,
            "program": list(placement.program),
            "needed": placement.needed,
            "limit": placement.limit,
        }
        for placement in placements(trace, MACHINES[trace.machine])
    ]


def add_time(judgement: Judgement, trace: Trace, case: Case, spec: KernelSpec) -> None:
    """Add the predicted latency of the largest case and its lower bounds, in microseconds."""
    if len(trace) > MOST_EVENTS:
        text = f"no time is predicted of {len(trace):,} instructions; accepted: {MOST_EVENTS:,}"
        judgement.notes.append(text)
        return
    try:
        prediction = predict(trace, MACHINES[trace.machine])
        interval = prediction.latency_interval
    except (UnknownCostError, ValueError) as error:
        judgement.notes.append(f"no time is predicted: {error}")
        return
    line = roofline(prediction)
    task = task_bytes(spec, case) / prediction.program.hbm_rate / 1e3
    judgement.time = {
        "case": case.label(),
        "predicted_us": prediction.latency,
        "low_us": interval[0],
        "high_us": interval[1],
        "own_us": line.predicted,
        "arithmetic_bound_us": line.tensor_bound,
        "memory_bound_us": line.memory_bound,
        "task_bound_us": task,
        "limited_by": line.limit,
        "bound_share": line.share if math.isfinite(line.share) else None,
        "caution": prediction.caution,
    }


def instructions_of(trace: Trace) -> str:
    """Return a digest of the operations and their elements, without names, source lines and loops.

    The order of first access identifies a tensor. Kernels that agree with one reference and have
    the same digest take the same time.
    """
    whole = hashlib.sha256()
    numbers = dict[int, int]()
    for event in trace.events:
        regions = []
        for region in event.writes + event.reads:
            base = region.allocation
            number = numbers.setdefault(base.id, len(numbers))
            tensor = (
                number,
                base.space.name,
                base.shape,
                base.dtype.name,
                base.partition_axis,
            )
            touched: tuple[int, ...] = ()
            if region.places is not None:
                touched = tuple(region.places.elements.tolist())
            place = (
                region.pattern,
                region.partition_axis,
                region.role,
                region.dtype.name,
                touched,
            )
            regions.append((tensor, base.address, base.places, place))
        options = sorted((name, repr(value)) for name, value in event.arguments.items())
        whole.update(
            repr((event.opcode, event.engine.name, event.program, options)).encode()
        )
        whole.update(repr(regions).encode())
    return whole.hexdigest()


def task_bytes(spec: KernelSpec, case: Case) -> int:
    """Return the least number of bytes that cross HBM: inputs, and outputs that the spec names.

    An argument that is read and written does not count, because a kernel may access a part of it.
    """
    read = [name for name in spec.inputs if name not in spec.outputs]
    written = [name for name in spec.outputs if name not in spec.inputs]
    sizes: Any = [(name, NKI_NAMES[case.dtype_of(name)]) for name in read]
    sizes += [(name, spec.written_dtype(case, name)) for name in written]
    return sum(
        math.prod(spec.shape(name, case.values)) * of.itemsize for name, of in sizes
    )
