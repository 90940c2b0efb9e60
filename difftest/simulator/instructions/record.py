"""Instructions as records, on which everything that is known of one hangs.

An :class:`Instruction` has a name, its operands and destinations by role, the rules that hold for
them, what its result is, its meaning in NumPy, the key of its cost and the pages it rests on. A
:class:`CheckedCall` is one legal use of it: the descriptors of its operands, its options, its
engine and its results. Rules and results are functions of a Call alone, so that a signature that
passed once need not be checked again (see :mod:`difftest.simulator.instructions.gate`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from operator import attrgetter
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array
from difftest.simulator.dtypes import DType as DType
from difftest.simulator.errors import NkiError, call_error
from difftest.simulator.machine import Machine
from difftest.simulator.memory import Shape
from difftest.simulator.strictness import report_undefined, report_violation
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, EventKind, Purpose, Space

ON_CHIP = (Space.SBUF, Space.PSUM)
SBUF_ONLY = (Space.SBUF,)
PSUM_ONLY = (Space.PSUM,)
HBM = (Space.SHARED_HBM, Space.PRIVATE_HBM)
DMA_SPACES = (*HBM, Space.SBUF)

ISA = "nki/api/generated/nki.isa."
"""Where the pages of the instructions lie in AWS's documentation."""

Number = int | float | bool | np.generic


class OperandKind(Enum):
    """Kinds of operands, besides None for an optional one."""

    TILE = "a tile"
    NUMBER = "a number"
    VECTOR = "a vector with one element in each partition"
    VECTOR_OR_NUMBER = "a scalar or a vector with one element in each partition"
    TILE_OR_NUMBER = "a tile or a number"
    INDIRECT = "a tile indexed by a tile"
    TILE_OR_INDIRECT = "a tile, or one indexed by a tile"
    INDEX = "an index expression"


@dataclass(frozen=True, kw_only=True, eq=False)
class Role:
    """One operand or destination: its name, and what may stand there."""

    name: str
    takes: OperandKind = OperandKind.TILE
    buffers: tuple[Space, ...] = ON_CHIP
    dtypes: tuple[DType, ...] | None = None
    """The dtypes that it takes; None for all."""
    optional: bool = False
    blocks: bool = False
    """It may have block dimensions before its partitions."""
    by_offsets: bool = False
    """It may be a view by tensor indirection, and ``dst`` then too (stubs at v2.32.0)."""
    whole_rows: bool = False
    """A mask leaves out whole partitions of it, and no single elements."""
    shape: Callable[[CheckedCall], Shape] | None = None
    """The exact shape it has; that of a first destination without one is the result's."""


class Result(NamedTuple):
    """The result of an instruction: the tile that a classic call allocates, or ``dst`` must be."""

    shape: Shape
    dtype: DType
    space: Space = Space.SBUF


_NOTHING = Result((), np.dtype(np.float32))
_NO_KIND = EventKind("", Engine.UNKNOWN)


class DependenceClass(Enum):
    """The elements that one of the first destination follows from: how a mask divides the work."""

    ELEMENT = "the operands' elements at its place"
    AXES = "their elements along the reduced axes"
    ROW = "their elements in its partition"
    TILE = "any of their elements"


class IterationSpace(NamedTuple):
    """The axes that a mask ranges over, where they are not the result's."""

    shape: Shape
    """The mask's."""
    walked: Shape
    """The same elements in the shape that ``axes`` count."""
    axes: Mapping[str, tuple[int | None, ...]]
    """By role, which of those axes an operand or a destination has; None for one of its own."""


class MaskedValues(NamedTuple):
    """Values of which an instruction writes only some: where ``chosen`` is true."""

    values: Array
    chosen: Array


Judge = Callable[[NkiError], None]
"""Raises an error or warns of it, by the launch's strictness."""


