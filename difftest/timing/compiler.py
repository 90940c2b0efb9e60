"""Models of the compiler: inferred from measured kernels, documented nowhere.

There are three models: a likely one for predictions, and two that bound it. If the three
predictions of a kernel agree, the kernel does not depend on these unknowns. The evidence for each
answer is in docs/contributing/compiler.md.

The source of a DMA's descriptors depends on the kind of DMA and on the compiler of the kernel. This
is data (``data/descriptors.csv``); each row has its evidence and source. Sources that were observed
are data too (``data/observed-descriptors.csv``): no likely source contradicts them.
"""

from __future__ import annotations

import itertools
from enum import Enum
from functools import cache
from typing import NamedTuple

from difftest.simulator.machine import Machine
from difftest.simulator.trace import Trace
from difftest.timing.evidence import rows_of

TODAYS = "nki"
"""The current dialect."""
ANY = "*"
KINDS = (
    "none",
    "swdge",
    "hwdge",
    "register",
    "index",
    "transpose",
    "turned",
    "row",
    "run",
    "elements",
    "short rows",
    "rows",
)
"""Kinds of DMAs, the most specific first; see :func:`~difftest.timing.dma.dma_kind`."""


class DescriptorSource(Enum):
    """The maker of a DMA's descriptors."""

    LAID_DOWN = "laid down"
    """The host, before the run."""
    IN_TURN = "in turn"
    """The host, before the run; each DMA keeps a generator's queue while it moves data."""
    HARDWARE = "hardware"
    """A generator in hardware."""
    SOFTWARE = "software"
    """The GpSimd Engine, which is busy meanwhile."""

    @property
    def words(self) -> str:
        """Return when and by whom descriptors are made, in words."""
        return _SOURCES[self]


_SOURCES = {
    DescriptorSource.LAID_DOWN: "laid down before the run",
    DescriptorSource.IN_TURN: "laid down, one at a time",
    DescriptorSource.HARDWARE: "made by the hardware during the run",
    DescriptorSource.SOFTWARE: "made by software during the run",
}
ON_DEVICE = (DescriptorSource.HARDWARE, DescriptorSource.SOFTWARE)
"""The sources on the device."""


class Toolchain(Enum):
    """A compiler with the flags that decide who makes descriptors."""

    CLASSIC_PROFILE = "classic-profile"
    """neuronx-cc 2.21 with ``--disable-dge``, as in profiles of classic kernels."""
    CLASSIC_BENCHMARK = "classic-benchmark"
    """neuronx-cc 2.21 without the flag, as ``nki.benchmark`` runs it."""
    TODAY = "today"
    """The compiler of the current dialect, neuronx-cc 2.23 (early 2026) and later."""
    SWEEP = "today-sweep"
    """The compiler of a public search of matrix products of the current dialect (2025-11 and
    2026-06); its flags are unknown."""

    @classmethod
    def of(cls, requested: bool | Toolchain | None, dialect: str) -> Toolchain:
        """Return the requested toolchain; True and False mean a classic one, None the dialect's."""
        if isinstance(requested, Toolchain):
            return requested
        if requested is None and dialect == TODAYS:
            return cls.TODAY
        return cls.CLASSIC_PROFILE if requested is False else cls.CLASSIC_BENCHMARK

    @property
    def generators(self) -> int:
        """The number of hardware generators that share the DMAs."""
        return 2 if self in (Toolchain.TODAY, Toolchain.SWEEP) else 1

    @property
    def words(self) -> str:
        """Return how the toolchain makes most descriptors, in words."""
        if self.generators > 1:
            return (
                "from two generators or from software, those of one partition laid down"
            )
        if self is Toolchain.CLASSIC_PROFILE:
            return "laid down before the run"
        return "all from one generator"


class Answer(Enum):
    """An answer to a question to the compiler: the likely one, or an end of the possible ones."""

    LIKELY = "likely"
    FASTEST = "fastest"
    SLOWEST = "slowest"


def descriptor_row(toolchain: Toolchain, machine: Machine, kind: str) -> dict[str, str]:
    """Return the row of ``data/descriptors.csv`` for a kind of DMA: the last one that matches."""
    wanted = {"toolchain": toolchain.value, "machine": machine.name, "kind": kind}
    matching = [
        row
        for row in rows_of("descriptors")
        if all(row[name] in (ANY, value) for name, value in wanted.items())
    ]
    return matching[-1]


