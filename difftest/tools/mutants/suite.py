"""The tests of one kernel of a spec, which run one by one: rejections, cases, edges."""

from __future__ import annotations

import contextlib
import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import FunctionType
from typing import NamedTuple

import numpy as np

from difftest.simulator.errors import LimitError, NkiError
from difftest.simulator.trace_json import trace_to_json
from difftest.testing.backends.base import Completed
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.limits import CaseLimitError
from difftest.testing.contract.spec import KernelSpec, count_elements
from difftest.testing.drawing.cases import cases, distinct_cases
from difftest.testing.drawing.explicit import explicit_cases
from difftest.testing.harness.bound_case import specs_by_kernel
from difftest.testing.harness.differential import ReferenceResult
from difftest.testing.harness.edges import check_edges, has_edges, run_recorded
from difftest.testing.harness.failures import (
    CaseFailure,
    DifferentialFailure,
    HazardFailure,
    NotRejectedError,
)
from difftest.testing.harness.minimal_failure import minimal_failure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.tracer import trace_code
from difftest.testing.harness.verdict import Inconclusive, Mismatch, OneSided
from difftest.tools.mutants.mutant import mutable_functions, nested_codes

EDGES = "edges"
"""The name of the test of calls at the edges of the contract and of the memories."""
_MINIMAL_SECONDS = 0.5
"""The most CPU time to make the case of a killed mutant smaller, in seconds."""
_KEPT_ELEMENTS = 2**20
"""The largest number of elements of a case whose reference result is kept."""


@dataclass(frozen=True)
class Kill:
    """The failure of a test that found a mutant.

    Attributes
    ----------
    test : "refusal 2", "case 7", "example 1" or "edges".
    by : the check that found it: "comparison: value", "detector: psum-foreign", "capacity", ...
    message : the first line of the failure.
    case : the JSON of the case for ``pytest --case``; empty if the test has no case.
    """

    test: str
    by: str
    message: str
    case: str = ""


class RunDigest(NamedTuple):
    """Digests of the trace and outputs of a case, and the outputs' error against the reference."""

    trace: str
    bits: str
    error: float


@dataclass
class Suite:
    """The tests of one kernel of a spec.

    Attributes
    ----------
    name : the name of the kernel test, followed by the kernel if the test has several.
    spec : the spec of this kernel only.
    drawn : the drawn cases, the smallest first.
    doubt : why the comparison of the last case was inconclusive; empty if it was conclusive.
    """

    name: str
    spec: KernelSpec
    drawn: Sequence[Case]
    doubt: str = ""
    _references: dict[str, ReferenceResult | Exception] = field(default_factory=dict)

    @cached_property
    def functions(self) -> tuple[FunctionType, ...]:
        """The functions of the kernel that mutants may change."""
        return mutable_functions(self.spec.kernel)

    @cached_property
    def tests(self) -> dict[str, Case | None]:
        """The tests by name, each with its case or None, in the order of their runs."""
        tests = dict.fromkeys(f"refusal {at}" for at, _ in enumerate(self.spec.rejects))
        tests |= {f"case {at}": case for at, case in enumerate(self.drawn)}
        explicit = sorted(
            explicit_cases(self.spec),
            key=lambda case: count_elements(self.spec, case.values),
        )
        tests |= {f"example {at}": case for at, case in enumerate(explicit)}
        if has_edges(self.spec, (EmbeddedSimulator(),)):
            tests[EDGES] = None
        return tests

    def run(self, test: str) -> Kill | None:
        """Run a test; return how it failed, or None if it passed."""
        case = self.tests[test]
        self.doubt = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._check_smallest(Runner((EmbeddedSimulator(),)), test, case)
        except (CaseFailure, NotRejectedError) as failure:
            case = getattr(failure, "case", case)
            text = case.to_json() if case else ""
            return Kill(test, killer_of(failure), line_of(failure), text)
        return None

    def _check_smallest(self, runner: Runner, test: str, case: Case | None) -> None:
        """Check a test; of a drawn case that fails, raise the failure of a minimal case."""
        try:
            self._run_test(runner, test, case)
        except CaseFailure as failure:
            if not test.startswith("case"):
                raise
            run = partial(runner.check, self.spec)
            raise minimal_failure(failure, run, _MINIMAL_SECONDS) from None

    def _run_test(self, runner: Runner, test: str, case: Case | None) -> None:
        """Run one test of the suite: the edges, a rejection, or a case."""
        if case is None and test == EDGES:
            check_edges(runner, self.spec)
        elif case is None:
            runner.check_rejection(self.spec, self.spec.rejects[int(test.split()[1])])
        else:
            verdicts = runner.check(self.spec, case, self._reference(runner, case))
            runner.check_hazards()
            reasons = (
                got.reason for got in verdicts.values() if isinstance(got, Inconclusive)
            )
            self.doubt = next(reasons, "")

    def _reference(self, runner: Runner, case: Case) -> ReferenceResult | Exception:
        reference = self._references.get(case.to_json())
        if reference is None:
            reference = runner.reference(self.spec, case)
            if count_elements(self.spec, case.values) <= _KEPT_ELEMENTS:
                self._references[case.to_json()] = reference
        return reference

    def forget(self) -> None:
        """Drop the reference results: a hundred cases take many megabytes."""
        self._references.clear()

    def outcome(self, test: str) -> RunDigest:
        """Return the digest of a test's case; tests without a case share one digest."""
        case = self.tests[test]
        if case is None:
            return RunDigest("", "", 0.0)
        runner = Runner((EmbeddedSimulator(),))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ran = run_recorded(runner, runner.backends[0], self.spec, case)
            reference = self._reference(runner, case)
        if not isinstance(ran, Completed) or ran.trace is None:
            return RunDigest(type(ran).__name__, "", math.inf)
        bits = hashlib.sha256()
        error = 0.0
        for array, value in zip(
            ran.outputs, getattr(reference, "values", ran.outputs), strict=True
        ):
            bits.update(repr((array.shape, array.dtype)).encode() + array.tobytes())
            with np.errstate(invalid="ignore", over="ignore"):
                off = np.abs(array.astype(np.float64) - value.astype(np.float64))
            error = max(error, float(np.max(off, initial=0, where=np.isfinite(off))))
        trace = hashlib.sha256(trace_to_json(ran.trace).encode()).hexdigest()
        return RunDigest(trace, bits.hexdigest(), error)


