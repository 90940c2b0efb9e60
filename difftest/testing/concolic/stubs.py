"""Copies of the objects of a kernel's author, made without running any of the author's hooks.

What a copy holds is what ``stand_in`` makes of what there was. Each function tells ``made``, by the
number of what is copied, of a copy that is not whole yet: it may hold itself.
"""

from __future__ import annotations

import abc
import builtins
import contextlib
import enum
import itertools
import re
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

StandIn = Callable[[Any], Any]

DRY = "<dry run>"
"""Before a file's name: no debugger, nor who counts lines that ran, takes it for the author's."""
_WRITTEN = 1 << 9  # the flag of a class that is written in Python
_WHOLE = (bool, bytes, complex, float, int, str)
_LEFT = {
    "__slots__",
    "__init_subclass__",
    "__del__",
    "_abc_impl",
}  # of a class that is copied
_KEYS = 64  # of a table, that are looked at
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def copy_builtin(value: Any, stand_in: StandIn, made: dict[int, Any]) -> Any:
    """Return a copy of an object of a class of Python's, made as pickle makes one."""
    how = value.__reduce_ex__(4)
    if isinstance(how, str):  # a function of a module's
        return value
    make, args, state, items, pairs = (*how, None, None, None)[:5]
    copy = make(*map(stand_in, args))
    made[id(value)] = value, copy
    if state is not None:
        held = stand_in(state)
        copy.__setstate__(held) if hasattr(copy, "__setstate__") else vars(copy).update(
            held
        )
    for item in items or ():
        copy.append(stand_in(item))
    for key, own in pairs or ():
        copy[stand_in(key)] = stand_in(own)
    return copy


def copy_object(value: Any, stand_in: StandIn, made: dict[int, Any]) -> Any:
    """Return a copy of an object of the author's class. Its class is the copy of that class."""
    kind = stand_in(type(value))
    if id(value) in made:  # its class holds it
        return made[id(value)][1]
    if isinstance(value, enum.Enum):
        return getattr(kind, vars(value)["_name_"])
    base: Any = next(of for of in type(value).__mro__ if not of.__flags__ & _WRITTEN)
    parts = map(stand_in, base.__iter__(value)) if base is tuple else value
    copy = base.__new__(kind, *([parts] if base in (tuple, *_WHOLE) else ()))
    made[id(value)] = value, copy
    if base is list:
        base.extend(copy, map(stand_in, base.__iter__(value)))
    for key, own in base.items(value) if issubclass(base, dict) else ():
        base.__setitem__(copy, stand_in(key), stand_in(own))
    object.__getattribute__(copy, "__dict__").update(copy_attributes(value, stand_in))
    return copy


def copy_attributes(value: Any, stand_in: StandIn) -> dict[str, Any]:
    """Copy the attributes of an object."""
    copies = {}
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if type(slot) is types.MemberDescriptorType and kind.__flags__ & _WRITTEN:
                with contextlib.suppress(AttributeError):  # it is empty
                    copies[name] = stand_in(slot.__get__(value))
    with contextlib.suppress(AttributeError):  # there are slots alone
        own = object.__getattribute__(value, "__dict__")
        copies |= {name: stand_in(held) for name, held in own.items()}
    return copies


def copy_class(kind: Any, stand_in: StandIn, made: dict[int, Any]) -> Any:
    """Return a copy of a class of the author's, with copies of its bases and its metaclass."""
    bases = tuple(map(stand_in, kind.__bases__))
    names = {**vars(kind)}
    if id(kind) in made:  # one of them holds it
        return made[id(kind)][1]
    if issubclass(kind, enum.Enum):
        return _of_enum(kind, bases, stand_in)
    make = abc.ABCMeta if issubclass(type(kind), abc.ABCMeta) else type
    begun = {
        name: names[name] for name in names.keys() & {"__module__", "__orig_bases__"}
    }
    copy: Any = make.__new__(stand_in(type(kind)), kind.__name__, bases, begun)
    made[id(kind)] = kind, copy
    for name, value in names.items():
        if name not in _LEFT and not isinstance(value, _SLOTS):
            is_kept = name[:2] == "__" and type(value) in (dict, list, tuple, frozenset)
            type.__setattr__(copy, name, value if is_kept else stand_in(value))
    return copy


def _of_enum(kind: Any, bases: tuple[Any, ...], stand_in: StandIn) -> Any:
    names: Any = enum.EnumMeta.__prepare__(kind.__name__, bases)
    for name, member in kind.__members__.items():
        names[name] = stand_in(member._value_)
    for name, value in vars(kind).items():
        if name not in names and name[0] != "_" and hasattr(value, "__get__"):
            names[name] = stand_in(value)
    return enum.EnumMeta.__new__(enum.EnumMeta, kind.__name__, bases, names)


def copy_code(code: types.CodeType) -> types.CodeType:
    """Return the code with tuples in place of constant sets.

    A set asks a number for its hash alone; a tuple compares it with each element.
    """
    constants = [tuple(c) if isinstance(c, frozenset) else c for c in code.co_consts]
    constants = [
        copy_code(c) if isinstance(c, types.CodeType) else c for c in constants
    ]
    return code.replace(co_consts=tuple(constants), co_filename=DRY + code.co_filename)


class StubGlobals(dict[str, Any]):
    """The names of a module and of Python, with what stands for them."""

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
    """A collection that asks whether a key is each of its own: for a hash nothing is."""

    shown: Mapping[str, Any] = {}  # numbers, by their texts

    def __getitem__(self: Any, key: Any) -> Any:
        self._ask(key, self if isinstance(self, dict) else range(len(self)))
        return super().__getitem__(key)  # type: ignore[misc]

    def __contains__(self: Any, key: Any) -> Any:
        self._ask(key, self)
        return super().__contains__(key)  # type: ignore[misc]

    def get(self: Any, key: Any, default: Any = None) -> Any:
        self._ask(key, self)
        return super().get(key, default)  # type: ignore[misc]

    def _ask(self, key: Any, own: Iterable[Any]) -> None:
        for one in itertools.islice(own, _KEYS if type(key) not in (int, slice) else 0):
            _ = bool(_parts(one, {}) == _parts(key, self.shown))


def _parts(key: Any, shown: Mapping[str, Any]) -> Any:
    """Return a key; a text such as "217x300" as a list of its numbers and the parts between."""
    if not isinstance(key, str):
        return key
    return [
        shown.get(at, int(at)) if at.isdecimal() else at
        for at in re.split(r"(\d+)", key)
    ]


ASKING = {
    of: type(of.__name__, (_ComparingCollection, of), {})
    for of in (dict, frozenset, list, set, tuple)
}
