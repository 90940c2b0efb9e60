"""Run cases on the backends, judge each outcome, and count what ran."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from difftest.analysis.finding import Finding, Severity
from difftest.analysis.inspection import fails, finding_text
from difftest.simulator.errors import relative_path, warn
from difftest.simulator.exact.run import ExactSettings
from difftest.simulator.trace import Trace
from difftest.support.rounding import Array
from difftest.support.signature import module_name
from difftest.testing.backends.base import (
    Backend,
    Completed,
    Crashed,
    KernelCall,
    Outcome,
    Rejected,
)
from difftest.testing.concolic.search import nearest_miss
from difftest.testing.contract.case import Case
from difftest.testing.contract.limits import (
    NEEDS_LESS,
    fault_of_machine,
)
from difftest.testing.contract.reference import (
    ReferenceDefect,
    ReferenceRefusal,
)
from difftest.testing.contract.spec import KernelSpec, Rejection
from difftest.testing.drawing.dry_run import search_kernels
from difftest.testing.drawing.explicit import minimal_case
from difftest.testing.drawing.passed_cases import PassedCases
from difftest.testing.harness.compare import are_equal
from difftest.testing.harness.coverage import (
    ITERATIONS,
    Coverage,
    expression_lines,
)
from difftest.testing.harness.differential import (
    ReferenceResult,
    evaluate_reference,
)
from difftest.testing.harness.explanation import (
    CaseHistory,
    describe_caveats,
    describe_drawn_nonfinite,
    describe_large_data,
    describe_one_rounding,
    explain_rounding,
    is_expected,
)
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    DifferentialFailure,
    HazardFailure,
    HazardWarning,
    NothingComparedError,
    NotRejectedError,
    Reproduction,
    rejection_text,
)
from difftest.testing.harness.judging import verdict_on
from difftest.testing.harness.kernel_calls import make_call, run_kernel
from difftest.testing.harness.misuse import argument_note, input_misuse, with_misuse
from difftest.testing.harness.tally import Tally
from difftest.testing.harness.tracer import BranchTracer
from difftest.testing.harness.verdict import (
    Inconclusive,
    Match,
    Mismatch,
    OneSided,
    Verdict,
    is_failure,
)

# The text of a failure is complete: pytest shows no frame of this module.
__tracebackhide__ = True
_SURE = 3
"""The number of first cases in which each of several kernels has its own exact run."""


@dataclass
class Trial:
    """A case that runs, with its reference and the results so far.

    Attributes
    ----------
    reference : the reference's outputs, or its error if it rejected the case.
    settings : the settings of exact runs; None without exact runs.
    verdicts : the verdict of each backend that ran.
    findings : the hazards that backends found.
    """

    spec: KernelSpec
    case: Case
    inputs: tuple[Array, ...]
    reference: ReferenceResult | Exception
    settings: ExactSettings | None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def results(self) -> int | None:
        """The number of arrays that the reference returned; None if it rejected the case."""
        if not isinstance(self.reference, ReferenceResult):
            return None
        return len(self.reference.outputs)


@dataclass(repr=False)
class Runner:
    """The backends of a session, and the tally of the current test.

    Attributes
    ----------
    tally : the counts of the current test.
    reproduction : the way to run the current test again; None outside pytest.
    record : whether backends record traces.
    traces, outputs : the traces and outputs of the last case, by the backend that ran the kernel to
        its end.
    right : right outputs of another kernel in the same case, by backend, with their verdict.
    verbose : whether a report lists all rounding errors.
    strict : whether hazards that are warnings fail the test.
    hazards : errors and warnings of the test by id and places, each with its first case.
    repeats : drawn cases that agreed.
    histories : the results of all cases, by the kernel's name.
    exact : whether cases run without rounding too, if their specs allow it.
    beside : a function for backends without an exact run. It runs a call on the embedded simulator,
        or returns the reason why it cannot.
    now : the spec and the case that run.
    tested : the spec of the current test, with all its kernels; None before its first case.
    branch_tracer : records the branches and loops that the cases take, for the tally.
    """

    backends: tuple[Backend, ...]
    tally: Tally = field(default_factory=Tally)
    reproduction: Reproduction | None = None
    record: bool = False
    traces: dict[str, Trace] = field(default_factory=dict)
    outputs: dict[str, tuple[Array, ...]] = field(default_factory=dict)
    right: dict[str, tuple[tuple[Array, ...], Match]] = field(default_factory=dict)
    verbose: bool = False
    strict: bool = False
    hazards: dict[object, tuple[KernelSpec, Case, Finding]] = field(
        default_factory=dict
    )
    repeats: PassedCases = field(default_factory=PassedCases)
    histories: dict[str, CaseHistory] = field(default_factory=dict)
    exact: bool = True
    beside: Callable[[KernelCall], Completed | str] | None = None
    now: tuple[KernelSpec, Case] | None = None
    tested: KernelSpec | None = None
    branch_tracer: BranchTracer | None = None

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Keep Hypothesis's report of a failing example short."""
        printer.text(
            f"<runner of {', '.join(backend.name for backend in self.backends)}>"
        )

    def start(self, reproduction: Reproduction | None) -> None:
        """Begin a test: reset its counts, and store how to run it again."""
        self.tally = Tally()
        self.reproduction = reproduction
        self.repeats = PassedCases()
        self.histories = {}
        self.hazards = {}
        self.tested = None

    @contextmanager
    def on(self, backends: tuple[Backend, ...]) -> Iterator[None]:
        """Run cases on these backends only within the block."""
        all_backends = self.backends
        self.backends = backends
        try:
            yield
        finally:
            self.backends = all_backends

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Run cases within the block that the tally does not count."""
        tally = self.tally
        self.tally = Tally()
        try:
            yield
        finally:
            self.tally = tally

    @property
    def may_repeat(self) -> bool:
        """Return whether a failing case may run again many times, to make it smaller."""
        return True

    def run(self, spec: KernelSpec, backend: Backend, call: KernelCall) -> Outcome:
        """Run a call, and count the branches that the kernel takes on the embedded simulator."""
        if self.branch_tracer is None or backend.name not in ("embedded", "plain"):
            return run_kernel(backend, call)
        with self.branch_tracer.call(call.kernel) as branches:
            outcome = run_kernel(backend, call)
        if isinstance(outcome, Completed):
            self.branch_tracer.record(branches, spec.name, self.tally.coverage)
            self.tally.coverage.unknown |= {self.branch_tracer.unknown} - {""}
        return outcome

    def check(
        self,
        spec: KernelSpec,
        case: Case,
        reference: ReferenceResult | Exception | None = None,
    ) -> dict[str, Verdict]:
        """Run the case on each backend and compare each outcome with the reference.

        ``reference`` is the result of the reference, if it is known.

        Raises
        ------
        BrokenReferenceError : the reference is wrong.
        DifferentialFailure : a backend is wrong.
        """
        try:
            trial = self.begin(spec, case, reference)
            for backend in self.backends:
                self.run_backend(trial, backend)
        except (MemoryError, OSError) as error:
            if not fault_of_machine(error):
                raise
            return self.undecided(spec, case, error)
        return self.conclude(trial)

    def undecided(
        self, spec: KernelSpec, case: Case, error: Exception
    ) -> dict[str, Verdict]:
        """Count a case that this computer could not run, and return its verdicts.

        ``error`` is a fault of this computer: see :func:`fault_of_machine`.
        """
        # This frees the arrays that filled the memory.
        traceback.clear_frames(error.__traceback__)
        verdict = Inconclusive(f"{fault_of_machine(error)}; {NEEDS_LESS}")
        self.tally.homes[spec.name] = module_name(spec.kernel)
        for backend in self.backends:
            self.tally.count(spec.name, backend.name, verdict)
        return {backend.name: verdict for backend in self.backends}

    def begin(
        self,
        spec: KernelSpec,
        case: Case,
        reference: ReferenceResult | Exception | None = None,
    ) -> Trial:
        """Return a case that no backend has run yet, with the result of its reference."""
        self.now = spec, case
        if spec.inferred:
            self.tally.inferred.add(f"{spec.inferred} ({spec.name})")
        if reference is None:
            reference = self.reference(spec, case)
        if isinstance(reference, ReferenceResult):
            inputs = tuple(reference.inputs.values())
        else:
            inputs = spec.inputs_of(case)
        self.traces = {}
        self.outputs = {}
        return Trial(spec, case, inputs, reference, self.settings_of(spec, case))

    def run_backend(self, trial: Trial, backend: Backend) -> Verdict:
        """Run the case on one backend, judge the outcome and count it."""
        spec = trial.spec
        case = trial.case
        call, ran, known = self._run_case(trial, backend)
        if isinstance(ran, Crashed) and fault_of_machine(ran.error):
            raise ran.error
        outcome = ran
        if known is None:
            outcome = self._with_exact_run(trial, backend, ran)
        misuse = None
        if isinstance(outcome, Completed):
            misuse = self.suspected(trial, backend, call, outcome)
            self._store_run(trial, backend, outcome)
        del call  # the comparison needs no copies of the inputs
        verdict, note = self._judge(trial, outcome, known, misuse)
        data = describe_large_data(verdict, trial.reference)
        verdict = _with_reason(verdict, data)
        self.tally.homes[spec.name] = module_name(spec.kernel)
        self.tally.count(spec.name, backend.name, verdict)
        if isinstance(verdict, Mismatch):
            beside = None if outcome is ran else outcome
            verdict = _explained(trial, verdict, backend, outcome, beside)
            verdict = _with_notes(trial, verdict, data, note)
            self._history(spec).add_failure(case, backend.name, verdict)
        trial.verdicts[backend.name] = verdict
        return verdict

    def _judge(
        self,
        trial: Trial,
        outcome: Outcome,
        known: Match | None,
        misuse: Mismatch | None,
    ) -> tuple[Verdict, str]:
        """Return the verdict on an outcome, and a note for the report on a misuse of arguments."""
        with self.defects(trial.spec, trial.case):
            verdict = known or verdict_on(trial.reference, outcome)
        if not isinstance(outcome, Completed):
            return verdict, ""
        verdict, note = with_misuse(verdict, misuse)
        return verdict, note or argument_note(trial.spec, verdict, outcome)

    def _run_case(
        self, trial: Trial, backend: Backend
    ) -> tuple[KernelCall, Outcome, Match | None]:
        """Run the case on a backend; return the call, its outcome and its verdict if it is known.

        The verdict is known if another kernel's right outputs have the same bits. Then no exact run
        is necessary.
        """
        if (
            len(self._history(trial.spec).agreed) >= _SURE
            and backend.name in self.right
        ):
            outputs, verdict = self.right[backend.name]
            call, ran = self._launch(trial, backend, None)
            if _is_whole(ran) and are_equal(ran.outputs, outputs):
                return call, ran, verdict
        call, ran = self._launch(trial, backend, trial.settings)
        return call, ran, None

    def _store_run(self, trial: Trial, backend: Backend, ran: Completed) -> None:
        """Keep the findings, the outputs and the trace of a run."""
        trial.findings += ran.findings
        self.outputs[backend.name] = ran.outputs
        if ran.trace is not None:
            self.traces[backend.name] = ran.trace

    def _launch(
        self, trial: Trial, backend: Backend, exact: ExactSettings | None
    ) -> tuple[KernelCall, Outcome]:
        """Run the case on a backend, and return the call and its outcome."""
        call = make_call(
            trial.spec,
            trial.case,
            trial.inputs,
            record=self.record,
            inspect=True,
            exact=exact,
            results=trial.results,
        )
        return call, self.run(trial.spec, backend, call)

    def suspected(
        self, trial: Trial, backend: Backend, call: KernelCall, ran: Completed
    ) -> Mismatch | None:
        """Return the misuse of inputs in a run; None if the kernel only read its inputs."""
        return input_misuse(trial.spec, trial.inputs, call, ran)

    def conclude(self, trial: Trial) -> dict[str, Verdict]:
        """Return the verdicts on a case that has run.

        Raises
        ------
        DifferentialFailure : a backend is wrong.
        """
        history = self._history(trial.spec)
        verdicts = trial.verdicts
        if any(map(is_failure, verdicts.values())):
            failure = self.failure(trial)
            failure.history = history
            raise failure from _backend_error(verdicts.values())
        history.agreed.append(trial.case)
        for hit in trial.findings:  # the test reports each hazard once, at its end
            is_note = hit.severity is Severity.NOTE
            if not is_note and not is_expected(trial.reference, hit):
                key = hit.id, hit.locations
                self.hazards.setdefault(key, (trial.spec, trial.case, hit))
        return verdicts

    def failure(self, trial: Trial) -> DifferentialFailure:
        """Return the error of a case that a backend got wrong."""
        failure = DifferentialFailure(
            trial.spec, trial.case, trial.verdicts, self.reproduction, trial.findings
        )
        failure.verbose = self.verbose
        return failure

    def _history(self, spec: KernelSpec) -> CaseHistory:
        return self.histories.setdefault(spec.name, CaseHistory(spec))

    def check_hazards(self, *, warns: bool = True) -> None:
        """Fail, or warn, for the hazards of a test whose cases all agree with their reference.

        Call it at the end of the test, so that Hypothesis shrinks wrong values only.
        """
        failing = [
            hit for hit in self.hazards.values() if fails(hit[2], strict=self.strict)
        ]
        if failing:
            spec, case, _ = failing[0]
            findings = [finding for *_, finding in failing]
            raise HazardFailure(spec, case, self.reproduction, findings)
        if warns:
            for *_, finding in self.hazards.values():
                warn(HazardWarning(finding_text(finding)), finding.location)

    def report_uncovered(self) -> None:
        """Note which values came nearest to each condition that changes for few sizes."""
        coverage = self.tally.coverage
        for kernel, history in self.histories.items():
            cases = [case.values for case in history.agreed]
            if not cases:
                continue
            # One search serves all kernels of a test: it has aimed their cases.
            search = search_kernels(self.tested or history.spec)
            conditions = search.conditions_of(history.spec.kernel)
            for (file, line), text in _missed_expressions(
                conditions, cases, coverage
            ).items():
                coverage.expressions.add((file, line, kernel, text))

    def check_compared(self, spec: KernelSpec | None) -> None:
        """Raise a NothingComparedError if the test compared nothing, or too little.

        ``spec`` is that of drawn cases; None for a test of explicit cases, which may be few.
        """
        text = self.tally.nothing_compared
        if spec is not None and not spec.allow_inconclusive:
            text = text or self.tally.proves_too_little or self.narrow_domain(spec)
        if text:
            raise NothingComparedError(text)

    def narrow_domain(self, spec: KernelSpec) -> str:
        """Return why a test whose domain needs one tile alone proves too little; else empty.

        A test proves too little if the kernel has loops over sizes, and none of them had a second
        iteration. The cases count, and the search for conditions, which begins with the largest
        sizes.
        """
        if self.tally.coverage.unknown:
            return ""
        repeated = search_kernels(spec).loops
        for kernel in self.histories:
            loop = self._loop_without_repetition(kernel, repeated)
            if loop is not None:
                file, line = loop
                return (
                    f"the test of {kernel} proves too little: "
                    "no case runs a loop over sizes twice\n"
                    f"  first:  {relative_path(file)}:{line}: {ITERATIONS[1]}\n"
                    "  remedy: widen the domain until a second tile is needed; "
                    "allow_inconclusive=True of the spec accepts it"
                )
        return ""

    def _loop_without_repetition(
        self, kernel: str, repeated: Mapping[tuple[str, int], bool]
    ) -> tuple[str, int] | None:
        """Return a kernel's first loop over sizes that ran, if none had a second iteration."""
        coverage = self.tally.coverage
        first = None
        for file, line, loops, name in sorted(coverage.branches):
            loop = file, line
            if name != kernel or not loops or loop not in repeated:
                continue
            if repeated[loop] or (*loop, 1) in coverage.covered:
                return None
            if first is None and (*loop, 0) in coverage.covered:
                first = loop
        return first

    def settings_of(self, spec: KernelSpec, case: Case) -> ExactSettings | None:
        """Return the settings of a case's exact run; None for no exact run."""
        if not (self.exact and spec.exact) or spec.ranks:
            return None  # an exact run would take a collective's result as exact
        return ExactSettings(
            dtypes=() if spec.accumulation == "float32" else (spec.accumulation,),
            results=tuple(dtype.name for dtype in spec.possible_dtypes(case)),
            random=all(recipe.is_random for recipe in case.data.values()),
        )

    def _with_exact_run(
        self, trial: Trial, backend: Backend, outcome: Outcome
    ) -> Outcome:
        """Return the outcome with an exact run: its own, or the embedded simulator's.

        The embedded simulator's run also reports hazards. The summary lists cases without an exact
        run, and the limits of exact runs.
        """
        if not isinstance(outcome, Completed) or trial.settings is None:
            return outcome
        if outcome.exact is None and self.beside is not None:
            outcome = self._with_run_beside(trial, backend, outcome, self.beside)
        if outcome.exact is not None:
            for caveat in describe_caveats(outcome.exact):
                self.tally.doubts.add(f"{trial.spec.name}: {caveat}")
        return outcome

    def _with_run_beside(
        self,
        trial: Trial,
        backend: Backend,
        outcome: Completed,
        run: Callable[[KernelCall], Completed | str],
    ) -> Completed:
        """Return the outcome with the exact run and the hazards of the embedded simulator."""
        spec = trial.spec
        call = make_call(
            spec, trial.case, trial.inputs, exact=trial.settings, inspect=True
        )
        ran = run(call)
        if isinstance(ran, str):
            self.tally.doubts.add(
                f"{spec.name}: {backend.name} has none, and {ran}: the bound that follows from "
                "the spec alone is used"
            )
            return outcome
        if [a.shape for a in ran.outputs] != [a.shape for a in outcome.outputs]:
            return outcome
        return outcome._replace(exact=ran.exact, findings=ran.findings)

    @contextmanager
    def defects(self, spec: KernelSpec, case: Case) -> Iterator[None]:
        """Turn a defect of the reference within the block into a BrokenReferenceError."""
        try:
            yield
        except ReferenceDefect as defect:
            raise BrokenReferenceError(
                spec, case, defect, self.reproduction
            ) from defect.__cause__

    def reference(self, spec: KernelSpec, case: Case) -> ReferenceResult | Exception:
        """Return the reference's outputs, or its error if it rejects the case."""
        self.now = spec, case
        with self.defects(spec, case):
            try:
                return evaluate_reference(spec, case)
            except ReferenceRefusal as refusal:
                return refusal.error

    def check_rejection(self, spec: KernelSpec, rejection: Rejection) -> None:
        """Check that each backend rejects the case with the text in the spec."""
        overrides = {"dtypes": rejection.dtypes, "shapes": rejection.shapes}
        case = minimal_case(spec, rejection.values, rejection.dtype, **overrides)
        self.now = spec, case
        for backend in self.backends:
            outcome = run_kernel(backend, make_call(spec, case))
            text = str(outcome.error) if isinstance(outcome, Rejected) else None
            if text is None or not re.search(rejection.match, text):
                raise NotRejectedError(
                    rejection_text(spec, rejection, backend.name, outcome)
                )
            self.tally.homes[spec.name] = module_name(spec.kernel)
            self.tally.rows[spec.name, backend.name].rejections += 1


