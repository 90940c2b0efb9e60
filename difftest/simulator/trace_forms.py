"""How a value is written as JSON, and read back: one form for both ways.

What is read is checked as it is: the error says where it stands, what was received, what is
accepted.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection
from enum import Enum
from typing import Any, NamedTuple, NoReturn

from difftest.simulator.dtypes import NKI_NAMES, name_of
from difftest.simulator.pattern import Pattern

_NOT_FINITE = ("nan", "inf", "-inf")
_NEEDED: Any = object()


class TraceFormatError(ValueError):
    """A text is no trace of this version: where in it, what was received, what is accepted."""


class Tables:
    """What a document has once, and names by its place elsewhere."""

    def __init__(self) -> None:
        self.places: defaultdict[str, dict[Any, int]] = defaultdict(dict)
        """By table the values that are written, in the order in which they were first named."""
        self.entries: dict[str, list[Any]] = {}
        """By table the values that were read."""
        self.numbers: dict[int, int] = {}
        """By an allocation's id its place among them."""
        self.grid: tuple[int, ...] = ()
        self.last = -1
        """The number of the event that was read last."""


class Form(NamedTuple):
    """How a value is written, and read from where it stands; left out if it is the default."""

    write: Callable[[Tables, Any], Any] | None
    """None of what is written as it is."""
    read: Callable[[Tables, Any, str], Any]
    default: Any = _NEEDED

    def or_else(self, default: Any) -> Form:
        """The form of what is left out where it has its default."""
        return self._replace(default=default)


def refuse(where: str, received: object, accepted: str) -> NoReturn:
    """Raise the error for what stands somewhere."""
    shown = json.dumps(received)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    raise TraceFormatError(f"not a trace: {where}: received {shown}; accepted: {accepted}")


