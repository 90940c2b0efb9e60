"""Who is told of each launch: what it did, and how to do it again in another order.

So that others can look at the launches of code that they do not control, a script's or a test's.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import set_to
from difftest.simulator.machine import Machine
from difftest.simulator.program_scheduler import ExecutionOrder
from difftest.simulator.trace import Trace

if TYPE_CHECKING:
    from difftest.simulator.exact.run import ExactOutput


class LaunchRecord(NamedTuple):
    """A launch that came to its end, before the caller's arrays change."""

    trace: Trace
    machine: Machine
    outputs: tuple[Array, ...]
    """What the kernel returned, then what it wrote to arguments."""
    again: Callable[[ExecutionOrder], tuple[Array, ...]]
    """The same launch once more in another order: its outputs, or whatever it raises."""
    exactly: Callable[[ExecutionOrder], tuple[ExactOutput, ...]] | None = None
    """The same, but as they are without rounding; empty if that has no meaning. None of ranks."""
    rank: int | None = None
    """Which one of several that talk to each other; None of a launch alone."""
    kernel: Any = None
    """What was launched; None of ranks."""


Witness = Callable[[LaunchRecord], None]

_WITNESS: contextvars.ContextVar[Witness | None] = contextvars.ContextVar(
    "difftest_witness", default=None
)

TAPES = contextvars.ContextVar[list[Any] | None]("difftest_tapes", default=None)


def recording_tapes() -> AbstractContextManager[list[Any]]:
    """A scope in which each launch appends its tape to a list, once it has ended."""
    return set_to(TAPES, [])


def current_listener() -> Witness | None:
    """Who is to be told, if anybody."""
    return _WITNESS.get()


def listening(listener: Witness | None) -> AbstractContextManager[Witness | None]:
    """Tell ``told``, and nobody else, of each launch while this lasts."""
    return set_to(_WITNESS, listener)
