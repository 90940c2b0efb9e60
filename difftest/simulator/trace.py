"""The trace: a kernel's instructions as a list of events. It separates meaning from time.

An :class:`Event` is one instruction: its engine, its opcode, and the regions that it read and
wrote, each with its role. It also has its place: the program of the SPMD grid, the loops around it
and the kernel's source lines. A :class:`Region` is an access pattern on one allocation. Analyses
of time and of order read the trace and nothing else. docs/reference/trace.md describes the trace,
and docs/reference/trace-json.md describes its form in a file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from difftest.simulator.dtypes import DType
from difftest.simulator.errors import Location as Location
from difftest.simulator.errors import innermost_location
from difftest.simulator.pattern import Pattern, Shape

Natural: TypeAlias = Annotated[int, 0]
Positive: TypeAlias = Annotated[int, 1]
"""Integers from 0 and from 1 on. A trace that is read back is checked against these bounds."""
Sizes: TypeAlias = tuple[Positive, ...]
Index: TypeAlias = tuple[Natural, ...]


class IdentityEnum(Enum):
    """An enumeration that hashes by identity, because Enum's own hash reads the name."""

    __hash__ = object.__hash__


class Space(IdentityEnum):
    """The memories that kernels name. ``nl.hbm`` is an alias of private_hbm."""

    SHARED_HBM = "shared_hbm"
    PRIVATE_HBM = "private_hbm"
    SBUF = "sbuf"
    PSUM = "psum"

    def __init__(self, label: str) -> None:
        self.is_hbm = label.endswith("hbm")


class Engine(IdentityEnum):
    """The engines of a NeuronCore, by AWS's names; DMA represents its 16 DMA engines."""

    TENSOR = "tensor"
    VECTOR = "vector"
    SCALAR = "scalar"
    GPSIMD = "gpsimd"
    SYNC = "sync"
    DMA = "dma"
    UNKNOWN = "unknown"
    """The compiler chooses."""


class Purpose(IdentityEnum):
    """The purpose of an instruction, as far as time and hazards depend on it."""

    COMPUTE = "compute"  # all others
    PRODUCT = "product"
    TRANSPOSE = "transpose"
    COPY = "copy"  # moves each element to its place
    GATHER = "gather"  # reads a run for each index, and places the runs side by side
    SCATTER = "scatter"  # writes adjacent runs to indexed places
    SUM = "sum"  # adds several sources during a transfer
    SEND = "send"  # between cores, which synchronize
    BARRIER = "barrier"
    EXCHANGE = "exchange"  # each rank writes to the buffers of the others
    COMBINE = "combine"  # two tiles, element by element
    SCALE = "scale"  # multiplies by numbers, or by one number for each partition
    FUNCTION = "function"  # requires the engine to load a function table
    FILL = "fill"  # writes a constant, everywhere or where a condition fails
    SELECT = "select"  # a FILL whose constant the kernel cannot choose
    PICK = "pick"  # chooses one of two values by a tile
    BITS = "bits"  # random bits, not numbers
    DRAW = "draw"
    REGISTER = "register"


class Area(NamedTuple):
    """Bytes ``low`` to ``high`` of the partitions ``first`` to ``last``, all ends excluded."""

    first: int
    last: int
    low: int
    high: int

    def overlaps(self, other: Area) -> bool:
        """Return whether the two areas share a byte."""
        partitions = self.first < other.last and other.first < self.last
        return partitions and self.low < other.high and other.low < self.high

    def covers(self, other: Area) -> bool:
        """Return whether this area contains every byte of the other."""
        partitions = self.first <= other.first and other.last <= self.last
        return partitions and self.low <= other.low and other.high <= self.high


class Output(NamedTuple):
    """The output state of a returned tensor, or of an argument that the kernel wrote to."""

    unwritten: Natural = 0
    """The number of unwritten elements."""
    first: Index = ()
    """The index of the first unwritten element, in the shape of the returned tensor."""
    returned: bool = True
    """True if the kernel returned the tensor; otherwise it is an argument that the kernel wrote to.
    """