@dataclass(slots=True, eq=False)  # an attribute that a class has too is found slowly
class CheckedCall:
    """One use of an instruction, as rules see it: ``call["data1"].shape``, ``call["op"].bitvec``.

    What follows ``result`` is what the gate keeps of a signature, beside it.
    """

    instruction: Instruction
    machine: Machine
    operands: Mapping[str, Any]
    """By role, a :class:`Descriptor` for a tile, the type of a number, None if left out."""
    options: Mapping[str, Any]
    destinations: Mapping[str, Descriptor]
    """Of those that exist, by role; a classic call has no ``dst`` yet."""
    dtype: DType | None = None
    """Of the result, if the kernel says it."""
    dialect: str = ""
    """The dialect that the kernel is written in: "classic" or "nki"."""
    into_existing: bool = False
    """Whether the kernel names a ``dst``, as calls of today's dialect do."""
    places: Array | None = None
    """Which elements of a row a mask leaves, for the few that count them; None for all."""
    engine: Engine = Engine.UNKNOWN
    result: Result = _NOTHING
    """As ``engine``, what the record makes of all that, once its rules have passed."""
    kind: EventKind = _NO_KIND
    """Recorded in the trace, besides its operands."""
    numbers: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
    """The numbers and index patterns among its operands; None where it has none."""
    reads_dst: bool = False
    reduces: bool = False
    """Whether its engine's registers may take part."""
    is_simple: bool = False
    """Whether it reads tiles and writes one: what its event says is known beforehand."""
    is_indirect: bool = False
    """Whether a tile says where it reads or writes."""
    are_tiles: tuple[bool, ...] = ()
    """Of each operand, whether it is a tile whose pattern is known."""
    roles: tuple[str, ...] = ()
    """Of a simple call's destination, then of what it reads."""
    watches: tuple[Callable[..., None], ...] = ()
    """They look at its operands before it runs."""
    is_ambiguous: bool = False
    """Whether others of its options may be equal without being the same: 1 and True, 0.0 and -0.0.
    """
    from_hbm: bool = False
    """Whether an operand lies in HBM, where no engine reads it."""
    counts: bool = False
    """Whether it makes integers of integers, which float32 may not have."""
    keeps: bool = False
    """Whether it moves values of its result's dtype, which rounding leaves as they are."""
    plan: Any = None
    """What an exact run knows of it."""
    remarks: list[tuple[Judge, Callable[[], NkiError]]] = field(default_factory=list)
    """Errors that the call can be, each with the strictness that judges it."""

    def __getitem__(self, name: str) -> Any:
        """An operand's descriptor (or type, or None) or an option, by name."""
        return self.operands[name] if name in self.operands else self.options[name]

    @property
    def name(self) -> str:
        """The instruction's name, for errors."""
        return self.instruction.name

    @property
    def title(self) -> str:
        """The name with the operator, where the instruction takes one."""
        op: Any = self.options.get("op")
        name = op if isinstance(op, str) else getattr(op, "name", None)
        return f"{self.name}({name})" if name else self.name

    @property
    def tiles(self) -> dict[str, Descriptor]:
        """The operands that are tiles, by role."""
        return {
            name: value for name, value in self.operands.items() if isinstance(value, Descriptor)
        }

    def alike(
        self, operands: Mapping[str, Any], destinations: Mapping[str, Descriptor]
    ) -> CheckedCall:
        """The same of operands and destinations that differ from these in shapes alone."""
        shapes = self.instruction, self.machine, operands, self.options, destinations
        return CheckedCall(*shapes, *_WITHOUT_SHAPES(self))

    def remark(self, error: Callable[[], NkiError], judge: Judge = report_violation) -> None:
        """Judge each use of the call: by default the documentation does not promise it.

        ``error`` makes the error anew for each use, with the kernel's line. ``judge`` is
        :func:`~difftest.simulator.strictness.report_violation` or ``doubt``. A doubt is judged at
        once too: where it is an error, it comes before those that follow from it.
        """
        if judge is report_undefined:
            judge(error())
        self.remarks.append((judge, error))

    def refused(self, rule: str, did: str, received: str, **more: Any) -> NkiError:
        """The error that it is: see :func:`difftest.simulator.errors.call_error`."""
        return call_error(self.name, rule, did, received, **more)

    def wanted_dtype(self, default: DType) -> DType:
        """The result's dtype: an existing ``dst``'s own, what the kernel asked for, ``default``."""
        dst = self.destinations.get("dst")
        if dst is not None:
            return dst.dtype
        return default if self.dtype is None else self.dtype


_WITHOUT_SHAPES = attrgetter(*[field.name for field in fields(CheckedCall)][5:-1])


