"""Run cases on the backends, judge each outcome, and count what ran."""

from __future__ import annotations

import copy
import re
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from difftest.analysis.finding import Finding, Severity
from difftest.analysis.inspection import fails, finding_text
from difftest.simulator.errors import relative_path, warn
from difftest.simulator.exact.run import ExactRun, ExactSettings
from difftest.simulator.trace import Trace
from difftest.support.rounding import Array
from difftest.support.signature import module_name
from difftest.support.tracebacks import format_error
from difftest.testing.backends.base import (
    Backend,
    Completed,
    Crashed,
    KernelCall,
    Outcome,
    Rejected,
    Unsupported,
    poisoned_array,
)
from difftest.testing.concolic.search import nearest_miss
from difftest.testing.contract.case import Case
from difftest.testing.contract.limits import (
    NEEDS_LESS,
    CaseLimitError,
    fault_of_machine,
    within_limits,
)
from difftest.testing.contract.reference import (
    ReferenceDefect,
    ReferenceRefusal,
    array_bytes,
)
from difftest.testing.contract.spec import KernelSpec, Rejection
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.dry_run import branch_conditions, search_kernels
from difftest.testing.drawing.explicit import minimal_case
from difftest.testing.drawing.passed_cases import PassedCases
from difftest.testing.harness.compare import are_equal, compare
from difftest.testing.harness.coverage import (
    ITERATIONS,
    BranchTracer,
    expression_lines,
)
from difftest.testing.harness.differential import (
    ReferenceResult,
    compare_exact,
    evaluate_reference,
)
from difftest.testing.harness.explanation import (
    CaseHistory,
    describe_caveats,
    explain_rounding,
    is_expected,
    of_data,
)
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    DifferentialFailure,
    HazardFailure,
    HazardWarning,
    NotRejectedError,
    Reproduction,
    rejection_text,
)
from difftest.testing.harness.tally import Tally
from difftest.testing.harness.verdict import (
    BothRejected,
    Inconclusive,
    Match,
    Mismatch,
    OneSided,
    Verdict,
    is_failure,
)

__tracebackhide__ = (
    True  # the text of a failure is complete: pytest shows no frame of this module
)
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
        return (
            len(self.reference.outputs)
            if isinstance(self.reference, ReferenceResult)
            else None
        )


