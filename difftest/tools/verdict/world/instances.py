"""The guards of a candidate's questions for classes, and its class of texts."""

from __future__ import annotations

from typing import Any

from difftest.tools.verdict.world.calls import check_arguments, is_nki
from difftest.tools.verdict.world.held import (
    BOUND,
    CLASSES,
    HELD,
    SHOWN_AS,
    Facade,
    Kind,
    TypeFunction,
    kind_of,
)
from difftest.tools.verdict.world.refusal import (
    Absent,
    is_of_others,
    need,
    refusal,
    unavailable,
)
from difftest.tools.verdict.world.texts import Opaque, is_own_class, text_of


class _TextType(type):
    """The class of :data:`TEXT`, which candidates have as ``str``."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "object" in kwargs:
            args = (kwargs.pop("object"), *args)
        if len(args) == 1 and not kwargs:
            return text_of(args[0])
        check_arguments(cls, args, kwargs)
        if args and type(args[0]) is not bytes:
            raise TypeError("decoding to str: a bytes object is needed")
        return str(*args, **kwargs)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, (str, Opaque))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, str) or kind is cls

    def __repr__(cls) -> str:
        return "<class 'str'>"


class TEXT(metaclass=_TextType):
    """``str`` of a candidate: its calls return texts that may be opaque."""


CLASSES.add(TEXT)
HELD.add(_TextType)


def type_of(value: Any, *more: Any) -> Any:
    """Return the class of a value, or its Kind: the guard of ``type(value)``."""
    if more:
        return unavailable("type() of a new class", "write a class statement")
    kind = type(value)
    if kind in (str, Opaque):
        return TEXT
    if kind in SHOWN_AS:
        return SHOWN_AS[kind]
    if kind in (type, _TextType):
        return TYPE
    if kind in _FUNCTIONS:
        raise refusal("the type of a function", "use callable()", is_question=True)
    if kind is Absent:
        need(value)
    if kind in CLASSES or is_own_class(kind):
        return kind
    return kind_of(kind)


TYPE = TypeFunction("type", type_of)
"""``type`` of a candidate."""
_FUNCTIONS = (Facade, TypeFunction, *BOUND)
"""Types of functions: Python has others for functions that are guarded here."""


def is_instance(value: Any, kinds: Any) -> bool:
    """Return ``isinstance(value, kinds)``."""
    if type(value) is Absent:
        need(value)
    if type(value) is Opaque:
        return is_instance("", kinds)
    plain = plain_kinds(kinds)
    if type(value) in _FUNCTIONS and _has_kind(kinds):
        raise refusal("the type of a function", "use callable()", is_question=True)
    if is_nki(type(value)) and _has_protocol(plain):
        what = f"whether an object of NKI is {plain!r:.60}"
        raise refusal(what, "ask for a class of NKI", is_question=True)
    return isinstance(value, plain)


def _has_kind(kinds: Any) -> bool:
    """Return whether a class comes from ``type(value)``, and has no name."""
    if type(kinds) is tuple:
        return any(map(_has_kind, kinds))
    return type(kinds) is Kind


def _has_protocol(kinds: Any) -> bool:
    """Return whether a class asks for methods of an object, as ``collections.abc.Sized`` does."""
    if type(kinds) is tuple:
        return any(map(_has_protocol, kinds))
    return isinstance(kinds, type) and "__subclasshook__" in vars(kinds)


def plain_kinds(kinds: Any) -> Any:
    """Return the classes of the second argument of ``isinstance``."""
    if type(kinds) is tuple:
        return tuple(map(plain_kinds, kinds))
    if kinds is TEXT:
        return str
    if type(kinds) is TypeFunction:
        return type
    if type(kinds) is Kind:
        return kinds._type
    if type(kinds) is Absent:
        return () if is_of_others(kinds) else need(kinds)
    if isinstance(kinds, type) and getattr(kinds, "_is_protocol", False):
        raise refusal("a question for a protocol", "ask for a class of your own")
    return kinds
