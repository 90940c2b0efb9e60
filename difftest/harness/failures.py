"""How a kernel test fails, and what it warns of: errors whose text is the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property

from difftest.analysis.finding import Finding, Severity
from difftest.harness.case import Case, Edge
from difftest.harness.explanation import History
from difftest.harness.frames import without_files
from difftest.harness.recipes import RECIPES, Iota, Ones, Zeros
from difftest.harness.reference import ReferenceDefect
from difftest.harness.report import (
    Reproduction,
    Row,
    Shapes,
    case_rows,
    defect_rows,
    headline_of,
    quoted,
    short,
    text_of,
    verdict_rows,
)
from difftest.harness.spec import KernelSpec
from difftest.harness.verdict import Mismatch, OneSided, Verdict, is_failure


class ToldFailure(AssertionError):
    """A kernel test fails, and the text says all that a person needs: no traceback does."""

    raised: BaseException | None = None
    """The error of the kernel or of the reference, if that is the failure."""

    @property
    def headline(self) -> str:
        return str(self).partition("\n")[0]


class CaseFailure(ToldFailure):
    """A case that fails its test; the text is the report, with the line that runs it again.

    ``shapes`` are of arrays that are not as the case says; ``fresh`` is what came of the case in a
    process of its own, if it was not the same; ``saved`` its file for ``difftest replay``, if any.
    """

    def __init__(
        self,
        spec: KernelSpec,
        case: Case,
        again: Reproduction | None,
        findings: Iterable[Finding] = (),
    ) -> None:
        self.spec, self.case, self.again = spec, case, again
        self.shapes: Shapes = {}
        self.findings = tuple(findings)
        self.fresh = self.saved = ""
        super().__init__()

    @property
    def headline(self) -> str:
        return f"{self.spec.name} {self.title()} at {short(self.spec, self.case)}"

    def title(self) -> str:
        """The first line of the report."""
        raise NotImplementedError

    def rows(self) -> list[Row]:
        """What it says between the case and how to run it again."""
        return []

    def __str__(self) -> str:
        again = [("run again", self.again.command(self.case))] if self.again else []
        again += [("fresh run", self.fresh)] if self.fresh else []
        again += [("replay", quoted(["difftest", "replay", self.saved]))] if self.saved else []
        rows = [*case_rows(self.spec, self.case, self.shapes), *self.rows(), *again]
        return text_of(f"{self.spec.name} {self.title()}", rows, self.findings)


class DifferentialFailure(CaseFailure):
    """A kernel and its reference disagree on a case; the text says where.

    ``verdicts`` are those of backends, by name; ``others`` what came of the other kernels of the
    contract, a line each; ``findings`` hazards of the case, which may be the reason.
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
        told = (one for one in findings if one.severity is not Severity.NOTE)
        super().__init__(spec, case, again, told)
        self.verdicts = verdicts
        errors = (one.error for one in verdicts.values() if isinstance(one, OneSided))
        self.raised = next(errors, None)
        self.others: tuple[str, ...] = ()
        self.history = History(spec)
        self._verbose = verbose

    @property
    def headline(self) -> str:
        return headline_of(self.spec, self.case, self.verdicts, self.shapes)

    @property
    def verdict(self) -> Mismatch | OneSided:
        """That of the first backend that is wrong."""
        return next(v for v in self.verdicts.values() if isinstance(v, (Mismatch, OneSided)))

    @property
    def kind(self) -> tuple[object, ...]:
        """What is wrong, whatever the case is."""
        wrong = self.verdict
        detail = wrong.output if isinstance(wrong, Mismatch) else type(wrong.error)
        return self.headline.partition(" at ")[0], detail

    def on_plain_data(self, run: Callable[[Case], object]) -> DifferentialFailure:
        """The failure of this kind that has the plainest data, which ``run`` runs.

        Zeros, ones or iota of all inputs that have no data of their own, or of one after another:
        Hypothesis finds its way there only if each step on it fails.
        """
        failure, order = self, [*RECIPES]
        free = [name for name in self.spec.inputs if self.spec.input(name).data is None]
        for names in (free, *([name] for name in free)):
            for recipe in (Zeros(), Ones(), Iota()):
                data, rank = failure.case.data, order.index(recipe.kind)
                if all(order.index(data[name].kind) <= rank for name in names):
                    break
                try:
                    run(replace(failure.case, data={**data, **dict.fromkeys(names, recipe)}))
                except DifferentialFailure as plainer:
                    if plainer.kind == self.kind:
                        failure = plainer
                        break
        return failure

    def end_in_kernel(self) -> None:
        """Let the traceback end where the kernel or the reference raised, for a debugger to stop.

        Not when it is raised: Hypothesis takes failures at several lines for several bugs.
        """
        last, error = self.__traceback__, self.raised
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if error is not None and error is not self.__cause__ and last is not None:
            last.tb_next = without_files(error)

    def title(self) -> str:
        wrong = [name for name, verdict in self.verdicts.items() if is_failure(verdict)]
        where = f" on {', '.join(wrong)}" if len(self.verdicts) > 1 else ""
        return f"disagrees with its reference{where}"

    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for backend, verdict in self.verdicts.items():
            rows += verdict_rows(self.spec, backend, verdict, self._verbose)
            rows += [("looks like", self.looks[backend])] if backend in self.looks else []
        others = [("beside" if line is self.others[0] else "", line) for line in self.others]
        return [*rows, *others]

    @cached_property
    def looks(self) -> dict[str, str]:
        """By backend what its wrong values look like; of those that say something."""
        said = {
            backend: self.history.looks(self.case, backend, verdict)
            for backend, verdict in self.verdicts.items()
            if isinstance(verdict, Mismatch)
        }
        return {backend: text for backend, text in said.items() if text}


