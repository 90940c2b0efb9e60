"""The guards of a candidate's attributes and methods: what may be read and set."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from difftest.tools.verdict.world.calls import (
    as_numbers,
    call,
    check_arguments,
    guarded,
    guarded_options,
)
from difftest.tools.verdict.world.held import (
    BOUND,
    CLASSES,
    HELD,
    OWN_SPECIAL,
    READERS,
    SETTERS,
    SHARED_CLASSES,
    SHOWN_AS,
    Facade,
    Kind,
    Module,
    OwnModule,
    TypeFunction,
    kept,
)
from difftest.tools.verdict.world.instances import TEXT, type_of
from difftest.tools.verdict.world.kinds import CLASS_ATTRIBUTES, NAMES
from difftest.tools.verdict.world.order import hash_of, number_of_run
from difftest.tools.verdict.world.refusal import (
    INTERNAL,
    STATE,
    Absent,
    exact_text,
    is_special,
    need,
    refusal,
    unavailable,
)
from difftest.tools.verdict.world.texts import (
    Opaque,
    format_text,
    is_own_class,
    is_own_error,
    is_own_function,
    is_transparent,
    joined,
    marked,
    opaque_refusal,
    text_of,
)


def read(value: Any, name: str) -> Any:
    """Return an attribute of a value: the guard of ``value.name``."""
    kind = type(value)
    names = NAMES.get(kind)
    if names is not None and name in names:
        if kind is str or (kind is np.ufunc and name in _UFUNC_METHODS):
            return Facade(name, functools.partial(call_method, value, name))
        return kept(getattr(value, name))
    if name[:1] == INTERNAL:
        return _hidden(value, name)
    return _reader_of(value, kind)(value, name)


_UFUNC_METHODS = ("accumulate", "outer", "reduce", "reduceat")


def _reader_of(value: Any, kind: type) -> Callable[[Any, str], Any]:
    """Return the function that reads an attribute which no table of a type lists."""
    reader = READERS.get(kind)
    if reader is not None:
        return reader
    if is_own_class(kind):
        return _read_own
    if isinstance(value, type):
        return _read_class
    if kind in (FunctionType, MethodType, *BOUND):
        return _read_function
    if isinstance(value, BaseException):
        return _read_error
    return _read_other


def _read_other(value: Any, name: str) -> Any:
    """Return the class of a value of a listed type, or raise Python's own error."""
    is_listed = type(value) in NAMES
    if name == "__class__":
        return type_of(value)
    if STATE.is_open and not is_listed and not is_special(name):
        return kept(getattr(value, name))
    if not is_listed or name.startswith("_") or hasattr(value, name):
        return _hidden(value, name)
    return getattr(value, name)  # raises an AttributeError


def _hidden(value: Any, name: str) -> Absent:
    return unavailable(f"the attribute {name} of a {type(value).__name__}")


def _read_own(value: Any, name: str) -> Any:
    if name == "__class__":
        return type_of(value)
    if name == "__dict__":
        return OwnNames(value)
    if (guard := _guard_of(value, name)) is not None:
        return guard
    if name in _TUPLE_NAMES and isinstance(value, tuple):
        return _of_tuple(value, name)
    if is_special(name) and name not in OWN_SPECIAL:
        return _hidden(value, name)
    return kept(getattr(value, name))


def _guard_of(value: Any, name: str) -> Any:
    """Return the guard in place of an own object's method that Python itself has; None if none."""
    if name in _GUARDED_METHODS and not _is_own_method(value, name):
        return Facade(name, functools.partial(_GUARDED_METHODS[name], value))
    if name == "add_note" and isinstance(value, BaseException):
        return _note_adder(value)
    return None


_TEXT_METHODS: dict[str, Callable[[Any], str]] = {"__repr__": repr, "__str__": str}
"""Special methods whose plain text would reveal what an opaque text hides."""
_GUARDED_METHODS: dict[str, Callable[[Any], Any]] = {
    "__hash__": hash_of,
    "__repr__": functools.partial(text_of, convert=repr),
    "__str__": text_of,
}
"""Special methods of Python's own that guards answer."""


