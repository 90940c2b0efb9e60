"""A simulator-first reference and differential test harness for AWS NKI kernels.

The names below are imported when they are first used, so that ``import difftest`` and the pytest
plugin load fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from difftest.testing.contract.case import Case
    from difftest.testing.contract.recipes import (
        Fill,
        Integers,
        Iota,
        Ones,
        Outliers,
        Random,
        Recipe,
        Zeros,
    )
    from difftest.testing.contract.spec import Input, KernelSpec, Rejection
    from difftest.testing.contract.spec_arguments import SpecError
    from difftest.testing.contract.structured import (
        Bernoulli,
        Given,
        Indices,
        OneHot,
        Permutation,
        Sorted,
        Uniform,
    )
    from difftest.testing.drawing.cases import cases
    from difftest.testing.drawing.data import seeded
    from difftest.testing.drawing.sizes import multiples, sizes
    from difftest.testing.harness.bound_case import BoundCase
    from difftest.testing.harness.decorator import kernel_test
    from difftest.testing.harness.direct_call import check
    from difftest.testing.harness.failures import DifferentialFailure
    from difftest.testing.host.notebook import (
        embedded,
        load_ipython_extension,
        unload_ipython_extension,
    )
    from difftest.testing.report.profile import profile

_HOMES = {
    "harness.bound_case": ("BoundCase",),
    "contract.case": ("Case",),
    "harness.decorator": ("kernel_test",),
    "harness.direct_call": ("check",),
    "harness.failures": ("DifferentialFailure",),
    "host.notebook": (
        "embedded",
        "load_ipython_extension",
        "unload_ipython_extension",
    ),
    "report.profile": ("profile",),
    "contract.recipes": (
        "Fill",
        "Integers",
        "Iota",
        "Ones",
        "Outliers",
        "Random",
        "Recipe",
        "Zeros",
    ),
    "contract.spec": ("Input", "KernelSpec", "Rejection"),
    "contract.spec_arguments": ("SpecError",),
    "drawing.cases": ("cases",),
    "drawing.data": ("seeded",),
    "drawing.sizes": ("multiples", "sizes"),
    "contract.structured": (
        "Bernoulli",
        "Given",
        "Indices",
        "OneHot",
        "Permutation",
        "Sorted",
        "Uniform",
    ),
}
"""Modules of :mod:`difftest.testing`, and the public names that each defines."""

__version__: str
__all__ = [
    "Bernoulli",
    "BoundCase",
    "Case",
    "DifferentialFailure",
    "Fill",
    "Given",
    "Indices",
    "Input",
    "Integers",
    "Iota",
    "KernelSpec",
    "OneHot",
    "Ones",
    "Outliers",
    "Permutation",
    "Random",
    "Recipe",
    "Rejection",
    "Sorted",
    "SpecError",
    "Uniform",
    "Zeros",
    "cases",
    "check",
    "embedded",
    "kernel_test",
    "load_ipython_extension",
    "multiples",
    "profile",
    "seeded",
    "sizes",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("nki-difftest")
    for home, names in _HOMES.items():
        if name in names:
            module = importlib.import_module(f"difftest.testing.{home}")
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
