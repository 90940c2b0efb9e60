"""A trace read back from its JSON form (:mod:`difftest.simulator.trace_json`), checked as it is."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, NoReturn, TypeVar

import numpy as np

from difftest.simulator.dtypes import NKI_NAMES
from difftest.simulator.errors import Location
from difftest.simulator.trace import (
    Allocation,
    Attributes,
    Engine,
    Event,
    Iteration,
    Loop,
    LoopKind,
    Origin,
    Output,
    Region,
    Seen,
    Sight,
    Space,
    Trace,
)
from difftest.simulator.trace_json import FORMAT, VERSION

T = TypeVar("T")
Kind = TypeVar("Kind", bound=Enum)

_HEAD = ("format", "version", "kernel", "machine", "grid", "cores", "dialect", "divided")
_MEMBERS = (*_HEAD, "files", "locations", "stacks", "loops", "allocations", "events")
_NOT_FINITE = ("nan", "inf", "-inf")


class TraceFormatError(ValueError):
    """A text is no trace of this version: where in it, what was received, what is accepted."""


def trace_from_json(text: str) -> Trace:
    """The trace that :func:`~difftest.simulator.trace_json.trace_to_json` wrote.

    Raises
    ------
    TraceFormatError : the text is no JSON, of another version, or breaks the form somewhere.
    """
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise TraceFormatError(f"not a trace: not JSON ({error})") from None
    _check_version(document)
    return _Reader(_object(document, "the document", _MEMBERS)).trace()


def _no_constant(name: str) -> NoReturn:
    raise TraceFormatError(f"{name} is no number of JSON's")


def _check_version(document: object) -> None:
    """Before anything else: another version may have other members."""
    if not isinstance(document, dict):
        _refuse("the document", document, "an object")
    if document.get("format") != FORMAT:
        _refuse("format", document.get("format"), json.dumps(FORMAT))
    version = document.get("version")
    if version != VERSION or not isinstance(version, int) or isinstance(version, bool):
        _refuse("version", version, f"{VERSION}; record the kernel again with this difftest")


class _Reader:
    """The tables of one document, and its events made of them."""

    def __init__(self, top: dict[str, Any]) -> None:
        self.top = top
        self.grid = _integers(top["grid"], "grid", low=1)
        self.files = [_text(file, where) for where, file in _entries(top, "files")]
        self.locations = [self._location(*entry) for entry in _entries(top, "locations")]
        self.stacks = [
            tuple(_entry(place, where, self.locations) for place in _list(stack, where))
            for where, stack in _entries(top, "stacks")
        ]
        self.loops = [self._loop(*entry) for entry in _entries(top, "loops")]
        self.allocations: dict[int, Allocation] = {}

    def trace(self) -> Trace:
        top = self.top
        trace = Trace(
            kernel=_text(top["kernel"], "kernel"),
            machine=_text(top["machine"], "machine"),
            grid=self.grid,
            dialect=_text(top["dialect"], "dialect"),
        )
        if not isinstance(top["divided"], bool):
            _refuse("divided", top["divided"], "true or false")
        trace.divided = top["divided"]
        trace.cores = _integers(top["cores"], "cores", low=0)
        if len(trace.cores) not in (0, math.prod(self.grid)):
            _refuse("cores", list(trace.cores), "none, or one for each instance of the grid")
        for where, value in _entries(top, "allocations"):
            one = self._allocation(where, value)
            if one.id in self.allocations:
                _refuse(f"{where}.id", one.id, "an id that no other allocation has")
            self.allocations[one.id] = one
        trace.allocations = list(self.allocations.values())
        last = -1
        for where, value in _entries(top, "events"):
            event = self._event(where, value)
            if event.number <= last:
                _refuse(f"{where}.number", event.number, f"more than {last}, the one before")
            last = event.number
            trace.events.append(event)
        return trace

    def _location(self, where: str, value: object) -> Location:
        file, line = _list(value, where, length=2)
        return Location(_entry(file, where, self.files), _integer(line, where, low=0))

    def _loop(self, where: str, value: object) -> Loop:
        fields = _object(value, where, ("id", "kind"), ("location",))
        return Loop(
            _integer(fields["id"], f"{where}.id", low=0),
            _member(LoopKind, fields["kind"], f"{where}.kind"),
            self._at(fields, where),
        )

    def _allocation(self, where: str, value: object) -> Allocation:
        counts = ("first", "last", "reads", "writes")
        needed = ("id", "space", "shape", "dtype", "partition_axis", *counts)
        optional = ("name", "location", "address", "places", "loops", "output")
        fields = _object(value, where, needed, optional)
        shape = _integers(fields["shape"], f"{where}.shape", low=1)
        counted = {name: _integer(fields[name], f"{where}.{name}", low=-1) for name in counts}
        axis = _axis(fields["partition_axis"], f"{where}.partition_axis", shape)
        return Allocation(
            _integer(fields["id"], f"{where}.id"),
            _member(Space, fields["space"], f"{where}.space"),
            shape,
            _dtype(fields["dtype"], f"{where}.dtype"),
            axis,
            self._at(fields, where),
            _text(fields.get("name", ""), f"{where}.name"),
            first=counted["first"],
            last=counted["last"],
            reads=counted["reads"],
            writes=counted["writes"],
            address=_address(fields, where),
            places=_places(fields, where, shape[:axis]),
            loops=self._turns(fields, where),
            output=_output(fields, where),
        )

    def _event(self, where: str, value: object) -> Event:
        needed = ("number", "opcode", "engine", "stack", "writes", "reads")
        fields = _object(value, where, needed, ("program", "loops", "attributes", "seen"))
        program = _integers(fields.get("program", []), f"{where}.program", low=0)
        if len(program) != len(self.grid) or any(
            place >= size for place, size in zip(program, self.grid, strict=True)
        ):
            _refuse(f"{where}.program", list(program), f"a place in the grid {list(self.grid)}")
        return Event(
            _integer(fields["number"], f"{where}.number", low=0),
            _text(fields["opcode"], f"{where}.opcode"),
            _member(Engine, fields["engine"], f"{where}.engine"),
            self._regions(fields, where, "writes"),
            self._regions(fields, where, "reads"),
            _entry(fields["stack"], f"{where}.stack", self.stacks),
            self._turns(fields, where),
            program,
            _attributes(fields.get("attributes", {}), f"{where}.attributes"),
            tuple(self._sight(*entry) for entry in _entries(fields, "seen", where)),
        )

    def _sight(self, where: str, value: object) -> Sight:
        needed = ("what", "role", "elements", "of", "first")
        fields = _object(value, where, needed, ("value", "origin"))
        return Sight(
            _member(Seen, fields["what"], f"{where}.what"),
            _text(fields["role"], f"{where}.role"),
            _integer(fields["elements"], f"{where}.elements", low=1),
            _integer(fields["of"], f"{where}.of", low=1),
            _integers(fields["first"], f"{where}.first", low=0),
            _number(fields["value"], f"{where}.value") if "value" in fields else None,
            self._origin(f"{where}.origin", fields["origin"]) if "origin" in fields else None,
        )

    def _origin(self, where: str, value: object) -> Origin:
        needed = ("allocation", "low", "high", "event")
        fields = _object(value, where, needed, ("location",))
        return Origin(
            self._known(fields, where),
            _integers(fields["low"], f"{where}.low", low=0),
            _integers(fields["high"], f"{where}.high", low=1),
            _text(fields["event"], f"{where}.event"),
            self._at(fields, where),
        )

    def _known(self, fields: dict[str, Any], where: str) -> Allocation:
        number = _integer(fields["allocation"], f"{where}.allocation")
        if number not in self.allocations:
            _refuse(f"{where}.allocation", number, "the id of an allocation")
        return self.allocations[number]

    def _turns(self, fields: dict[str, Any], where: str) -> tuple[Iteration, ...]:
        turns = _list(fields.get("loops", []), f"{where}.loops")
        return tuple(self._iteration(f"{where}.loops[{n}]", turn) for n, turn in enumerate(turns))

    def _iteration(self, where: str, value: object) -> Iteration:
        loop, number, variable = _list(value, where, length=3)
        return Iteration(
            _entry(loop, where, self.loops),
            _integer(number, where, low=0),
            _integer(variable, where),
        )

    def _regions(self, fields: dict[str, Any], where: str, name: str) -> tuple[Region, ...]:
        return tuple(
            self._region(f"{where}.{name}[{number}]", value)
            for number, value in enumerate(_list(fields[name], f"{where}.{name}"))
        )

    def _region(self, where: str, value: object) -> Region:
        needed = ("allocation", "offset", "shape", "strides")
        fields = _object(value, where, needed, ("partition_axis", "role", "whole", "view"))
        allocation = self._known(fields, where)
        whole = fields.get("whole", True)
        if not isinstance(whole, bool):
            _refuse(f"{where}.whole", whole, "true or false")
        shape = _integers(fields["shape"], f"{where}.shape", low=1)
        region = Region(
            allocation,
            _integer(fields["offset"], f"{where}.offset", low=0),
            shape,
            _integers(fields["strides"], f"{where}.strides"),
            _partition_axis(fields.get("partition_axis", 0), f"{where}.partition_axis", shape),
            _text(fields.get("role", ""), f"{where}.role"),
            whole,
            _dtype(fields["view"], f"{where}.view") if "view" in fields else None,
        )
        region.allocation.viewed |= region.view is not None
        if len(region.strides) != len(region.shape) or not _is_inside(region):
            _refuse(where, value, f"a stride for each size, and elements of {region.allocation}")
        return region

    def _at(self, fields: dict[str, Any], where: str) -> Location | None:
        if "location" not in fields:
            return None
        return _entry(fields["location"], f"{where}.location", self.locations)


def _attributes(value: object, where: str) -> Attributes:
    fields = _object(value, where, (), Attributes._fields)
    given: dict[str, Any] = {}
    for name in ("op", "dge_mode", "reduce_cmd"):
        if name in fields:
            given[name] = _text(fields[name], f"{where}.{name}")
    for name in ("accumulate", "inferred", "loop_indices"):
        if name in fields:
            if fields[name] is not True:
                _refuse(f"{where}.{name}", fields[name], "true, or nothing")
            given[name] = True
    if "axis" in fields:
        given["axis"] = _integers(fields["axis"], f"{where}.axis", low=0)
    if "value" in fields:
        given["value"] = _number(fields["value"], f"{where}.value")
    return Attributes(**given)


def _dtype(value: object, where: str) -> np.dtype[Any]:
    if not isinstance(value, str) or value not in NKI_NAMES:
        _refuse(where, value, ", ".join(sorted(NKI_NAMES)))
    return NKI_NAMES[value]


def _address(fields: dict[str, Any], where: str) -> tuple[int, int] | None:
    """Of an allocation: none where the compiler places it."""
    if "address" not in fields:
        return None
    return _place(fields["address"], f"{where}.address")


def _place(value: object, where: str) -> tuple[int, int]:
    partition, byte = _list(value, where, length=2)
    return _integer(partition, where, low=0), _integer(byte, where, low=0)


def _output(fields: dict[str, Any], where: str) -> Output | None:
    """Of an allocation: none where it stays inside the kernel."""
    if "output" not in fields:
        return None
    at, value = f"{where}.output", fields["output"]
    members = _object(value, at, ("unwritten", "first") if value else ())
    if not members:
        return Output()
    return Output(
        _integer(members["unwritten"], f"{at}.unwritten", low=1),
        _integers(members["first"], f"{at}.first", low=0),
    )


def _places(
    fields: dict[str, Any], where: str, blocks: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """Of the blocks of an allocation: none where the compiler places them."""
    if "places" not in fields:
        return ()
    at = f"{where}.places"
    return tuple(_place(one, at) for one in _list(fields["places"], at, length=math.prod(blocks)))


def _axis(value: object, where: str, shape: tuple[int, ...]) -> int:
    axis = _integer(value, where, low=0)
    if axis >= max(len(shape), 1):
        _refuse(where, axis, f"an axis of the shape {list(shape)}")
    return axis


def _partition_axis(value: object, where: str, shape: tuple[int, ...]) -> int | None:
    """A region's: none where an integer index took it away."""
    return None if value is None else _axis(value, where, shape)