def _is_own_method(value: Any, name: str) -> bool:
    return is_own_function(getattr(type(value), name, None))


class OwnNames(dict[str, Any]):
    """``vars()`` of an own object: an item that is set becomes an attribute, by the guards."""

    def __init__(self, owner: Any) -> None:
        super().__init__(vars(owner))
        self._owner = owner

    def __setitem__(self, name: str, item: Any) -> None:
        put(self._owner, name, item)
        super().__setitem__(name, item)

    def update(self, *others: Any, **names: Any) -> None:
        """Set attributes, as ``dict.update`` does."""
        for name, item in dict(*others, **names).items():
            self[name] = item

    def __ior__(self, other: Any) -> OwnNames:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __delitem__(self, name: str) -> None:
        raise refusal(f"the attribute {name!r:.40} is deleted", "use del")


HELD.add(OwnNames)
SHOWN_AS[OwnNames] = dict
NAMES[OwnNames] = frozenset({"copy", "get", "items", "keys", "update", "values"})

_TUPLE_NAMES = ("_asdict", "_replace", "_make", "_fields", "_field_defaults")
"""The public names of named tuples that begin with an underscore."""


def _of_tuple(value: Any, name: str) -> Any:
    found = getattr(value, name)
    return Facade(name, found) if callable(found) else found


def _read_class(value: type, name: str) -> Any:
    is_own = is_own_class(value)
    is_held = is_own or value in CLASSES
    if STATE.is_open and not is_held:
        return kept(getattr(value, name))
    if name in ("__name__", "__qualname__"):
        return value.__name__ if is_held else text_of(value)
    if is_own:
        return _read_own_class(value, name)
    if value is object and name == "__setattr__":
        return Facade(name, put)
    return _inherited(value, name)


def _read_own_class(value: Any, name: str) -> Any:
    if name in _TUPLE_NAMES and issubclass(value, tuple):
        return _of_tuple(value, name)
    if name == "__members__":
        return dict(value.__members__)
    if is_special(name) and name not in OWN_SPECIAL:
        return _hidden(value, name)
    if name in vars(value):
        return kept(getattr(value, name))
    return _inherited(value, name)


def _inherited(value: type, name: str) -> Any:
    """Return an attribute of a class that a listed base has; an own base has any."""
    for base in value.__mro__:
        found = _of_base(value, base, name)
        if found is not _NOTHING:
            return found
    if is_own_class(value) and not hasattr(value, name):
        return getattr(value, name)  # raises an AttributeError
    return _hidden(value, name)


_NOTHING = object()
"""The answer for a base that does not have an attribute."""


def _of_base(value: type, base: type, name: str) -> Any:
    """Return an attribute of a class from one of its bases."""
    is_own = is_own_class(base) and name in vars(base)
    if name in ENUM_CLASS.get(base, ()):
        return copy.copy(getattr(value, name))  # all runs share these tables
    if is_own or name in CLASS_ATTRIBUTES.get(base, ()):
        return kept(getattr(value, name))
    if name in NAMES.get(base, ()):
        return Facade(name, functools.partial(_call_unbound, base, name))
    if name == "__new__" and base in _NEW:
        return Facade(name, functools.partial(make_new, base.__new__))
    if base in _SPECIAL_BASES and name in OWN_SPECIAL and is_own_class(value):
        return Facade(name, functools.partial(_call_special, base, name))
    return _NOTHING


ENUM_CLASS: dict[type, frozenset[str]] = {}
_SPECIAL_BASES = (object, Exception, BaseException, dict, list)
"""Bases whose special methods a candidate may call for its own objects."""
_NEW = (object, int, str, float, tuple)
"""The classes whose ``__new__`` makes the values of own classes."""


def make_new(make: Any, kind: Any, /, *args: Any) -> Any:
    """Return ``Base.__new__(kind, *args)`` for an own class."""
    if not (isinstance(kind, type) and is_own_class(kind)):
        raise refusal("__new__ of a class that is not the candidate's own")
    check_arguments(None, args, {})
    if issubclass(kind, str) and not all(map(is_transparent, args)):
        raise opaque_refusal()
    return make(kind, *args)


