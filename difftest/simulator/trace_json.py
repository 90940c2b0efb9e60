"""Write a trace as JSON, and read it back. See docs/reference/trace-json.md.

The annotations of the trace's classes define the format: each field is a member, omitted at its
default. Source lines, stacks, loops, allocations and kinds of events are written once each, in
tables, and referenced by index. Input is checked. An error gives the place, the received value and
the accepted values. Other versions of the format are rejected, because their meaning is unknown.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import cache
from inspect import signature
from operator import attrgetter
from types import NoneType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NoReturn,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from difftest.simulator.dtypes import NKI_NAMES, dtype_name
from difftest.simulator.errors import Location
from difftest.simulator.pattern import Pattern
from difftest.simulator.trace import (
    Allocation,
    Event,
    EventKind,
    Iteration,
    Loop,
    Places,
    Region,
    Trace,
)

FORMAT = "difftest trace"
VERSION = 6
READABLE = (5, VERSION)
"""Versions that :func:`trace_from_json` reads.

In version 5, outputs lack ``returned``: an argument that the kernel only wrote to reads as one that
it returned. ``middle_end`` is missing, too: each classic kernel counts as transformed.
"""

TABLES: dict[str, Any] = {
    "locations": Location,
    "stacks": tuple[Location, ...],
    "loops": Loop,
    "allocations": Allocation,
    "kinds": EventKind,
    "events": Event,
}
"""The tables of a document. Each table refers to entries of earlier tables, and is written before
them, because writing it fills them.
"""
_TABLE_OF = {kind: name for name, kind in TABLES.items()}
HEAD = ("kernel", "machine", "grid", "cores", "dialect", "divided", "middle_end")
_ROWS = (Iteration, Location)
"""The classes that are written as lists."""
_NOT_FINITE = ("nan", "inf", "-inf")


class TraceFormatError(ValueError):
    """A text is not a trace of this version.

    It gives the place, the received and the accepted value.
    """


class _Refused(Exception):
    """A rejected value. The path to it is completed from the inside out."""

    def __init__(self, received: object, accepted: str, where: str = "") -> None:
        super().__init__(received, accepted)
        self.where = where

    def inside(self, step: str) -> _Refused:
        """Prepend a step to the path."""
        self.where = step + self.where
        return self

    def __str__(self) -> str:
        received, accepted = self.args
        shown = json.dumps(received)
        if len(shown) > 80:
            shown = shown[:77] + "..."
        where = self.where.lstrip(".") or "the document"
        return f"not a trace: {where}: received {shown}; accepted: {accepted}"


class _Document:
    """A document that is being written or read."""

    def __init__(self) -> None:
        self.places: defaultdict[str, dict[Any, int]] = defaultdict(dict)
        """For each table, the written values in order of their first reference."""
        self.entries: dict[str, list[Any]] = {}
        """For each table, the values that were read."""
        self.grid: tuple[int, ...] = ()
        self.ids: set[int] = set()
        self.last = -1
        """The number of the last event that was read."""


class Form(NamedTuple):
    """The functions that write and read a value of one type."""

    write: Callable[[_Document, Any], Any] | None
    """None if values are written unchanged."""
    read: Callable[[_Document, Any], Any]


# -- the form of a type ----------------------------------------------------------------------------


@cache
def _form(kind: Any, *, is_entry: bool = False) -> Form:
    """Return the form of an annotation's type, or of an entry of its table."""
    if kind in _TABLE_OF and not is_entry:
        return _entry(_TABLE_OF[kind])
    origin = get_origin(kind)
    parts = get_args(kind)
    if origin is Annotated:
        return _plain(int, f"a whole number from {parts[1]} on", parts[1])
    if origin is tuple:
        if parts[1] is ...:
            return _each(_form(parts[0]))
        return _row(tuple, parts)
    if NoneType in parts:
        return _or_none(_form(parts[0]))
    return _SIMPLE.get(origin or kind) or _form_of_class(kind)


