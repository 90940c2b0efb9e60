"""The module that kernels import as ``neuronxcc.nki.compiler`` (usually ``ncc``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difftest.simulator.frontend.arguments import absent
from difftest.simulator.frontend.classic import memories as _memories
from difftest.simulator.frontend.classic.memories import psum, sbuf
from difftest.simulator.frontend.dispatch import fitting
from difftest.simulator.index import as_integer

__all__ = ["psum", "sbuf"]
__getattr__ = absent("nki.compiler", frozenset(), globals())


def _public(function: Callable[..., Any]) -> Callable[..., Any]:
    __all__.append(function.__name__)
    return fitting(f"nki.compiler.{function.__name__}", function)


@_public
def skip_middle_end_transformations(func: Any = None) -> Any:
    """Mark a kernel to be compiled as written, as the simulator always runs it."""
    if func is None:
        return skip_middle_end_transformations
    return _memories.mark(func, _memories.SKIPS_MIDDLE_END)


@_public
def enable_stack_allocator(func: Any = None, log_level: int = 50) -> Any:
    """Mark a kernel for the compiler's stack allocator; it changes no value."""
    if func is None:
        return enable_stack_allocator
    return func


@_public
def force_auto_alloc(func: Any = None) -> Any:
    """Mark a kernel whose direct allocations the compiler ignores."""
    if func is None:
        return force_auto_alloc
    return _memories.mark(func, _memories.FORCES_AUTO_ALLOC)


class Directive:
    """The value of a range's ``directives`` and of a ``with``; it changes no value here."""

    def __init__(self, name: str, **settings: int) -> None:
        self.name = name
        self.settings = settings

    def __repr__(self) -> str:
        return f"ncc.{self.name}({', '.join(f'{k}={v}' for k, v in self.settings.items())})"

    def __enter__(self) -> Directive:
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing."""


@_public
def no_reorder() -> Directive:
    """Keep instructions in order, as the simulator always does."""
    return Directive("no_reorder")


@_public
def allocation_scope() -> Directive:
    """Begin a scope of allocations."""
    return Directive("allocation_scope")


@_public
def multi_buffer(factor: int = 2) -> Directive:
    """Use several buffers in turn."""
    return Directive(
        "multi_buffer", factor=as_integer(factor, "ncc.multi_buffer's factor")
    )