def _call_unbound(
    kind: type, name: str, value: Any, /, *args: Any, **kwargs: Any
) -> Any:
    """Call ``kind.name(value, ...)``, such as ``str.upper(text)``."""
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__}.{name} of a {type(value).__name__}")
    if kind is str and name == "format":
        return format_text(read, str.__str__(value), args, kwargs)
    if is_own_class(type(value)):
        check_arguments(None, args, kwargs)
        return kept(getattr(kind, name)(value, *args, **kwargs))
    return call_method(value, name, *args, **kwargs)


def _call_special(
    base: type, name: str, value: Any, /, *args: Any, **kwargs: Any
) -> Any:
    """Call a special method of a base for an own object: ``Base.__init__(self)``."""
    if not is_own_class(type(value)) or not isinstance(value, base):
        raise refusal(f"{base.__name__}.{name} of what is not an own object")
    found = kept(getattr(base, name)(value, *args, **kwargs))
    return number_of_run(found) if name == "__hash__" else found


def _read_function(value: Any, name: str) -> Any:
    if STATE.is_open and not is_own_function(value) and not is_special(name):
        return kept(getattr(value, name))
    function = value.__func__ if type(value) is MethodType else value
    if is_own_function(function):
        if name in ("__name__", "__qualname__", "__doc__"):
            return getattr(function, name)
        if not is_special(name):
            return kept(getattr(function, name))
    elif name == "__name__":
        return Opaque(str(getattr(value, name, "")))
    return _hidden(value, name)


def _read_error(value: BaseException, name: str) -> Any:
    if name == "__class__":
        return type_of(value)
    if name == "add_note":
        return _note_adder(value)
    if name == "args" and is_own_error(value):
        return tuple(map(kept, value.args))
    if name == "value" and isinstance(value, StopIteration):
        return kept(value.value)
    if name == "args":
        return tuple(Opaque(str(item)) for item in value.args)
    return _hidden(value, name)


def _note_adder(error: BaseException) -> Any:
    """Return ``error.add_note``, of Python 3.11; a note with a mark of the guards is refused."""
    add = error.add_note

    def add_note(note: Any) -> None:
        text = note.shown if type(note) is Opaque else exact_text(note, "a note")
        if text.startswith(INTERNAL):
            raise refusal("a note that begins with a mark of the guards")
        add(text)

    return Facade("add_note", add_note) if type(add) in BOUND else kept(add)


def put(value: Any, name: str, item: Any) -> None:
    """Set an attribute of an own object: ``object.__setattr__(self, "name", item)``."""
    is_hidden = type(name) is not str or name.startswith(("__", INTERNAL))
    if is_hidden or not is_own_class(type(value)):
        raise refusal(f"the attribute {name} is set")
    object.__setattr__(value, name, item)


def writable(value: Any, name: str) -> Any:
    """Return a value whose attribute may be set: the guard of ``value.name = item``."""
    kind = type(value)
    if name[:1] == INTERNAL:
        raise refusal(f"the attribute {name} is set")
    setter = SETTERS.get(kind)
    if setter is not None:
        return setter(value, name)
    if _has_attributes(value) and not is_special(name):
        return value
    if kind is Absent:
        need(value)
    raise refusal(
        f"the attribute {name} of a {kind.__name__} is set", "use an object of your own"
    )


def _has_attributes(value: Any) -> bool:
    """Return whether a candidate may set attributes of a value: of its own, or of a module."""
    kind = type(value)
    if isinstance(value, type) and is_own_class(value):
        return value not in SHARED_CLASSES
    return kind in (Module, OwnModule) or is_own_class(kind) or is_own_function(value)


_CALLING_METHODS = ("deleter", "getter", "setter", "sort", "sub", "subn")
"""Methods of listed types that call an argument."""


