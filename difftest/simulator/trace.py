"""The trace: what a kernel did, as a list of events. The contract between meaning and time.

An :class:`Event` is one instruction: engine, opcode, the regions it read and wrote, and the
kernel's source line. A :class:`Region` is an access pattern on one allocation. Timing, profile,
advice, race and order checks read the trace and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.errors import Location as Location


class Space(Enum):
    """The memories that kernels name. ``nl.hbm`` is an alias of private_hbm."""

    SHARED_HBM = "shared_hbm"
    PRIVATE_HBM = "private_hbm"
    SBUF = "sbuf"
    PSUM = "psum"

    def __init__(self, label: str) -> None:
        self.is_hbm = label.endswith("hbm")


class Engine(Enum):
    """The engines of a NeuronCore, by AWS's names; DMA stands for its 16 DMA engines."""

    TENSOR = "tensor"
    VECTOR = "vector"
    SCALAR = "scalar"
    GPSIMD = "gpsimd"
    SYNC = "sync"
    DMA = "dma"
    UNKNOWN = "unknown"
    """The compiler chooses."""


@dataclass(eq=False, slots=True)
class Allocation:
    """One tensor in one memory: what the trace knows of it when its data are gone."""

    id: int
    space: Space
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    partition_axis: int
    location: Location | None
    name: str = ""
    first: int = -1
    """Number of the first instruction that touches it; -1 if none does."""
    last: int = -1
    reads: int = 0
    writes: int = 0
    moves: int = 0
    """Reads that only moved the whole result into its destination (``tile[...] = f(...)``)."""

    partitions: int = field(init=False)
    partition_bytes: int = field(init=False)
    """Bytes in each partition, block dimensions included."""

    def __post_init__(self) -> None:
        elements = self.dtype.itemsize
        for size in self.shape:
            elements *= size
        self.partitions = self.shape[self.partition_axis] if self.shape else 1
        self.partition_bytes = elements // self.partitions

    @property
    def is_temporary(self) -> bool:
        """An instruction's result that was only moved to its destination: no memory of its own."""
        return self.writes == 1 and self.reads == self.moves == 1

    def __str__(self) -> str:
        label = self.name or f"tensor {self.id}"
        return f"{label} {list(self.shape)} {self.dtype} in {self.space.value}"


class Region(NamedTuple):
    """An access pattern: ``offset`` and ``strides`` in elements of ``allocation``."""

    allocation: Allocation
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    partition_axis: int | None = 0
    """The axis that runs over partitions: block dimensions lie before it, and an integer index
    takes it away (None). It means nothing in HBM."""

    @property
    def partitions(self) -> int:
        """Partitions that an on-chip region takes part in."""
        return 1 if self.partition_axis is None else self.shape[self.partition_axis]

    @property
    def free_axes(self) -> tuple[tuple[int, int], ...]:
        """(size, stride) of each axis inside a partition, of an on-chip region."""
        axes = tuple(zip(self.shape, self.strides, strict=True))
        at = self.partition_axis
        return axes if at is None else axes[:at] + axes[at + 1 :]

    @property
    def elements(self) -> int:
        total = 1
        for size in self.shape:
            total *= size
        return total


@dataclass(eq=False, slots=True)
class Event:
    """One instruction as it was issued."""

    number: int
    opcode: str
    engine: Engine
    writes: tuple[Region, ...]
    reads: tuple[Region, ...]
    location: Location | None
    loops: tuple[tuple[int, int], ...]
    """The loops around it, outermost first: (loop number, iteration)."""
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Trace:
    """The events of one launch in program order, and its allocations."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.allocations: list[Allocation] = []

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def count(self, opcode: str) -> int:
        """How many events have this opcode."""
        return sum(1 for event in self.events if event.opcode == opcode)
