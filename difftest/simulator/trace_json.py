"""A trace as JSON, to be kept or read elsewhere, and back. See docs/reference/trace-json.md.

Files, source lines, stacks of lines, loops and allocations are written once each, in tables;
events name them by their place. What has its default (no role, the whole region, no grid) is left
out. A text of another version is refused: there is no telling what it means.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from difftest.simulator.dtypes import name_of
from difftest.simulator.errors import Location
from difftest.simulator.trace import (
    Allocation,
    Attributes,
    Event,
    Iteration,
    Loop,
    Output,
    Region,
    Sight,
    Trace,
)

FORMAT = "difftest trace"
VERSION = 3

T = TypeVar("T", bound=Hashable)
Stack = tuple[Location, ...]


def trace_to_json(trace: Trace) -> str:
    """The trace as a JSON text, with a line for each entry of a table and each event."""
    tables = _Tables()
    allocations = [tables.allocation(one) for one in trace.allocations]
    events = [tables.event(one) for one in trace.events]
    # Stacks and loops are made of source lines, and lines of files: each table fills the next.
    stacks = tables.stacks.entries(tables.stack)
    loops = tables.loops.entries(tables.loop)
    locations = tables.locations.entries(tables.location)
    parts = {
        "format": _compact(FORMAT),
        "version": _compact(VERSION),
        "kernel": _compact(trace.kernel),
        "machine": _compact(trace.machine),
        "grid": _compact(trace.grid),
        "cores": _compact(trace.cores),
        "dialect": _compact(trace.dialect),
        "divided": _compact(trace.divided),
        "files": _lines(tables.files.entries(str)),
        "locations": _lines(locations),
        "stacks": _lines(stacks),
        "loops": _lines(loops),
        "allocations": _lines(allocations),
        "events": _lines(events),
    }
    return "{" + ",\n".join(f'"{name}":{part}' for name, part in parts.items()) + "}\n"


class _Table(Generic[T]):
    """Values that are written once, in the order in which they were first asked for."""

    def __init__(self) -> None:
        self.places: dict[T, int] = {}

    def place(self, value: T) -> int:
        """Where the value stands; it is added if it is new."""
        return self.places.setdefault(value, len(self.places))

    def entries(self, form: Callable[[T], Any]) -> list[Any]:
        """The values in the form in which they are written."""
        return [form(value) for value in self.places]


class _Tables:
    """The tables of one trace, filled while its allocations and events are written."""

    def __init__(self) -> None:
        self.files: _Table[str] = _Table()
        self.locations: _Table[Location] = _Table()
        self.stacks: _Table[Stack] = _Table()
        self.loops: _Table[Loop] = _Table()

    def location(self, location: Location) -> list[int]:
        return [self.files.place(location.file), location.line]

    def stack(self, stack: Stack) -> list[int]:
        return [self.locations.place(location) for location in stack]

    def turns(self, turns: tuple[Iteration, ...]) -> list[list[int]]:
        return [[self.loops.place(turn.loop), turn.number, turn.value] for turn in turns]

    def loop(self, loop: Loop) -> dict[str, Any]:
        return {"id": loop.id, "kind": loop.kind.value, **self._at(loop.location)}

    def allocation(self, one: Allocation) -> dict[str, Any]:
        return {
            "id": one.id,
            **({"name": one.name} if one.name else {}),
            "space": one.space.value,
            "shape": one.shape,
            "dtype": name_of(one.dtype),
            "partition_axis": one.partition_axis,
            **({} if one.address is None else {"address": one.address}),
            **({"places": one.places} if one.places else {}),
            **self._at(one.location),
            **({"loops": self.turns(one.loops)} if one.loops else {}),
            **({} if one.output is None else {"output": _output(one.output)}),
            "first": one.first,
            "last": one.last,
            "reads": one.reads,
            "writes": one.writes,
        }

    def event(self, event: Event) -> dict[str, Any]:
        document: dict[str, Any] = {
            "number": event.number,
            "opcode": event.opcode,
            "engine": event.engine.value,
            "stack": self.stacks.place(event.stack),
        }
        if event.program:
            document["program"] = event.program
        if event.loops:
            document["loops"] = self.turns(event.loops)
        document["writes"] = [_region(region) for region in event.writes]
        document["reads"] = [_region(region) for region in event.reads]
        attributes = _attributes(event.attributes)
        if attributes:
            document["attributes"] = attributes
        if event.seen:
            document["seen"] = [self._sight(sight) for sight in event.seen]
        return document

    def _sight(self, sight: Sight) -> dict[str, Any]:
        document: dict[str, Any] = {"what": sight.what.value, "role": sight.role}
        document |= {"elements": sight.elements, "of": sight.of, "first": sight.first}
        if sight.value is not None:
            document["value"] = _number(sight.value)
        origin = sight.origin
        if origin is not None:
            document["origin"] = {
                "allocation": origin.allocation.id,
                "low": origin.low,
                "high": origin.high,
                "event": origin.event,
                **self._at(origin.location),
            }
        return document

    def _at(self, location: Location | None) -> dict[str, int]:
        return {} if location is None else {"location": self.locations.place(location)}


def _output(output: Output) -> dict[str, Any]:
    return output._asdict() if output.unwritten else {}


def _region(region: Region) -> dict[str, Any]:
    document: dict[str, Any] = {
        "allocation": region.allocation.id,
        "offset": region.offset,
        "shape": region.shape,
        "strides": region.strides,
    }
    if region.partition_axis != 0:
        document["partition_axis"] = region.partition_axis
    if region.role:
        document["role"] = region.role
    if not region.whole:
        document["whole"] = False
    if region.view is not None:
        document["view"] = name_of(region.view)
    return document


def _attributes(attributes: Attributes) -> dict[str, Any]:
    given = attributes._asdict()
    plain = Attributes._field_defaults
    told = {name: given[name] for name in given if given[name] != plain[name]}
    if attributes.value is not None:
        told["value"] = _number(attributes.value)
    return told


def _number(value: float) -> float | str:
    """A number, or its text where JSON has no name for it."""
    return value if math.isfinite(value) else repr(value)


def _lines(documents: Iterable[Any]) -> str:
    rows = [_compact(document) for document in documents]
    return "[\n" + ",\n".join(rows) + "]" if rows else "[]"


def _compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
