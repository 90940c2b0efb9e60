"""The purposes of instructions: what they do to data, as far as time and hazards depend on it.

A record names its own, and each of its events has it. So no instruction is known here by its name.
"""

from __future__ import annotations

from difftest.simulator.trace import Event
from difftest.simulator.trace import Purpose as Purpose


def purpose(event: Event) -> Purpose:
    """What the instruction of an event does."""
    return event.kind.purpose


def clears(event: Event) -> bool:
    """Whether it writes zeros, and nothing else."""
    return event.kind.purpose is Purpose.FILL and event.arguments.get("value") == 0
