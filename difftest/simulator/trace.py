"""The trace: what a kernel did, as a list of events. The contract between meaning and time.

An :class:`Event` is one instruction: engine, opcode, the regions that it read and wrote, each with
its role, and where it happened: the instance of the SPMD grid, the loops around it, the kernel's
source lines. A :class:`Region` is an access pattern on one allocation. What asks how long a kernel
takes, or whether it keeps an order, reads the trace and nothing else. docs/reference/trace.md
describes it, and docs/reference/trace-json.md the form in which it is written to a file.
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

from difftest.simulator.errors import Location as Location
from difftest.simulator.errors import innermost_location
from difftest.simulator.pattern import Pattern

Natural: TypeAlias = Annotated[int, 0]
Positive: TypeAlias = Annotated[int, 1]
"""Whole numbers from 0 and from 1 on: what a trace that is read back is held to."""
Sizes: TypeAlias = tuple[Positive, ...]
Index: TypeAlias = tuple[Natural, ...]


class IdentityEnum(Enum):
    """An enumeration that hashes as an object; Enum's own hashes the name, for each signature."""

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
    """The engines of a NeuronCore, by AWS's names; DMA stands for its 16 DMA engines."""

    TENSOR = "tensor"
    VECTOR = "vector"
    SCALAR = "scalar"
    GPSIMD = "gpsimd"
    SYNC = "sync"
    DMA = "dma"
    UNKNOWN = "unknown"
    """The compiler chooses."""


class Purpose(IdentityEnum):
    """What an instruction does to data, as far as time and hazards depend on it."""

    COMPUTE = "compute"  # any other
    PRODUCT = "product"
    TRANSPOSE = "transpose"
    COPY = "copy"  # each element to its place
    GATHER = "gather"  # of each index a run, side by side
    SCATTER = "scatter"  # runs that lie side by side, to where indices say
    SUM = "sum"  # of several sources, on their way
    SEND = "send"  # between cores, which wait for each other
    BARRIER = "barrier"
    EXCHANGE = "exchange"  # each rank writes to the others' buffers
    COMBINE = "combine"  # two tiles, element by element
    SCALE = "scale"  # by numbers, or one for each partition
    FUNCTION = "function"  # the engine must have its table
    FILL = "fill"  # a constant, everywhere or where a condition fails
    SELECT = "select"  # the same, of a constant that the kernel cannot choose
    PICK = "pick"  # one of two values, as a tile says
    BITS = "bits"  # random ones, which are no numbers yet
    DRAW = "draw"
    REGISTER = "register"


class Area(NamedTuple):
    """Bytes ``low`` to ``high`` of the partitions ``first`` to ``last``, all ends excluded."""

    first: int
    last: int
    low: int
    high: int

    def overlaps(self, other: Area) -> bool:
        """Whether the two share a byte."""
        partitions = self.first < other.last and other.first < self.last
        return partitions and self.low < other.high and other.low < self.high

    def covers(self, other: Area) -> bool:
        """Whether this one has every byte of the other."""
        partitions = self.first <= other.first and other.last <= self.last
        return partitions and self.low <= other.low and other.high <= self.high


class Output(NamedTuple):
    """What a kernel gave back of a tensor that it returned, or of an argument that it wrote to."""

    unwritten: Natural = 0
    """Elements that nothing ever wrote."""
    first: Index = ()
    """The first of them, if there are any, in the shape in which the kernel returned it."""
    returned: bool = True
    """Whether the kernel returned it; else it is an argument that the kernel wrote to."""


