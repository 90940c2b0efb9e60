"""A case in a test: what its function gets, how its kernels are checked; and one without pytest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.case import Case
from difftest.harness.explicit import case_from, case_from_json
from difftest.harness.failures import DifferentialFailure
from difftest.harness.rounding import Array
from difftest.harness.runner import Runner
from difftest.harness.siblings import Outputs, agreement, runnable
from difftest.harness.spec import KernelSpec
from difftest.harness.verdict import Verdict


def check_each(runner: Runner, spec: KernelSpec, case: Case) -> dict[str, Verdict]:
    """Check a case of each kernel of a spec; see :meth:`Runner.check`.

    The others run although one is wrong: what came of them says where to look.
    """
    __tracebackhide__ = True
    if not spec.others:
        return runner.check(spec, case)
    reference = runner.reference(spec, case, spec.inputs_of(case))
    verdicts: dict[str, Verdict] = {}
    failures: dict[str, DifferentialFailure] = {}
    outputs: dict[str, Outputs] = {}
    for one, backends in runnable(spec, runner.backends):
        with runner.on(backends):
            try:
                found = runner.check(one, case, reference)
            except DifferentialFailure as wrong:
                failures[one.name], found = wrong, wrong.verdicts
        outputs[one.name] = runner.outputs
        verdicts |= {f"{one.name} on {backend}": verdict for backend, verdict in found.items()}
    for first, second, backend, equal in agreement(outputs):
        runner.tally.count_agreement(first, second, backend, equal=equal)
    for name, failure in failures.items():
        failure.others = _said_of_others(name, outputs, failures)
        raise failure
    return verdicts


def _said_of_others(
    name: str, outputs: dict[str, Outputs], failures: dict[str, DifferentialFailure]
) -> tuple[str, ...]:
    """A line for each other kernel: whether it is wrong too, and in the same way."""
    lines = []
    for other in outputs:
        if other == name:
            continue
        pairs = {name: outputs[name], other: outputs[other]}
        same = any(equal for *_, equal in agreement(pairs))
        if other not in failures:
            lines.append(f"{other} agrees with the reference")
        elif same:
            lines.append(
                f"{other} is wrong too, with the same bits: look at the reference and the spec"
            )
        else:
            lines.append(f"{other} is wrong too, and its outputs differ")
    return tuple(lines)


@dataclass(repr=False)
class BoundCase:
    """A case in a test: what the test's function gets.

    ``verdicts`` are of the last :meth:`check`, by backend, and by kernel before it if there are
    several; empty before it.
    """

    spec: KernelSpec
    case: Case
    runner: Runner
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def __repr__(self) -> str:
        return repr(self.case)

    @property
    def values(self) -> dict[str, Any]:
        """The value of each name of the domain."""
        return dict(self.case.values)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the inputs."""
        return np.dtype(self.case.dtype)

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The input arrays, made anew at each access."""
        return self.spec.inputs_of(self.case)

    def check(self) -> None:
        """Run the case on each backend and compare it with the reference.

        Several kernels of one contract run it one after the other; their outputs are compared with
        each other too, and the summary counts how often all bits agree.

        Raises
        ------
        DifferentialFailure : they disagree.
        BrokenReferenceError : the reference broke down, or wrote to its arguments.
        """
        __tracebackhide__ = True
        self.verdicts = check_each(self.runner, self.spec, self.case)


def check(spec: KernelSpec, case: Case | Mapping[str, Any] | str) -> Verdict:
    """Run a kernel, or the first of several, on the embedded simulator: what comes of a case.

    Parameters
    ----------
    spec : of a kernel that was imported while the embedded modules were in place.
    case : a Case; or the JSON of ``--case``; or a value for each name of the domain, of which the
        data are random and the dtype is the first of the spec's.

    Raises
    ------
    CaseError : it is no case of the spec.
    DifferentialFailure : they disagree; its text is the report that pytest would show.
    HazardFailure : they agree, and the kernel does what is wrong on a device.
    BrokenReferenceError : the reference can judge nothing.
    """
    runner = Runner((EmbeddedSimulator(),))
    if not isinstance(case, Case):
        case = case_from_json(case, spec) if isinstance(case, str) else case_from(case, spec)
    first, *_ = check_each(runner, spec, case).values()
    runner.check_hazards()
    return first
