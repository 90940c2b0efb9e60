"""Instructions as records: everything about an instruction is in one place.

An :class:`Instruction` has a name, operands and destinations by role, and rules. It also has the
shape of its result, its meaning in NumPy, the key of its cost and its source pages. A
:class:`CheckedCall` is one legal use of it: the descriptors of its operands, its options, its
engine and its results. Rules and results are functions of a call alone. So a signature that passed
once is not checked again (see :mod:`difftest.simulator.instructions.gate`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
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
"""The folder of the instructions' pages in AWS's documentation."""

Number = int | float | bool | np.generic


class OperandKind(Enum):
    """Kinds of operands. An optional operand may also be None."""

    TILE = "a tile"
    NUMBER = "a number"
    VECTOR = "a vector with one element in each partition"
    VECTOR_OR_NUMBER = "a scalar or a vector with one element in each partition"
    TILE_OR_NUMBER = "a tile or a number"
    INDIRECT = "a tile indexed by a tile"
    TILE_OR_INDIRECT = "a tile, or one indexed by a tile"
    INDEX = "an index expression"


@dataclass(frozen=True, eq=False)
class Role:
    """An operand or destination: its name, and the values allowed for it."""

    name: str
    _: KW_ONLY
    takes: OperandKind = OperandKind.TILE
    buffers: tuple[Space, ...] = ON_CHIP
    dtypes: tuple[DType, ...] | None = None
    """The allowed dtypes; None for all."""
    optional: bool = False
    blocks: bool = False
    """True if it may have block dimensions before its partitions."""
    by_offsets: bool = False
    """True if it, and then ``dst`` too, may be a view by tensor indirection (stubs at v2.32.0)."""
    whole_rows: bool = False
    """True if a mask leaves out whole partitions of it, not single elements."""
    shape: Callable[[CheckedCall], Shape] | None = None
    """Its exact shape. A first destination without one has the result's shape."""


class Result(NamedTuple):
    """The result of an instruction: the tile that a classic call allocates, or its ``dst``."""

    shape: Shape
    dtype: DType
    space: Space = Space.SBUF


_NOTHING = Result((), np.dtype(np.float32))


class DependenceClass(Enum):
    """The operands' elements that one element of the first destination depends on.

    A mask divides the work by this class.
    """

    ELEMENT = "the operands' elements at its place"
    AXES = "their elements along the reduced axes"
    ROW = "their elements in its partition"
    TILE = "any of their elements"


class IterationSpace(NamedTuple):
    """The axes of a mask that does not range over the result."""

    shape: Shape
    """The mask's shape."""
    walked: Shape
    """The shape that ``axes`` index: the same elements as ``shape``."""
    axes: Mapping[str, tuple[int | None, ...]]
    """By role, the axes of an operand or a destination. None is an axis of its own."""


class MaskedValues(NamedTuple):
    """Values that an instruction writes only where ``chosen`` is true."""

    values: Array
    chosen: Array


Judge = Callable[[NkiError], None]
"""A judge raises an error or warns of it, by the launch's strictness."""


@dataclass(slots=True, eq=False)  # an attribute that the class also has is slow to read
class CallCache:
    """Parts of a call's use that are equal for calls that differ in shapes alone."""

    kind: EventKind
    """The event's kind, recorded in the trace with its operands."""
    numbers: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None
    """Returns the numbers and index patterns among its operands; None if there are none."""
    is_simple: bool
    """True if it only reads tiles and writes one, so that its event is the same for each use."""
    is_indirect: bool
    """True if a tile holds the places that it reads or writes."""
    are_tiles: tuple[bool, ...]
    """For each operand: true if it is a tile with a fixed pattern."""
    roles: tuple[str, ...]
    """The roles of a simple call: its destination's role, then its reads' roles."""
    watches: tuple[Callable[..., None], ...] = ()
    """Functions that look at its operands before it runs."""
    is_ambiguous: bool = False
    """True if other options may be equal without being the same: 1 and True, 0.0 and -0.0."""
    counts: bool = False
    """True if it computes integers from integers, and float32 may not hold them."""
    keeps: bool = False
    """True if it only moves values of its result's dtype, which rounding does not change."""
    exact_plan: Any = None
    """The exact run's plan for it."""