def _is_inside(region: Region) -> bool:
    """Whether each element that the pattern names is the tensor's."""
    allocation = region.allocation
    size = math.prod(allocation.shape) * allocation.dtype.itemsize // region.dtype.itemsize
    return region.pattern.fits(size)


# What JSON holds, each checked: where it stands is said in the error.


def _refuse(where: str, received: object, accepted: str) -> NoReturn:
    shown = json.dumps(received)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    raise TraceFormatError(f"not a trace: {where}: received {shown}; accepted: {accepted}")


def _object(
    value: object, where: str, needed: Collection[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(where, value, "an object")
    for name in needed:
        if name not in value:
            _refuse(where, sorted(value), f"a member {name!r}")
    for name in value:
        if name not in needed and name not in optional:
            _refuse(where, name, ", ".join((*needed, *optional)))
    return value


def _entries(fields: dict[str, Any], name: str, where: str = "") -> list[tuple[str, object]]:
    """The entries of a table, each with where it stands; of one that was left out none."""
    at = f"{where}.{name}" if where else name
    entries = _list(fields.get(name, []), at)
    return [(f"{at}[{number}]", value) for number, value in enumerate(entries)]


def _list(value: object, where: str, *, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or length not in (None, len(value)):
        _refuse(where, value, "a list" + (f" of {length}" if length else ""))
    return value


def _integer(value: object, where: str, *, low: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or (low is not None and value < low):
        _refuse(where, value, "a whole number" + (f" from {low} on" if low is not None else ""))
    return value


def _integers(value: object, where: str, *, low: int | None = None) -> tuple[int, ...]:
    return tuple(_integer(number, where, low=low) for number in _list(value, where))


def _number(value: object, where: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        _refuse(where, value, f"a number, or one of {', '.join(_NOT_FINITE)}")
    return float(value)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        _refuse(where, value, "a text")
    return value


def _member(kind: type[Kind], value: object, where: str) -> Kind:
    for member in kind:
        if member.value == value:
            return member
    _refuse(where, value, ", ".join(str(member.value) for member in kind))


def _entry(place: object, where: str, table: Sequence[T]) -> T:
    """What stands at a place of a table."""
    if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(table):
        _refuse(where, place, f"a place in a table of {len(table)}")
    return table[place]
