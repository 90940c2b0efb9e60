"""The case that a test function gets, and its check.

A spec with ``others`` is split into one spec for each kernel (:func:`specs_by_kernel`). Each kernel
runs every case, and the outputs are compared with each other. A backend that runs only some
dialects gets the kernels of these dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from difftest.support.rounding import Array
from difftest.support.signature import distinct_names, function_name, module_name
from difftest.testing.backends.base import Backend
from difftest.testing.backends.sdk import CLASSIC, PACKAGES, dialect_of, refusal_of
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.compare import are_equal
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.tally import Counts
from difftest.testing.harness.verdict import Match, Verdict

Outputs = Mapping[str, tuple[Array, ...]]  # by the name of the backend


@lru_cache(maxsize=16)  # each case of a test calls it
def specs_by_kernel(spec: KernelSpec) -> tuple[KernelSpec, ...]:
    """Return a spec for each kernel, all with different names."""
    if not spec.others:
        return (spec,)
    kernels = (spec.kernel, *spec.others)
    # A classic kernel runs on one core, for any number of cores in lnc.
    cores = [None if dialect_of(kernel) == CLASSIC else spec.lnc for kernel in kernels]
    each = zip(kernels, kernel_titles(kernels), cores, strict=True)
    return tuple(
        replace(spec, kernel=kernel, others=(), title=title, lnc=lnc)
        for kernel, title, lnc in each
    )


def kernel_titles(kernels: tuple[Callable[..., Any], ...]) -> tuple[str, ...]:
    """Return distinct names for kernels: with the dialect or the module if names are equal."""
    packages = []
    for kernel in kernels:
        package = PACKAGES.get(dialect_of(kernel) or "", "")
        packages.append(package.partition(".")[0])
    return distinct_names(
        list(map(function_name, kernels)), packages, list(map(module_name, kernels))
    )


def running(
    kernel: Callable[..., Any], backends: tuple[Backend, ...]
) -> tuple[Backend, ...]:
    """Return the backends that run the dialect of a kernel."""
    return tuple(backend for backend in backends if refusal_of(backend, kernel) is None)


def runnable(
    spec: KernelSpec, backends: tuple[Backend, ...]
) -> Iterator[tuple[KernelSpec, Any]]:
    """Yield the spec of each kernel with the backends that run its dialect.

    If no backend runs any of the kernels, all backends get the first kernel. Then each reports why
    it cannot run the kernel.
    """
    specs = specs_by_kernel(spec)
    pairs = [(part, running(part.kernel, backends)) for part in specs]
    if not any(chosen for _, chosen in pairs):
        pairs = [(specs[0], backends)]
    for part, chosen in pairs:
        if chosen:
            yield part, chosen


def check_each(runner: Runner, spec: KernelSpec, case: Case) -> dict[str, Verdict]:
    """Check a case with each kernel of a spec; see :meth:`Runner.check`.

    After a failure of one kernel the others still run: their results help to find the cause.
    """
    __tracebackhide__ = True
    runner.right = {}
    runner.tested = spec
    if not spec.others:
        # Without a backend of its dialect, each backend reports why it cannot run the kernel.
        with runner.on(running(spec.kernel, runner.backends) or runner.backends):
            return runner.check(spec, case)
    reference = runner.reference(spec, case)
    verdicts: dict[str, Verdict] = {}
    failures: dict[str, DifferentialFailure] = {}
    outputs: dict[str, Outputs] = {}
    for part, backends in runnable(spec, runner.backends):
        with runner.on(backends):
            try:
                by_backend = runner.check(part, case, reference)
            except DifferentialFailure as wrong:
                failures[part.name] = wrong
                by_backend = wrong.verdicts
        outputs[part.name] = runner.outputs
        for backend, verdict in by_backend.items():
            if isinstance(verdict, Match):
                runner.right[backend] = runner.outputs[backend], verdict
            verdicts[f"{part.name} on {backend}"] = verdict
    equal_pairs = _compare_with_each_other(runner, outputs)
    for name, failure in failures.items():
        failure.others = _describe_others(name, failures, outputs, equal_pairs)
        raise failure
    return verdicts


def _compare_with_each_other(
    runner: Runner, outputs: Mapping[str, Outputs]
) -> list[tuple[str, str]]:
    """Count the pairs of kernels whose outputs agree on a backend; return the equal pairs."""
    equal_pairs = []
    for (first, ours), (second, theirs) in combinations(outputs.items(), 2):
        for backend in ours.keys() & theirs.keys():
            is_equal = are_equal(ours[backend], theirs[backend])
            pair = first, second, backend
            row = runner.tally.agreements.setdefault(pair, Counts())
            row.cases += 1
            row.exact += is_equal
            if is_equal:
                equal_pairs.append((first, second))
    return equal_pairs


def _describe_others(
    wrong: str,
    failures: Collection[str],
    kernels: Iterable[str],
    equal_pairs: Iterable[tuple[str, str]],
) -> tuple[str, ...]:
    """Return the results of the other kernels, in words."""
    equal = {kernel for pair in equal_pairs if wrong in pair for kernel in pair}
    return tuple(
        _describe_other(kernel, failures, equal)
        for kernel in kernels
        if kernel != wrong
    )


def _describe_other(
    other: str, failures: Collection[str], same: Collection[str]
) -> str:
    """Return the result of another kernel: whether it is wrong too, and with the same bits."""
    if other not in failures:
        return f"{other} agrees with the reference"
    if other in same:
        return f"{other} is wrong too, with the same bits: look at the reference and the spec"
    return f"{other} is wrong too, and its outputs differ"


@dataclass(repr=False)
class BoundCase:
    """The case that a test function gets.

    ``verdicts`` has the verdict of each backend in the last :meth:`check`. If there are several
    kernels, its keys name the kernel before the backend. It is empty before the first check.
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
        """The input arrays; each access makes new ones."""
        return self.spec.inputs_of(self.case)

    def check(self) -> None:
        """Run the case on each backend and compare it with the reference.

        Several kernels of one contract run one after the other. Their outputs are also compared
        with each other, and the summary counts how often all bits agree.

        Raises
        ------
        DifferentialFailure : a kernel and its reference disagree.
        BrokenReferenceError : the reference crashed, or wrote to its arguments.
        """
        __tracebackhide__ = True
        self.verdicts = check_each(self.runner, self.spec, self.case)