@cache
def descriptor_sources(
    toolchain: Toolchain, machine: Machine, answer: Answer = Answer.LIKELY
) -> dict[str, DescriptorSource]:
    """Return kind of DMA -> descriptor source.

    A row with measured ways has no other answers than the likely one.
    """
    rows = {kind: descriptor_row(toolchain, machine, kind) for kind in KINDS}
    return {
        kind: DescriptorSource(row[answer.value] or row["likely"])
        for kind, row in rows.items()
    }


class RepeatRule(Enum):
    """A rule for instructions that repeat earlier work: which of them are omitted."""

    KEPT = "kept"
    INVARIANT = "invariant"
    """Omit repeats in a loop, if the first is from before their innermost loop of several
    iterations."""
    OPTIMIZED = "optimized"
    """Omit repeats where the compiler's middle end runs: of loads all, of transposes as INVARIANT.
    Published kernels on trn1 went through the whole compiler."""
    REMOVED = "removed"


QUESTIONS = {
    "renames": "whether a tile that is filled again gets another place",
    "distributes": "whether loops run statement by statement",
    "by_tensor": "whether the users of one tensor wait for each other",
    "expected": "which latencies the compiler expects when it orders the products",
    "repeated_copies": "which repeated copies the compiler makes",
    "repeated_transposes": "which repeated transposes the compiler makes",
    "repeated_loads": "which repeated loads the compiler makes",
    "merged_loads": "whether loads into one tile are triggered as one",
    "descriptors": "who makes the DMA descriptors",
    "one_table": "whether all activation functions are in one table",
}
"""The question that each field of a compiler answers; see docs/contributing/compiler.md."""
_MADE = {
    RepeatRule.KEPT: "if all",
    RepeatRule.REMOVED: "if none",
    RepeatRule.INVARIANT: "if those that a loop changes",
    RepeatRule.OPTIMIZED: "as taken here",
}


def answer_words(value: bool | float | RepeatRule | None) -> str:
    """Return the value of a compiler's field as an answer in words."""
    if isinstance(value, RepeatRule):
        return _MADE[value]
    if isinstance(value, bool):
        return "if so" if value else "if not"
    if value is None:
        return "if the exact ones"
    return f"if {value:.0%} of those without start-up"


class Compiler(NamedTuple):
    """The compilation of a kernel: the answers to ``QUESTIONS``."""

    renames: bool
    distributes: bool
    """True if the middle end distributes loops (:mod:`difftest.timing.middle_end`)."""
    by_tensor: bool
    expected: float | None
    """None: it knows when each will be ready (:mod:`difftest.timing.schedule`)."""
    repeated_copies: RepeatRule
    repeated_transposes: RepeatRule
    repeated_loads: RepeatRule
    merged_loads: bool
    descriptors: Answer
    """Which of the possible ways to make a DMA's descriptors the toolchain takes."""
    one_table: bool


LIKELY = Compiler(
    renames=True,
    distributes=True,
    by_tensor=True,
    expected=1.0,
    repeated_copies=RepeatRule.INVARIANT,
    repeated_transposes=RepeatRule.OPTIMIZED,
    repeated_loads=RepeatRule.OPTIMIZED,
    merged_loads=False,
    descriptors=Answer.LIKELY,
    one_table=False,
)
"""The compiler of predictions."""
FASTEST = LIKELY._replace(
    by_tensor=False,
    expected=None,
    repeated_copies=RepeatRule.REMOVED,
    repeated_transposes=RepeatRule.INVARIANT,
    repeated_loads=RepeatRule.REMOVED,
    merged_loads=True,
    descriptors=Answer.FASTEST,
    one_table=True,
)
SLOWEST = LIKELY._replace(
    renames=False,
    distributes=False,
    expected=0.5,
    repeated_copies=RepeatRule.KEPT,
    repeated_transposes=RepeatRule.KEPT,
    repeated_loads=RepeatRule.KEPT,
    descriptors=Answer.SLOWEST,
)


def cores_of(trace: Trace) -> dict[tuple[int, ...], int]:
    """Return grid instance -> the physical core that runs it; empty if the launch names no cores.

    In the current dialect each instance has its own core. In a classic grid, instances that
    ``nl.nc`` spreads have one. All others run one after the other on the first core.
    """
    instances = itertools.product(*map(range, trace.grid))
    if not trace.cores:
        return {}
    return dict(zip(instances, trace.cores, strict=True))
