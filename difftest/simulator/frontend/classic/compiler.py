"""The module that kernels import as ``neuronxcc.nki.compiler`` (usually ``ncc``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difftest.simulator.frontend.arguments import absent
from difftest.simulator.frontend.classic import placement
from difftest.simulator.frontend.classic.memories import psum, sbuf
from difftest.simulator.frontend.dispatch import fitting
from difftest.simulator.index import as_integer

__getattr__ = absent("nki.compiler", frozenset(), globals())


def skip_middle_end_transformations(func: Any = None) -> Any:
    """Mark a kernel to be compiled as it is written; the simulator always runs it so."""
    return _marked(func, skip_middle_end_transformations)


def enable_stack_allocator(func: Any = None, log_level: int = 50) -> Any:
    """Mark a kernel for the compiler's stack allocator; it changes no value."""
    del log_level
    return _marked(func, enable_stack_allocator)


def force_auto_alloc(func: Any = None) -> Any:
    """Mark a kernel whose direct allocations the compiler ignores."""
    return _marked(placement.force_auto_alloc(func), force_auto_alloc)


class Directive:
    """What the ``directives`` of a range and a ``with`` take; it changes no value here."""

    def __init__(self, name: str, **settings: int) -> None:
        self.name = name
        self.settings = settings

    def __repr__(self) -> str:
        return f"ncc.{self.name}({', '.join(f'{k}={v}' for k, v in self.settings.items())})"

    def __enter__(self) -> Directive:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing was changed."""


def no_reorder() -> Directive:
    """Keep instructions in order, as the simulator always does."""
    return Directive("no_reorder")


def allocation_scope() -> Directive:
    """A scope of allocations."""
    return Directive("allocation_scope")


def multi_buffer(factor: int = 2) -> Directive:
    """Several buffers in turn."""
    return Directive("multi_buffer", factor=as_integer(factor, "ncc.multi_buffer's factor"))


def _marked(func: Any, decorator: Callable[..., Any]) -> Any:
    """The kernel itself, or the decorator where it was called with brackets only."""
    return decorator if func is None else func


__all__ = [
    "allocation_scope",
    "enable_stack_allocator",
    "force_auto_alloc",
    "multi_buffer",
    "no_reorder",
    "psum",
    "sbuf",
    "skip_middle_end_transformations",
]

for _name in set(__all__) - {"psum", "sbuf"}:
    globals()[_name] = fitting(f"nki.compiler.{_name}", globals()[_name])
