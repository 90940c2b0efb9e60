"""A tape: the calls of a launch, recorded so that they can be repeated.

A trace describes the instructions. A tape has their inputs: operands as patterns on numbered
tensors, options and masks. It holds no data of the kernel's arguments, so that
:mod:`difftest.simulator.replay` can run it on others. Values that the kernel computed in Python
are constants on the tape. A register's value is a constant, too. A replay rejects data that would
change a register.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.arrays import Arguments
from difftest.simulator.core import Core
from difftest.simulator.dtypes import DType
from difftest.simulator.errors import Location, NotModelledError
from difftest.simulator.frontend.classic.indexing import DynamicIndex, IndexedTile
from difftest.simulator.frontend.launchable import Launchable
from difftest.simulator.frontend.nki.dynamic import DynamicView, Rows
from difftest.simulator.frontend.nki.tensor import IndirectTensor
from difftest.simulator.frontend.nki.virtual_registers import DeviceValue
from difftest.simulator.index import Index
from difftest.simulator.indexing import Axis
from difftest.simulator.instructions import every_record
from difftest.simulator.instructions.alu import NKI_OPS, AluOp
from difftest.simulator.instructions.matmul import added_product
from difftest.simulator.instructions.record import Instruction
from difftest.simulator.instructions.reduce import AVERAGE
from difftest.simulator.launch_listeners import TAPES
from difftest.simulator.pattern import Pattern, Shape
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Iteration

PLAIN = (
    bool,
    int,
    float,
    str,
    type(None),
    np.generic,
    np.ndarray,
    np.dtype,
    Enum,
    Pattern,
)
"""The types that a tape contains unchanged."""


class TileForm(NamedTuple):
    """A tile on a tape."""

    tensor: int
    """The number of its allocation."""
    pattern: Pattern
    partition_axis: int | None
    dtype: DType
    axes: tuple[Axis, ...] | None = None
    """The walks of a pattern that leaves its tensor, and that a mask limits."""
    twin: int = 0
    """A number that distinguishes equal tiles of one call."""


class TapedForm(NamedTuple):
    """A value other than a tile: a kind of :data:`KINDS`, and the parts that rebuild it."""

    kind: str
    parts: tuple[Any, ...]


class TapedCall(NamedTuple):
    """A call of :data:`difftest.simulator.replay.CALLS`, with its arguments."""

    call: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    made: int | None = None
    """The number of the returned tensor; for an effect, the returned number."""
    stack: tuple[Location, ...] = ()
    loops: tuple[Iteration, ...] = ()
    program: Shape = ()


class TapedParameter(NamedTuple):
    """A parameter of the kernel."""

    name: str
    kind: int
    """The kind in :mod:`inspect`."""
    mutable: bool
    """True if its annotation lets the kernel write to it."""
    tensors: tuple[int, ...]
    """The numbers of the tensors in it."""


@dataclass(eq=False)
class Tape:
    """The calls of one launch.

    Attributes
    ----------
    kernel, dialect, machine, level : names.
    inputs : the shapes and dtypes of the arguments' tensors, by number.
    returned : the outputs of the last program.
    """

    kernel: str = ""
    dialect: str = ""
    machine: str = ""
    level: str | None = None
    grid: Shape = ()
    divided: bool = False
    auto_alloc: bool = False
    middle_end: bool = False
    by_reference: bool = True
    parameters: tuple[TapedParameter, ...] = ()
    inputs: dict[int, tuple[Shape, DType]] = field(default_factory=dict)
    steps: list[TapedCall] = field(default_factory=list)
    returned: tuple[TileForm, ...] = ()


def recorder(core: Core, target: Launchable, arguments: Arguments) -> Recorder:
    """Return the recorder for a launch whose arguments have been converted to tensors."""
    tensors = defaultdict(list)
    inputs = {a.id: (a.shape, a.dtype) for a in core.trace.allocations}
    for allocation in core.trace.allocations:
        tensors[allocation.name].append(allocation.id)
    tape = Tape(
        kernel=target.qualname,
        dialect=target.dialect,
        machine=core.machine.name,
        level=core.level,
        grid=tuple(map(int, core.grid)),
        auto_alloc=core.memories.auto_alloc,
        middle_end=core.trace.middle_end,
        inputs=inputs,
        parameters=tuple(
            TapedParameter(
                name,
                int(p.kind),
                name in arguments.mutable_parameters,
                tuple(tensors[name]),
            )
            for name, p in arguments.parameters.items()
        ),
        by_reference=target.by_reference,
    )
    return Recorder(core, tape)


class Recorder:
    """Writes one program's calls to a tape."""

    def __init__(self, core: Core, tape: Tape) -> None:
        self._core = core
        self._tape = tape
        self.busy = False
        """True while a recorded call is running. Calls that it makes itself are not recorded."""

    def beside(self, core: Core) -> Recorder:
        """Return the recorder of another program of the launch."""
        return Recorder(core, self._tape)

    def noted(
        self, call: str, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Return a call's result; record the call unless it raised."""
        core = self._core
        options = dict(kwargs)
        if args and args[0] is core:
            function = partial(function, core)
            args = args[1:]
        mask = options.pop("mask", None)
        if mask is not None:
            mask = kwargs["mask"] = _NotedMask(mask)
        if _leaves_out(options):
            options["leaves_out"] = True
        stack = core.lines.stack()
        loops = core.loops.turns
        self.busy = True
        try:
            result = function(*args, **kwargs)
        finally:
            self.busy = False
        form = _Form()
        taped_args = form.of(args)
        taped_options = form.of(options)
        if mask is not None and mask.chosen is not None:
            taped_options["mask"] = mask.chosen
        self._tape.steps.append(
            TapedCall(
                call,
                taped_args,
                taped_options,
                made=_number_of(result),
                stack=stack,
                loops=loops,
                program=core.seat.program,
            )
        )
        return result

    def found(self, tile: Tile) -> None:
        """Record data that no instruction wrote."""
        if not self.busy:
            self._append("found", _Form().tile(tile), tile._elements().copy())

    def note(self, kind: str, *texts: str) -> None:
        """Record the origin of a loop's bounds or of a register; a replay skips it."""
        if not self.busy:
            self._append("note", kind, *texts)

    def _append(self, call: str, *args: Any) -> None:
        """Record a call without options or a result, at the kernel's line."""
        core = self._core
        self._tape.steps.append(
            TapedCall(
                call,
                args,
                {},
                stack=core.lines.stack(),
                loops=core.loops.turns,
                program=core.seat.program,
            )
        )

    def end(self, leaves: list[Any]) -> None:
        """Record the kernel's outputs, and finish the tape."""
        tape = self._tape
        tapes = TAPES.get()
        assert tapes is not None
        tape.divided = self._core.trace.divided
        tape.returned = _Form().of(leaves)
        tapes.append(tape)


class _NotedMask:
    """A mask that keeps the elements that it last chose, in ``chosen``."""

    def __init__(self, mask: Callable[[Shape], Any]) -> None:
        self._mask = mask
        self.chosen: Any = None

    def __call__(self, shape: Shape) -> Any:
        self.chosen = self._mask(shape)
        return self.chosen


def _leaves_out(options: dict[str, Any]) -> bool:
    """Return whether a call writes a part of a tensor with masked-out elements."""
    dst = options.get("dst")
    if dst is None or options.get("where") is None:
        return False
    masked: bool = dst._storage.masked
    return masked


def _number_of(result: Any) -> int | None:
    """Return the number of a call's result: the tensor's, or an effect's number itself."""
    if isinstance(result, int):
        return result
    storage = getattr(result, "_storage", result)
    allocation = getattr(storage, "allocation", None)
    return None if allocation is None else allocation.id


# -- arguments on a tape ---------------------------------------------------------------------------


class _Form:
    """The form of one call's arguments on a tape."""

    def __init__(self) -> None:
        self._tiles: dict[TileForm, list[Tile]] = {}

    def of(self, value: Any) -> Any:
        """Return an argument without the launch's state.

        Raises
        ------
        NotModelledError : a tape has no form for the argument.
        """
        kind: type = type(value)
        make = _form_maker(kind)
        if make is not None:
            return make(self, value)
        raise NotModelledError(
            "a tape holds the arguments of instructions",
            happened=f"a launch whose tape is kept used a {type(value).__name__}",
            received=f"{value!r:.80}",
            remedy="launch the kernel itself",
        )

    def itself(self, value: Any) -> Any:
        """Return a plain value."""
        return value

    def items(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the forms of items."""
        return tuple(map(self.of, values))

    def members(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the forms of a dictionary's values."""
        return {name: self.of(value) for name, value in values.items()}

    def tile(self, tile: Tile) -> TileForm:
        """Return a tile's form, distinct from the forms of equal tiles."""
        axes = tile._axes if isinstance(tile._axes, tuple) else None
        number = tile._storage.allocation.id
        dtype = tile.dtype
        access = TileForm(number, tile._pattern, tile._partition_axis, dtype, axes)
        equal_tiles = self._tiles.setdefault(access, [])
        for twin, view in enumerate(equal_tiles):
            if view is tile:
                return access._replace(twin=twin) if twin else access
        equal_tiles.append(tile)
        twin = len(equal_tiles) - 1
        return access._replace(twin=twin) if twin else access


@lru_cache(maxsize=256)  # a kernel's file may make classes at each launch
def _form_maker(kind: type) -> Callable[[_Form, Any], Any] | None:
    """Return the function that makes the forms of a class's values; None if there is none."""
    if issubclass(kind, Enum) and not kind.__module__.startswith("difftest."):
        return _member_maker(kind)
    if issubclass(kind, PLAIN):
        return _Form.itself
    if issubclass(kind, (tuple, list)):
        return _Form.items
    if issubclass(kind, dict):
        return _Form.members
    for name, taped in KINDS.items():
        if issubclass(kind, taped.of):
            return partial(_taped_form, name, taped)
    return _Form.tile if issubclass(kind, Tile) else None


def _member_maker(kind: type) -> Callable[[_Form, Any], Any]:
    """Return the function for members of a kernel's own enumeration; numbers become plain."""
    for plain, convert in _CONVERSIONS.items():
        if issubclass(kind, plain):
            return partial(_converted, convert)
    return _Form.itself


def _converted(convert: Callable[[Any], Any], form: _Form, value: Any) -> Any:
    return convert(value)


_CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    int: int.__pos__,
    float: float.__pos__,
    str: str.__str__,
}
"""The functions that return the plain value of a member that is also a number or a text."""


def _taped_form(name: str, kind: TapedKind, form: _Form, value: Any) -> TapedForm:
    return TapedForm(name, form.of(kind.parts(value)))


class TapedKind(NamedTuple):
    """A kind of value: its class, the function that makes one from parts, and its parts."""

    of: type
    make: Callable[..., Any]
    parts: Callable[[Any], tuple[Any, ...]]


_OPERATORS = {**NKI_OPS, AVERAGE.name: AVERAGE}
KINDS = {
    "IndirectTensor": TapedKind(
        IndirectTensor,
        IndirectTensor._of,
        lambda view: (view._owner, view._index, len(view._places), view._group),
    ),
    "DynamicView": TapedKind(
        DynamicView,
        lambda owner, pattern, index, rows, whole: DynamicView(
            owner, pattern, index, Rows(*rows), whole=whole
        ),
        lambda view: (
            view._owner,
            view._pattern,
            view._index,
            tuple(view._rows),
            view._whole,
        ),
    ),
    "DeviceValue": TapedKind(
        DeviceValue,
        lambda value, label, origin: DeviceValue(
            value, frozen=True, label=label, origin=origin
        ),
        lambda register: (register.device_value(), register.label, register.origin),
    ),
    "IndexedTile": TapedKind(
        IndexedTile, IndexedTile, lambda tile: (tile._base, tile._items)
    ),
    "DynamicIndex": TapedKind(
        DynamicIndex, DynamicIndex, lambda index: (index.tile, index.offset)
    ),
    "Index": TapedKind(
        Index, Index, lambda index: (index.shape, index.start, index.steps)
    ),
    "Operator": TapedKind(AluOp, _OPERATORS.__getitem__, lambda op: (op.name,)),
    "Opcode": TapedKind(
        Instruction,
        lambda name: {"added_product": added_product, **every_record()}[name],
        lambda record: ("added_product" if record is added_product else record.name,),
    ),
}
"""The kinds by their names on a tape."""
