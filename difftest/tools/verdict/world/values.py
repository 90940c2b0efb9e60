"""The guards of a candidate's values: what it may hold, read, set and call."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from types import (
    BuiltinFunctionType,
    BuiltinMethodType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.errors import NkiError
from difftest.tools.verdict.world.kinds import CLASS_ATTRIBUTES, NAMES, NARROW
from difftest.tools.verdict.world.refusal import (
    INTERNAL,
    STATE,
    Absent,
    need,
    refusal,
    unavailable,
)
from difftest.tools.verdict.world.texts import (
    OWN,
    Opaque,
    format_text,
    is_own_class,
    is_own_error,
    is_own_function,
    joined,
    opaque_refusal,
    text_of,
)

_BOUND = (BuiltinFunctionType, BuiltinMethodType, MethodWrapperType)
"""Types of methods that C code has bound to a value."""
_OWN_SPECIAL = frozenset(
    (
        *("__init__", "__post_init__", "__call__", "__len__", "__iter__", "__next__"),
        *("__getitem__", "__setitem__", "__contains__", "__repr__", "__str__"),
        *("__eq__", "__hash__", "__enter__", "__exit__", "__new__", "__add__"),
    )
)
"""Special methods that a candidate may call by name, where they are its own or of its base."""


class Facade:
    """A callable of a candidate's world, which C code may call as well."""

    __slots__ = ("__name__", "_call")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.__name__ = name
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"


class Kind:
    """The type of a value whose class a candidate cannot hold: it can be compared and shown."""

    __slots__ = ("_type",)

    def __init__(self, kind: type) -> None:
        self._type = kind

    def __repr__(self) -> str:
        return f"<class {self._type.__name__}>"


_KINDS: dict[type, Kind] = {}


def kind_of(kind: type) -> Kind:
    """Return the Kind of a class, always the same one."""
    return _KINDS.setdefault(kind, Kind(kind))


