"""Copies of what a kernel's author wrote, made without a word to it: no hook of the author's runs.

What a copy holds is what ``stand_in`` makes of what there was. Each function tells ``made``, by the
number of what is copied, of a copy that is not whole yet: it may hold itself.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import types
from collections.abc import Callable, Iterator
from typing import Any

StandIn = Callable[[Any], Any]

DRY = "<dry run>"
"""Before a file's name: no debugger, nor who counts lines that ran, takes it for the author's."""
_WRITTEN = 1 << 9  # the flag of a class that is written in Python
_WHOLE = (bool, bytes, complex, float, int, str)
_LEFT = {"__slots__", "__init_subclass__", "__del__", "_abc_impl"}  # of a class that is copied
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)


def of_pythons(value: Any, stand_in: StandIn, made: dict[int, Any]) -> Any:
    """A copy of what is of a class of Python's, made as pickle makes one."""
    how = value.__reduce_ex__(4)
    if isinstance(how, str):  # a function of a module's
        return value
    make, args, state, items, pairs = (*how, None, None, None)[:5]
    copy = make(*map(stand_in, args))
    made[id(value)] = value, copy
    if state is not None:
        held = stand_in(state)
        copy.__setstate__(held) if hasattr(copy, "__setstate__") else vars(copy).update(held)
    for item in items or ():
        copy.append(stand_in(item))
    for key, own in pairs or ():
        copy[stand_in(key)] = stand_in(own)
    return copy


def of_object(value: Any, stand_in: StandIn, made: dict[int, Any]) -> Any:
    """A copy of what is of a class of the author's; it is of that class's copy."""
    kind = stand_in(type(value))
    if id(value) in made:  # its class holds it
        return made[id(value)][1]
    if isinstance(value, enum.Enum):
        return getattr(kind, value._name_)
    base: Any = next(of for of in type(value).__mro__ if not of.__flags__ & _WRITTEN)
    parts = map(stand_in, base.__iter__(value)) if base is tuple else value
    copy = base.__new__(kind, *([parts] if base in (tuple, *_WHOLE) else ()))
    made[id(value)] = value, copy
    if base is list:
        base.extend(copy, map(stand_in, base.__iter__(value)))
    for key, own in base.items(value) if issubclass(base, dict) else ():
        base.__setitem__(copy, stand_in(key), stand_in(own))
    object.__getattribute__(copy, "__dict__").update(attributes_of(value, stand_in))
    return copy


def attributes_of(value: Any, stand_in: StandIn) -> dict[str, Any]:
    """Copies of what an object holds."""
    return {name: stand_in(own) for name, own in _attributes(value)}


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if type(slot) is types.MemberDescriptorType and kind.__flags__ & _WRITTEN:
                with contextlib.suppress(AttributeError):  # it is empty
                    yield name, slot.__get__(value)
    with contextlib.suppress(AttributeError):  # there are slots alone
        yield from object.__getattribute__(value, "__dict__").items()


def of_class(kind: Any, stand_in: StandIn, made: dict[int, Any]) -> Any:
    """A copy of a class of the author's, for which its bases and its metaclass are copied, too."""
    bases, names = (*map(stand_in, kind.__bases__),), {**vars(kind)}
    if id(kind) in made:  # one of them holds it
        return made[id(kind)][1]
    if issubclass(kind, enum.Enum):
        return _of_enum(kind, bases, stand_in)
    make = abc.ABCMeta if issubclass(type(kind), abc.ABCMeta) else type
    begun = {name: names[name] for name in names.keys() & {"__module__", "__orig_bases__"}}
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


def of_code(code: types.CodeType) -> types.CodeType:
    """A set asks a number for its hash alone, a tuple whether it is each of it."""
    constants = [tuple(c) if isinstance(c, frozenset) else c for c in code.co_consts]
    constants = [of_code(c) if isinstance(c, types.CodeType) else c for c in constants]
    return code.replace(co_consts=tuple(constants), co_filename=DRY + code.co_filename)
