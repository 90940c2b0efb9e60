"""What a detector is: an id, how bad what it finds is, and the reader of traces that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from difftest.analysis.finding import Finding, Severity
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Location, Trace

PAGES = "docs/reference/detectors"


@dataclass(frozen=True)
class Suspicion:
    """What a trace alone cannot settle: whether the outputs depend on the order of what has none.

    Runs of the same case in other orders do: see :mod:`difftest.inspection.orders`.
    """

    differs: Finding
    """What is to be said if another order gives other outputs."""
    agrees: Finding | None = None
    """What is to be said if none does; None for nothing."""
    loop: Location | None = None
    """The line of the loop whose iterations it is about; None for the programs."""


Found = Iterable[Finding | Suspicion]
Reader = Callable[[Trace, Machine], Found]
"""Reads a trace of a kernel and the machine that it ran on. Several detectors may share one, which
then reads once for all of them."""


@dataclass(frozen=True, kw_only=True)
class Detector:
    """One kind of finding, which the page of its group has a section on."""

    id: str
    """Of its findings, in lower case with hyphens: what ``# difftest: allow[id]`` names."""
    severity: Severity
    """The worst that its findings have."""
    title: str
    """What the kernel does wrong, in a few words."""
    group: str
    """The title of its page."""
    reader: Reader

    @property
    def page(self) -> str:
        """Where the documentation says more of it."""
        name = self.group.lower().replace("'", "").replace(" ", "-")
        return f"{PAGES}/{name}.md#{self.id}"
