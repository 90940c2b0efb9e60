"""Texts of a candidate's world.

A text that shows an object of NKI, an address or an error of Python would reveal where the kernel
runs. Such a text is opaque: it can be shown, joined, raised and given as ``name=``, and nothing can
be read from it.
"""

from __future__ import annotations

import dataclasses
import importlib
import string
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from difftest.tools.verdict.world.order import RunFrozenSet, RunSet
from difftest.tools.verdict.world.refusal import (
    INTERNAL,
    STATE,
    Absent,
    need,
    refusal,
)

OPAQUE = "the text of an object of NKI, of a function or of an error"
OPAQUE_REMEDY = "print it, raise it, or give it as name= only"


def opaque_refusal() -> BaseException:
    """Return the refusal of a question for an opaque text."""
    return refusal(OPAQUE, OPAQUE_REMEDY, is_question=True)


_TRANSPARENT = frozenset(
    (bool, int, float, complex, str, bytes, range, type(None), type(...))
)
"""Types whose texts say nothing but their values."""
_CONTAINERS = (tuple, list, set, frozenset, RunSet, RunFrozenSet)
_DEPTH = 8


class Opaque:
    """A text that can be shown, but not read."""

    __slots__ = ("shown",)

    def __init__(self, shown: str) -> None:
        self.shown = shown

    def __str__(self) -> str:
        return self.shown

    __repr__ = __str__

    def __add__(self, other: Any) -> Any:
        return joined(self, other)

    def __radd__(self, other: Any) -> Any:
        return joined(other, self)


def _refuse(self: Opaque, *args: object, **kwargs: object) -> NoReturn:
    raise opaque_refusal()


_ASKED = (
    *("eq", "ne", "lt", "le", "gt", "ge", "hash", "bool", "len", "iter", "next"),
    *("contains", "getitem", "int", "float", "index", "complex", "mul", "rmul", "mod"),
    *("rmod", "format", "bytes", "reversed", "copy", "deepcopy", "reduce_ex", "fspath"),
    *("array", "buffer", "length_hint", "round", "trunc", "floor", "ceil"),
)
for _word in _ASKED:
    setattr(Opaque, f"__{_word}__", _refuse)
Opaque.__name__ = Opaque.__qualname__ = f"{INTERNAL}text"
"""C functions name the type of a wrong argument: no source contains this name."""


def joined(*parts: Any) -> Any:
    """Return the concatenation of texts; it is opaque if a part is."""
    if any(type(part) is Opaque for part in parts):
        return Opaque("".join(map(str, parts)))
    return "".join(parts)


def has_opaque(value: Any, depth: int = 3) -> bool:
    """Return whether a value is an opaque text, or a container with one."""
    kind = type(value)
    if kind is Opaque:
        return True
    if not depth or kind not in (list, tuple, dict):
        return False
    items = value.values() if kind is dict else value
    return any(has_opaque(item, depth - 1) for item in items)


def marked(text: str, *, opaque: bool) -> Any:
    """Return a text, opaque or not."""
    return Opaque(text) if opaque else text


def is_transparent(value: Any, depth: int = 0) -> bool:
    """Return whether the text of a value says nothing but plain values."""
    kind = type(value)
    if kind in _TRANSPARENT or isinstance(value, np.generic):
        return True
    if isinstance(value, np.dtype):  # AWS's wider formats have other texts than NumPy's
        return value.type is not np.void
    if kind in _CONTAINERS and depth < _DEPTH:
        return all(is_transparent(item, depth + 1) for item in value)
    if kind is dict and depth < _DEPTH:
        return all(is_transparent(item, depth + 1) for item in value.items())
    return kind is np.ndarray


def text_of(value: Any, convert: Callable[[Any], str] = str) -> Any:
    """Return ``str(value)`` or ``repr(value)``, opaque where it would reveal too much."""
    kind = type(value)
    if kind is Opaque:
        return value
    if kind is Absent:
        need(value)
    is_own_message = isinstance(value, BaseException) and is_own_error(value)
    if is_own_message or is_transparent(value):
        return convert(value)
    if is_own_class(kind) and (own := _own_text(value, convert)) is not None:
        return own
    try:
        return Opaque(convert(value))
    except TypeError:  # an item's own __repr__ returns an opaque text
        return Opaque(f"<{kind.__name__}>")


def _own_text(value: Any, convert: Callable[[Any], str]) -> Any:
    """Return the text of the candidate's own ``__str__`` or ``__repr__``; None without one."""
    kind = type(value)
    if isinstance(value, Enum):
        return marked(convert(value), opaque=not is_transparent(value.value))
    for name in ("__str__", "__repr__")[convert is repr :]:
        method = getattr(kind, name)
        if is_own_function(method):
            return method(value)
    if hasattr(kind, SHOWS):
        return _dataclass_text(value)
    if issubclass(kind, tuple) and is_transparent(tuple(value)):
        return convert(value)
    return None