@dataclass(eq=False, slots=True)
class Allocation:
    """One tensor in one memory: what the trace knows of it when its data are gone."""

    id: int
    space: Space
    shape: Sizes
    dtype: np.dtype[Any]
    partition_axis: Natural
    location: Location | None
    name: str = ""
    first: int = -1
    """Number of the first instruction that touches it; -1 if none does."""
    last: int = -1
    reads: Natural = 0
    writes: Natural = 0
    moves: Natural = 0
    """Reads that only moved the whole result into its destination (``tile[...] = f(...)``)."""
    absorbed: Natural = 0
    """Accumulations of a matmul's product elsewhere (``psum += nc_matmul(...)``): no reads."""
    address: tuple[Natural, Natural] | None = None
    """The first partition, and the first byte in each, of a tensor that the kernel placed (in HBM
    0, and the first byte); None where the compiler does. Tensors that overlap share what they
    hold."""
    places: tuple[tuple[Natural, Natural], ...] = ()
    """The same for each block, in row-major order, of a tensor with block dimensions that the
    kernel placed. Blocks at one place take it in turn, and share nothing here."""
    viewed: bool = False
    """Some of its regions have elements of another dtype (:attr:`Region.view`)."""
    loops: tuple[Iteration, ...] = ()
    """The loops in whose body it was made, outermost first."""
    output: Output | None = None
    """None of what stays inside the kernel."""

    partitions: int = field(init=False)
    partition_step: int = field(init=False)
    """Elements from one partition to the next."""
    partition_bytes: int = field(init=False)
    """Bytes in each partition, block dimensions included."""

    def __post_init__(self) -> None:
        self.partitions, self.partition_step, elements = _sizes(self.shape, self.partition_axis)
        self.partition_bytes = elements * self.dtype.itemsize

    @property
    def area(self) -> Area | None:
        """What it takes of its memory, if it has an address."""
        if self.address is None:
            return None
        first, low = self.address
        if self.space.is_hbm:
            return Area(0, 1, low, low + math.prod(self.shape) * self.dtype.itemsize)
        return Area(first, first + self.partitions, low, low + self.partition_bytes)

    @property
    def areas(self) -> tuple[Area, ...]:
        """All that the kernel placed of it: its blocks, each place once, or itself."""
        if not self.places:
            return () if self.address is None or self.area is None else (self.area,)
        rows, size = self.partitions, self.partition_bytes // len(self.places)
        return tuple(
            Area(first, first + rows, low, low + size) for first, low in dict.fromkeys(self.places)
        )

    @property
    def is_absorbed(self) -> bool:
        """A matmul's product that others only accumulated: it was never anywhere else."""
        return self.absorbed > 0 and self.reads == 0

    @property
    def is_temporary(self) -> bool:
        """A result that was only moved, or accumulated, elsewhere: it has no memory of its own."""
        if not self.moves:
            return self.is_absorbed
        return self.reads == 1 == self.writes == self.moves and self.address is None

    def __str__(self) -> str:
        label = self.name or f"tensor {self.id}"
        dtype = (self.dtype.names or (self.dtype,))[0]  # a packed one is named by its field
        return f"{label} {list(self.shape)} {dtype} in {self.space.value}"