@dataclass(eq=False, slots=True)
class Allocation:
    """A tensor in one memory, as the trace describes it without its data."""

    id: int
    space: Space
    shape: Sizes
    dtype: DType
    partition_axis: Natural
    location: Location | None
    name: str = ""
    first: int = -1
    """The number of the first instruction that accesses the tensor; -1 without one."""
    last: int = -1
    reads: Natural = 0
    writes: Natural = 0
    moves: Natural = 0
    """Reads that only moved the whole result to its destination (``tile[...] = f(...)``)."""
    absorbed: Natural = 0
    """Accumulations of a matmul's product elsewhere (``psum += nc_matmul(...)``). These are not
    reads."""
    address: tuple[Natural, Natural] | None = None
    """The first partition, and the first byte in each, of a tensor that the kernel placed.

    In HBM: 0, and the first byte. None where the compiler places the tensor. Tensors that overlap
    share their bytes.
    """
    places: tuple[tuple[Natural, Natural], ...] = ()
    """For a placed tensor with block dimensions: the address of each block, in row-major order.

    Blocks at one address use it in turn, and share no data here.
    """
    viewed: bool = False
    """True if some regions have elements of another dtype (:attr:`Region.view`)."""
    loops: tuple[Iteration, ...] = ()
    """The loops around the tensor's creation, outermost first."""
    output: Output | None = None
    """None for tensors that stay inside the kernel."""

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return _sizes(self.shape, self.partition_axis)[0]

    @property
    def partition_step(self) -> int:
        """The distance from one partition to the next, in elements."""
        return _sizes(self.shape, self.partition_axis)[1]

    @property
    def partition_bytes(self) -> int:
        """Bytes in each partition, block dimensions included."""
        return _sizes(self.shape, self.partition_axis)[2] * self.dtype.itemsize

    @property
    def area(self) -> Area | None:
        """The area of its memory, if the tensor has an address."""
        if self.address is None:
            return None
        first, low = self.address
        if self.space.is_hbm:
            return Area(0, 1, low, low + math.prod(self.shape) * self.dtype.itemsize)
        return Area(first, first + self.partitions, low, low + self.partition_bytes)

    @property
    def areas(self) -> tuple[Area, ...]:
        """The distinct areas that the kernel placed: the blocks, or the tensor itself."""
        if not self.places:
            if self.address is None or self.area is None:
                return ()
            return (self.area,)
        rows = self.partitions
        size = self.partition_bytes // len(self.places)
        return tuple(
            Area(first, first + rows, low, low + size)
            for first, low in dict.fromkeys(self.places)
        )

    @property
    def is_absorbed(self) -> bool:
        """True if the tensor is a matmul's product that other instructions only accumulated."""
        return self.absorbed > 0 and self.reads == 0

    @property
    def is_temporary(self) -> bool:
        """True if a result was only moved or accumulated elsewhere, so that it needs no memory."""
        if not self.moves:
            return self.is_absorbed
        return self.reads == 1 == self.writes == self.moves and self.address is None

    def __str__(self) -> str:
        label = self.name or f"tensor {self.id}"
        # a packed dtype is named by its field
        dtype = (self.dtype.names or (self.dtype,))[0]
        return f"{label} {list(self.shape)} {dtype} in {self.space.value}"


@lru_cache(maxsize=4096)
def _sizes(shape: Shape, axis: int) -> tuple[int, int, int]:
    """Return the partitions, the elements between them, and the elements of one in all blocks."""
    partitions = shape[axis] if shape else 1
    step = math.prod(shape[axis + 1 :])
    return partitions, step, math.prod(shape[:axis]) * step


class Places:
    """The elements of a tensor that a partial access touches, as runs in order."""

    __slots__ = ("_lengths", "_starts")

    def __init__(self, elements: NDArray[np.int64]) -> None:
        ends = np.flatnonzero(np.diff(elements) != 1) + 1
        bounds = np.concatenate(([0], ends, [elements.size] if elements.size else []))
        self._starts = elements[bounds[:-1].astype(np.intp)]
        self._lengths = np.diff(bounds).astype(np.int64)

    @property
    def elements(self) -> NDArray[np.int64]:
        """The element numbers, as patterns count them."""
        begun = np.cumsum(self._lengths) - self._lengths
        return np.repeat(self._starts - begun, self._lengths) + np.arange(
            self._lengths.sum()
        )