def _dataclass_text(value: Any) -> Any:
    parts: list[Any] = [type(value).__qualname__, "("]
    for number, field in enumerate(dataclasses.fields(value)):
        if field.repr:
            parts += [", " if number else "", field.name, "="]
            parts.append(text_of(getattr(value, field.name), repr))
    return joined(*parts, ")")


def is_own_error(error: BaseException) -> bool:
    """Return whether a candidate has made an error itself, of plain values only."""
    is_own = is_own_class(type(error)) or OWN in getattr(error, "__notes__", ())
    shown = [error.args, *(getattr(error, name, None) for name in _SHOWN)]
    return is_own and all(map(is_transparent, shown))


_SHOWN = ("errno", "strerror", "filename", "filename2")
"""Attributes that the text of an OSError has beside its arguments."""


def is_own_class(kind: type) -> bool:
    """Return whether a class is the candidate's own."""
    if OWN in kind.__dict__:
        return True
    return type(kind) in OWN_METACLASSES and kind not in SHARED_ENUMERATIONS


OWN_METACLASSES: set[type] = set()
"""The types of classes that are the candidate's own before their statement has ended."""
SHARED_ENUMERATIONS: set[type] = set()
"""The enumerations from which candidates derive."""
OWN = f"{INTERNAL}own"
"""The attribute that marks own classes; no source can spell it."""
SHOWS = f"{OWN}:shows"
"""The attribute of own dataclasses whose text has their fields."""


def is_own_function(value: Any) -> bool:
    """Return whether a value is a Python function of the candidate's files."""
    builtins = getattr(value, "__builtins__", None)
    return type(value) is FunctionType and builtins is STATE.builtins


def formatted(value: Any, conversion: int = -1, spec: Any = "") -> Any:
    """Return the text of a field of an f-string.

    Parameters
    ----------
    conversion : the number of the conversion in the syntax tree: -1 for none, else a character.
    spec : the text after the colon.
    """
    if conversion != -1:
        value = text_of(value, _CONVERSIONS[chr(conversion)])
    if type(spec) is Opaque:
        raise opaque_refusal()
    if type(value) is Opaque or not spec:
        return text_of(value)
    if _has_own_format(value) or is_transparent(value):
        return format(value, spec)
    text = text_of(value)
    if type(text) is Opaque:
        return Opaque(format(text.shown, spec) if _is_padding(spec) else text.shown)
    return format(text, spec)


def _has_own_format(value: Any) -> bool:
    """Return whether the candidate's own class formats a value."""
    is_member = isinstance(value, Enum) and is_own_class(type(value))
    if is_member and is_transparent(value.value):
        return True
    return is_own_function(getattr(type(value), "__format__", None))


def _is_padding(spec: str) -> bool:
    try:
        format("", spec)
    except ValueError:
        return False
    return True


def percent(left: Any, right: Any) -> Any:
    """Return ``left % right``: a text with values in it, or the remainder."""
    if isinstance(left, bytes) and not is_transparent(right):
        raise opaque_refusal()
    if not isinstance(left, str) or type(left).__mod__ is not str.__mod__:
        return left % right
    values = tuple(right) if isinstance(right, tuple) else (right,)
    if type(right) is dict:
        opaque = not all(map(is_transparent, right.values()))
        return marked(
            left % {name: _shown(item) for name, item in right.items()}, opaque=opaque
        )
    opaque = not all(map(is_transparent, values))
    shown = tuple(map(_shown, values))
    return marked(left % shown, opaque=opaque)


def _shown(value: Any) -> Any:
    """Return a value that C code may turn into a text: itself, or a plain text."""
    if is_transparent(value):
        return value
    text = text_of(value)
    return text.shown if type(text) is Opaque else text


_split: Any = importlib.import_module("_string").formatter_field_name_split
"""The C function with which :class:`string.Formatter` splits ``0.shape[1]``."""
_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


class _Formatter(string.Formatter):
    """``str.format`` by guards; it remembers whether a field is opaque."""

    def __init__(self, attribute: Callable[[Any, str], Any]) -> None:
        self.attribute = attribute
        self.is_opaque = False
        self._before: list[bool] = []
        """Of each field that is not formatted yet: whether an earlier field is opaque."""

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        self._before.append(self.is_opaque)
        self.is_opaque = False
        first, rest = _split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, name in rest:
            value = self.attribute(value, name) if is_attribute else value[name]
        return value, first

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion is None:
            return value
        return text_of(value, _CONVERSIONS[conversion])

    def format_field(self, value: Any, format_spec: str) -> str:
        if self.is_opaque:  # by a field within the specification
            raise opaque_refusal()
        text = formatted(value, -1, format_spec)
        self.is_opaque = self._before.pop() or type(text) is Opaque
        return str(text)


def format_text(
    attribute: Callable[[Any, str], Any],
    text: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Return ``text.format(*args, **kwargs)``."""
    formatter = _Formatter(attribute)
    shown = formatter.vformat(text, args, kwargs)
    return marked(shown, opaque=formatter.is_opaque)