class DestinationFit(Enum):
    """How a ``dst`` that exists must fit the result."""

    EXACT = "the same shape"
    ELEMENTS = "the same partitions, and the same number of elements in each"
    TOTAL = "the same number of elements"


Rule = Callable[[CheckedCall], None]
"""Raises an NkiError where the call breaks it."""

DST = Role(name="dst")


def moved(call: CheckedCall, values: Any, *others: Any) -> Any:
    """Its first operand, as it is."""
    return values


def choose_engine(
    call: CheckedCall, wanted: Engine, allowed: tuple[Engine, ...] | None = None
) -> Engine:
    """The engine on which a call runs: the first choice, or the one that the kernel names.

    Raises
    ------
    KernelError : the instruction does not run on the engine that the kernel names.
    """
    engines = call.instruction.engines if allowed is None else allowed
    if wanted is Engine.UNKNOWN:
        return engines[0]
    if wanted not in engines:
        rule = "runs on the engines that implement it"
        did = f"was to run on the engine {wanted.value}"
        received = f"engine={wanted.value}"
        raise call.refused(rule, did, received, limit=", ".join(engine.value for engine in engines))
    return wanted


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Instruction:
    """One instruction of the machine."""

    name: str
    engines: tuple[Engine, ...]
    """Where it can run; the first is where it runs if the kernel does not say."""
    operands: tuple[Role, ...]
    options: tuple[str, ...] = ()
    """Of each call, in order."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What the last of the options are in a call that does not say: one dialect may have more."""
    destinations: tuple[Role, ...] = (DST,)
    """Where it writes, ``dst`` first."""
    rules: tuple[Rule, ...] = ()
    """They hold of each call, and are checked in this order."""
    only: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    """Rules of one dialect alone, by its name ("classic", "nki"); checked before the others."""
    engine: Callable[[CheckedCall, Engine], Engine] = choose_engine
    """Chooses among the engines by the operands, where that is a rule of its own."""
    result: Callable[[CheckedCall], Result]
    """The result of a call that keeps the rules."""
    meaning: Callable[..., Any]
    """The values, from the operands' values: ``meaning(call, *values)``. Arrays have the partition
    axis first; floats come as float32 and are rounded when they are written."""
    facts: Callable[[CheckedCall], dict[str, Any]] = lambda call: {}
    """Attributes of its event."""
    purpose: Purpose = Purpose.COMPUTE
    event: Callable[[CheckedCall], tuple[str, Purpose]] = lambda use: (
        use.name,
        use.instruction.purpose,
    )
    """The name and the purpose of a call's event, where they are not the record's."""
    reads_dst: Callable[[CheckedCall], bool] = lambda call: False
    """Whether a call reads what ``dst`` holds; the values are the meaning's last argument."""
    resolves: Callable[[Any, InstructionUse], None] | None = None
    """Says of an issue what its first option is, which the data decide unless it is False."""
    in_place: bool = False
    """The meaning writes to ``dst`` itself: ``meaning(call, dst, *values, where=where)``. For what
    moves bits instead of computing values, and for accumulation. It returns where it wrote, if that
    is not all that ``where`` leaves."""
    reduced: Callable[[CheckedCall], tuple[int, ...]] | None = None
    """The axes of the first operand that the result lacks, where there are such; the mask of a
    classic call ranges over that operand then, otherwise over the result."""
    walk: Callable[[CheckedCall], IterationSpace] | None = None
    """Axes for a mask, if it ranges over neither."""
    reach: Callable[[CheckedCall], DependenceClass] = lambda call: DependenceClass.ELEMENT
    """How a mask that is no box divides the work."""
    counts_places: bool = False
    """Whether the meaning depends on where in its row an element stands."""
    orders: bool = False
    """Whether it looks for the places of values, among which a NaN is none."""
    moves: Any = None
    """What goes to ``dst`` of a meaning that writes it itself: ``moves(call, *values)``, on
    array-likes, before it is put or added. :func:`moved` of those that move bits."""
    carries: bool = True
    """Whether what nothing wrote is carried to the results; else reading it is an error."""
    fit: DestinationFit = DestinationFit.ELEMENTS
    """How a ``dst`` that exists must fit the result."""
    pages: tuple[str, ...] = ()
    """The public pages that it rests on."""
    classic: bool = True
    """Whether the classic dialect can issue it; today's dialect alone names the others."""
    exchange: Any = None
    """How an effect meets others: see :mod:`difftest.simulator.instructions.effects`."""

    @property
    def summary(self) -> str:
        """The first line of what it means."""
        return (self.meaning.__doc__ or "").strip().splitlines()[0]

    @property
    def asks(self) -> set[str]:
        """The names that its rules ask for, such as ``gemm_moving_fmax`` of a machine."""
        return _names((*self.rules, *itertools.chain(*self.only.values())))