class Region(NamedTuple):
    """An access pattern: ``offset`` and ``strides`` in elements of ``allocation``."""

    allocation: Allocation
    offset: Natural
    shape: Sizes
    strides: Shape
    partition_axis: Natural | None = 0
    """The axis that runs over partitions. Block dimensions come before it. An integer index removes
    it (None). It has no meaning in HBM.
    """
    role: str = ""
    """The instruction's name for the operand (``dst``, ``data1``, ``reduce_res``, ...), or empty.
    """
    whole: bool = True
    """True if every element of the pattern is accessed.

    False for an access through a tile of indices, and for a mask that is not a rectangle. The
    pattern then contains the accessed elements.
    """
    view: DType | None = None
    """The dtype of a view that reads the bits as another dtype; shape, offset and strides count its
    elements. None for the allocation's own dtype.
    """
    places: Places | None = None
    """The accessed elements of a region that is not whole. None where they are unknown, as in a
    trace that was read from a file.
    """

    @property
    def dtype(self) -> DType:
        """The dtype of the accessed elements."""
        if self.view is None:
            return self.allocation.dtype
        return self.view

    @property
    def pattern(self) -> Pattern:
        """Offset, shape and strides together."""
        return Pattern(self.offset, self.shape, self.strides)

    def finer(self, parts: int) -> Pattern:
        """Return the pattern of an element's ``parts``; for one part, the region's own pattern."""
        if parts > 1:
            return self.pattern.finer(parts)
        return self.pattern

    @property
    def partitions(self) -> int:
        """The number of partitions of an on-chip region."""
        if self.partition_axis is None:
            return 1
        return self.shape[self.partition_axis]

    def _inside(self, axes: Shape) -> Shape:
        """Return the values of the axes inside a partition; ``axes`` has one for each axis."""
        at = self.partition_axis
        if at is None:
            return axes
        return axes[:at] + axes[at + 1 :]

    @property
    def free_shape(self) -> Shape:
        """The size of each axis inside a partition, for an on-chip region."""
        return self._inside(self.shape)

    @property
    def free_axes(self) -> tuple[tuple[int, int], ...]:
        """(size, stride) of each axis inside a partition, for an on-chip region."""
        return tuple(zip(self.free_shape, self._inside(self.strides), strict=True))

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class LoopKind(Enum):
    """The loops of NKI. Python's own ``for`` and ``while`` do not appear in a trace."""

    AFFINE = "affine"
    SEQUENTIAL = "sequential"
    STATIC = "static"
    DYNAMIC = "dynamic"
    """A loop that runs on the device. Its bounds may be unknown before."""


class Loop(NamedTuple):
    """A run of a loop, from its first iteration to its last."""

    id: Natural
    """The number of the loop run in a launch, from 0. An inner loop gets a new number each time."""
    kind: LoopKind
    location: Location | None
    """The loop's own line, equal for all its runs."""


class Iteration(NamedTuple):
    """An iteration of a loop."""

    loop: Loop
    number: Natural
    """Counted from 0."""
    value: int
    """The value of the loop variable."""


class Attributes(NamedTuple):
    """The parameters of an instruction other than its operands and :attr:`Event.arguments`."""

    op: str | None = None
    """The operator or function; several steps are joined by ``+``."""
    accumulate: bool = False
    """True if a matmul adds to its destination in PSUM. It then reads the destination, too."""
    inferred: bool = False
    """True if the kernel left ``accumulate`` to the compiler (None)."""
    loop_indices: bool = False
    """True if it is a part of a reduction over loops, in any order of these loops (nl.loop_reduce).
    """


class AnomalyKind(IdentityEnum):
    """The anomalies that an instruction can show in values."""

    NAN_MADE = "nan made"
    """A NaN resulted from operands without a NaN."""
    INFINITY_MADE = "infinity made"
    """An infinity resulted from finite operands, or from rounding a finite result."""
    NAN_STORED = "nan stored"
    """A NaN that an instruction made was written to HBM."""
    INFINITY_STORED = "infinity stored"
    """An infinity was written to HBM after an instruction had made one."""
    NAN_COMPARED = "nan compared"
    """A NaN that an instruction made was compared. The result is a number that hides it."""
    NAN_SEARCHED = "nan searched"
    """An instruction that orders numbers got a NaN."""
    OUT_OF_RANGE = "argument out of range"
    """An activation function got an argument outside the hardware's valid range."""
    INTEGER_ROUNDED = "integer rounded"
    """A 32-bit integer was converted to float32, which cannot represent it."""
    FLOAT8_CODE = "float8 code"
    """A float8_e4m3fn that NeuronCore-v2 and v3 read as an infinity or NaN."""
    UNDEFINED_STORED = "undefined stored"
    """Data that depend on an unwritten element were written to HBM."""
    UNDEFINED_INDEX = "undefined index"
    """An index depended on an unwritten element."""
    PLACE_TWICE = "place twice"
    """Indices selected one place of a destination repeatedly, with different values."""
    INDEX_SKIPPED = "index skipped"
    """An index out of bounds was skipped."""
    PATTERN_SKIPPED = "pattern skipped"
    """An index in bounds was skipped, because its pattern leaves the tensor."""


class Origin(NamedTuple):
    """The start of a chain of instructions that read unwritten elements."""

    allocation: Allocation
    """The tensor with unwritten elements."""
    low: Index
    """The first element of the smallest box around the unwritten elements."""
    high: Sizes
    """The element after the last one, in each dimension."""
    event: str
    """The first use of an unwritten element: ``"read by tensor_copy"``."""
    location: Location | None
    """The line of that use."""

    def __str__(self) -> str:
        location = self.allocation.location
        born = "" if location is None else f", made at {location}"
        box = ", ".join(
            f"{low}:{high}" for low, high in zip(self.low, self.high, strict=True)
        )
        return f"[{box}] of {self.allocation}{born}, {self.event} at {self.location}"