_NO_CACHE = CallCache(EventKind("", Engine.UNKNOWN), None, False, False, (), ())


@dataclass(slots=True, eq=False)
class CheckedCall:
    """A use of an instruction, as rules see it: ``call["data1"].shape``, ``call["op"].bitvec``.

    The fields before ``engine`` are the kernel's request, the fields from there on are results of
    the check. They are one object, because meanings and effects read both. ``cache`` is the gate's
    own.
    """

    instruction: Instruction
    machine: Machine
    operands: Mapping[str, Any]
    """By role: a :class:`Descriptor` for a tile, the type of a number, or None if left out."""
    options: Mapping[str, Any]
    destinations: Mapping[str, Descriptor]
    """The existing destinations, by role; a classic call has its ``dst`` only later."""
    dtype: DType | None = None
    """The result's dtype, if the kernel names one."""
    dialect: str = ""
    """The dialect that the kernel is written in: "classic" or "nki"."""
    into_existing: bool = False
    """True if the kernel names a ``dst``, as calls of the current dialect do."""
    places: Array | None = None
    """The elements of a row that a mask leaves, for instructions that count them; None for all."""
    engine: Engine = Engine.UNKNOWN
    result: Result = _NOTHING
    """The record's result; set, like ``engine``, after the rules have passed."""
    reads_dst: bool = False
    reduces: bool = False
    """True if its engine's registers may take part."""
    from_hbm: bool = False
    """True if an operand is in HBM, which engines cannot read."""
    derived: dict[Callable[[CheckedCall], Any], Any] = field(default_factory=dict)
    """The results of functions of this call: see :meth:`once`."""
    remarks: list[tuple[Judge, Callable[[], NkiError]]] = field(default_factory=list)
    """Possible errors of the call, each with the strictness that judges it."""
    cache: CallCache = _NO_CACHE

    def __getitem__(self, name: str) -> Any:
        """Return an operand's descriptor (or type, or None) or an option, by name."""
        if name in self.operands:
            return self.operands[name]
        return self.options[name]

    @property
    def name(self) -> str:
        """The instruction's name, for errors."""
        return self.instruction.name

    @property
    def title(self) -> str:
        """The name, with the operator if the instruction takes one."""
        op: Any = self.options.get("op")
        name = op if isinstance(op, str) else getattr(op, "name", None)
        if name:
            return f"{self.name}({name})"
        return self.name

    @property
    def tiles(self) -> dict[str, Descriptor]:
        """The operands that are tiles, by role."""
        return {
            name: value
            for name, value in self.operands.items()
            if isinstance(value, Descriptor)
        }

    def alike(
        self, operands: Mapping[str, Any], destinations: Mapping[str, Descriptor]
    ) -> CheckedCall:
        """Return this call for operands and destinations that differ only in shape."""
        return replace(
            self, operands=operands, destinations=destinations, derived={}, remarks=[]
        )

    def once(self, function: Callable[[CheckedCall], Any]) -> Any:
        """Return ``function(self)``, which is called for the first use of this call only."""
        known = self.derived
        if function not in known:
            known[function] = function(self)
        return known[function]

    def remark(
        self, error: Callable[[], NkiError], judge: Judge = report_violation
    ) -> None:
        """Judge each use of the call; by default as not promised by the documentation.

        ``error`` creates the error for each use, with the kernel's line. ``judge`` is
        :func:`~difftest.simulator.strictness.report_violation` or ``report_undefined``. Undefined
        behaviour is also judged immediately: as an error, it comes before the errors that follow
        from it.
        """
        if judge is report_undefined:
            judge(error())
        self.remarks.append((judge, error))

    def refused(self, rule: str, did: str, received: str, **more: Any) -> NkiError:
        """Return the error for a rejected call: see :func:`.errors.call_error`."""
        return call_error(self.name, rule, did, received, **more)

    def wanted_dtype(self, default: DType) -> DType:
        """Return the result's dtype: an existing ``dst``'s, else the kernel's, else ``default``."""
        dst = self.destinations.get("dst")
        if dst is not None:
            return dst.dtype
        if self.dtype is None:
            return default
        return self.dtype