def is_quick(test: str) -> bool:
    """Return whether a test always runs: examples and edges run only if no other test fails."""
    return test.startswith(("refusal", "case"))


def drawn_cases(spec: KernelSpec, count: int) -> list[Case]:
    """Return ``count`` drawn cases without duplicates, the smallest first, the same each time."""
    return distinct_cases(spec, cases(spec), count)


def suites_of(
    specs: Mapping[str, KernelSpec], drawn: Mapping[str, Sequence[Case]]
) -> dict[str, Suite]:
    """Return a suite by name for each kernel of each spec, with its drawn cases."""
    suites = {}
    for test, spec in specs.items():
        parts = specs_by_kernel(spec)
        for part in parts:
            name = f"{test} of {part.name}" if len(parts) > 1 else test
            suites[name] = Suite(name, part, drawn[test])
    return suites


def killer_of(error: Exception) -> str:
    """Return the kind of check that found a mutant, from the error that its test raised."""
    if isinstance(error, HazardFailure):
        return f"detector: {', '.join(dict.fromkeys(finding.id for finding in error.findings))}"
    if isinstance(error, NotRejectedError):
        return "edge or refusal"
    if not isinstance(error, DifferentialFailure):
        return "reference"
    if isinstance(error.verdict, Mismatch):
        return f"comparison: {error.verdict.kind}"
    return _one_sided_killer(error.verdict)


def _one_sided_killer(verdict: OneSided) -> str:
    """Return the kind of check that found a mutant when one side lacks a result."""
    kind = type(verdict.error).__name__
    if verdict.failed == "reference":
        return "comparison: not refused"
    if isinstance(verdict.error, CaseLimitError):
        return "memory"
    if verdict.how == "crashed":
        return f"{'simulator error' if verdict.failed == 'backend' else 'Python error'}: {kind}"
    if verdict.how == "unsupported":
        return "not modelled"
    if isinstance(verdict.error, LimitError):
        return f"capacity: {kind}"
    return f"{'rejection' if isinstance(verdict.error, NkiError) else 'check'}: {kind}"


@contextlib.contextmanager
def lines_run(functions: Sequence[FunctionType]) -> Iterator[set[tuple[str, int]]]:
    """Yield the set of lines of functions that run within the block, in any thread."""
    seen: set[tuple[str, int]] = set()
    whole = [function.__code__ for function in functions]
    codes = {id(code) for outer in whole for code in (outer, *nested_codes(outer))}
    with trace_code(
        lambda code: id(code) in codes,
        lambda frame: seen.add((frame.f_code.co_filename, frame.f_lineno)),
    ):
        yield seen


def line_of(failure: BaseException) -> str:
    """Return the first line of a failure's message."""
    verdict = failure.verdict if isinstance(failure, DifferentialFailure) else None
    cause: object = getattr(verdict, "error", failure)
    if isinstance(verdict, Mismatch):
        cause = verdict.message
    return next(iter(str(cause).splitlines()), type(cause).__name__)
