"""Several kernels of one contract: each runs every case, and they are compared with each other.

A spec with ``others`` stands for as many specs, one of each kernel (:func:`alone`). Where a backend
runs kernels of some dialects only, it gets those of these dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.backends.base import Backend
from difftest.backends.sdk import CLASSIC, PACKAGES, dialect_of
from difftest.harness.signature import home_of, name_of, told_apart
from difftest.harness.spec import KernelSpec

Outputs = Mapping[str, tuple[NDArray[Any], ...]]
"""By the name of the backend."""


@lru_cache(maxsize=16)  # each case of a test asks
def alone(spec: KernelSpec) -> tuple[KernelSpec, ...]:
    """The spec of each kernel by itself, named so that no two have one name."""
    if not spec.others:
        return (spec,)
    kernels = (spec.kernel, *spec.others)
    # A classic kernel runs on one core, whatever the logical cores have.
    cores = [None if dialect_of(one) == CLASSIC else spec.lnc for one in kernels]
    return tuple(
        replace(spec, kernel=kernel, others=(), title=title, lnc=lnc)
        for kernel, title, lnc in zip(kernels, titles(kernels), cores, strict=True)
    )


def titles(kernels: tuple[Callable[..., Any], ...]) -> tuple[str, ...]:
    """What to call kernels beside each other: names, with the dialect or the module if need be."""
    packages = [PACKAGES.get(dialect_of(one) or "", "").partition(".")[0] for one in kernels]
    return told_apart([name_of(one) for one in kernels], packages, [home_of(k) for k in kernels])


def runnable(spec: KernelSpec, backends: tuple[Backend, ...]) -> Iterator[tuple[KernelSpec, Any]]:
    """The spec of each kernel with the backends that it runs on.

    A backend that takes none of the kernels gets the first: it says why it cannot run it.
    """
    specs = alone(spec)
    taken = {
        backend.name: [one for one in specs if getattr(backend, "takes", callable)(one.kernel)]
        or [specs[0]]
        for backend in backends
    }
    for one in specs:
        if chosen := tuple(b for b in backends if any(one is own for own in taken[b.name])):
            yield one, chosen


def agreement(outputs: Mapping[str, Outputs]) -> Iterator[tuple[str, str, str, bool]]:
    """For each two kernels and each backend that ran both: whether their outputs are equal.

    Yields both names, the backend's, and whether all bits agree (NaN as any other NaN).
    """
    for (first, ours), (second, theirs) in combinations(outputs.items(), 2):
        for backend in ours.keys() & theirs.keys():
            yield first, second, backend, _equal(ours[backend], theirs[backend])


def _equal(ours: tuple[NDArray[Any], ...], theirs: tuple[NDArray[Any], ...]) -> bool:
    return len(ours) == len(theirs) and all(
        one.shape == other.shape
        and one.dtype == other.dtype
        and np.array_equal(np.asarray(one, np.float64), np.asarray(other, np.float64), True)
        for one, other in zip(ours, theirs, strict=True)
    )
