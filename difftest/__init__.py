"""A simulator-first reference and differential test harness for AWS NKI kernels.

The names below are imported when they are first used, so that ``import difftest``, and with it the
pytest plugin, costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from difftest.harness.case import Case
    from difftest.harness.decorator import kernel_test
    from difftest.harness.recipes import Fill, Integers, Iota, Ones, Random, Recipe, Zeros
    from difftest.harness.runner import BoundCase, DifferentialFailure
    from difftest.harness.spec import KernelSpec, Rejection, SpecError
    from difftest.harness.strategies import cases, multiples, sizes

_HOMES = {
    "BoundCase": "runner",
    "Case": "case",
    "DifferentialFailure": "runner",
    "Fill": "recipes",
    "Integers": "recipes",
    "Iota": "recipes",
    "KernelSpec": "spec",
    "Ones": "recipes",
    "Random": "recipes",
    "Recipe": "recipes",
    "Rejection": "spec",
    "SpecError": "spec",
    "Zeros": "recipes",
    "cases": "strategies",
    "kernel_test": "decorator",
    "multiples": "strategies",
    "sizes": "strategies",
}

__all__ = [
    "BoundCase",
    "Case",
    "DifferentialFailure",
    "Fill",
    "Integers",
    "Iota",
    "KernelSpec",
    "Ones",
    "Random",
    "Recipe",
    "Rejection",
    "SpecError",
    "Zeros",
    "cases",
    "kernel_test",
    "multiples",
    "sizes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"difftest.harness.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
