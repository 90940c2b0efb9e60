"""Copies of the objects of a kernel's author, made without a call of the author's hooks.

``stub_for`` makes the parts of a copy from the parts of the object. Each function notes a copy in
``copies``, under the ``id`` of the object, before the copy is whole: an object may contain itself.
"""

from __future__ import annotations

import abc
import ast
import builtins
import contextlib
import enum
import functools
import itertools
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from difftest.support.source_lines import parsed_file

StubFor = Callable[[Any], Any]

DRY = "<dry run>"
"""The prefix of a copied function's file name. Debuggers and coverage tools ignore such files."""
_WRITTEN = 1 << 9
"""The flag of a class that is written in Python."""
_WHOLE = (bool, bytes, complex, float, int, str)
_LEFT_OUT = {"__slots__", "__init_subclass__", "__del__", "_abc_impl"}
"""Attributes of a class that its copy lacks."""
MOST_KEYS = 64
"""The most keys of a table that are compared."""
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def copy_builtin(value: Any, stub_for: StubFor, copies: dict[int, Any]) -> Any:
    """Return a copy of an object of a class of Python's, made as pickle makes it."""
    recipe = value.__reduce_ex__(4)
    if isinstance(recipe, str):  # the name of a function of a module
        return value
    make, args, state, items, pairs = (*recipe, None, None, None)[:5]
    copy = make(*map(stub_for, args))
    copies[id(value)] = value, copy
    if state is not None:
        copied = stub_for(state)
        if hasattr(copy, "__setstate__"):
            copy.__setstate__(copied)
        else:
            vars(copy).update(copied)
    for item in items or ():
        copy.append(stub_for(item))
    for key, item in pairs or ():
        copy[stub_for(key)] = stub_for(item)
    return copy


def copy_object(value: Any, stub_for: StubFor, copies: dict[int, Any]) -> Any:
    """Return a copy of an object of the author's class. Its class is the copy of that class."""
    kind = stub_for(type(value))
    if id(value) in copies:  # it is an attribute of its class
        return copies[id(value)][1]
    if isinstance(value, enum.Enum):
        return getattr(kind, vars(value)["_name_"])
    base: Any = next(
        kind for kind in type(value).__mro__ if not kind.__flags__ & _WRITTEN
    )
    if base is tuple:
        copy = base.__new__(kind, map(stub_for, base.__iter__(value)))
    elif base in _WHOLE:
        copy = base.__new__(kind, value)
    else:
        copy = base.__new__(kind)
    copies[id(value)] = value, copy
    if base is list:
        base.extend(copy, map(stub_for, base.__iter__(value)))
    if issubclass(base, dict):
        for key, item in base.items(value):
            base.__setitem__(copy, stub_for(key), stub_for(item))
    object.__getattribute__(copy, "__dict__").update(copy_attributes(value, stub_for))
    return copy


def copy_attributes(value: Any, stub_for: StubFor) -> dict[str, Any]:
    """Copy the attributes of an object."""
    copies = {}
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if type(slot) is types.MemberDescriptorType and kind.__flags__ & _WRITTEN:
                with contextlib.suppress(AttributeError):  # the slot is empty
                    copies[name] = stub_for(slot.__get__(value))
    with contextlib.suppress(AttributeError):  # the object has slots alone
        own = object.__getattribute__(value, "__dict__")
        copies |= {name: stub_for(held) for name, held in own.items()}
    return copies


def copy_class(kind: Any, stub_for: StubFor, copies: dict[int, Any]) -> Any:
    """Return a copy of an author's class, with copies of its bases and its metaclass."""
    bases = tuple(map(stub_for, kind.__bases__))
    names = {**vars(kind)}
    if id(kind) in copies:  # it is an attribute of one of them
        return copies[id(kind)][1]
    if issubclass(kind, enum.Enum):
        return _of_enum(kind, bases, stub_for)
    make = abc.ABCMeta if issubclass(type(kind), abc.ABCMeta) else type
    begun = {
        name: names[name] for name in names.keys() & {"__module__", "__orig_bases__"}
    }
    copy: Any = make.__new__(stub_for(type(kind)), kind.__name__, bases, begun)
    copies[id(kind)] = kind, copy
    for name, value in names.items():
        if name not in _LEFT_OUT and not isinstance(value, _SLOTS):
            is_kept = name[:2] == "__" and type(value) in (dict, list, tuple, frozenset)
            type.__setattr__(copy, name, value if is_kept else stub_for(value))
    return copy