def call_method(value: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Return ``value.name(*args, **kwargs)``: the guard of a call of a method."""
    kind = type(value)
    names = NAMES.get(kind)
    if names is not None and name in names:
        if kind is str and name == "join":
            return joined_by(value, *args)
        check_arguments(None, args, kwargs)
        if kind is np.ufunc:
            return kept(getattr(value, name)(*as_numbers(args), **kwargs))
        if name in _CALLING_METHODS:
            return kept(getattr(value, name)(*guarded(args), **guarded_options(kwargs)))
        return kept(getattr(value, name)(*args, **kwargs))
    if kind is str and name == "format":
        return format_text(read, value, args, kwargs)
    return call(read(value, name), *args, **kwargs)


def joined_by(separator: str, parts: Any) -> Any:
    """Return ``separator.join(parts)``."""
    items = list(parts)
    if not any(type(item) is Opaque for item in items):
        return separator.join(items)
    texts = [joined(item) for item in items]
    between = [separator] * (2 * len(texts) - 1)
    between[::2] = texts
    return joined(*between)


def _read_text_class(value: Any, name: str) -> Any:
    if name == "__name__":
        return "str"
    if name == "__new__":
        return Facade(name, functools.partial(make_new, str.__new__))
    if name in CLASS_ATTRIBUTES[str]:
        return getattr(str, name)
    if name in NAMES[str] or name == "format":
        return Facade(name, functools.partial(_call_unbound, str, name))
    return _hidden(value, name)


def _read_kind(value: Kind, name: str) -> Any:
    if name == "__name__":
        return Opaque(value._type.__name__)
    return _hidden(value, name)


def _read_facade(value: Facade, name: str) -> Any:
    return value.__name__ if name == "__name__" else _hidden(value, name)


def _read_absent(value: Absent, name: str) -> Absent:
    return unavailable(f"{value._name}.{name}")


_MODULE_SPECIAL = ("__name__", "__version__", "__doc__")


def _read_module(value: Module, name: str) -> Any:
    names = vars(value)
    if name in names and (not name.startswith("_") or name in _MODULE_SPECIAL):
        return names[name]
    return kept(value.find(name))


def _read_own_module(value: OwnModule, name: str) -> Any:
    names = vars(value)
    if (name in names and name in _MODULE_SPECIAL) or not is_special(name):
        if name in names:
            return names[name]
        text = f"module {value.__name__!r} has no attribute {name!r}"
        raise AttributeError(text)
    return _hidden(value, name)


def _read_opaque(value: Opaque, name: str) -> Any:
    if name == "format":
        return Facade(name, lambda *args, **kwargs: value)
    if name not in NAMES[str] and not is_special(name):
        raise AttributeError(f"'str' object has no attribute {name!r}")
    raise opaque_refusal()


def _read_super(value: Any, name: str) -> Any:
    owner = value.__self__
    is_own = is_own_class(owner if isinstance(owner, type) else type(owner))
    if not is_own:
        return _hidden(value, name)
    if name == "__new__":
        return Facade(name, functools.partial(make_new, value.__new__))
    if is_special(name) and name not in OWN_SPECIAL:
        return _hidden(value, name)
    return _of_super(owner, getattr(value, name), name)


def _of_super(owner: Any, found: Any, name: str) -> Any:
    """Return a method that ``super()`` has found; guards are in place of Python's own."""
    if name == "add_note" and isinstance(owner, BaseException):
        return _note_adder(owner)
    if name == "__hash__" and type(found) in BOUND:
        return Facade(name, lambda: number_of_run(found()))
    if name in _TEXT_METHODS and not is_own_function(getattr(found, "__func__", None)):
        is_plain = isinstance(owner, BaseException) and is_own_error(owner)
        return Facade(name, lambda: marked(found(), opaque=not is_plain))
    return kept(found)


READERS |= {
    type(TEXT): _read_text_class,
    Kind: _read_kind,
    Facade: _read_facade,
    Absent: _read_absent,
    Module: _read_module,
    OwnModule: _read_own_module,
    TypeFunction: _read_facade,
    Opaque: _read_opaque,
    super: _read_super,
}
