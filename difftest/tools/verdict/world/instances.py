"""The guards of a candidate's questions for classes, and its class of texts."""

from __future__ import annotations

from typing import Any

from difftest.tools.verdict.world.calls import check_arguments, is_nki
from difftest.tools.verdict.world.held import CLASSES, HELD, Kind, TypeFunction, kind_of
from difftest.tools.verdict.world.refusal import Absent, need, refusal
from difftest.tools.verdict.world.texts import Opaque, is_own_class, text_of


class _TextType(type):
    """The class of :data:`TEXT`, which candidates have as ``str``."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs:
            return text_of(args[0])
        check_arguments(cls, args, kwargs)
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


def type_of(value: Any) -> Any:
    """Return the class of a value, or its Kind: the guard of ``type(value)``."""
    kind = type(value)
    if kind in (str, Opaque):
        return TEXT
    if kind in CLASSES or is_own_class(kind):
        return kind
    return kind_of(kind)


def is_instance(value: Any, kinds: Any) -> bool:
    """Return ``isinstance(value, kinds)``."""
    if type(value) is Absent:
        need(value)
    if type(value) is Opaque:
        return is_instance("", kinds)
    plain = plain_kinds(kinds)
    if is_nki(type(value)) and _has_protocol(plain):
        what = f"whether an object of NKI is {plain!r:.60}"
        raise refusal(what, "ask for a class of NKI", is_question=True)
    return isinstance(value, plain)


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
        return ()
    if isinstance(kinds, type) and getattr(kinds, "_is_protocol", False):
        raise refusal("a question for a protocol", "ask for a class of your own")
    return kinds