class DestinationFit(Enum):
    """The ways in which an existing ``dst`` must fit the result."""

    EXACT = "the same shape"
    ELEMENTS = "the same partitions, and the same number of elements in each"
    TOTAL = "the same number of elements"


Rule = Callable[[CheckedCall], None]
"""A rule raises an NkiError if the call breaks it."""

DST = Role("dst")


def moved(call: CheckedCall, values: Any, *others: Any) -> Any:
    """Return the first operand unchanged."""
    return values


def choose_engine(
    call: CheckedCall, wanted: Engine, allowed: tuple[Engine, ...] | None = None
) -> Engine:
    """Return the engine of a call: the first choice, or the engine that the kernel names.

    Raises
    ------
    KernelError : the instruction does not run on the engine that the kernel names.
    """
    engines = call.instruction.engines if allowed is None else allowed
    if wanted is Engine.UNKNOWN:
        return engines[0]
    if wanted not in engines:
        raise call.refused(
            "runs on the engines that implement it",
            f"was to run on the engine {wanted.value}",
            f"engine={wanted.value}",
            limit=", ".join(engine.value for engine in engines),
        )
    return wanted


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Instruction:
    """An instruction of the machine."""

    name: str
    engines: tuple[Engine, ...]
    """The engines that can run it. By default it runs on the first."""
    operands: tuple[Role, ...]
    options: tuple[str, ...] = ()
    """The names of the options of each call, in order."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults for the last options, because one dialect may have more of them than the other."""
    destinations: tuple[Role, ...] = (DST,)
    """The destinations, ``dst`` first."""
    rules: tuple[Rule, ...] = ()
    """Rules for each call, checked in this order."""
    limits: tuple[str, ...] = ()
    """The machine's limits that its rules check, such as ``gemm_moving_fmax``."""
    only: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    """Rules of one dialect, by its name ("classic", "nki"), checked before the others."""
    engine: Callable[[CheckedCall, Engine], Engine] = choose_engine
    """Chooses the engine by the operands, if that has a rule of its own."""
    result: Callable[[CheckedCall], Result]
    """Returns the result of a call that keeps the rules."""
    meaning: Callable[..., Any]
    """Computes the result from the operands' values: ``meaning(call, *values)``. Arrays have the
    partition axis first. Floats come as float32 and are rounded when they are written.
    """
    facts: Callable[[CheckedCall], dict[str, Any]] = lambda call: {}
    """Returns the attributes of its event."""
    purpose: Purpose = Purpose.COMPUTE
    event: Callable[[CheckedCall], tuple[str, Purpose]] = lambda use: (
        use.name,
        use.instruction.purpose,
    )
    """Returns the name and the purpose of a call's event, if they differ from the record's."""
    reads_dst: Callable[[CheckedCall], bool] = lambda call: False
    """Returns whether a call reads ``dst``; its values are the meaning's last argument."""
    resolves: Callable[[Any, InstructionUse], None] | None = None
    """Resolves a use's first option, which depends on the data unless it is False."""
    in_place: bool = False
    """True if the meaning writes to ``dst`` itself: ``meaning(call, dst, *values, where=where)``.
    This is for accumulation, and for moves of bits. It returns the written elements if they are
    fewer than ``where`` leaves.
    """
    reduced: Callable[[CheckedCall], tuple[int, ...]] | None = None
    """Returns the axes of the first operand that the result lacks. The mask of such a classic call
    ranges over that operand, otherwise over the result.
    """
    walk: Callable[[CheckedCall], IterationSpace] | None = None
    """Returns the axes of a mask that ranges over neither."""
    reach: Callable[[CheckedCall], DependenceClass] = lambda call: (
        DependenceClass.ELEMENT
    )
    """Returns how a mask that is not a box divides the work."""
    counts_places: bool = False
    """True if the meaning depends on the position of an element in its row."""
    orders: bool = False
    """True if it looks for the places of values; NaN is never found."""
    moves: Any = None
    """Computes the new elements of ``dst`` for a meaning that writes it itself: ``moves(call,
    *values)``, on array-likes, before they are stored or added. :func:`moved` if it moves bits.
    """
    carries: bool = True
    """True if unwritten elements propagate to the results; otherwise reading them is an error."""
    fit: DestinationFit = DestinationFit.ELEMENTS
    """The rule for an existing ``dst`` and the result."""
    pages: tuple[str, ...] = ()
    """The public pages that document it."""
    classic: bool = True
    """True if the classic dialect can issue it; otherwise only the current dialect can."""
    exchange: Any = None
    """The meeting of an effect with others: see :mod:`difftest.simulator.instructions.effects`."""

    @property
    def summary(self) -> str:
        """The first line of the meaning's docstring."""
        return inspect.cleandoc(str(self.meaning.__doc__)).splitlines()[0]


