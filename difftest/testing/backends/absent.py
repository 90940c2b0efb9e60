"""Imports of kernels whose dialect the installed SDK lacks.

A test of two kernels imports both dialects, and an SDK of 2.21 to 2.26 has only the classic one.
While such a file is imported, the embedded modules replace the missing dialect. A kernel that they
decorate can be used in a test, but not run.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

from difftest.simulator.entry.install import embedded_modules
from difftest.testing.backends.base import DialectError
from difftest.testing.backends.sdk import (
    CLASSIC,
    DECLARED,
    NEWER,
    PACKAGES,
    REMEDIES,
    Sdk,
    SdkProbe,
)

_DECORATORS = {
    CLASSIC: ("jit", "trace", "benchmark", "baremetal", "profile"),
    NEWER: ("jit", "simulate"),
}
"""The names that make a kernel of a function."""
_LAUNCHERS = {
    CLASSIC: {"neuronxcc.nki": "simulate_kernel"},
    NEWER: {"nki.simulator": "simulate_kernel"},
}
"""The names that run a kernel, by their modules."""


class AbsentKernel:
    """A kernel whose dialect is not installed: its import works, its call raises."""

    def __init__(self, function: Callable[..., Any], detection: SdkProbe) -> None:
        functools.update_wrapper(self, function)
        setattr(self, DECLARED, detection.dialect)
        self._detection = detection

    def __getitem__(self, grid: object) -> AbsentKernel:
        """Return the kernel itself, which runs with no grid."""
        return self

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise a DialectError that names the missing dialect."""
        raise _absence(self._detection)


def _absence(detection: SdkProbe) -> DialectError:
    package = PACKAGES[detection.dialect]
    return DialectError(
        f"a kernel of {package} was called, and the installed SDK does not have this dialect.\n"
        f"  found:  {detection.state}\n"
        f"  remedy: {REMEDIES[detection.dialect]}"
    )


def absent_in(sdk: Sdk) -> SdkProbe | None:
    """Return the one dialect that the SDK lacks; None if it has both, or neither."""
    present = [detection for detection in sdk if detection.module is not None]
    lacking = [detection for detection in sdk if detection.module is None]
    return lacking[0] if present and lacking else None


@contextmanager
def importable(detection: SdkProbe) -> Iterator[None]:
    """Make a dialect that is not installed importable within the block."""
    package = PACKAGES[detection.dialect]
    parent, _, name = package.rpartition(".")
    table = embedded_modules()
    placed = {at: module for at, module in table.items() if _is_within(at, package)}
    if parent and parent not in sys.modules:
        placed[parent] = table[parent]
    _keep_from_running(placed, detection)
    with _replaced(placed, package):
        if not parent:
            yield
            return
        with _attribute(sys.modules[parent], name, placed[package]):
            yield


@contextmanager
def _replaced(placed: dict[str, ModuleType], package: str) -> Iterator[None]:
    """Replace the modules of a package by others within the block."""
    names = [name for name in sys.modules if _is_within(name, package)]
    replaced = {name: sys.modules.pop(name) for name in names}
    sys.modules.update(placed)
    try:
        yield
    finally:
        for name in placed:
            sys.modules.pop(name, None)
        sys.modules.update(replaced)


@contextmanager
def _attribute(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Set an attribute of a module within the block."""
    before = dict(vars(module))
    setattr(module, name, value)
    try:
        yield
    finally:
        if name in before:
            setattr(module, name, before[name])
        else:
            delattr(module, name)


def _is_within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _keep_from_running(placed: dict[str, ModuleType], detection: SdkProbe) -> None:
    """Replace the simulator's decorators and launchers by functions that run no kernel."""

    def decorate(kernel: Any = None, *_: object, **options: Any) -> Any:
        function = kernel or options.get("func") or options.get("fn")
        if function is None:
            return decorate
        if isinstance(function, AbsentKernel):
            return function
        return AbsentKernel(function, detection)

    def launch(*args: object, **kwargs: object) -> NoReturn:
        raise _absence(detection)

    for name in _DECORATORS[detection.dialect]:
        setattr(placed[PACKAGES[detection.dialect]], name, decorate)
    for module, name in _LAUNCHERS[detection.dialect].items():
        setattr(placed[module], name, launch)