def _is_whole(outcome: Outcome) -> TypeGuard[Completed]:
    """Return whether a kernel ran to its end and wrote all elements."""
    if not isinstance(outcome, Completed):
        return False
    return all(mask is None for mask in outcome.unwritten)


def _with_reason(verdict: Verdict, data: str) -> Verdict:
    """Return the verdict; an inconclusive one names the data as its reason, if they are."""
    if not data or not isinstance(verdict, Inconclusive):
        return verdict
    return verdict._replace(reason=f"{verdict.reason}; {data}")


def _backend_error(verdicts: Iterable[Verdict]) -> BaseException | None:
    """Return the error of the first backend that failed by itself; None without one."""
    for verdict in verdicts:
        if isinstance(verdict, OneSided) and verdict.failed == "backend":
            return verdict.error
    return None


def _explained(
    trial: Trial,
    verdict: Mismatch,
    backend: Backend,
    outcome: Outcome,
    beside: Outcome | None,
) -> Mismatch:
    """Return the mismatch with the causes of its error, if the outcome has an exact run.

    The kernel runs once more to find them, unless ``beside`` is the run that has them.
    """
    if not isinstance(outcome, Completed) or not outcome.exact:
        return verdict
    if verdict.kind == "unwritten":
        return verdict
    ran = beside
    if ran is None and trial.settings is not None:
        exactly = trial.settings._replace(losses=True)
        call = make_call(trial.spec, trial.case, trial.inputs, exact=exactly)
        ran = run_kernel(backend, call)
    if not isinstance(ran, Completed) or ran.exact is None:
        return verdict
    return replace(verdict, how=explain_rounding(verdict, ran.exact))


def _missed_expressions(
    conditions: Iterable[tuple[str, int, Any]],
    cases: Sequence[Mapping[str, Any]],
    coverage: Coverage,
) -> dict[tuple[str, int], str]:
    """Return the nearest miss of each conditional expression, by file and line; note all misses.

    The text is empty if a case has met the condition.
    """
    missed: dict[tuple[str, int], str] = {}
    for file, line, places in conditions:
        distance, text = nearest_miss(places, cases)
        coverage.tried.add((file, line, distance, text))
        if text and line in expression_lines(file):
            here = text if distance else ""
            missed[file, line] = missed.get((file, line), "") or here
    return missed


def _with_notes(trial: Trial, mismatch: Mismatch, data: str, note: str) -> Mismatch:
    """Return the mismatch with notes on its ``data``, on its values, and on the kernel."""
    drawn = describe_drawn_nonfinite(mismatch, trial.reference)
    bound = "" if trial.settings else describe_one_rounding(trial.spec, mismatch)
    texts = filter(None, (data, drawn, bound, note))
    return replace(mismatch, how=(*texts, *mismatch.how))
