"""A trace as JSON, to be kept or read elsewhere, and back. See docs/reference/trace-json.md.

Files, source lines, stacks of lines, loops and allocations are written once each, in tables;
events name them by their place. What has its default (no role, the whole region, no grid) is left
out. A text of another version is refused: there is no telling what it means.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NoReturn, get_type_hints

from difftest.simulator.errors import Location
from difftest.simulator.pattern import Pattern
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
    Told,
    Trace,
)
from difftest.simulator.trace_forms import (
    ARGUMENTS,
    DTYPE,
    FLAG,
    NUMBER,
    TEXT,
    TRUTH,
    Form,
    Tables,
    TraceFormatError,
    check_members,
    each,
    entry,
    member,
    record,
    refuse,
    row,
    whole,
)

FORMAT = "difftest trace"
VERSION = 3

# -- what holds of several members at once ---------------------------------------------------------


def _check_axis(axis: int, shape: tuple[int, ...], where: str) -> None:
    if axis >= max(len(shape), 1):
        refuse(f"{where}.partition_axis", axis, f"an axis of the shape {list(shape)}")


def _check_allocation(tables: Tables, where: str, given: Any, fields: dict[str, Any]) -> None:
    shape, axis, number = fields["shape"], fields["partition_axis"], fields["id"]
    _check_axis(axis, shape, where)
    blocks = math.prod(shape[:axis])
    if "places" in given and len(fields["places"]) != blocks:
        refuse(f"{where}.places", given["places"], f"a list of {blocks}")
    if number in tables.numbers:
        refuse(f"{where}.id", number, "an id that no other allocation has")
    tables.numbers[number] = len(tables.numbers)


def _check_region(tables: Tables, where: str, given: Any, fields: dict[str, Any]) -> None:
    allocation, shape, view = fields["allocation"], fields["shape"], fields["view"]
    if fields["partition_axis"] is not None:
        _check_axis(fields["partition_axis"], shape, where)
    allocation.viewed |= view is not None
    dtype = allocation.dtype
    size = math.prod(allocation.shape) * dtype.itemsize // (view or dtype).itemsize
    pattern = Pattern(fields["offset"], shape, fields["strides"])
    if len(pattern.strides) != len(shape) or not pattern.fits(size):
        refuse(where, given, f"a stride for each size, and elements of {allocation}")


def _check_event(tables: Tables, where: str, given: Any, fields: dict[str, Any]) -> None:
    places, grid, number = fields["program"], tables.grid, fields["number"]
    if len(places) != len(grid) or any(p >= n for p, n in zip(places, grid, strict=True)):
        refuse(f"{where}.program", list(places), f"a place in the grid {list(grid)}")
    if number <= tables.last:
        refuse(f"{where}.number", number, f"more than {tables.last}, the one before")
    tables.last = number
    older = given.get("attributes", {}).get("value")
    if older is not None:
        fields["arguments"] = {"value": NUMBER.read(tables, older, f"{where}.attributes.value")}


# -- the form of each class ------------------------------------------------------------------------


def _known(tables: Tables, number: Any, where: str) -> Allocation:
    place = tables.numbers.get(_WHOLE.read(tables, number, where))
    if place is None:
        refuse(where, number, "the id of an allocation")
    one: Allocation = tables.entries["allocations"][place]
    return one


def _output(tables: Tables, value: Any, where: str) -> Output:
    return Output() if value == {} else _SOME.read(tables, value, where)


def _pair(*numbers: int) -> tuple[int, ...]:
    return numbers


_WHOLE, _NATURAL = whole(), whole(0)
_SIZES, _INDEX, _NUMBERS = each(whole(1)), each(_NATURAL), each(_WHOLE)
_LINE = entry("locations").or_else(None)
_PLACE = row(_pair, whole(0), whole(0))
_ALLOCATION = Form(lambda tables, one: one.id, _known)
_TURNS = each(row(Iteration, entry("loops"), whole(0), whole()), numbered=True).or_else(())
_SOME = record(Output, unwritten=whole(1), first=_INDEX)
_OUTPUT = Form(lambda tables, one: one._asdict() if one.unwritten else {}, _output)
_AXIS = Form(
    None,
    lambda tables, axis, where: None if axis is None else _NATURAL.read(tables, axis, where),
)
_BY_TYPE = {
    str | None: TEXT,
    bool: FLAG,
    tuple[int, ...] | None: _INDEX,
}
_KNOWN = record(
    Attributes,
    **{
        name: _BY_TYPE[kind].or_else(Attributes._field_defaults[name])
        for name, kind in get_type_hints(Attributes).items()
    },
)


def _attributes(tables: Tables, given: Any, where: str) -> Attributes:
    """Those of a trace from before ``arguments`` have the value of a memset too."""
    if isinstance(given, dict):
        given = {name: one for name, one in given.items() if name != "value"}
    read: Attributes = _KNOWN.read(tables, given, where)
    return read


def _event(arguments: dict[str, Any], **fields: Any) -> Event:
    return Event(**fields, told=Told(arguments))


_ATTRIBUTES = _KNOWN._replace(read=_attributes)
_REGION = record(
    Region,
    _check_region,
    allocation=_ALLOCATION,
    offset=whole(0),
    shape=_SIZES,
    strides=_NUMBERS,
    partition_axis=_AXIS.or_else(0),
    role=TEXT.or_else(""),
    whole=TRUTH.or_else(True),
    view=DTYPE.or_else(None),
)
_ORIGIN = record(
    Origin, allocation=_ALLOCATION, low=_INDEX, high=_SIZES, event=TEXT, location=_LINE
)
_SIGHT = record(
    Sight,
    what=member(Seen),
    role=TEXT,
    elements=whole(1),
    of=whole(1),
    first=_INDEX,
    value=NUMBER.or_else(None),
    origin=_ORIGIN.or_else(None),
)
_REGIONS = each(_REGION, numbered=True)

_HEAD = {
    "kernel": TEXT,
    "machine": TEXT,
    "grid": _SIZES,
    "cores": _INDEX,
    "dialect": TEXT,
    "divided": TRUTH,
}
_TABLES = {
    "files": TEXT,
    "locations": row(Location, entry("files"), whole(0)),
    "stacks": each(entry("locations")),
    "loops": record(Loop, id=whole(0), kind=member(LoopKind), location=_LINE),
    "allocations": record(
        Allocation,
        _check_allocation,
        id=whole(),
        name=TEXT.or_else(""),
        space=member(Space),
        shape=_SIZES,
        dtype=DTYPE,
        partition_axis=whole(0),
        address=_PLACE.or_else(None),
        places=each(_PLACE).or_else(()),
        location=_LINE,
        loops=_TURNS,
        output=_OUTPUT.or_else(None),
        first=whole(-1),
        last=whole(-1),
        reads=whole(-1),
        writes=whole(-1),
    ),
    "events": record(
        _event,
        _check_event,
        number=whole(0),
        opcode=TEXT,
        engine=member(Engine),
        stack=entry("stacks"),
        program=_INDEX.or_else(()),
        loops=_TURNS,
        writes=_REGIONS,
        reads=_REGIONS,
        attributes=_ATTRIBUTES.or_else(Attributes()),
        arguments=ARGUMENTS.or_else({}),
        seen=each(_SIGHT, numbered=True).or_else(()),
    ),
}
"""Each of them names entries of those before it."""
_FILLED = ("allocations", "events", "stacks", "loops", "locations", "files")
"""The order in which they are written: each fills those after it."""


# -- a whole trace ---------------------------------------------------------------------------------


def trace_to_json(trace: Trace) -> str:
    """The trace as a JSON text, with a line for each entry of a table and each event."""
    tables = Tables()
    rows = {}
    for name in _FILLED:
        values = getattr(trace, name) if hasattr(trace, name) else tables.places[name]
        write = _TABLES[name].write
        rows[name] = _lines(values if write is None else [write(tables, one) for one in values])
    head = {"format": FORMAT, "version": VERSION}
    head |= {name: getattr(trace, name) for name in _HEAD}
    parts = {name: _compact(value) for name, value in head.items()}
    parts |= {name: rows[name] for name in _TABLES}
    return "{" + ",\n".join(f'"{name}":{part}' for name, part in parts.items()) + "}\n"


def trace_from_json(text: str) -> Trace:
    """The trace that :func:`trace_to_json` wrote.

    Raises
    ------
    TraceFormatError : the text is no JSON, of another version, or breaks the form somewhere.
    """
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise TraceFormatError(f"not a trace: not JSON ({error})") from None
    _check_version(document)
    check_members(document, "the document", ("format", "version", *_HEAD, *_TABLES))
    tables, trace = Tables(), Trace()
    for name, form in _HEAD.items():
        setattr(trace, name, form.read(tables, document[name], name))
    tables.grid = trace.grid
    if len(trace.cores) not in (0, math.prod(trace.grid)):
        refuse("cores", list(trace.cores), "none, or one for each instance of the grid")
    for name, form in _TABLES.items():
        tables.entries[name] = [*each(form, numbered=True).read(tables, document[name], name)]
    trace.allocations, trace.events = tables.entries["allocations"], tables.entries["events"]
    return trace


def _no_constant(name: str) -> NoReturn:
    raise TraceFormatError(f"{name} is no number of JSON's")


def _check_version(document: object) -> None:
    """Before anything else: another version may have other members."""
    if not isinstance(document, dict):
        refuse("the document", document, "an object")
    if document.get("format") != FORMAT:
        refuse("format", document.get("format"), json.dumps(FORMAT))
    version = document.get("version")
    if version != VERSION or not isinstance(version, int) or isinstance(version, bool):
        refuse("version", version, f"{VERSION}; record the kernel again with this difftest")


def _lines(documents: Iterable[Any]) -> str:
    rows = [_compact(document) for document in documents]
    return "[\n" + ",\n".join(rows) + "]" if rows else "[]"


def _compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)