@dataclass(repr=False)
class Runner:
    """The backends of a session, and the tally of the current test.

    Attributes
    ----------
    tally : the counts of the current test.
    reproduction : the way to run the current test again; None outside pytest.
    record : whether backends record traces.
    traces, outputs : those of the last case, by the backend that ran the kernel to its end.
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
        """Whether a failing case may run again many times, to make it smaller."""
        return True

    def run(self, spec: KernelSpec, backend: Backend, call: KernelCall) -> Outcome:
        """Run a call, and count the branches that the kernel takes on the embedded simulator."""
        if self.branch_tracer is None or backend.name not in ("embedded", "plain"):
            return run_kernel(backend, call)
        with self.branch_tracer.call(call.kernel) as seen:
            outcome = run_kernel(backend, call)
        if isinstance(outcome, Completed):
            self.branch_tracer.record(seen, spec.name, self.tally.coverage)
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
        traceback.clear_frames(
            error.__traceback__
        )  # frees the arrays that filled the memory
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
        if reference is None:
            reference = self.reference(spec, case)
        inputs = tuple(getattr(reference, "inputs", {}).values()) or spec.inputs_of(
            case
        )
        self.traces = {}
        self.outputs = {}
        return Trial(spec, case, inputs, reference, self.settings_of(spec, case))

    def run_backend(self, trial: Trial, backend: Backend) -> Verdict:
        """Run the case on one backend, judge the outcome and count it."""
        spec = trial.spec
        case = trial.case
        reference = trial.reference
        sure = len(self._history(spec).agreed) >= _SURE
        outputs, right = (
            self.right.get(backend.name, ((), None)) if sure else ((), None)
        )
        call, ran = self._launch(trial, backend, None if right else trial.settings)
        alike = isinstance(ran, Completed) and are_equal(ran.outputs, outputs)
        if right and not (
            alike and all(mask is None for mask in getattr(ran, "unwritten", ()))
        ):
            right = None
            (call, ran) = self._launch(trial, backend, trial.settings)
        if isinstance(ran, Crashed) and fault_of_machine(ran.error):
            raise ran.error
        outcome = ran if right else self._with_exact_run(trial, backend, ran)
        with self.defects(spec, case):
            verdict = right or verdict_on(reference, outcome)
            note = ""
        if isinstance(outcome, Completed):
            trial.findings += outcome.findings
            self.outputs[backend.name] = outcome.outputs
            if outcome.trace is not None:
                self.traces[backend.name] = outcome.trace
            misuse = self.suspected(trial, backend, call, outcome)
            counted = isinstance(verdict, Mismatch) and verdict.kind == "outputs"
            if misuse and (
                not is_failure(verdict) or (counted and misuse.kind == "inputs")
            ):
                verdict = (
                    misuse  # an undeclared write is why the number of results is wrong
                )
            elif misuse and isinstance(verdict, Mismatch):
                note = misuse.message
            note = note or _argument_note(trial, verdict, outcome)
        data = of_data(verdict, reference)
        if data and isinstance(verdict, Inconclusive):
            verdict = verdict._replace(reason=f"{verdict.reason}; {data}")
        self.tally.homes[spec.name] = module_name(spec.kernel)
        self.tally.count(spec.name, backend.name, verdict)
        if isinstance(verdict, Mismatch):
            if (
                isinstance(outcome, Completed)
                and outcome.exact
                and verdict.kind != "unwritten"
            ):
                verdict = _explained(
                    trial, verdict, backend, None if outcome is ran else outcome
                )
            verdict = replace(verdict, how=(*filter(None, (data, note)), *verdict.how))
            self._history(spec).failed(case, backend.name, verdict)
        trial.verdicts[backend.name] = verdict
        return verdict

    def _launch(
        self, trial: Trial, backend: Backend, exact: ExactSettings | None
    ) -> tuple[KernelCall, Outcome]:
        """Run the case on a backend, and return the call and its outcome."""
        how: Any = {"record": self.record, "inspect": True, "exact": exact}
        how["results"] = trial.results
        call = make_call(trial.spec, trial.case, trial.inputs, **how)
        return call, self.run(trial.spec, backend, call)

    def suspected(
        self, trial: Trial, backend: Backend, call: KernelCall, ran: Completed
    ) -> Mismatch | None:
        """Return the misuse of inputs in a run; None if the kernel only read its inputs.

        Arguments that the spec names under ``outputs`` may change.
        """
        spec = trial.spec
        found = dict[str, Mismatch]()
        for name, before, now in zip(
            spec.inputs, trial.inputs, call.inputs, strict=True
        ):
            if name in spec.outputs:
                continue
            width = f"u{before.dtype.itemsize}"
            changed = array_bytes(before).view(width) != array_bytes(now).view(width)
            count = int(np.count_nonzero(changed))
            did = ""
            if count:
                first = [
                    int(index)
                    for index in np.argwhere(changed.reshape(before.shape))[0]
                ]
                did = f"overwrites its input {name}: {count} of {changed.size} elements, the first "
                did += f"at {first}"
            elif any(array is now for array in ran.written):
                did = f"writes to its input {name}, and what it writes is what was there in this "
                did += "case"
            if did:
                found[name] = Mismatch(
                    "inputs", None, f"the kernel {did}", changed.size, count
                )
            elif any(array is now for array in ran.returned):
                message = f"the kernel returns its input {name} itself, to which it wrote nothing"
                return Mismatch("inputs", None, message, changed.size, 0)
        for undeclared in found.values():
            message = f"{undeclared.message}. {undeclared_text(spec, found)}"
            return replace(undeclared, message=message)
        return None

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
            crashed = (v for v in verdicts.values() if isinstance(v, OneSided))
            raise failure from next(
                (v.error for v in crashed if v.failed == "backend"), None
            )
        history.agreed.append(trial.case)
        for hit in trial.findings:  # the test reports each hazard once, at its end
            if hit.severity is not Severity.NOTE and not is_expected(
                trial.reference, hit
            ):
                self.hazards.setdefault(
                    (hit.id, hit.locations), (trial.spec, trial.case, hit)
                )
        return verdicts

    def failure(self, trial: Trial) -> DifferentialFailure:
        """Return the error of a case that a backend got wrong."""
        parts = trial.spec, trial.case, trial.verdicts, self.reproduction
        return DifferentialFailure(
            *parts, verbose=self.verbose, findings=trial.findings
        )

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
            raise HazardFailure(
                spec, case, self.reproduction, [finding for *_, finding in failing]
            )
        for *_, finding in self.hazards.values() if warns else ():
            warn(HazardWarning(finding_text(finding)), finding.location)

    def report_uncovered(self) -> None:
        """Note which values came nearest to each condition that changes for few sizes."""
        coverage = self.tally.coverage
        for kernel, history in self.histories.items():
            cases = [case.values for case in history.agreed]
            if not cases:
                continue
            missed: dict[tuple[str, int], str] = {}
            for file, line, places in branch_conditions(history.spec):
                distance, text = nearest_miss(places, cases)
                coverage.tried.add((file, line, distance, text))
                if line in expression_lines(file) and text:
                    missed[file, line] = missed.get((file, line), "") or (
                        text if distance else ""
                    )
            for (file, line), text in missed.items():
                coverage.expressions.add((file, line, kernel, text))

    def narrow(self, spec: KernelSpec) -> str:
        """Return why a test proves too little whose domain needs one tile alone; else empty.

        That is so if the kernel has loops over sizes, and none of them ran twice: not in a case,
        nor in the search for conditions, which begins with the largest sizes.
        """
        coverage = self.tally.coverage
        if coverage.unknown:
            return ""
        sized = search_kernels(spec).loops
        for kernel in self.histories:
            loops = [
                branch[:2]
                for branch in sorted(coverage.branches)
                if branch[3] == kernel and branch[2] and branch[:2] in sized
            ]
            ran = [loop for loop in loops if (*loop, 0) in coverage.done]
            again = [sized[loop] or (*loop, 1) in coverage.done for loop in loops]
            if ran and not any(again):
                file, line = ran[0]
                return (
                    f"the test of {kernel} proves too little: "
                    "no case runs a loop over sizes twice\n"
                    f"  first:  {relative_path(file)}:{line}: {ITERATIONS[1]}\n"
                    "  remedy: widen the domain until a second tile is needed; "
                    "allow_inconclusive=True of the spec accepts it"
                )
        return ""

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
        spec = trial.spec
        settings = trial.settings
        if not isinstance(outcome, Completed) or settings is None:
            return outcome
        if outcome.exact is None and self.beside is not None:
            call = make_call(
                spec, trial.case, trial.inputs, exact=settings, inspect=True
            )
            ran = self.beside(call)
            if isinstance(ran, str):
                self.tally.doubts.add(
                    f"{spec.name}: {backend.name} has none, and {ran}: the bound that follows from "
                    "the spec alone is used"
                )
            elif [a.shape for a in ran.outputs] == [a.shape for a in outcome.outputs]:
                outcome = outcome._replace(exact=ran.exact, findings=ran.findings)
        if outcome.exact is not None:
            self.tally.doubts |= {
                f"{spec.name}: {doubt}" for doubt in describe_caveats(outcome.exact)
            }
        return outcome

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


def make_call(
    spec: KernelSpec, case: Case, inputs: Iterable[Array] | None = None, **how: Any
) -> KernelCall:
    """Return the call of a case, with copies of all arguments: no backend changes another's.

    ``inputs`` are the case's arrays, if they exist already.
    """
    own = spec.inputs_of(case) if inputs is None else [array.copy() for array in inputs]
    arrays = spec.arrays
    return KernelCall(
        kernel=spec.kernel,
        inputs=tuple(own),
        outputs=tuple(
            poisoned_array(spec.shape_of(case, name), spec.written_dtype(case, name))
            for name in arrays[len(spec.inputs) :]
        ),
        parameters=copy.deepcopy(spec.parameters_of(case.values)),
        grid=spec.grid_of(case.values),
        machine=spec.machine_of(case.values),
        names=arrays,
        ranks=spec.ranks_of(case.values),
        by_rank=spec.by_rank,
        targets=tuple(map(arrays.index, spec.outputs)),
        **how,
    )


def call_of_case(spec: KernelSpec, case: Case) -> tuple[list[Array], dict[str, Any]]:
    """Return a kernel's positional and keyword arguments, with zeros in place of poison."""
    if spec.ranks:
        raise SpecError(
            "ranks: received a test of several ranks; accepted: one that has none"
        )
    call = make_call(spec, case)
    args, keywords = call._replace(
        outputs=tuple(map(np.zeros_like, call.outputs))
    ).arguments()
    return list(args), keywords


