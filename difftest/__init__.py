"""A simulator-first reference and differential test harness for AWS NKI kernels.

The names below are imported when they are first used, so that ``import difftest`` and the pytest
plugin load fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from difftest.testing.harness.bound_case import BoundCase, check
    from difftest.testing.harness.case import Case
    from difftest.testing.harness.decorator import kernel_test
    from difftest.testing.harness.failures import DifferentialFailure
    from difftest.testing.harness.recipes import (
        Fill,
        Integers,
        Iota,
        Ones,
        Outliers,
        Random,
        Recipe,
        Zeros,
    )
    from difftest.testing.harness.spec import Input, KernelSpec, Rejection
    from difftest.testing.harness.spec_arguments import SpecError
    from difftest.testing.harness.strategies import cases, multiples, seeded, sizes
    from difftest.testing.harness.structured import (
        Bernoulli,
        Given,
        Indices,
        OneHot,
        Permutation,
        Sorted,
        Uniform,
    )

_HOMES = {
    "bound_case": ("BoundCase", "check"),
    "case": ("Case",),
    "decorator": ("kernel_test",),
    "failures": ("DifferentialFailure",),
    "recipes": (
        "Fill",
        "Integers",
        "Iota",
        "Ones",
        "Outliers",
        "Random",
        "Recipe",
        "Zeros",
    ),
    "spec": ("Input", "KernelSpec", "Rejection"),
    "spec_arguments": ("SpecError",),
    "strategies": ("cases", "multiples", "seeded", "sizes"),
    "structured": (
        "Bernoulli",
        "Given",
        "Indices",
        "OneHot",
        "Permutation",
        "Sorted",
        "Uniform",
    ),
}
"""Modules of the harness, and the public names that each defines."""

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
    "kernel_test",
    "multiples",
    "seeded",
    "sizes",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("nki-difftest")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(
                importlib.import_module(f"difftest.testing.harness.{home}"), name
            )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