@dataclass(slots=True, eq=False)
class InstructionUse:
    """One use of an instruction, as a kernel asks for it."""

    instruction: Instruction
    operands: tuple[Any, ...]
    """In the order of the record, as ``options``: tiles, numbers, None."""
    options: tuple[Any, ...] = ()
    """Hashable."""
    dst: Any = None
    """Where the result goes; None for a new tile, as the record says."""
    others: tuple[Tile | None, ...] = ()
    """The further destinations (``reduce_res``, ``dst_idx``), None for one left out."""
    dtype: DType | None = None
    """Of a new tile, if the kernel names it."""
    engine: Engine = Engine.UNKNOWN
    """The one that the kernel names."""
    where: Array | None = None
    """Bools over the result's shape; only where they are true is ``dst`` written."""
    moved: Tile | None = None
    """The operand that is only taken to its destination (see :mod:`difftest.simulator.recording`).
    """
    indices: tuple[Tile | tuple[str, str], ...] = ()
    """What holds where operands or ``dst`` lie: tiles, which the instruction reads too, and of a
    register the role that follows it and its name."""
    sources: dict[str, Tile] | None = None
    """By role, what the event names as read instead of the operands."""
    inner: Array | None = None
    """A mask that is no box, over what the instruction walks: it changes how it is computed."""
    left_of: InstructionUse | None = None
    """The kernel's own, of which a mask leaves this: it says whether ``dst`` was named, for which
    AWS documents a few instructions otherwise, and it is judged as a whole."""
    undefined: Any = None
    """What of its operands is not defined, if anything (``instructions/definedness.py``)."""
    said: tuple[tuple[str, Any], ...] = ()
    """Attributes of its event that the record does not know, such as what a frontend inferred."""

    def roles(self) -> Iterator[tuple[str, Any]]:
        """Each role's name, and the operand or destination at it."""
        record = self.instruction
        sides = (record.operands, self.operands), (record.destinations, (self.dst, *self.others))
        for roles, operands in sides:
            yield from zip((role.name for role in roles), operands, strict=False)


INSTRUCTIONS: dict[str, Instruction] = {}
"""All instructions that make something of their operands, by name."""
EFFECTS: dict[str, Instruction] = {}
"""All others, by name: see :mod:`difftest.simulator.instructions.effects`."""


def instruction(
    *engines: Engine,
    reach: DependenceClass | Callable[[CheckedCall], DependenceClass] = DependenceClass.ELEMENT,
    table: dict[str, Instruction] = INSTRUCTIONS,
    **fields: Any,
) -> Callable[[Callable[..., Any]], Instruction]:
    """Make a function the meaning of an instruction of its name, and register the record.

    ``fields`` are those of :class:`Instruction`.
    """

    def register(meaning: Callable[..., Any]) -> Instruction:
        name = meaning.__name__
        if name in table:
            raise ValueError(f"instruction {name} is registered twice")
        settings = {"pages": (f"{ISA}{name}",), **fields}
        settings["reach"] = (lambda call: reach) if isinstance(reach, DependenceClass) else reach
        table[name] = Instruction(name=name, engines=engines, meaning=meaning, **settings)
        return table[name]

    return register


def _names(functions: Iterable[object]) -> set[str]:
    """The names that functions of instructions ask for, and those that they call."""
    names: set[str] = set()
    for function in functions:
        if isinstance(function, FunctionType) and function.__module__.startswith(__package__):
            codes = [function.__code__, *function.__code__.co_consts]
            own = {name for code in codes if isinstance(code, CodeType) for name in code.co_names}
            held = [cell.cell_contents for cell in function.__closure__ or ()]
            names |= own | _names([*held, *map(function.__globals__.get, own)])
    return names