def verdict_on(
    reference: ReferenceResult | Exception | None, outcome: Outcome
) -> Verdict:
    """Return the verdict on one outcome.

    With an exact run, algorithm and arithmetic are judged. Without one, the derived bound applies.
    It applies too if the spec states ``reduction``. ``reference`` may be None for an outcome
    without outputs: this means that the reference accepts the case.
    """
    if isinstance(reference, ReferenceResult) and reference.spec.magnitude is not None:
        _ = reference.bounds  # raises for a wrong magnitude, whatever the kernel does
    if isinstance(outcome, Crashed):
        return OneSided(
            "backend" if outcome.in_backend else "kernel", outcome.error, "crashed"
        )
    if isinstance(outcome, Unsupported):
        if not isinstance(reference, Exception):
            return OneSided("backend", outcome.error, "unsupported")
        why = format_error(outcome.error)
        return Inconclusive(
            f"the reference rejects the case, and the backend cannot run the kernel: {why}"
        )
    if isinstance(reference, Exception):
        if isinstance(outcome, Rejected):
            return BothRejected(reference, outcome.error)
        return OneSided("reference", reference)
    if isinstance(outcome, Rejected):
        return OneSided("kernel", outcome.error)
    assert reference is not None
    return reference.with_name(_compare_outputs(reference, outcome))


