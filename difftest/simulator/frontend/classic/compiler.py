"""The module that kernels import as ``neuronxcc.nki.compiler`` (usually ``ncc``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difftest.simulator.frontend.arguments import absent
from difftest.simulator.frontend.classic.memories import psum, sbuf

__getattr__ = absent(
    "nki.compiler",
    frozenset({"allocation_scope", "force_auto_alloc", "multi_buffer", "no_reorder"}),
)


def skip_middle_end_transformations(func: Any = None) -> Any:
    """Mark a kernel to be compiled as it is written; the simulator always runs it so."""
    return _marked(func, skip_middle_end_transformations)


def enable_stack_allocator(func: Any = None, log_level: int = 50) -> Any:
    """Mark a kernel for the compiler's stack allocator; it changes no value."""
    del log_level
    return _marked(func, enable_stack_allocator)


def _marked(func: Any, decorator: Callable[..., Any]) -> Any:
    """The kernel itself, or the decorator where it was called with brackets only."""
    return decorator if func is None else func


__all__ = ["enable_stack_allocator", "psum", "sbuf", "skip_middle_end_transformations"]