def _or_none(form: Form) -> Form:
    """Return the form of a value that may also be None."""
    return Form(form.write, lambda at, raw: None if raw is None else form.read(at, raw))


def _form_of_class(kind: Any) -> Form:
    """Return the form of a class: of its members, or of its fields as a list or an object."""
    if issubclass(kind, Enum):
        return _named({member.value: member for member in kind}, attrgetter("value"))
    if kind in _ROWS:
        return _row(lambda values: kind(*values), _hints(kind).values())
    return _record(kind)


def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _entry(table: str) -> Form:
    """Return the form of a value that is written as its index in a table."""

    def write(document: _Document, value: Any) -> int:
        places = document.places[table]
        return places.setdefault(value, len(places))

    def read(document: _Document, place: Any) -> Any:
        entries = document.entries[table]
        if type(place) is not int or not 0 <= place < len(entries):
            raise _Refused(place, f"a place in a table of {len(entries)}")
        return entries[place]

    return Form(write, read)


def _plain(kind: type[Any], accepted: str, low: int | None = None) -> Form:
    """Return the form of one of JSON's own types; ``low`` is the least number."""

    def read(document: _Document, value: Any) -> Any:
        if type(value) is not kind or (low is not None and value < low):
            raise _Refused(value, accepted)
        return value

    return Form(None, read)


def _named(members: Mapping[str, Any], spell: Callable[[Any], str]) -> Form:
    """Return the form of a set of values that are written by name."""

    def read(document: _Document, value: Any) -> Any:
        if type(value) is not str or value not in members:
            raise _Refused(value, ", ".join(map(str, members)))
        return members[value]

    return Form(lambda document, value: spell(value), read)


def _list(value: Any, length: int | None = None) -> list[Any]:
    if type(value) is not list or length not in (None, len(value)):
        raise _Refused(value, "a list" + (f" of {length}" if length else ""))
    return value


def _each(form: Form) -> Form:
    """Return the form of a tuple of values of one form."""
    write, read_one = form

    def read(document: _Document, value: Any) -> tuple[Any, ...]:
        values: list[Any] = []
        try:
            for item in _list(value):
                values.append(read_one(document, item))
        except _Refused as error:
            raise error.inside(
                f"[{len(values)}]" if type(value) is list else ""
            ) from None
        return tuple(values)

    if write is None:
        return Form(None, read)
    return Form(
        lambda document, values: [write(document, item) for item in values], read
    )


def _row(make: Callable[[Any], Any], kinds: Iterable[Any]) -> Form:
    """Return the form of a tuple whose values have a type each."""
    forms = [_form(kind) for kind in kinds]

    def read(document: _Document, value: Any) -> Any:
        pairs = zip(forms, _list(value, len(forms)), strict=True)
        return make([form.read(document, item) for form, item in pairs])

    def write(document: _Document, values: Any) -> list[Any]:
        return [
            item if form.write is None else form.write(document, item)
            for form, item in zip(forms, values, strict=True)
        ]

    return Form(write, read)


def _check_members(
    value: Any, names: Collection[str], optional: Collection[str] = ()
) -> None:
    """Raise unless ``value`` is an object with these members; it may lack optional ones."""
    if type(value) is not dict:
        raise _Refused(value, "an object")
    for name in names:
        if name not in value and name not in optional:
            raise _Refused(sorted(value), f"a member {name!r}")
    for name in value:
        if name not in names:
            raise _Refused(name, ", ".join(names))


def _record(kind: Any) -> Form:
    """Return the form of an object with a member for each field of a class.

    A check of the class sees all fields.
    """
    hints = _hints(kind)
    forms = {}
    defaults = {}
    for name, parameter in signature(kind).parameters.items():
        parts = get_args(hints[name])
        if Places in parts:
            continue
        forms[name] = _form(hints[name])
        if parameter.default is not parameter.empty:
            defaults[name] = parameter.default
        elif NoneType in parts:
            defaults[name] = None
    check = _CHECKS.get(kind)
    write = _record_writer(forms, defaults)

    def read(document: _Document, value: Any) -> Any:
        _check_members(value, forms, defaults)
        fields = defaults.copy()
        name = ""
        try:
            for name, member in value.items():
                fields[name] = forms[name].read(document, member)
        except _Refused as error:
            raise error.inside(f".{name}") from None
        if check is not None:
            check(document, value, fields)
        return kind(**fields)

    return Form(write, read)


