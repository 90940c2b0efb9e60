"""Listeners of launches: they get each launch's record, and can repeat it in another order.

They observe the launches of code that they do not control, such as a script or a test.
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
    """A finished launch, before the caller's arrays change."""

    trace: Trace
    machine: Machine
    outputs: tuple[Array, ...]
    """The kernel's outputs, then the arguments that it wrote to."""
    again: Callable[[ExecutionOrder], tuple[Array, ...]]
    """Repeat the launch in another order; return its outputs, or raise its error."""
    exactly: Callable[[ExecutionOrder], tuple[ExactOutput, ...]] | None = None
    """Repeat the launch in another order without rounding; empty if that has no meaning. None for
    ranks.
    """
    rank: int | None = None
    """The rank's number among communicating launches; None for a single launch."""
    kernel: Any = None
    """The launched kernel; None for ranks."""


LaunchListener = Callable[[LaunchRecord], None]

_LISTENER: contextvars.ContextVar[LaunchListener | None] = contextvars.ContextVar(
    "difftest_listener", default=None
)

TAPES = contextvars.ContextVar[list[Any] | None]("difftest_tapes", default=None)


def recording_tapes() -> AbstractContextManager[list[Any]]:
    """Append the tape of each finished launch to a list within the block."""
    return set_to(TAPES, [])


def current_listener() -> LaunchListener | None:
    """Return the current listener, or None."""
    return _LISTENER.get()


def listening(
    listener: LaunchListener | None,
) -> AbstractContextManager[LaunchListener | None]:
    """Call ``listener`` for each launch within the block; other listeners are not called."""
    return set_to(_LISTENER, listener)


def listen(listener: LaunchListener | None) -> None:
    """Call ``listener`` for each later launch of this context, such as the rest of a cell."""
    _LISTENER.set(listener)
