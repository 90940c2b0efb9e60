"""Write a tape as JSON for another process, and read it back. See docs/reference/tape.md.

Values other than numbers, texts and lists are objects with one member, which names their kind. The
input may come from an untrusted process: each kind is checked, and nothing is run or imported.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from difftest.simulator.dtypes import NKI_NAMES, Array, dtype_name
from difftest.simulator.errors import Location
from difftest.simulator.indexing import Axis
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.pattern import Pattern
from difftest.simulator.tape import Tape, TapedCall, TapedForm, TapedParameter, TileForm
from difftest.simulator.trace import Engine, Iteration, Loop, LoopKind, Space

FORMAT = "difftest tape"
VERSION = 4
MOST_BYTES = 2**25
"""The limit on the bytes of a tape."""
MOST_ITEMS = 6_000_000
"""The limit on the lists, objects and their members in a tape; some 80 of them are a call."""
MOST_DEPTH = 64
"""The limit on the nesting depth of lists and objects in a tape."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_KINDS = (TapedForm, TileForm, Axis, Iteration, Location, Loop, Pattern, TapedParameter)
_ROWS: dict[str, tuple[Any, Any]] = {
    kind.__name__: (kind, tuple[tuple(get_type_hints(kind).values())])  # type: ignore[misc]
    for kind in _KINDS
}
"""Named tuples, which are written as lists under the name of their class."""
_ENUMS = {kind.__name__: kind for kind in (Accumulate, Engine, LoopKind, Space)}
_HEAD = (
    "kernel",
    "dialect",
    "machine",
    "level",
    "grid",
    "divided",
    "auto_alloc",
    "middle_end",
    "by_reference",
)
_BODY = ("parameters", "inputs", "returned")
_NUMBERS = {kind.__name__: kind for kind in np.sctypeDict.values()} | {
    np.dtype(dtype).type.__name__: np.dtype(dtype).type for dtype in NKI_NAMES.values()
}


class TapeFormatError(ValueError):
    """A text is not a tape of this version, or exceeds its limits.

    The error gives the received and the accepted value.
    """

    def __init__(self, received: object, accepted: str) -> None:
        super().__init__(f"not a tape: received {received!r:.80}; accepted: {accepted}")


# -- writing ---------------------------------------------------------------------------------------


def tape_to_json(tape: Tape) -> str:
    """Return the tape as a JSON text, with a line for each call."""
    stacks: dict[Any, int] = {}
    loops: dict[Any, int] = {}
    steps = []
    for step in tape.steps:
        row = [
            step.call,
            _write(step.args),
            _write(step.kwargs),
            step.made,
            stacks.setdefault(step.stack, len(stacks)),
            loops.setdefault(step.loops, len(loops)),
            step.program,
        ]
        steps.append(row)
    head = {"format": FORMAT, "version": VERSION}
    parts = {**head, **{name: _write(getattr(tape, name)) for name in _HEAD + _BODY}}
    parts |= {"stacks": _write(tuple(stacks)), "loops": _write(tuple(loops))}
    text = ",\n".join(f'"{name}":{_compact(part)}' for name, part in parts.items())
    return "{" + text + ',\n"steps":[\n' + ",\n".join(map(_compact, steps)) + "]}\n"


_compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _write(value: Any) -> Any:
    """Return a value in its JSON form."""
    kind: type = type(value)
    return _writer_of(kind)(value)


@cache
def _writer_of(kind: type) -> Callable[[Any], Any]:
    """Return the function that writes the values of a class."""
    if kind in (NoneType, bool, int, str):
        return _write_itself
    if kind is float:
        return _write_float
    if kind is tuple:
        return _write_items
    for written, write in _WRITERS.items():
        if issubclass(kind, written):
            return write
    assert issubclass(kind, np.ndarray), kind
    return _write_array


def _write_itself(value: Any) -> Any:
    return value


def _write_float(value: float) -> Any:
    if math.isfinite(value):
        return value
    return {"float": repr(value)}


def _write_items(items: tuple[Any, ...]) -> list[Any]:
    return [_write(item) for item in items]


def _write_row(value: Any) -> dict[str, Any]:
    return {type(value).__name__: list(map(_write, value))}


