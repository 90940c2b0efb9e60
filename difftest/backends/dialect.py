"""The dialect of a kernel, and a backend that gives each kernel to the generation it is for.

A kernel of one dialect fails late and obscurely in the other generation of the SDK; here it is
reported before anything compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

from difftest.backends.base import Backend, Crashed, KernelCall, Outcome, Unsupported
from difftest.backends.detection import CLASSIC, NEWER, PACKAGES

_INNER = ("__wrapped__", "function", "func", "fn")
"""Attributes in which decorators keep the function they were given."""
_MOST_DECORATORS = 10


class DialectError(Exception):
    """The kernel is written for a generation of NKI that cannot run it here."""


def function_of(kernel: Callable[..., Any]) -> FunctionType | None:
    """The Python function inside a kernel, whatever a decorator made of it; None if none shows."""
    candidate: Any = kernel
    for _ in range(_MOST_DECORATORS):
        if isinstance(candidate, FunctionType) and not hasattr(candidate, "__wrapped__"):
            return candidate
        inner = (getattr(candidate, name, None) for name in _INNER)
        candidate = next((value for value in inner if callable(value)), None)
    return None


def dialect_of(kernel: Callable[..., Any]) -> str | None:
    """``classic`` or ``newer``, by what the kernel's file imports; None if unclear."""
    function = function_of(kernel)
    if function is None:
        return None
    dialects = {
        dialect
        for value in function.__globals__.values()
        for dialect, package in PACKAGES.items()
        if is_of(value, package)
    }
    return dialects.pop() if len(dialects) == 1 else None


def is_of(value: object, package: str) -> bool:
    """Whether a value is a module of a package, or comes from one."""
    home = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None)
    return isinstance(home, str) and f"{home}.".startswith(f"{package}.")


def close_backend(backend: Backend) -> None:
    """Give back what a backend holds, if it holds anything: processes, a NeuronCore."""
    if (close := getattr(backend, "close", None)) is not None:
        close()


class ByDialect:
    """One backend of several generations: each kernel runs on that of its dialect.

    One whose dialect does not show goes to the first. ``absent`` says of a generation that is not
    among them why.
    """

    def __init__(self, backends: Mapping[str, Backend], absent: Mapping[str, str]) -> None:
        self._backends = dict(backends)
        self._absent = dict(absent)
        first = next(iter(self._backends.values()))
        self.name = first.name
        self.description = "; ".join(backend.description for backend in self._backends.values())
        self._last = first

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel on its generation; without that, say so and compile nothing."""
        if call.ranks:
            return Unsupported(NotImplementedError(f"{self.name} runs no ranks; the embedded does"))
        dialect = dialect_of(call.kernel)
        backend = self.backend_for(dialect)
        if backend is not None:
            self._last = backend
            return backend.run(call)
        return Crashed(DialectError(self._refusal(str(dialect))))

    def takes(self, kernel: Callable[..., Any]) -> bool:
        """Whether the generation that the kernel is written for is here."""
        return self.backend_for(dialect_of(kernel)) is not None

    @property
    def log(self) -> str:
        """What the compiler and the runtime wrote at the last run; empty if nothing was kept."""
        return str(getattr(self._last, "log", ""))

    def backend_for(self, dialect: str | None) -> Backend | None:
        """The backend for kernels of this dialect."""
        if dialect is None:
            return next(iter(self._backends.values()))
        return self._backends.get(dialect)

    def rest(self) -> None:
        """End the processes that a backend keeps for one kernel."""
        for backend in self._backends.values():
            if (rest := getattr(backend, "rest", None)) is not None:
                rest()

    def close(self) -> None:
        """Give back what the backends hold; they can be used again."""
        for backend in self._backends.values():
            close_backend(backend)

    def _refusal(self, dialect: str) -> str:
        here = " and ".join(self._backends)
        remedy = {
            CLASSIC: "port the kernel (NKI migration guide, 0.1.0 to 0.2.0), or use an SDK of 2.21 "
            "to 2.29",
            NEWER: "use an SDK from 2.29 on",
        }
        return (
            f"the kernel is written for {PACKAGES[dialect]} ({dialect}); {self.name} runs {here} "
            f"kernels here.\n  found:  {self._absent.get(dialect, 'no such generation')}\n"
            f"  remedy: {remedy[dialect]}"
        )
