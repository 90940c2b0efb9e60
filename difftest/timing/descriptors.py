"""Who makes a DMA's descriptors: its own way, by its kind and by what compiled the kernel.

The ways are data (``data/descriptors.csv``), each with its evidence and source. Which are inferred,
and from what, is in docs/explanation/compiler.md.
"""

from __future__ import annotations

from enum import Enum
from functools import cache

from difftest.simulator.machine import Machine
from difftest.timing.evidence import rows_of

TODAYS = "nki"
"""The dialect that today's compiler takes."""
ANY = "*"
KINDS = ("none", "swdge", "register", "index", "transpose", "turned", "row", "run", "rows")
"""What tells DMAs apart; the more a kernel asks for, the earlier: :func:`.transfer.kind_of`."""


class Way(Enum):
    """Who makes the descriptors of a DMA."""

    LAID_DOWN = "laid down"
    """The host, before the run."""
    IN_TURN = "in turn"
    """The same; it keeps a generator's queue for as long as it moves data."""
    HARDWARE = "hardware"
    """A generator of the hardware."""
    SOFTWARE = "software"
    """The GpSimd Engine, which is busy with it."""


ON_DEVICE = (Way.HARDWARE, Way.SOFTWARE)
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
def ways(toolchain: Toolchain, machine: Machine) -> dict[str, Way]:
    """Kind of DMA -> its way: the last row that is for all three."""
    asked = {"toolchain": toolchain.value, "machine": machine.name}
    rows = list(rows_of("descriptors"))
    table: dict[str, Way] = {}
    for kind in KINDS:
        for row in rows:
            if all(row[name] in (ANY, value) for name, value in (asked | {"kind": kind}).items()):
                table[kind] = Way(row["way"])
    return table
