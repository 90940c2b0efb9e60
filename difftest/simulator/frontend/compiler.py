"""The module that kernels import as ``neuronxcc.nki.compiler`` (usually ``ncc``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.creation import psum, sbuf

DOCUMENTED_NOT_MODELLED = frozenset(
    {"allocation_scope", "force_auto_alloc", "multi_buffer", "no_reorder"}
)
"""Names that AWS documents at v2.26.0 and the simulator does not have."""


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


def __getattr__(name: str) -> Any:
    if name in DOCUMENTED_NOT_MODELLED:
        raise not_modelled(f"nki.compiler.{name}", "its use")
    raise AttributeError(f"module 'neuronxcc.nki.compiler' has no attribute {name!r}")


__all__ = ["enable_stack_allocator", "psum", "sbuf", "skip_middle_end_transformations"]