def check_members(
    value: object, where: str, needed: Collection[str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """An object that has what it needs, and nothing that nobody knows."""
    if not isinstance(value, dict):
        refuse(where, value, "an object")
    for name in needed:
        if name not in value:
            refuse(where, sorted(value), f"a member {name!r}")
    for name in value:
        if name not in needed and name not in optional:
            refuse(where, name, ", ".join((*needed, *optional)))
    return value


def plain(kind: type, accepted: str, low: int | None = None) -> Form:
    """A value of one of JSON's own kinds; ``low`` is the least whole number."""

    def read(tables: Tables, value: Any, where: str) -> Any:
        fits = isinstance(value, kind) and isinstance(value, bool) is (kind is bool)
        if not fits or (low is not None and value < low):
            refuse(where, value, accepted + ("" if low is None else f" from {low} on"))
        return value

    return Form(None, read)


def whole(low: int | None = None) -> Form:
    """A whole number, not below ``low``."""
    return plain(int, "a whole number", low)


TEXT = plain(str, "a text")
TRUTH = plain(bool, "true or false")


def _flag(tables: Tables, value: Any, where: str) -> bool:
    return True if value is True else refuse(where, value, "true, or nothing")


def _number(tables: Tables, value: Any, where: str) -> float:
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or value in _NOT_FINITE):
        refuse(where, value, f"a number, or one of {', '.join(_NOT_FINITE)}")
    return float(value)


def _dtype(tables: Tables, value: Any, where: str) -> Any:
    if not isinstance(value, str) or value not in NKI_NAMES:
        refuse(where, value, ", ".join(sorted(NKI_NAMES)))
    return NKI_NAMES[value]


FLAG = Form(None, _flag)
NUMBER = Form(lambda tables, value: value if math.isfinite(value) else repr(value), _number)
"""JSON has no name for some: those are texts."""
DTYPE = Form(lambda tables, value: name_of(value), _dtype)
_PATTERN = ("offset", "shape", "strides")


def _write_argument(tables: Tables, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _write_argument(tables, one) for name, one in value.items()}
    if isinstance(value, Pattern):
        return _write_argument(tables, value._asdict())
    if isinstance(value, tuple):
        return [_write_argument(tables, one) for one in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _argument(tables: Tables, value: Any, where: str) -> Any:
    if isinstance(value, list):
        return tuple(_argument(tables, one, where) for one in value)
    if isinstance(value, dict):
        check_members(value, where, _PATTERN)
        integers = each(whole())
        shape, strides = (integers.read(tables, value[name], where) for name in _PATTERN[1:])
        return Pattern(whole().read(tables, value["offset"], where), shape, strides)
    return float(value) if value in _NOT_FINITE else value


def _arguments(tables: Tables, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        refuse(where, value, "an object")
    return {name: _argument(tables, one, f"{where}.{name}") for name, one in value.items()}


ARGUMENTS = Form(_write_argument, _arguments)
"""Texts, numbers, lists of such, and patterns, by name."""


def member(kind: type[Enum]) -> Form:
    """A member of an enumeration, by its value."""
    known = {one.value: one for one in kind}

    def read(tables: Tables, value: Any, where: str) -> Any:
        if not isinstance(value, str) or value not in known:
            refuse(where, value, ", ".join(map(str, known)))
        return known[value]

    return Form(lambda tables, one: one.value, read)


def _list(value: object, where: str, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or length not in (None, len(value)):
        refuse(where, value, "a list" + (f" of {length}" if length else ""))
    return value


def each(form: Form, *, numbered: bool = False) -> Form:
    """A tuple of values of one form; ``numbered`` if an error says which."""

    def read(tables: Tables, value: Any, where: str) -> tuple[Any, ...]:
        return tuple(
            form.read(tables, one, f"{where}[{number}]" if numbered else where)
            for number, one in enumerate(_list(value, where))
        )

    write = form.write
    if write is None:
        return Form(None, read)
    return Form(lambda tables, values: [write(tables, one) for one in values], read)


def row(make: Callable[..., Any], *forms: Form) -> Form:
    """A tuple that has a form for each of its values, such as a NamedTuple."""

    def read(tables: Tables, value: Any, where: str) -> Any:
        parts = zip(forms, _list(value, where, len(forms)), strict=True)
        return make(*[form.read(tables, one, where) for form, one in parts])

    def write(tables: Tables, values: Any) -> list[Any]:
        return [
            one if form.write is None else form.write(tables, one)
            for form, one in zip(forms, values, strict=True)
        ]

    return Form(write, read)


def entry(name: str) -> Form:
    """A value by its place in a table."""

    def write(tables: Tables, value: Any) -> int:
        places = tables.places[name]
        return places.setdefault(value, len(places))

    def read(tables: Tables, place: Any, where: str) -> Any:
        table = tables.entries[name]
        if not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < len(table):
            refuse(where, place, f"a place in a table of {len(table)}")
        return table[place]

    return Form(write, read)


Check = Callable[[Tables, str, dict[str, Any], dict[str, Any]], Any]
"""Of the fields of a record that is read at some place, and of what stands there."""


def record(make: Callable[..., Any], check: Check | None = None, /, **forms: Form) -> Form:
    """An object with a member for each of these fields; ``check`` looks at all of them."""
    needed = [name for name, form in forms.items() if form.default is _NEEDED]
    defaults = {name: form.default for name, form in forms.items() if name not in needed}
    ways = [(name, form.write, form.default) for name, form in forms.items()]

    def write(tables: Tables, one: Any) -> dict[str, Any]:
        document = {}
        for name, form, default in ways:
            value = getattr(one, name)
            told = default is _NEEDED or default is None or value != default
            if told and value is not default:
                document[name] = value if form is None else form(tables, value)
        return document

    def read(tables: Tables, value: Any, where: str) -> Any:
        given = check_members(value, where, needed, defaults)
        fields = defaults.copy()
        for name, one in given.items():
            fields[name] = forms[name].read(tables, one, f"{where}.{name}")
        if check is not None:
            check(tables, where, given, fields)
        return make(**fields)

    return Form(write, read)
