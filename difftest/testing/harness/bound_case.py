"""A case in a test: what its function gets, how its kernels are checked; and one without pytest.

A spec with ``others`` stands for as many specs of one contract, one of each kernel (:func:`alone`):
each runs every case, and they are compared with each other. Where a backend runs kernels of some
dialects only, it gets those of these dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from difftest.support.rounding import Array
from difftest.support.signature import distinct_names, function_name, module_name
from difftest.testing.backends.base import Backend
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.backends.sdk import CLASSIC, PACKAGES, dialect_of, refusal_of
from difftest.testing.harness.case import Case
from difftest.testing.harness.compare import are_equal
from difftest.testing.harness.explicit import case_from_json
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.spec import KernelSpec
from difftest.testing.harness.tally import Counts
from difftest.testing.harness.verdict import Match, Verdict
from difftest.testing.harness.writers import locate_writers

Outputs = Mapping[str, tuple[Array, ...]]  # by the name of the backend


@lru_cache(maxsize=16)  # each case of a test asks
def specs_by_kernel(spec: KernelSpec) -> tuple[KernelSpec, ...]:
    """The spec of each kernel by itself, named so that no two have one name."""
    if not spec.others:
        return (spec,)
    kernels = (spec.kernel, *spec.others)
    # A classic kernel runs on one core, whatever the logical cores have.
    cores = [None if dialect_of(kernel) == CLASSIC else spec.lnc for kernel in kernels]
    return tuple(
        replace(spec, kernel=kernel, others=(), title=title, lnc=lnc)
        for kernel, title, lnc in zip(kernels, kernel_titles(kernels), cores, strict=True)
    )


def kernel_titles(kernels: tuple[Callable[..., Any], ...]) -> tuple[str, ...]:
    """What to call kernels beside each other: names, with the dialect or the module if need be."""
    packages = [PACKAGES.get(dialect_of(k) or "", "").partition(".")[0] for k in kernels]
    return distinct_names(
        [function_name(k) for k in kernels], packages, [module_name(k) for k in kernels]
    )


def running(kernel: Callable[..., Any], backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
    """Return the backends that run the dialect of a kernel."""
    return tuple(backend for backend in backends if refusal_of(backend, kernel) is None)


def runnable(spec: KernelSpec, backends: tuple[Backend, ...]) -> Iterator[tuple[KernelSpec, Any]]:
    """Yield the spec of each kernel with the backends that run its dialect.

    If no backend runs any of the kernels, all of them get the first: they say why they cannot run
    it.
    """
    specs = specs_by_kernel(spec)
    pairs = [(part, running(part.kernel, backends)) for part in specs]
    if not any(chosen for _, chosen in pairs):
        pairs = [(specs[0], backends)]
    for part, chosen in pairs:
        if chosen:
            yield part, chosen


def check_each(runner: Runner, spec: KernelSpec, case: Case) -> dict[str, Verdict]:
    """Check a case of each kernel of a spec; see :meth:`Runner.check`.

    The others run although one is wrong: what came of them says where to look.
    """
    __tracebackhide__ = True
    runner.right = {}
    if not spec.others:
        # Without any backend of its dialect, all of them say why.
        with runner.on(running(spec.kernel, runner.backends) or runner.backends):
            return runner.check(spec, case)
    reference = runner.reference(spec, case)
    verdicts: dict[str, Verdict] = {}
    failures: dict[str, DifferentialFailure] = {}
    outputs: dict[str, Outputs] = {}
    for part, backends in runnable(spec, runner.backends):
        with runner.on(backends):
            try:
                own = runner.check(part, case, reference)
            except DifferentialFailure as wrong:
                failures[part.name], own = wrong, wrong.verdicts
        outputs[part.name] = runner.outputs
        runner.right |= {b: (runner.outputs[b], v) for b, v in own.items() if isinstance(v, Match)}
        verdicts |= {f"{part.name} on {backend}": verdict for backend, verdict in own.items()}
    agreed = {
        (first, second, backend): are_equal(ours[backend], theirs[backend])
        for (first, ours), (second, theirs) in combinations(outputs.items(), 2)
        for backend in ours.keys() & theirs.keys()
    }
    for pair, equal in agreed.items():
        row = runner.tally.agreements.setdefault(pair, Counts())
        row.cases, row.exact = row.cases + 1, row.exact + equal
    for name, failure in failures.items():
        alike = {k for (*two, _), equal in agreed.items() if equal and name in two for k in two}
        failure.others = tuple(_said(k, failures, alike) for k in outputs if k != name)
        raise failure
    return verdicts


def _said(other: str, failures: Collection[str], alike: Collection[str]) -> str:
    """Of another kernel: whether it is wrong too, and in the same way."""
    if other not in failures:
        return f"{other} agrees with the reference"
    if other in alike:
        return f"{other} is wrong too, with the same bits: look at the reference and the spec"
    return f"{other} is wrong too, and its outputs differ"


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
    case = case if isinstance(case, Case) else case_from_json(case, spec)
    try:
        first, *_ = check_each(runner, spec, case).values()
    except DifferentialFailure as failure:
        locate_writers(failure, runner.backends)
        raise
    runner.check_hazards()
    return first