class HazardFailure(CaseFailure):
    """A kernel agrees with its reference, and does what can be wrong on a device: ``findings``."""

    @property
    def headline(self) -> str:
        ids = ", ".join(dict.fromkeys(one.id for one in self.findings))
        return f"{self.spec.name}: {ids} at {short(self.spec, self.case)}"

    def title(self) -> str:
        return "agrees with its reference here, and can be wrong on a device"


class BrokenReferenceError(CaseFailure):
    """The reference cannot judge a case: it broke down, or wrote to its arguments (``defect``)."""

    def __init__(
        self, spec: KernelSpec, case: Case, defect: ReferenceDefect, again: Reproduction | None
    ) -> None:
        super().__init__(spec, case, again)
        self.defect, self.raised = defect, defect.__cause__

    def title(self) -> str:
        return f"cannot be judged: {self.defect.happened}"

    def rows(self) -> list[Row]:
        return defect_rows(self.defect)


class HazardWarning(UserWarning):
    """A kernel does what may be wrong on some device, or in some release."""


class NotRejectedError(ToldFailure):
    """A backend did not refuse what it must refuse."""


class EdgeFailure(DifferentialFailure, NotRejectedError):
    """A call near the contract's edge (``edge``) was neither refused nor correct."""

    def __init__(
        self, spec: KernelSpec, edge: Edge, verdict: tuple[str, Verdict], again: Reproduction | None
    ) -> None:
        # A line runs it alone only where the test's spec can say such a case.
        own = {name for name in spec.inputs if spec.input(name).dtypes}
        is_case = not edge.shapes and edge.case.dtype in spec.dtypes and own == {*edge.case.dtypes}
        super().__init__(spec, edge.case, dict([verdict]), again)
        self.again = again and replace(again, edges="" if is_case else edge.why)
        self.edge, self.shapes = edge, edge.shapes

    def title(self) -> str:
        what = "accept this call, and" if self.edge.inside else "refuse this call, or"
        return f"must {what} be correct"

    def rows(self) -> list[Row]:
        remedy = "refuse it by an assert in the kernel, or be correct; edges=False asks for neither"
        mend = [] if self.edge.inside else [("remedy", remedy)]
        return [*super().rows(), ("call", self.edge.why), *mend]


class NothingComparedError(ToldFailure):
    """A kernel test ended without having compared anything."""


def line_of(failure: BaseException) -> str:
    """What a failure says, in a line."""
    verdict = failure.verdict if isinstance(failure, DifferentialFailure) else None
    told = verdict.message if isinstance(verdict, Mismatch) else getattr(verdict, "error", failure)
    return next(iter(str(told).splitlines()), type(told).__name__)
