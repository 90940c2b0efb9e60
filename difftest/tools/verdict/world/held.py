"""The values that a candidate can hold: their types, and tables of modules and functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
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

from difftest.tools.verdict.world.kinds import CLASS_ATTRIBUTES, NAMES
from difftest.tools.verdict.world.order import (
    SETS,
    RunFrozenSet,
    RunSet,
    ordered,
)
from difftest.tools.verdict.world.refusal import STATE, Absent, refusal, unavailable
from difftest.tools.verdict.world.texts import Opaque, is_own_class, is_own_function

BOUND = (BuiltinFunctionType, BuiltinMethodType, MethodWrapperType)
"""Types of methods that C code has bound to a value."""
OWN_SPECIAL = frozenset(
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
SHOWN_AS: dict[type, type] = {RunSet: set, RunFrozenSet: frozenset}
"""The classes that stand for Python's own, and those."""
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
} - SETS.keys()
"""The types of the values that a candidate can hold."""


def list_function(function: Any) -> Any:
    """Let a candidate hold and call a function; return it."""
    FUNCTIONS[id(function)] = function
    return function


for _kind in (RunSet, RunFrozenSet):
    list_function(_kind.__iter__)
list_function(RunSet.pop)


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
    if kind in SETS:
        return ordered(value)
    if kind is np.ndarray and not has_numbers(value.dtype):
        raise refusal("an array of objects or of texts", "use a list")
    if isinstance(value, type) and not STATE.is_open:
        return value if value in CLASSES or is_own_class(value) else kind_of(value)
    if STATE.is_open or _is_held(value, kind):
        return value
    raise refusal(f"a value of type {kind.__name__}")


def has_numbers(dtype: np.dtype[Any]) -> bool:
    """Return whether arrays of a dtype hold numbers only: NumPy makes texts of any object."""
    if dtype.fields is not None:
        return all(has_numbers(field[0]) for field in dtype.fields.values())
    return dtype.base.kind not in "OSU"


def _is_held(value: Any, kind: type) -> bool:
    """Return whether a candidate can hold a value whose type alone does not decide it."""
    if kind is np.ndarray or is_own_class(kind) or id(value) in FUNCTIONS:
        return True
    if kind is FunctionType:
        return is_own_function(value)
    if kind is MethodType:
        function = value.__func__
        is_listed = type(function) in HELD or id(function) in FUNCTIONS
        return is_listed or is_own_function(function)
    if kind in BOUND:
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
    return is_super and is_own_class(type(owner)) and name in OWN_SPECIAL