def _of_enum(kind: Any, bases: tuple[Any, ...], stub_for: StubFor) -> Any:
    names: Any = enum.EnumMeta.__prepare__(kind.__name__, bases)
    for name, member in kind.__members__.items():
        names[name] = stub_for(member._value_)
    for name, value in vars(kind).items():
        if name not in names and name[0] != "_" and hasattr(value, "__get__"):
            names[name] = stub_for(value)
    return enum.EnumMeta.__new__(enum.EnumMeta, kind.__name__, bases, names)


def copy_code(code: types.CodeType) -> types.CodeType:
    """Return the code with tuples in place of constant sets.

    A set compares a number with elements of the same hash, a tuple with all elements.
    """
    constants: list[Any] = []
    for constant in code.co_consts:
        if isinstance(constant, frozenset):
            constant = tuple(constant)
        elif isinstance(constant, types.CodeType):
            constant = copy_code(constant)
        constants.append(constant)
    return code.replace(co_consts=tuple(constants), co_filename=DRY + code.co_filename)


def table_keys(code: types.CodeType) -> list[int]:
    """Return the integers in the literal keys of the dicts and sets that a function makes.

    Keys that the function computes are not known.
    """
    return _keys_in(code.co_filename).get((code.co_name, code.co_firstlineno), [])


@functools.cache
def _keys_in(file: str) -> dict[tuple[str, int], list[int]]:
    """Return the integers in literal keys, by the names and first lines of a file's functions."""
    keys: dict[tuple[str, int], list[int]] = {}
    for node in ast.walk(parsed_file(file)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno] + [part.lineno for part in node.decorator_list])
            keys.setdefault((node.name, first), []).extend(_keys_within(node))
        elif isinstance(node, ast.Lambda):
            keys.setdefault(("<lambda>", node.lineno), []).extend(_keys_within(node))
    return keys


def _keys_within(function: ast.AST) -> Iterator[int]:
    """Yield the integers in the literal keys of a function's dicts and sets."""
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            yield from _integers_in(node.keys)
        elif isinstance(node, ast.Set):
            yield from _integers_in(node.elts)


def _integers_in(keys: Iterable[ast.expr | None]) -> Iterator[int]:
    """Yield the integers among literal keys, and in literal keys of several parts."""
    for key in keys:
        parts = key.elts if isinstance(key, ast.Tuple) else [key]
        for part in parts:
            if isinstance(part, ast.Constant) and type(part.value) is int:
                yield part.value


class StubGlobals(dict[str, Any]):
    """The names of a module and of Python, with their stubs."""

    def __init__(self, run: Any, names: Mapping[str, Any]) -> None:
        self.__dict__.update(_run=run, _names=names)
        self.update(__name__=names.get("__name__"), __builtins__=run.builtins)

    def __missing__(self, name: str) -> Any:
        value = self._names[name] if name in self._names else vars(builtins)[name]
        return self.setdefault(name, self._run.stub_for(value))

    def __getattr__(self, name: str) -> Any:
        if name in self or name in self._names:
            return self[name]
        raise AttributeError(name)


class _ComparingCollection:
    """A collection that compares a key with each of its own, as a lookup by hash does not.

    ``formatted`` are numbers by their texts, for keys such as "217x300".
    """

    formatted: Mapping[str, Any] = {}

    def __getitem__(self: Any, key: Any) -> Any:
        self._compare(key, self if isinstance(self, dict) else range(len(self)))
        return super().__getitem__(key)  # type: ignore[misc]

    def __contains__(self: Any, key: Any) -> Any:
        self._compare(key, self)
        return super().__contains__(key)  # type: ignore[misc]

    def get(self: Any, key: Any, default: Any = None) -> Any:
        self._compare(key, self)
        return super().get(key, default)  # type: ignore[misc]

    def _compare(self, key: Any, own: Iterable[Any]) -> None:
        if type(key) in (int, slice):
            return
        for other in itertools.islice(own, MOST_KEYS):
            _ = bool(_parts(other, {}) == _parts(key, self.formatted))


COMPARISON = _ComparingCollection._compare.__code__


def _parts(key: Any, formatted: Mapping[str, Any]) -> Any:
    """Return a key; a text such as "217x300" as a list of its numbers and the parts between."""
    if not isinstance(key, str):
        return key
    return [
        formatted.get(part, int(part)) if part.isdecimal() else part
        for part in re.split(r"(\d+)", key)
    ]


COMPARING = {
    kind: type(kind.__name__, (_ComparingCollection, kind), {})
    for kind in (dict, frozenset, list, set, tuple)
}
"""Python's collections -> the classes of their copies."""
