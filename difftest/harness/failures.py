"""How a kernel test fails, and what it warns of: errors whose text is the report."""

from __future__ import annotations

from collections.abc import Iterable

from difftest.analysis.finding import Finding, Severity
from difftest.harness.case import Case
from difftest.harness.frames import without_files
from difftest.harness.reference import ReferenceDefect
from difftest.harness.report import Reproduction, defect_text, failure_text, hazard_text
from difftest.harness.spec import KernelSpec
from difftest.harness.verdict import OneSided, Verdict


class CaseFailure(AssertionError):
    """A case that fails its test; the text is the report, with the line that runs it again.

    Attributes
    ----------
    spec, case : what was run.
    again : how to run the test again, where that is known.
    fresh : what came of the case in a process of its own, if it was not the same; else empty.
    """

    def __init__(self, spec: KernelSpec, case: Case, again: Reproduction | None) -> None:
        self.spec, self.case, self.again = spec, case, again
        self.fresh = ""
        super().__init__()


class DifferentialFailure(CaseFailure):
    """A kernel and its reference disagree on a case; the text says where.

    Attributes
    ----------
    verdicts : one for each backend, by name.
    others : what came of the other kernels of the contract, a line each.
    findings : hazards of the case, which may be the reason.
    """

    def __init__(
        self,
        spec: KernelSpec,
        case: Case,
        verdicts: dict[str, Verdict],
        again: Reproduction | None,
        *,
        verbose: bool = False,
        findings: Iterable[Finding] = (),
    ) -> None:
        super().__init__(spec, case, again)
        self.verdicts = verdicts
        self.findings = tuple(one for one in findings if one.severity is not Severity.NOTE)
        self.others: tuple[str, ...] = ()
        self._verbose = verbose

    def end_in_kernel(self) -> None:
        """Let the traceback end where the kernel or the reference raised, for a debugger to stop.

        Not when it is raised: Hypothesis takes failures at several lines for several bugs.
        """
        errors = (v.error for v in self.verdicts.values() if isinstance(v, OneSided))
        error = next(errors, None)
        last = self.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if error is not None and error is not self.__cause__ and last is not None:
            last.tb_next = without_files(error.__traceback__)

    def __str__(self) -> str:
        return failure_text(
            self.spec,
            self.case,
            self.verdicts,
            self.again,
            others=self.others,
            verbose=self._verbose,
            findings=self.findings,
            fresh=self.fresh,
        )


class HazardFailure(CaseFailure):
    """A kernel agrees with its reference, and does what can be wrong on a device: ``findings``."""

    def __init__(
        self,
        spec: KernelSpec,
        case: Case,
        findings: tuple[Finding, ...],
        again: Reproduction | None,
    ) -> None:
        super().__init__(spec, case, again)
        self.findings = findings

    def __str__(self) -> str:
        return hazard_text(self.spec, self.case, self.findings, self.again, self.fresh)


class BrokenReferenceError(CaseFailure):
    """The reference cannot judge a case: it broke down, or wrote to its arguments (``defect``)."""

    def __init__(
        self, spec: KernelSpec, case: Case, defect: ReferenceDefect, again: Reproduction | None
    ) -> None:
        super().__init__(spec, case, again)
        self.defect = defect

    def __str__(self) -> str:
        return defect_text(self.spec, self.case, self.defect, self.again)


class HazardWarning(UserWarning):
    """A kernel does what may be wrong on some device, or in some release."""


class NotRejectedError(AssertionError):
    """A backend did not refuse what it must refuse."""


class NothingComparedError(AssertionError):
    """A kernel test ended without having compared anything."""