def _compare_outputs(reference: ReferenceResult, outcome: Completed) -> Verdict:
    """Return the verdict on the values of a run."""
    if wrong := reference.wrong_count(len(outcome.outputs)):
        return wrong
    verdict: Verdict | None = None
    if outcome.exact is not None and outcome.exact.has_meaning:
        verdict = compare_exact(reference, outcome)
        if isinstance(verdict, Mismatch) or reference.spec.reduction is None:
            return verdict
    derived = compare(reference.bounds, outcome.outputs, outcome.unwritten)
    if (
        isinstance(derived, Mismatch)
        and derived.kind == "value"
        and _is_open(outcome.exact)
    ):
        return Inconclusive(
            "an element that a rounded value names may be another one on a correct machine, and "
            "the values differ from the reference's"
        )
    return (
        verdict
        if isinstance(verdict, Match) and isinstance(derived, Inconclusive)
        else derived
    )


def undeclared_text(spec: KernelSpec, names: Iterable[str]) -> str:
    """Return the rule that a write to inputs breaks, and the declaration that allows it."""
    declared = {
        name: " ".join(spec.dimensions(name)) for name in (*spec.outputs, *names)
    }
    return (
        "A kernel writes to arguments that outputs= names, and to no others. If the write is "
        f"meant, leave inputs= as it is and pass outputs={declared}"
    )


def _argument_note(trial: Trial, verdict: Verdict, ran: Completed) -> str:
    """Return how a wrong kernel uses an argument against its spec; empty if it does not."""
    if not isinstance(verdict, Mismatch):
        return ""
    spec = trial.spec
    name = verdict.argument
    if ran.unset:
        unset = ran.unset[0]
        return (
            f"the kernel reads {unset} before it writes to it, and an argument that is under "
            "outputs= alone holds no data: name it under inputs= too, "
            f"{unset!r}: {' '.join(spec.dimensions(unset))!r}"
        )
    if name in ran.untouched:
        return f"the kernel wrote nothing to {name}, which outputs= names"
    return ""


def _is_open(exact: ExactRun | None) -> bool:
    """Return whether an exact run has a decision that its error bounds leave open."""
    return exact is not None and exact.is_open


def _explained(
    trial: Trial, verdict: Mismatch, backend: Backend, beside: Completed | None
) -> Mismatch:
    """Return the mismatch with the causes of its error from an exact run.

    The kernel runs once more, unless ``beside`` is that run.
    """
    outcome: Outcome | None = beside
    if outcome is None and trial.settings is not None:
        exactly = trial.settings._replace(losses=True)
        call = make_call(trial.spec, trial.case, trial.inputs, exact=exactly)
        outcome = run_kernel(backend, call)
    exact = outcome.exact if isinstance(outcome, Completed) else None
    return (
        verdict
        if exact is None
        else replace(verdict, how=explain_rounding(verdict, exact))
    )


def run_kernel(backend: Backend, call: KernelCall) -> Outcome:
    """Run a kernel. A call that would end the test quietly, such as ``pytest.skip``, is a crash."""
    try:
        outcome: Outcome = within_limits(lambda: backend.run(call), call)
        return outcome
    except CaseLimitError as error:
        return Crashed(error)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # Skipped and Failed of pytest, SystemExit
        return Crashed(error)