class Anomaly(NamedTuple):
    """Values of an instruction's operand that deserve attention."""

    what: AnomalyKind
    role: str
    """The operand's role."""
    elements: Positive
    """The number of affected elements."""
    of: Positive
    """The size of the operand."""
    first: Index
    """The index of the first affected element in the operand. For a place that is selected twice,
    its index in the tensor.
    """
    value: float | None = None
    """The value of that element, where it is informative."""
    origin: Origin | None = None
    """The origin, for data that depend on unwritten elements."""


class EventKind(NamedTuple):
    """The common part of the events of all calls with one signature."""

    opcode: str
    engine: Engine
    attributes: Attributes = Attributes()
    options: Mapping[str, Any] = {}
    """The parameters other than the operands, by AWS's names: operators and enumeration members by
    name, index patterns, numbers and tuples. None values are omitted.
    """
    numbers: tuple[str, ...] = ()
    """The operands that are numbers or index patterns. Each event has its own values."""
    purpose: Purpose = Purpose.COMPUTE

    def __hash__(self) -> int:
        return id(self)  # its options are unhashable

    def following(self, role: str, register: str) -> EventKind:
        """Return the kind of an event whose place at ``role`` follows a register."""
        return self._replace(options={**self.options, f"register of {role}": register})


@dataclass(eq=False, slots=True)
class Event:
    """An instruction as it was issued."""

    number: Natural
    """The number of instructions issued before it. Numbers are missing where a move to a
    destination was fused with the instruction that made the result.
    """
    kind: EventKind
    writes: tuple[Region, ...]
    reads: tuple[Region, ...]
    stack: tuple[Location, ...] = ()
    """The kernel's source lines, innermost first: the line itself, then its callers."""
    loops: tuple[Iteration, ...] = ()
    """The loops around it, outermost first."""
    program: Index = ()
    """The program of the SPMD grid; empty without a grid."""
    seen: tuple[Anomaly, ...] = ()
    """The anomalies in its values."""
    numbers: tuple[Any, ...] = ()
    """The numbers and index patterns among its operands: see :attr:`arguments`."""

    def with_regions(
        self, writes: tuple[Region, ...], reads: tuple[Region, ...]
    ) -> Event:
        """Return the event with other regions. ``dataclasses.replace`` takes ten times as long."""
        return Event(
            self.number,
            self.kind,
            writes,
            reads,
            self.stack,
            self.loops,
            self.program,
            self.seen,
            self.numbers,
        )

    @property
    def opcode(self) -> str:
        return self.kind.opcode

    @property
    def engine(self) -> Engine:
        return self.kind.engine

    @property
    def purpose(self) -> Purpose:
        return self.kind.purpose

    @property
    def clears(self) -> bool:
        """True if the instruction writes only zeros."""
        return self.purpose is Purpose.FILL and self.arguments.get("value") == 0

    @property
    def attributes(self) -> Attributes:
        return self.kind.attributes

    @property
    def arguments(self) -> dict[str, Any]:
        """The options and the numeric operands, by AWS's names."""
        return {
            **self.kind.options,
            **dict(zip(self.kind.numbers, self.numbers, strict=True)),
        }

    @property
    def location(self) -> Location | None:
        """The innermost of the kernel's source lines; it knows its callers."""
        return innermost_location(self.stack)

    def operand(self, role: str) -> Region | None:
        """Return the operand of this role, written ones first; None without one."""
        for region in self.writes + self.reads:
            if region.role == role:
                return region
        return None


class Returned(NamedTuple):
    """A tensor that the caller gets: its allocation, and its elements in order.

    ``dtype`` is the unit in which ``pattern`` counts.
    """

    allocation: Allocation
    pattern: Pattern
    dtype: DType


@dataclass(eq=False, kw_only=True)
class Trace:
    """The events of one launch in program order, and its allocations."""

    kernel: str = ""
    machine: str = ""
    """The names of kernel and machine; empty if unknown."""
    grid: Sizes = ()
    """The SPMD grid; empty without one."""
    cores: Index = ()
    """The physical core of each program of the grid, in order; empty where the launch leaves the
    choice to the compiler.
    """
    dialect: str = ""
    """"classic" (``neuronxcc.nki``) or "nki" (``import nki``); empty if unknown."""
    divided: bool = False
    """True if the kernel asked for its program in the grid (``nl.program_id``)."""
    middle_end: bool = False
    """True if the compiler's middle end transforms the kernel: a classic kernel without
    ``nki.compiler.skip_middle_end_transformations``.
    """
    allocations: list[Allocation] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    arguments: list[Allocation] = field(default_factory=list)
    """The tensors that the caller passed, in order. A trace in a file lacks them."""
    returned: list[Returned] = field(default_factory=list)
    """The tensors that the kernel returned, in order. A trace in a file lacks them."""

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def count(self, opcode: str) -> int:
        """Return how many events have this opcode."""
        return sum(1 for event in self.events if event.opcode == opcode)