@lru_cache(maxsize=4096)
def _sizes(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Partitions, elements from one to the next, elements of one in all blocks."""
    partitions = shape[axis] if shape else 1
    step = math.prod(shape[axis + 1 :])
    return partitions, step, math.prod(shape[:axis]) * step


class Places:
    """Which elements of a tensor an access in part touches, as runs of adjacent ones, in order."""

    __slots__ = ("_lengths", "_starts")

    def __init__(self, elements: NDArray[np.int64]) -> None:
        ends = np.flatnonzero(np.diff(elements) != 1) + 1
        bounds = np.concatenate(([0], ends, [elements.size] if elements.size else []))
        self._starts = elements[bounds[:-1].astype(np.intp)]
        self._lengths = np.diff(bounds).astype(np.int64)

    @property
    def elements(self) -> NDArray[np.int64]:
        """Their numbers, as patterns count them."""
        begun = np.cumsum(self._lengths) - self._lengths
        return np.repeat(self._starts - begun, self._lengths) + np.arange(self._lengths.sum())


class Region(NamedTuple):
    """An access pattern: ``offset`` and ``strides`` in elements of ``allocation``."""

    allocation: Allocation
    offset: Natural
    shape: Sizes
    strides: tuple[int, ...]
    partition_axis: Natural | None = 0
    """The axis that runs over partitions: block dimensions lie before it, and an integer index
    takes it away (None). It means nothing in HBM."""
    role: str = ""
    """What the instruction calls the operand (``dst``, ``data1``, ``reduce_res``, ...); empty where
    it does not say."""
    whole: bool = True
    """Whether every element of the pattern is touched. False for an access through a tile of
    indices and for a mask that is no rectangle: the pattern then holds what is touched."""
    view: np.dtype[Any] | None = None
    """The dtype of a view that reads the bits as another one: shape, offset and strides count its
    elements. None for the allocation's own."""
    places: Places | None = None
    """What is touched of a region that is not whole; None where that is not known, as in a trace
    that was read from a file."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements that are touched."""
        return self.allocation.dtype if self.view is None else self.view

    @property
    def pattern(self) -> Pattern:
        """Offset, shape and strides together."""
        return Pattern(self.offset, self.shape, self.strides)

    def finer(self, parts: int) -> Pattern:
        """The pattern of an element's ``parts``; of one it is its own."""
        return self.pattern.finer(parts) if parts > 1 else self.pattern

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
        return math.prod(self.shape)


class LoopKind(Enum):
    """The loops that NKI has. Python's own ``for`` and ``while`` leave no mark in a trace."""

    AFFINE = "affine"
    SEQUENTIAL = "sequential"
    STATIC = "static"
    DYNAMIC = "dynamic"
    """A loop that runs on the device: its bounds may be known only then."""


class Loop(NamedTuple):
    """One run of a loop, from its first iteration to its last."""

    id: Natural
    """Counts the runs of loops in a launch, from 0: an inner loop has a new one each time."""
    kind: LoopKind
    location: Location | None
    """The loop's own line: the same for all its runs."""


class Iteration(NamedTuple):
    """One turn of a loop."""

    loop: Loop
    number: Natural
    """From 0."""
    value: int
    """Of the loop variable."""


class Attributes(NamedTuple):
    """What an instruction is told beside its operands and :attr:`Event.arguments`."""

    op: str | None = None
    """Operator or function; several steps are joined by ``+``."""
    accumulate: bool = False
    """Whether a matmul adds to its destination in PSUM, which it then reads too."""
    inferred: bool = False
    """Whether the kernel left ``accumulate`` to the compiler (None)."""
    loop_indices: bool = False
    """Whether it is a part of a reduction over loops, in any order of theirs (nl.loop_reduce)."""


class AnomalyKind(IdentityEnum):
    """What an instruction can be seen to do to values."""

    NAN_MADE = "nan made"
    """A NaN came of operands that have none."""
    INFINITY_MADE = "infinity made"
    """An infinity came of finite operands, or of rounding a finite result."""
    NAN_STORED = "nan stored"
    """A NaN that an instruction made went to HBM."""
    INFINITY_STORED = "infinity stored"
    """An infinity went to HBM after an instruction had made one."""
    NAN_COMPARED = "nan compared"
    """A NaN that an instruction made was compared: the result is a number that shows none."""
    NAN_SEARCHED = "nan searched"
    """An instruction that orders numbers got a NaN."""
    OUT_OF_RANGE = "argument out of range"
    """An activation function got an argument for which the hardware's result is invalid."""
    INTEGER_ROUNDED = "integer rounded"
    """A 32-bit integer went through float32, which does not have it."""
    FLOAT8_CODE = "float8 code"
    """A float8_e4m3fn that NeuronCore-v2 and v3 read as an infinity or NaN."""
    UNDEFINED_STORED = "undefined stored"
    """What depends on an element that nothing wrote went to HBM."""
    UNDEFINED_INDEX = "undefined index"
    """What depends on an element that nothing wrote named elements."""
    PLACE_TWICE = "place twice"
    """Indices named one place of a destination more than once, and it got values that differ."""
    INDEX_SKIPPED = "index skipped"
    """An index out of bounds was skipped."""
    PATTERN_SKIPPED = "pattern skipped"
    """An index in bounds was skipped, because the pattern from there on leaves the tensor."""


class Origin(NamedTuple):
    """The beginning of a chain of instructions that read what nothing wrote."""

    allocation: Allocation
    """The tensor of which something was never written."""
    low: Index
    """The first element of the smallest box of its elements that holds all of them."""
    high: Sizes
    """The element after the last one, in each dimension."""
    event: str
    """What an instruction did with one of them first: ``"read by tensor_copy"``."""
    location: Location | None
    """Its line."""

    def __str__(self) -> str:
        location = self.allocation.location
        born = "" if location is None else f", made at {location}"
        box = ", ".join(f"{low}:{high}" for low, high in zip(self.low, self.high, strict=True))
        return f"[{box}] of {self.allocation}{born}, {self.event} at {self.location}"


class Anomaly(NamedTuple):
    """Values of one operand of an instruction that are worth a word."""

    what: AnomalyKind
    role: str
    """The operand's."""
    elements: Positive
    """How many of its elements."""
    of: Positive
    """How many it has."""
    first: Index
    """The first of them: its place in the operand; of a place that is named twice its index in the
    tensor."""
    value: float | None = None
    """What stands there, where that says more."""
    origin: Origin | None = None
    """Of what depends on elements that nothing wrote, whence it came."""


class EventKind(NamedTuple):
    """What the events of all calls of one signature share."""

    opcode: str
    engine: Engine
    attributes: Attributes = Attributes()
    options: Mapping[str, Any] = {}
    """What it is told beside its operands, by AWS's names: operators and members of enumerations by
    their names, index patterns, numbers, tuples; what is None is left out."""
    numbers: tuple[str, ...] = ()
    """The operands that are numbers or index patterns: each event has its own."""
    purpose: Purpose = Purpose.COMPUTE

    def __hash__(self) -> int:
        return id(self)  # its options have none

    def following(self, role: str, register: str) -> EventKind:
        """The kind of an event of which the place at a role follows a register."""
        return self._replace(options={**self.options, f"register of {role}": register})


@dataclass(eq=False, slots=True)
class Event:
    """One instruction as it was issued."""

    number: Natural
    """How many were issued before it. Some numbers are missing: what only moved a result to its
    destination is one instruction with what made the result."""
    kind: EventKind
    writes: tuple[Region, ...]
    reads: tuple[Region, ...]
    stack: tuple[Location, ...] = ()
    """The kernel's source lines, innermost first: the line itself, then those that called it."""
    loops: tuple[Iteration, ...] = ()
    """The loops around it, outermost first."""
    program: Index = ()
    """The instance of the SPMD grid; empty without a grid."""
    seen: tuple[Anomaly, ...] = ()
    """What stood out in the values."""
    numbers: tuple[Any, ...] = ()
    """The numbers and index patterns among its operands: see :attr:`arguments`."""

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
        """Whether it writes zeros, and nothing else."""
        return self.purpose is Purpose.FILL and self.arguments.get("value") == 0

    @property
    def attributes(self) -> Attributes:
        return self.kind.attributes

    @property
    def arguments(self) -> dict[str, Any]:
        """Its options and the numbers among its operands, by AWS's names."""
        return {**self.kind.options, **dict(zip(self.kind.numbers, self.numbers, strict=True))}

    @property
    def location(self) -> Location | None:
        """The innermost of the kernel's source lines, which knows those that called it."""
        return innermost_location(self.stack)

    def operand(self, role: str) -> Region | None:
        """The operand of this role, what is written before what is read; None if there is none."""
        for region in self.writes + self.reads:
            if region.role == role:
                return region
        return None


class Returned(NamedTuple):
    """A tensor that the caller gets: its allocation, and which elements of it, in which order.

    ``dtype`` is the one in which ``pattern`` counts elements.
    """

    allocation: Allocation
    pattern: Pattern
    dtype: np.dtype[Any]


@dataclass(eq=False, kw_only=True)
class Trace:
    """The events of one launch in program order, and its allocations."""

    kernel: str = ""
    machine: str = ""
    """Their names; empty if unknown."""
    grid: Sizes = ()
    """The SPMD grid; empty without one."""
    cores: Index = ()
    """The physical core of each of the grid's instances, in their order; empty where the launch
    leaves it to the compiler."""
    dialect: str = ""
    """"classic" (``neuronxcc.nki``) or "nki" (``import nki``); empty if unknown."""
    divided: bool = False
    """Whether the kernel asked which program of the grid it is (``nl.program_id``)."""
    allocations: list[Allocation] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    arguments: list[Allocation] = field(default_factory=list)
    """Tensors that the caller passed, in order. A trace in a file does not have them."""
    returned: list[Returned] = field(default_factory=list)
    """Tensors that the kernel returned, in order. A trace in a file does not have them."""

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def count(self, opcode: str) -> int:
        """How many events have this opcode."""
        return sum(1 for event in self.events if event.opcode == opcode)
