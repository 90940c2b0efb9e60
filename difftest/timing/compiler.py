"""What the compiler is taken to do to a kernel: inferred from measured kernels, documented nowhere.

Three of them: the one that a prediction is made with, and two that bound it. A kernel whose three
predictions agree does not depend on what is unknown here. From what each is inferred is in
docs/explanation/compiler.md.

Who makes a DMA's descriptors goes by its kind and by what compiled the kernel: data
(``data/descriptors.csv``), each row with its evidence and source.
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
"""The dialect that today's compiler takes."""
ANY = "*"
KINDS = ("none", "swdge", "register", "index", "transpose", "turned", "row", "run", "rows")
"""What tells DMAs apart; the more a kernel asks for, the earlier: :func:`.transfer.kind_of`."""


class DescriptorSource(Enum):
    """Who makes the descriptors of a DMA."""

    LAID_DOWN = "laid down"
    """The host, before the run."""
    IN_TURN = "in turn"
    """The same; it keeps a generator's queue for as long as it moves data."""
    HARDWARE = "hardware"
    """A generator of the hardware."""
    SOFTWARE = "software"
    """The GpSimd Engine, which is busy with it."""


ON_DEVICE = (DescriptorSource.HARDWARE, DescriptorSource.SOFTWARE)
"""The ways by which the device makes descriptors."""


class Toolchain(Enum):
    """A compiler and its flags, as far as they decide who makes descriptors."""

    CLASSIC_PROFILE = "classic-profile"
    """neuronx-cc 2.21 with ``--disable-dge``, as in profiles of classic kernels."""
    CLASSIC_BENCHMARK = "classic-benchmark"
    """The same without the flag, as ``nki.benchmark`` runs it."""
    TODAY = "today"
    """What compiles kernels of today's dialect, neuronx-cc 2.23 and later."""

    @classmethod
    def of(cls, asked: bool | Toolchain | None, dialect: str) -> Toolchain:
        """The one that is asked for; True and False are the classic ones, None is the dialect's."""
        if isinstance(asked, Toolchain):
            return asked
        if asked is None and dialect == TODAYS:
            return cls.TODAY
        return cls.CLASSIC_PROFILE if asked is False else cls.CLASSIC_BENCHMARK

    @property
    def generators(self) -> int:
        """The generators of the hardware that DMAs are shared out to."""
        return 2 if self is Toolchain.TODAY else 1

    @property
    def words(self) -> str:
        """How it makes most descriptors."""
        if self is Toolchain.TODAY:
            return "from two generators or from software, those of one partition laid down"
        profiled = self is Toolchain.CLASSIC_PROFILE
        return "laid down before the run" if profiled else "all from one generator"


@cache
def descriptor_sources(toolchain: Toolchain, machine: Machine) -> dict[str, DescriptorSource]:
    """Kind of DMA -> its way: the last row that is for all three."""
    asked = {"toolchain": toolchain.value, "machine": machine.name}
    rows = list(rows_of("descriptors"))
    table: dict[str, DescriptorSource] = {}
    for kind in KINDS:
        for row in rows:
            if all(row[name] in (ANY, value) for name, value in (asked | {"kind": kind}).items()):
                table[kind] = DescriptorSource(row["way"])
    return table


class RepeatRule(Enum):
    """Which instructions, of those that only do again what was done, are left out."""

    KEPT = "kept"
    INVARIANT = "invariant"
    """Those in a loop, of what was there before the innermost loop of several turns around them."""
    OLDER = "older"
    """The same on trn1 alone, whose published kernels went through the whole compiler."""
    REMOVED = "removed"


QUESTIONS = {
    "renames": "does a tile that is filled again get another place",
    "by_tensor": "do users of one tensor wait for each other",
    "expected": "how much of each latency does it expect when it orders",
    "repeated_copies": "which repeated copies does it leave out",
    "repeated_transposes": "which repeated transposes does it leave out",
    "repeated_loads": "which repeated loads does it leave out",
    "merged_loads": "does it trigger loads into one tile as one",
    "toolchain": "who makes the descriptors of DMAs",
    "one_table": "are all activation functions in one table",
}
"""What each field of a compiler answers; docs/explanation/compiler.md says more of each."""


def parse_answer(value: bool | float | RepeatRule | Toolchain | None) -> str:
    """What a compiler's field says to its question."""
    if isinstance(value, Toolchain):
        return value.words
    if isinstance(value, RepeatRule):
        parts = {RepeatRule.KEPT: "none", RepeatRule.REMOVED: "all"}
        return parts.get(value, "what no loop changes")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "all" if value is None else f"{value:.0%}"


class Compiler(NamedTuple):
    """How a kernel is compiled: the answers to ``QUESTIONS``."""

    renames: bool
    by_tensor: bool
    expected: float | None
    """None: it knows when each will be ready (:mod:`difftest.timing.schedule`)."""
    repeated_copies: RepeatRule
    repeated_transposes: RepeatRule
    repeated_loads: RepeatRule
    merged_loads: bool
    toolchain: Toolchain | None
    """None: the one that the prediction is asked for."""
    one_table: bool


LIKELY = Compiler(
    renames=True,
    by_tensor=True,
    expected=1.0,
    repeated_copies=RepeatRule.INVARIANT,
    repeated_transposes=RepeatRule.OLDER,
    repeated_loads=RepeatRule.KEPT,
    merged_loads=False,
    toolchain=None,
    one_table=False,
)
"""What predictions are made with."""
FASTEST = LIKELY._replace(
    by_tensor=False,
    expected=None,
    repeated_copies=RepeatRule.REMOVED,
    repeated_transposes=RepeatRule.INVARIANT,
    repeated_loads=RepeatRule.REMOVED,
    merged_loads=True,
    toolchain=Toolchain.CLASSIC_PROFILE,
    one_table=True,
)
SLOWEST = LIKELY._replace(
    renames=False,
    expected=0.5,
    repeated_copies=RepeatRule.KEPT,
    repeated_transposes=RepeatRule.KEPT,
    toolchain=Toolchain.CLASSIC_BENCHMARK,
)


def cores_of(trace: Trace) -> dict[tuple[int, ...], int]:
    """Instance of the grid -> the physical core that runs it, where the launch says so.

    Each of today's dialect has a core of its own; those of a classic grid do that ``nl.nc``
    spreads. All others run one after the other on the first core.
    """
    instances = itertools.product(*map(range, trace.grid))
    return dict(zip(instances, trace.cores, strict=True)) if trace.cores else {}
