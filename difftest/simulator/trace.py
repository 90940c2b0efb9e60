"""The trace: what a kernel did, as a list of events. The contract between meaning and time.

An :class:`Event` is one instruction: engine, opcode, the regions that it read and wrote, each with
its role, and where it happened: the instance of the SPMD grid, the loops around it, the kernel's
source lines. A :class:`Region` is an access pattern on one allocation. What asks how long a kernel
takes, or whether it keeps an order, reads the trace and nothing else. docs/trace.md describes it,
and the form in which it is written to a file.
"""

from __future__ import annotations

from collections.abc import Iterator
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

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python, for each signature


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

    __hash__ = object.__hash__  # as Space's


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
    absorbed: int = 0
    """Accumulations of a matmul's product elsewhere (``psum += nc_matmul(...)``): no reads."""

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
    def is_absorbed(self) -> bool:
        """A matmul's product that others only accumulated: it was never anywhere else."""
        return self.absorbed > 0 and self.reads == 0

    @property
    def is_temporary(self) -> bool:
        """A result that was only moved, or accumulated, elsewhere: it has no memory of its own."""
        moved = self.writes == 1 and self.reads == self.moves == 1
        return moved or self.is_absorbed

    def __str__(self) -> str:
        label = self.name or f"tensor {self.id}"
        dtype = (self.dtype.names or (self.dtype,))[0]  # a packed one is named by its field
        return f"{label} {list(self.shape)} {dtype} in {self.space.value}"


class Region(NamedTuple):
    """An access pattern: ``offset`` and ``strides`` in elements of ``allocation``."""

    allocation: Allocation
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    partition_axis: int | None = 0
    """The axis that runs over partitions: block dimensions lie before it, and an integer index
    takes it away (None). It means nothing in HBM."""
    role: str = ""
    """What the instruction calls the operand (``dst``, ``data1``, ``reduce_res``, ...); empty where
    it does not say."""
    whole: bool = True
    """Whether every element of the pattern is touched. False for an access through a tile of
    indices and for a mask that is no rectangle: the pattern then holds what is touched."""

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


class LoopKind(Enum):
    """The loops that NKI has. Python's own ``for`` and ``while`` leave no mark in a trace."""

    AFFINE = "affine"
    SEQUENTIAL = "sequential"
    STATIC = "static"
    DYNAMIC = "dynamic"
    """Reserved: a loop that runs on the device. Nothing makes one yet."""


class Loop(NamedTuple):
    """One run of a loop, from its first iteration to its last."""

    id: int
    """Counts the runs of loops in a launch, from 0: an inner loop has a new one each time."""
    kind: LoopKind
    location: Location | None
    """The loop's own line: the same for all its runs."""


class Iteration(NamedTuple):
    """One turn of a loop."""

    loop: Loop
    number: int
    """From 0."""
    value: int
    """Of the loop variable."""


class Attributes(NamedTuple):
    """What an instruction is told beside its operands; None where it has no such thing."""

    op: str | None = None
    """Operator or function; several steps are joined by ``+``."""
    accumulate: bool = False
    """Whether a matmul adds to its destination in PSUM, which it then reads too."""
    dge: str | None = None
    """Who makes a DMA's descriptors, a member of ``nki.isa.dge_mode``: ``none``, ``swdge``,
    ``hwdge`` or ``unknown``."""
    axes: tuple[int, ...] | None = None
    """Axes of its operand that a reduction takes."""
    value: float | None = None
    """What a memset writes."""


@dataclass(eq=False, slots=True)
class Event:
    """One instruction as it was issued."""

    number: int
    """How many were issued before it. Some numbers are missing: what only moved a result to its
    destination is one instruction with what made the result."""
    opcode: str
    engine: Engine
    writes: tuple[Region, ...]
    reads: tuple[Region, ...]
    stack: tuple[Location, ...] = ()
    """The kernel's source lines, innermost first: the line itself, then those that called it."""
    loops: tuple[Iteration, ...] = ()
    """The loops around it, outermost first."""
    program: tuple[int, ...] = ()
    """The instance of the SPMD grid; empty without a grid."""
    attributes: Attributes = Attributes()  # noqa: RUF009

    @property
    def location(self) -> Location | None:
        """The innermost of the kernel's source lines."""
        return self.stack[0] if self.stack else None

    def operand(self, role: str) -> Region | None:
        """The operand of this role, what is written before what is read; None if there is none."""
        for region in self.writes + self.reads:
            if region.role == role:
                return region
        return None


class Trace:
    """The events of one launch in program order, and its allocations.

    Attributes
    ----------
    kernel, machine : names of what was launched and of the machine; empty if unknown.
    grid : the SPMD grid; empty without one.
    """

    def __init__(self, *, kernel: str = "", machine: str = "", grid: tuple[int, ...] = ()) -> None:
        self.kernel = kernel
        self.machine = machine
        self.grid = grid
        self.events: list[Event] = []
        self.allocations: list[Allocation] = []

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def count(self, opcode: str) -> int:
        """How many events have this opcode."""
        return sum(1 for event in self.events if event.opcode == opcode)