def _write_array(value: Array) -> dict[str, Any]:
    if value.dtype == np.bool_:
        return {"bits": [list(value.shape), _text(np.packbits(value))]}
    return {"array": [dtype_name(value.dtype), list(value.shape), _text(value)]}


_WRITERS: dict[Any, Callable[[Any], dict[str, Any]]] = {
    Location: lambda line: {"Location": list(line)},  # also a helper's line
    _KINDS: _write_row,
    dict: lambda members: {"dict": [list(map(_write, row)) for row in members.items()]},
    np.dtype: lambda dtype: {"dtype": dtype_name(dtype)},
    Enum: lambda member: {type(member).__name__: member.name},
    np.generic: lambda one: {"number": [type(one).__name__, _write(one.item())]},
}
"""By class, the functions that write a value as an object with one member. Arrays come last."""


def _text(array: Array) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


# -- reading ---------------------------------------------------------------------------------------


def tape_from_json(text: str) -> Tape:
    """Return the tape that :func:`tape_to_json` wrote.

    Raises
    ------
    TapeFormatError : the text is not JSON, has another version, breaks the format, or exceeds its
        limits.
    """
    check_bounds(text)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TapeFormatError(f"{error}", "JSON") from None
    if type(data) is not dict or data.get("format") != FORMAT:
        raise TapeFormatError(data, f"an object whose format is {FORMAT!r}")
    if data.get("version") != VERSION:
        raise TapeFormatError(data.get("version"), f"version {VERSION}")
    names = ("format", "version", *_HEAD, *_BODY, "stacks", "loops", "steps")
    if data.keys() != set(names):
        raise TapeFormatError(sorted(data), f"the members {', '.join(names)}")
    try:
        return _tape(data)
    except RecursionError:
        raise TapeFormatError(
            "lists nested without an end", "the values of a launch"
        ) from None


def check_size(text: str) -> None:
    """Raise TapeFormatError if a text has more bytes or items than a tape; do not parse it."""
    if len(text) > MOST_BYTES:
        raise TapeFormatError(f"{len(text):,} bytes", f"at most {MOST_BYTES:,}")
    items = sum(map(text.count, "[{,"))
    if items > MOST_ITEMS:
        raise TapeFormatError(f"{items:,} items", f"at most {MOST_ITEMS:,}")


def check_bounds(text: str) -> None:
    """Raise TapeFormatError if a text exceeds the limits of a tape; do not parse it."""
    check_size(text)
    letters = np.frombuffer(_STRING.sub("", text).encode(), np.uint8)
    depth = np.max(np.cumsum(_STEPS[letters], dtype=np.int32), initial=0)
    if depth > MOST_DEPTH:
        raise TapeFormatError(f"a depth of {depth:,}", f"at most {MOST_DEPTH}")


_STEPS = np.zeros(256, np.int8)
"""The change of the nesting depth by each byte outside of texts."""
_STEPS[[*b"[{"]] = 1
_STEPS[[*b"]}"]] = -1


def _tape(data: dict[str, Any]) -> Tape:
    """Return the tape of a document; raise if a member has another form."""
    hints = get_type_hints(Tape)
    tape = Tape(
        **{name: _need(_read(data[name]), hints[name]) for name in _HEAD + _BODY}
    )
    stacks = _need(_read(data["stacks"]), tuple[tuple[Location, ...], ...])
    loops = _need(_read(data["loops"]), tuple[tuple[Iteration, ...], ...])
    form = (
        f"[call, args, kwargs, made, one of {len(stacks)} stacks, "
        f"of {len(loops)} loops, program]"
    )
    for row in _need(data["steps"], list):
        if type(row) is not list or len(row) != len(TapedCall._fields):
            raise TapeFormatError(row, form)
        call, args, kwargs, made, stack, around, program = row
        if not (_is_number_in(stacks, stack) and _is_number_in(loops, around)):
            raise TapeFormatError(row, form)
        step = TapedCall(
            call=call,
            args=_read(args),
            kwargs=_read(kwargs),
            made=made,
            stack=stacks[stack],
            loops=loops[around],
            program=_read(program),
        )
        for value, hint in zip(step, _STEP, strict=True):
            _need(value, hint)
        tape.steps.append(step)
    return tape


_STEP = tuple(get_type_hints(TapedCall).values())


def _is_number_in(items: tuple[Any, ...], number: Any) -> bool:
    """Return whether a value is the number of one of the items."""
    return type(number) is int and 0 <= number < len(items)