class Module(ModuleType):
    """A table of names that a candidate imports; it may add names, but not replace any.

    ``find`` returns the value of a further name, or raises.
    """

    def __init__(
        self,
        name: str,
        names: Mapping[str, Any],
        find: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__(name)
        vars(self).update(names)
        vars(self)["__all__"] = sorted(names)
        vars(self)["·names"] = frozenset(names)
        vars(self)["·find"] = find

    def find(self, name: str) -> Any:
        """Return the value of a name that the table does not have yet."""
        find = vars(self)["·find"]
        if find is None or name.startswith("_"):
            return unavailable(f"{self.__name__}.{name}")
        return find(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self)["·names"] or name.startswith("_"):
            raise refusal(
                f"{self.__name__}.{name} is set",
                "give the new function a name of its own",
            )
        vars(self)[name] = value

    def __delattr__(self, name: str) -> None:
        raise refusal(f"{self.__name__}.{name} is deleted")


class Table(NamedTuple):
    """The names of a module that candidates import, and a function that finds others."""

    names: dict[str, Any]
    find: Callable[[str], Any] | None = None


class Libraries:
    """The modules that a candidate imports, made from tables when they are needed.

    A candidate can add names to them. So each run of its files has its own.
    """

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables
        self._made: dict[str, Module] = {}

    def get(self, name: str) -> Module | None:
        """Return a module by its whole name; None without one."""
        if name not in self._made and name in self._tables:
            table = self._tables[name]
            find = functools.partial(self._find, name, table)
            self._made[name] = Module(name, table.names, find)
        return self._made.get(name)

    def _find(self, module: str, table: Table, name: str) -> Any:
        inner = self.get(f"{module}.{name}")
        if inner is not None:
            return inner
        if table.find is None:
            return unavailable(f"{module}.{name}")
        return table.find(name)


class OwnModule(Module):
    """A module of the candidate: its names that begin with an underscore are its own, too."""


class TypeFunction(Facade):
    """``type`` of a candidate; in an annotation it has a parameter: ``type[Plan]``."""

    __slots__ = ()

    def __getitem__(self, item: Any) -> Any:
        return list[item]  # in annotations only; type[item] could be called


CLASSES: set[type] = set()
"""The classes that a candidate can hold."""
FUNCTIONS: dict[int, Any] = {}
"""The functions that a candidate can hold and call, by their ids, which they keep unique."""
READERS: dict[type, Callable[[Any, str], Any]] = {}
"""The function that reads an attribute of a value of a type, where a table does not suffice."""
SETTERS: dict[type, Callable[[Any, str], Any]] = {}
"""The function that checks an assignment to an attribute of a value of a type."""
CALLABLE: set[type] = {Facade, TypeFunction}
"""Types whose values a candidate can call."""
SHARED_CLASSES: set[type] = set()
"""Classes that count as own, and that all files of all runs share."""
HELD: set[type] = {
    Facade,
    TypeFunction,
    Kind,
    Module,
    OwnModule,
    Absent,
    Opaque,
    *NAMES,
}
"""The types of the values that a candidate can hold."""


def list_function(function: Any) -> Any:
    """Let a candidate hold and call a function; return it."""
    FUNCTIONS[id(function)] = function
    return function


def kept(value: Any) -> Any:
    """Return a value that a candidate can hold.

    Raises
    ------
    OutsideLanguageError : the value's exact type is not listed.
    """
    kind = type(value)
    if kind in HELD and kind is not np.ndarray:
        return value
    return _kept_other(value, kind)


def _kept_other(value: Any, kind: type) -> Any:
    if kind is np.ndarray and value.dtype.hasobject:
        raise refusal("an array of objects", "use a list")
    if isinstance(value, type) and not STATE.is_open:
        return value if value in CLASSES or is_own_class(value) else kind_of(value)
    if STATE.is_open or _is_held(value, kind):
        return value
    raise refusal(f"a value of type {kind.__name__}")


def _is_held(value: Any, kind: type) -> bool:
    """Return whether a candidate can hold a value whose type alone does not decide it."""
    if kind is np.ndarray or is_own_class(kind) or id(value) in FUNCTIONS:
        return True
    if kind is FunctionType:
        return is_own_function(value)
    if kind is MethodType:
        return is_own_function(value.__func__) or type(value.__func__) in HELD
    if kind in _BOUND:
        return _is_listed_method(value)
    return isinstance(value, (BaseException, np.dtype))


def _is_listed_method(method: Any) -> bool:
    """Return whether a bound method of C is of a listed value, under a listed name."""
    owner = method.__self__
    name = method.__name__
    if isinstance(owner, type):
        return any(name in CLASS_ATTRIBUTES.get(base, ()) for base in owner.__mro__)
    if any(name in NAMES.get(base, ()) for base in type(owner).__mro__):
        return True
    is_super = type(method) is MethodWrapperType or name == "__init__"
    return is_super and is_own_class(type(owner)) and name in _OWN_SPECIAL


def read(value: Any, name: str) -> Any:
    """Return an attribute of a value: the guard of ``value.name``."""
    kind = type(value)
    names = NAMES.get(kind)
    if names is not None and name in names:
        if kind is str:
            return Facade(name, functools.partial(call_method, value, name))
        return kept(getattr(value, name))
    if name[:1] == INTERNAL:
        return _hidden(value, name)
    return _reader_of(value, kind)(value, name)


def _reader_of(value: Any, kind: type) -> Callable[[Any, str], Any]:
    """Return the function that reads an attribute which no table of a type lists."""
    reader = READERS.get(kind)
    if reader is not None:
        return reader
    if is_own_class(kind):
        return _read_own
    if isinstance(value, type):
        return _read_class
    if kind in (FunctionType, MethodType, *_BOUND):
        return _read_function
    if isinstance(value, BaseException):
        return _read_error
    return _read_other


def _read_other(value: Any, name: str) -> Any:
    """Return the class of a value of a listed type, or raise Python's own error."""
    is_listed = type(value) in NAMES
    if name == "__class__":
        return type_of(value)
    if STATE.is_open and not is_listed and not _is_special(name):
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
        return dict(vars(value))
    if name in _TUPLE_NAMES and isinstance(value, tuple):
        return _of_tuple(value, name)
    if _is_special(name) and name not in _OWN_SPECIAL:
        return _hidden(value, name)
    return kept(getattr(value, name))


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
    if _is_special(name) and name not in _OWN_SPECIAL:
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
    listed = CLASS_ATTRIBUTES.get(base, frozenset()) | _ENUM_CLASS.get(
        base, frozenset()
    )
    if is_own or name in listed:
        return kept(getattr(value, name))
    if name in NAMES.get(base, ()):
        return Facade(name, functools.partial(_call_unbound, base, name))
    if name == "__new__" and base in _NEW:
        return Facade(name, functools.partial(make_new, base.__new__))
    if base in _SPECIAL_BASES and name in _OWN_SPECIAL and is_own_class(value):
        return Facade(name, functools.partial(_call_special, base, name))
    return _NOTHING


_ENUM_CLASS: dict[type, frozenset[str]] = {}
_SPECIAL_BASES = (object, Exception, BaseException, dict, list)
"""Bases whose special methods a candidate may call for its own objects."""
_NEW = (object, int, str, float, tuple)
"""The classes whose ``__new__`` makes the values of own classes."""


def make_new(make: Any, kind: Any, /, *args: Any) -> Any:
    """Return ``Base.__new__(kind, *args)`` for an own class."""
    if not (isinstance(kind, type) and is_own_class(kind)):
        raise refusal("__new__ of a class that is not the candidate's own")
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
    return kept(getattr(base, name)(value, *args, **kwargs))


def _read_function(value: Any, name: str) -> Any:
    if STATE.is_open and not is_own_function(value) and not _is_special(name):
        return kept(getattr(value, name))
    function = value.__func__ if type(value) is MethodType else value
    if is_own_function(function):
        if name in ("__name__", "__qualname__", "__doc__"):
            return getattr(function, name)
        if not _is_special(name):
            return kept(getattr(function, name))
    elif name == "__name__":
        return Opaque(str(getattr(value, name, "")))
    return _hidden(value, name)


def _read_error(value: BaseException, name: str) -> Any:
    if name == "__class__":
        return type_of(value)
    if name == "args" and is_own_error(value):
        return tuple(map(kept, value.args))
    if name == "args":
        return tuple(Opaque(str(item)) for item in value.args)
    return _hidden(value, name)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def type_of(value: Any) -> Any:
    """Return the class of a value, or its Kind: the guard of ``type(value)``."""
    kind = type(value)
    if kind in (str, Opaque):
        return TEXT
    if kind in CLASSES or is_own_class(kind):
        return kind
    return kind_of(kind)


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
    if name in ("_is_protocol", "_is_runtime_protocol"):
        raise refusal(f"the attribute {name} is set")
    setter = SETTERS.get(kind)
    if setter is not None:
        return setter(value, name)
    if _has_attributes(value) and not _is_special(name):
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


def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Return ``function(*args, **kwargs)``: the guard of a call."""
    kind = type(function)
    if kind is FunctionType and function.__builtins__ is STATE.builtins:
        return function(*args, **kwargs)
    if kind is Facade:
        return function._call(*args, **kwargs)
    if id(function) in HIGHER:
        return kept(function(*guarded(args), **guarded_options(kwargs)))
    if kind is FunctionType or kind in CALLABLE:
        check_arguments(function, args, kwargs)
        return kept(function(*args, **kwargs))
    return _call_other(function, kind, args, kwargs)


def _call_other(
    function: Any, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if kind is Absent:
        return function(*args, **kwargs)
    if isinstance(function, type):
        return _make(function, args, kwargs)
    if is_own_class(kind):
        return kept(function(*args, **kwargs))
    if kind is MethodType and is_own_function(function.__func__):
        return function(*args, **kwargs)
    kept(function)
    if kind is Kind:
        return unavailable(f"{function!r}()")
    check_arguments(function, args, kwargs)
    return kept(function(*args, **kwargs))


def _make(kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a new object of a class that a candidate holds."""
    if is_own_class(kind):
        return kind(*args, **kwargs)
    if issubclass(kind, BaseException) and kind in CLASSES:
        error = kind(*args, **kwargs)
        error.__notes__ = [OWN]
        return error
    if (kind not in CLASSES and not STATE.is_open) or issubclass(kind, type):
        return unavailable(f"{kind.__name__}()")
    check_arguments(kind, args, kwargs)
    if kind in NARROW and not _is_one_number(args, kwargs):
        raise TypeError(f"{kind.__name__} takes one number")
    return kept(kind(*args, **kwargs))


def _is_one_number(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the arguments are one number: ml_dtypes crashes on some others."""
    if kwargs or len(args) != 1:
        return False
    return isinstance(args[0], (bool, int, float, np.generic))


HIGHER: dict[int, Any] = {}
"""Functions of C and of Python's libraries that call their arguments, by their ids."""


def guarded(values: Iterable[Any]) -> list[Any]:
    """Return arguments of a function that calls some of them; their calls are guarded."""
    return list(map(_guarded, values))


def guarded_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments as :func:`guarded` does."""
    return {name: _guarded(value) for name, value in options.items()}


def _guarded(value: Any) -> Any:
    kind = type(value)
    if kind is Absent:
        need(value)
    if not callable(value) or kind is Facade or is_own_function(value):
        return value
    if is_own_class(kind) or (isinstance(value, type) and is_own_class(value)):
        return value
    return Facade(str(getattr(value, "__name__", "")), functools.partial(call, value))


_CALLING_METHODS = ("sort", "sub", "subn")
"""Methods of listed types that call an argument."""


def check_arguments(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Make the opaque text of ``name=`` plain for NKI; refuse absent and other opaque values."""
    names = [kwargs.get("name")] if _is_nki(function) else []
    for value in itertools.chain(args, kwargs.values()):
        kind = type(value)
        if kind is Absent:
            need(value)
        elif kind is Opaque and not any(value is name for name in names):
            raise opaque_refusal()
    if type(kwargs.get("name")) is Opaque:
        kwargs["name"] = kwargs["name"].shown


def _is_nki(value: Any) -> bool:
    """Return whether a function, class or object is of NKI."""
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).startswith("difftest.simulator.")


def call_method(value: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Return ``value.name(*args, **kwargs)``: the guard of a call of a method."""
    kind = type(value)
    names = NAMES.get(kind)
    if names is not None and name in names:
        if kind is str and name == "join":
            return joined_by(value, *args)
        check_arguments(None, args, kwargs)
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


def enter(*values: Any) -> None:
    """Check the parameters of an own function, which C code or NKI may have called."""
    for value in values:
        if type(value) not in HELD or type(value) is np.ndarray:
            held = kept(value)
            if held is not value:
                raise refusal(f"{held!r} as an argument")


_PASSED_ON = (NkiError, RecursionError, MemoryError)
"""Errors that a candidate cannot handle: they depend on the machine that runs it."""


def caught(error: BaseException) -> None:
    """Raise an error again that a candidate cannot handle: the first statement of a handler."""
    if not isinstance(error, Exception) or isinstance(error, _PASSED_ON):
        raise error
    if isinstance(error, TypeError) and Opaque.__name__ in str(error):
        raise opaque_refusal()


class Context:
    """A context manager by guards: it gets no traceback, and only errors that it may handle."""

    def __init__(self, manager: Any) -> None:
        self.manager = kept(manager)
        if type(manager) is Absent:
            need(manager)

    def __enter__(self) -> Any:
        return kept(type(self.manager).__enter__(self.manager))

    def __exit__(self, kind: Any, error: Any, trace: object) -> Any:
        leave = type(self.manager).__exit__
        is_passed = error is not None and (
            not isinstance(error, Exception) or isinstance(error, _PASSED_ON)
        )
        if error is None or is_passed:
            leave(self.manager, None, None, None)
            return False
        caught(error)
        if is_own_class(type(self.manager)):
            kind = kept(kind)
        return bool(leave(self.manager, kind, error, None))


def is_instance(value: Any, kinds: Any) -> bool:
    """Return ``isinstance(value, kinds)``."""
    if type(value) is Absent:
        need(value)
    if type(value) is Opaque:
        return is_instance("", kinds)
    plain = plain_kinds(kinds)
    if _is_nki(type(value)) and _has_protocol(plain):
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


def _read_text_class(value: Any, name: str) -> Any:
    if name == "__name__":
        return "str"
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
    if (name in names and name in _MODULE_SPECIAL) or not _is_special(name):
        if name in names:
            return names[name]
        text = f"module {value.__name__!r} has no attribute {name!r}"
        raise AttributeError(text)
    return _hidden(value, name)


def _read_opaque(value: Opaque, name: str) -> Any:
    if name == "format":
        return Facade(name, lambda *args, **kwargs: value)
    if name not in NAMES[str] and not _is_special(name):
        raise AttributeError(f"'str' object has no attribute {name!r}")
    raise opaque_refusal()


def _read_super(value: Any, name: str) -> Any:
    owner = value.__self__
    is_own = is_own_class(owner if isinstance(owner, type) else type(owner))
    if not is_own:
        return _hidden(value, name)
    if name == "__new__":
        return Facade(name, functools.partial(make_new, value.__new__))
    if _is_special(name) and name not in (*_OWN_SPECIAL, "__setattr__"):
        return _hidden(value, name)
    return kept(getattr(value, name))


READERS |= {
    _TextType: _read_text_class,
    Kind: _read_kind,
    Facade: _read_facade,
    Absent: _read_absent,
    Module: _read_module,
    OwnModule: _read_own_module,
    TypeFunction: _read_facade,
    Opaque: _read_opaque,
    super: _read_super,
}
HELD.add(_TextType)