def _record_writer(
    forms: Mapping[str, Form], defaults: Mapping[str, Any]
) -> Callable[[_Document, Any], dict[str, Any]]:
    """Return a function that writes an object without the members that have their defaults."""
    no_default = object()
    members = [
        (name, form.write, defaults.get(name, no_default))
        for name, form in forms.items()
    ]
    fetch = attrgetter(*forms)

    def write(document: _Document, record: Any) -> dict[str, Any]:
        written = {}
        for (name, form, default), value in zip(members, fetch(record), strict=True):
            if value is default or (default is not None and value == default):
                continue
            written[name] = value if form is None else form(document, value)
        return written

    return write


# -- values outside the trace's classes ------------------------------------------------------------


def _number(document: _Document, value: Any) -> float:
    if type(value) not in (int, float) and value not in _NOT_FINITE:
        raise _Refused(value, f"a number, or one of {', '.join(_NOT_FINITE)}")
    return float(value)


def _write_argument(document: _Document, value: Any) -> Any:
    """Return the JSON form of an argument of an instruction."""
    if isinstance(value, Pattern):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: _write_argument(document, item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_write_argument(document, item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _argument(document: _Document, value: Any) -> Any:
    """Read a text, a number, a list of these, or a pattern."""
    if type(value) is list:
        return tuple(_argument(document, item) for item in value)
    if type(value) is dict:
        return _form(Pattern).read(document, value)
    if value in _NOT_FINITE:
        return float(value)
    return value


def _options(document: _Document, value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _Refused(value, "an object")
    return {name: _argument(document, item) for name, item in value.items()}


_SIMPLE: dict[Any, Form] = {
    int: _plain(int, "a whole number"),
    str: _plain(str, "a text"),
    bool: _plain(bool, "true or false"),
    float: Form(_write_argument, _number),
    np.dtype: _named(dict(sorted(NKI_NAMES.items())), dtype_name),
    Mapping: Form(_write_argument, _options),
    Any: Form(_write_argument, _argument),
}

# -- checks of several members ---------------------------------------------------------------------


def _check_axis(axis: int, shape: tuple[int, ...]) -> None:
    if axis >= max(len(shape), 1):
        raise _Refused(axis, f"an axis of the shape {list(shape)}", ".partition_axis")


def _check_allocation(document: _Document, entry: Any, fields: dict[str, Any]) -> None:
    """Raise unless the members of an allocation fit each other."""
    shape = fields["shape"]
    axis = fields["partition_axis"]
    number = fields["id"]
    _check_axis(axis, shape)
    blocks = math.prod(shape[:axis])
    if "places" in entry and len(fields["places"]) != blocks:
        raise _Refused(entry["places"], f"a list of {blocks}", ".places")
    if number in document.ids:
        raise _Refused(number, "an id that no other allocation has", ".id")
    document.ids.add(number)


def _check_region(document: _Document, entry: Any, fields: dict[str, Any]) -> None:
    """Raise unless a region is inside its tensor."""
    allocation = fields["allocation"]
    shape = fields["shape"]
    dtype = fields["view"]
    if fields["partition_axis"] is not None:
        _check_axis(fields["partition_axis"], shape)
    size = math.prod(allocation.shape)
    if dtype is not None:
        size = size * allocation.dtype.itemsize // dtype.itemsize
    pattern = Pattern(fields["offset"], shape, fields["strides"])
    if len(pattern.strides) != len(shape) or not pattern.fits(size):
        raise _Refused(entry, f"a stride for each size, and elements of {allocation}")


def _check_event(document: _Document, entry: Any, fields: dict[str, Any]) -> None:
    """Raise unless the members of an event fit each other and the grid."""
    places = fields["program"]
    grid = document.grid
    number = fields["number"]
    if len(places) != len(grid) or any(
        p >= n for p, n in zip(places, grid, strict=True)
    ):
        raise _Refused(list(places), f"a place in the grid {list(grid)}", ".program")
    if number <= document.last:
        raise _Refused(number, f"more than {document.last}, the one before", ".number")
    document.last = number
    names = fields["kind"].numbers
    if len(fields["numbers"]) != len(names):
        raise _Refused(entry.get("numbers", []), f"a list of {len(names)}", ".numbers")


_CHECKS: dict[Any, Callable[[_Document, Any, dict[str, Any]], None]] = {
    Allocation: _check_allocation,
    Region: _check_region,
    Event: _check_event,
}

# -- a whole trace ---------------------------------------------------------------------------------

_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def trace_to_json(trace: Trace) -> str:
    """Return the trace as a JSON text, with a line for each table entry and each event."""
    document = _Document()
    document.places["allocations"] = {a: at for at, a in enumerate(trace.allocations)}
    rows = {}
    for name, kind in reversed(TABLES.items()):
        write = _form(kind, is_entry=True).write
        assert write is not None
        values = trace.events if kind is Event else document.places[name]
        entries = ",\n".join(_compact(write(document, value)) for value in values)
        rows[name] = f"[\n{entries}]" if entries else "[]"
    head = {"format": FORMAT, "version": VERSION}
    head |= {name: getattr(trace, name) for name in HEAD}
    parts = {name: _compact(value) for name, value in head.items()}
    parts |= {name: rows[name] for name in TABLES}
    return "{" + ",\n".join(f'"{name}":{part}' for name, part in parts.items()) + "}\n"


def trace_from_json(text: str) -> Trace:
    """Return the trace that :func:`trace_to_json` wrote, now or in a version of :data:`READABLE`.

    Raises
    ------
    TraceFormatError : the text is not JSON, has an unreadable version, or breaks the format.
    """
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise TraceFormatError(f"not a trace: not JSON ({error})") from None
    try:
        return _trace(data)
    except _Refused as error:
        raise TraceFormatError(str(error)) from None


def _trace(data: Any) -> Trace:
    """Return the trace of a document; raise if a member has another form."""
    _check_version(data)
    if data["version"] < VERSION:
        data = {"middle_end": data.get("dialect") == "classic", **data}
    members = ("format", "version", *HEAD, *TABLES)
    _check_members(data, members)
    document = _Document()
    trace = Trace()
    hints = _hints(Trace)
    name = ""
    try:
        for name in HEAD:
            setattr(trace, name, _form(hints[name]).read(document, data[name]))
        document.grid = trace.grid
        if len(trace.cores) not in (0, math.prod(trace.grid)):
            name = "cores"
            raise _Refused(data[name], "none, or one for each instance of the grid")
        for name, kind in TABLES.items():
            entries = _each(_form(kind, is_entry=True)).read(document, data[name])
            document.entries[name] = list(entries)
    except _Refused as error:
        raise error.inside(name) from None
    trace.allocations = document.entries["allocations"]
    trace.events = document.entries["events"]
    return trace


def _check_version(data: Any) -> None:
    """Check the version first: another version may have other members."""
    if type(data) is not dict:
        raise _Refused(data, "an object")
    if data.get("format") != FORMAT:
        raise _Refused(data.get("format"), json.dumps(FORMAT), "format")
    version = data.get("version")
    if version not in READABLE or type(version) is not int:
        again = "record the kernel again with this difftest"
        accepted = " or ".join(map(str, READABLE))
        raise _Refused(version, f"{accepted}; {again}", "version")


def _no_constant(name: str) -> NoReturn:
    raise TraceFormatError(f"{name} is not a number of JSON")