def _need(value: Any, hint: Any) -> Any:
    if not _is(hint)(value):
        raise TapeFormatError(value, f"{hint}")
    return value


@cache
def _is(hint: Any) -> Callable[[Any], bool]:
    """Return a function that checks whether a value has an annotation's type."""
    origin = get_origin(hint) or hint
    if hint is Any:
        return lambda value: True
    if origin is np.dtype:
        return lambda value: isinstance(value, np.dtype)
    if origin in _GENERIC:
        return _GENERIC[origin](*get_args(hint))
    kind = NoneType if hint is None else hint
    return lambda value: type(value) is kind


def _is_any_of(*hints: Any) -> Callable[[Any], bool]:
    checks = list(map(_is, hints))
    return lambda value: any(is_it(value) for is_it in checks)


def _is_dict_of(key: Any, member: Any) -> Callable[[Any], bool]:
    is_key = _is(key)
    is_member = _is(member)

    def is_it(value: Any) -> bool:
        return (
            type(value) is dict
            and all(map(is_key, value))
            and all(map(is_member, value.values()))
        )

    return is_it


def _is_tuple_of(*hints: Any) -> Callable[[Any], bool]:
    if hints[1:] == (...,):
        each = _is(hints[0])
        return lambda value: type(value) is tuple and all(map(each, value))
    checks = list(map(_is, hints))

    def is_it(value: Any) -> bool:
        if type(value) is not tuple or len(value) != len(checks):
            return False
        return all(check(item) for check, item in zip(checks, value, strict=True))

    return is_it


_GENERIC: dict[Any, Callable[..., Callable[[Any], bool]]] = {
    Union: _is_any_of,
    UnionType: _is_any_of,
    dict: _is_dict_of,
    tuple: _is_tuple_of,
}
"""By origin, the functions that make the check of a generic type from its parameters."""


def _read(value: Any) -> Any:
    """Return the value of a JSON form."""
    kind = type(value)
    if kind is list:
        return tuple([_read(item) for item in value])
    if kind is not dict:
        return value
    if len(value) != 1:
        raise TapeFormatError(value, "an object with one member, which names its kind")
    ((name, held),) = value.items()
    if name in _ROWS:
        make, hints = _ROWS[name]
        fields = _read(held)
        if not _is(hints)(fields):
            raise TapeFormatError(value, f"{name} of {', '.join(make._fields)}")
        return make(*fields)
    reader = _READERS.get(name)
    if reader is None:
        raise TapeFormatError(name, f"a kind: {', '.join((*_ROWS, *_READERS))}")
    try:
        return reader(held)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, TapeFormatError):
            raise
        raise TapeFormatError(value, f"{name}: {error}") from None


def _named(name: Any, table: Any) -> Any:
    if type(name) is not str or name not in table:
        raise TapeFormatError(name, ", ".join(map(str, table)))
    return table[name]


def _number(held: Any) -> Any:
    name = held[0]
    value = _read(held[1])
    if type(value) not in (bool, int, float):
        raise TapeFormatError(value, "a number")
    return _named(name, _NUMBERS)(value)


def _bits(held: Any) -> Array:
    shape, text = held
    count = math.prod(_need(_read(shape), tuple[int, ...]))
    bits = np.unpackbits(np.frombuffer(base64.b64decode(text, validate=True), np.uint8))
    if not 0 <= count <= bits.size < count + 8:
        raise TapeFormatError(held, "a bit for each element")
    return bits[:count].astype(np.bool_).reshape(shape)


def _array(held: Any) -> Array:
    dtype, shape, text = held
    data = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    sizes = _need(_read(shape), tuple[int, ...])
    return np.array(data.view(_named(dtype, NKI_NAMES)).reshape(sizes))


_READERS: dict[str, Callable[[Any], Any]] = {
    **{name: partial(_named, table=kind.__members__) for name, kind in _ENUMS.items()},
    "float": lambda text: _named(
        text, {word: float(word) for word in ("nan", "inf", "-inf")}
    ),
    "number": _number,
    "dict": lambda held: {_read(name): _read(item) for name, item in held},
    "dtype": lambda name: _named(name, NKI_NAMES),
    "bits": _bits,
    "array": _array,
}