@dataclass(slots=True, eq=False)
class InstructionUse:
    """A use of an instruction, as a kernel requests it."""

    instruction: Instruction
    operands: tuple[Any, ...]
    """Tiles, numbers and None, in the order of the record."""
    options: tuple[Any, ...] = ()
    """The options in the order of the record, hashable."""
    dst: Any = None
    """The destination; None for a new tile of the record's result."""
    dtype: DType | None = None
    """The dtype of a new tile, if the kernel names one."""
    others: tuple[Tile | None, ...] = ()
    """The other destinations (``reduce_res``, ``dst_idx``); None for an absent one."""
    engine: Engine = Engine.UNKNOWN
    """The engine that the kernel names."""
    where: Array | None = None
    """Bools over the result's shape: ``dst`` is written only where they are true."""
    moved: Tile | None = None
    """An operand that is only moved to its destination (see :mod:`difftest.simulator.recording`).
    """
    indices: tuple[Tile | tuple[str, str], ...] = ()
    """The sources of indices for operands or ``dst``: tiles, which the instruction also reads; and
    for a register, the role that it moves and its name.
    """
    sources: dict[str, Tile] | None = None
    """By role, the tensors that the event names as read instead of the operands."""
    inner: Array | None = None
    """A mask that is not a box, over the instruction's iterations: it changes the computation."""
    left_of: InstructionUse | None = None
    """The kernel's own use, if a mask restricted it to this one. It shows whether ``dst`` was
    named, which matters for a few instructions in AWS's documentation. It is judged as a whole.
    """
    undefined: Any = None
    """The undefined elements of its operands, if any (``instructions/definedness.py``)."""
    said: tuple[tuple[str, Any], ...] = ()
    """Attributes of its event from outside the record, such as a frontend's inferred values."""

    def roles(self) -> Iterator[tuple[str, Any]]:
        """Yield each role's name with its operand or destination."""
        record = self.instruction
        sides = (
            (record.operands, self.operands),
            (record.destinations, (self.dst, *self.others)),
        )
        for roles, operands in sides:
            yield from zip((role.name for role in roles), operands, strict=False)


INSTRUCTIONS: dict[str, Instruction] = {}
"""All instructions that compute a result from their operands, by name."""
EFFECTS: dict[str, Instruction] = {}
"""All other instructions, by name: see :mod:`difftest.simulator.instructions.effects`."""


def instruction(
    *engines: Engine,
    reach: DependenceClass
    | Callable[[CheckedCall], DependenceClass] = DependenceClass.ELEMENT,
    table: dict[str, Instruction] = INSTRUCTIONS,
    **fields: Any,
) -> Callable[[Callable[..., Any]], Instruction]:
    """Register a function as the meaning of the instruction of its name.

    ``fields`` are the fields of :class:`Instruction`.
    """

    def register(meaning: Callable[..., Any]) -> Instruction:
        name = meaning.__name__
        if name in table:
            raise ValueError(f"instruction {name} is registered twice")
        if not meaning.__doc__:
            raise ValueError(f"instruction {name} needs a docstring: pages quote it")
        settings = {"pages": (f"{ISA}{name}",), **fields}
        settings["reach"] = (
            (lambda call: reach) if isinstance(reach, DependenceClass) else reach
        )
        table[name] = Instruction(
            name=name, engines=engines, meaning=meaning, **settings
        )
        return table[name]

    return register
