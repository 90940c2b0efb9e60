"""The modules of Python and NumPy that a candidate can import, as tables of names."""

from __future__ import annotations

import collections
import contextlib
import copy
import enum
import functools
import importlib
import inspect
import json
import logging
import operator
import random
import re
import sys
import types
import typing
import uuid
from collections.abc import Callable, Collection, Mapping
from importlib import resources
from typing import Any

import numpy as np

from difftest.support.annotations import signature_shown
from difftest.tools.verdict.world import classes, texts
from difftest.tools.verdict.world.attributes import read
from difftest.tools.verdict.world.blocks import Context, caught
from difftest.tools.verdict.world.calls import (
    HIGHER,
    IGNORE_ARGUMENTS,
    call,
    guarded,
)
from difftest.tools.verdict.world.held import (
    CALLABLE,
    CLASSES,
    HELD,
    READERS,
    SETTERS,
    SHARED_CLASSES,
    Facade,
    Table,
    kept,
    list_function,
)
from difftest.tools.verdict.world.kinds import LRU_CACHE, SCALARS
from difftest.tools.verdict.world.refusal import (
    STATE,
    exact_text,
    is_special,
    refusal,
    unavailable,
)
from difftest.tools.verdict.world.texts import is_own_class, is_own_function

_FILE = resources.files("difftest.tools.verdict").joinpath("data/world.json")
_MODULES: dict[str, str] = json.loads(_FILE.read_text("utf-8"))["modules"]


def _public(name: str) -> dict[str, Any]:
    """Return the listed names of a module that this Python has; ``*`` lists all public names."""
    module = vars(importlib.import_module(name))
    listed = module if _MODULES[name] == "*" else _MODULES[name].split()
    return {key: module[key] for key in listed if key in module and key[0] != "_"}


def _list(table: Mapping[str, Any]) -> None:
    """Let a candidate hold the values of a module: classes, functions and objects."""
    for value in table.values():
        if isinstance(value, type):
            CLASSES.add(value)
        elif callable(value):
            list_function(value)
        elif type(value) not in HELD:
            HELD.add(type(value))


def _list_mixins(table: Mapping[str, Any]) -> None:
    """Let a candidate call the methods that its classes get from :mod:`collections.abc`."""
    for kind in table.values():
        for name, value in vars(kind).items() if isinstance(kind, type) else ():
            if isinstance(value, types.FunctionType) and not name.startswith("_"):
                list_function(value)
    HELD.update({table["ItemsView"], table["KeysView"], table["ValuesView"]})


# -- functools, operator, contextlib ---------------------------------------------------------------


def _attributes(names: Collection[str], what: str) -> Callable[[Any, str], Any]:
    """Return the reader of a type with these attributes only.

    ``what`` is the description of an attribute that is not available, with ``{}`` for its name.
    """

    def read_attribute(value: Any, name: str) -> Any:
        if name not in names:
            return unavailable(what.format(name))
        return getattr(value, name)

    return read_attribute


def _methods(names: Collection[str], what: str) -> Callable[[Any, str], Any]:
    """Return the reader of a type with these methods only; see :func:`_attributes`."""
    read_attribute = _attributes(names, what)

    def read_method(value: Any, name: str) -> Any:
        found = read_attribute(value, name)
        return Facade(name, found) if name in names else found

    return read_method


class Partial:
    """``functools.partial`` of a candidate: it holds the candidate's own values only."""

    __slots__ = ("args", "func", "keywords")
    args: tuple[Any, ...]
    func: Any
    keywords: dict[str, Any]

    def __init__(self, func: Any, /, *args: Any, **keywords: Any) -> None:
        if type(func) is Partial:
            args = (*func.args, *args)
            keywords = {**func.keywords, **keywords}
            func = func.func
        self.func = kept(func)
        self.args = args
        self.keywords = keywords

    @property
    def __wrapped__(self) -> Any:
        """The function: a kernel's dialect follows from it."""
        return self.func

    @property
    def __signature__(self) -> inspect.Signature:
        made = functools.partial(self.func, *self.args, **self.keywords)
        return signature_shown(made)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return call(self.func, *self.args, *args, **{**self.keywords, **keywords})


CLASSES.add(Partial)
CALLABLE.add(Partial)
HELD.add(Partial)
READERS[Partial] = _attributes(Partial.__slots__, "the attribute {} of a partial")


def _cached(make: Callable[..., Any], function: Any = None, **options: Any) -> Any:
    """Return ``functools.lru_cache`` of an own function, with or without options."""
    if not callable(function):
        size = {"maxsize": function} if function is not None else {}
        options |= size
        return Facade("lru_cache", lambda own: _cached(make, own, **options))
    return make(**options)(guarded([function])[0])


def _wraps(wrapped: Any, **options: Any) -> Facade:
    if options:
        return unavailable("functools.wraps with options")  # type: ignore[return-value]

    def decorate(function: Any) -> Any:
        if is_own_function(wrapped) and is_own_function(function):
            functools.update_wrapper(function, wrapped)
        return function

    return Facade("wraps", decorate)


def _unbounded() -> Any:
    return functools.lru_cache(maxsize=None)


def _total_ordering(kind: Any) -> Any:
    if not is_own_class(kind):
        raise refusal("total_ordering of a class that is not the candidate's own")
    return functools.total_ordering(kind)


def _attrgetter(*names: Any) -> Facade:
    for name in names:
        exact_text(name, "the name of an attribute")

    def get(value: Any) -> Any:
        found = tuple(functools.reduce(read, name.split("."), value) for name in names)
        return found if len(found) > 1 else found[0]

    return Facade("attrgetter", get)


def _methodcaller(name: Any, *args: Any, **options: Any) -> Facade:
    exact_text(name, "the name of a method")
    return Facade(
        "methodcaller", lambda value: call(read(value, name), *args, **options)
    )


class Suppress:
    """``contextlib.suppress`` of a candidate: it suppresses errors that it may handle."""

    def __init__(self, *kinds: Any) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: object) -> bool:
        if error is None or not isinstance(error, self.kinds):
            return False
        caught(error)
        return True


class ExitStack:
    """``contextlib.ExitStack`` of a candidate: it enters and leaves managers by the guards."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def enter_context(self, manager: Any) -> Any:
        """Enter a manager, which the stack leaves at its end."""
        return self._stack.enter_context(Context(manager))

    def callback(self, function: Any, /, *args: Any, **options: Any) -> Any:
        """Let the stack call a function at its end."""
        self._stack.callback(call, function, *args, **options)
        return function

    def close(self) -> None:
        """End the stack."""
        self._stack.close()

    def __enter__(self) -> ExitStack:
        return self

    def __exit__(self, *error: Any) -> bool:
        return bool(self._stack.__exit__(*error))


READERS[ExitStack] = _methods(
    ("callback", "close", "enter_context"), "the attribute {} of an ExitStack"
)


def _contextmanager(function: Any) -> Any:
    if not is_own_function(function):
        raise refusal("contextmanager of a function that is not the candidate's own")
    return list_function(contextlib.contextmanager(function))


_GENERATOR_CONTEXT = type(contextlib.contextmanager(lambda: iter(()))())
CLASSES |= {ExitStack, Suppress, contextlib.nullcontext}
HELD |= {ExitStack, Suppress, contextlib.nullcontext, _GENERATOR_CONTEXT}
HELD |= {operator.itemgetter, type(operator.itemgetter(0))}
CALLABLE |= {type(operator.itemgetter(0)), LRU_CACHE}
CALLABLE |= {types.MethodType, typing.NewType, type(functools.cmp_to_key(lambda *_: 0))}


# -- what would reach files, processes, the clock or the host --------------------------------------


class NullLogger:
    """A logger that ignores every message."""

    def __call__(self, *args: object, **more: object) -> NullLogger:
        return self


HELD.add(NullLogger)
CALLABLE.add(NullLogger)
IGNORE_ARGUMENTS.add(NullLogger)
READERS[NullLogger] = lambda value, name: _of_logger(value, name)
SETTERS[NullLogger] = lambda value, name: types.SimpleNamespace()


def _is_logged(level: Any) -> bool:
    """Answer ``isEnabledFor`` in two ways: a kernel may not follow what is logged."""
    return bool(level >= logging.WARNING) is not STATE.is_inverted


def _of_logger(logger: NullLogger, name: str) -> Any:
    """Return a method of a logger; its state is that of the program around it."""
    if name == "isEnabledFor":
        return Facade(name, _is_logged)
    if name in _LOGGING_STATE or name.startswith("_"):
        return unavailable(f"the attribute {name} of a logger")
    return logger


_LOGGING_STATE = (
    *("disabled", "filters", "getEffectiveLevel", "handlers", "hasHandlers"),
    *("level", "manager", "name", "parent", "propagate", "root"),
)
"""The attributes of a logger that show the state of the program around it."""


def _clock(read: Callable[[], Any]) -> Any:
    """Return the time of a clock, shifted."""
    now = read()
    if isinstance(now, int):
        return now + int(STATE.clock_shift * 1e9)
    return now + STATE.clock_shift


def _environ_name(name: Any, default: Any = None) -> Any:
    STATE.asked.add("os.environ")
    return default


class StandardOutput:
    """``sys.stdout`` of a candidate: its text is counted."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def write(self, text: Any) -> int:
        """Count a text."""
        shown = texts.text_of(text)
        self._write(str(shown))
        return len(shown)

    def flush(self) -> None:
        """Do nothing."""

    def isatty(self) -> bool:
        """Return False."""
        return False


HELD.add(StandardOutput)
READERS[StandardOutput] = _methods(("write", "flush", "isatty"), "sys.stdout.{}")


def _os_name(name: str) -> Any:
    """Return the empty environment; no other name of ``os`` is here."""
    if name == "environ":
        STATE.asked.add("os.environ")
        return {}
    return unavailable(f"os.{name}")


# -- copies and texts of plain values --------------------------------------------------------------


def _copied(value: Any, *, deep: bool) -> Any:
    """Return a copy of containers and own objects; tensors and functions are shared."""
    kind = type(value)

    def copied(item: Any) -> Any:
        return _copied(item, deep=True) if deep else item

    if kind in (list, tuple, set, frozenset):
        return kind(map(copied, value))
    if kind in (dict, collections.defaultdict, collections.OrderedDict):
        fresh = copy.copy(value)
        fresh.update({key: copied(item) for key, item in value.items()})
        return fresh
    if kind is np.ndarray:
        return value.copy()
    if is_own_class(kind) and issubclass(kind, _OWN_CONTAINERS):
        return _copied_container(value, copied)
    if is_own_class(kind) and not issubclass(kind, _PLAIN_BASES):
        fresh = object.__new__(kind)
        for name, item in vars(value).items():
            object.__setattr__(fresh, name, copied(item))
        return fresh
    return value


def _copied_container(value: Any, copied: Callable[[Any], Any]) -> Any:
    """Return a copy of a list, a dictionary or a set of an own class, with its attributes."""
    base: Any = next(base for base in _OWN_CONTAINERS if isinstance(value, base))
    fresh = base.__new__(type(value))
    if base is dict:
        dict.update(fresh, {key: copied(item) for key, item in dict.items(value)})
    elif base is list:
        list.extend(fresh, map(copied, list.__iter__(value)))
    else:
        set.update(fresh, set.__iter__(value))
    for name, item in vars(value).items():
        object.__setattr__(fresh, name, copied(item))
    return fresh


_OWN_CONTAINERS = (dict, list, set)
_PLAIN_BASES = (int, str, float, tuple, enum.Enum)
"""Bases of own classes whose objects are shared by a copy."""


def _json_text(value: Any, **options: Any) -> Any:
    if options.keys() - {"indent", "sort_keys", "separators"}:
        return unavailable("json.dumps with such options")
    if not texts.is_transparent(value):
        raise TypeError("Object is not JSON serializable")
    return json.dumps(value, **options)


class Warnings:
    """``warnings.catch_warnings()`` of a candidate: nothing is caught."""

    def __init__(self, *, record: bool = False, **options: object) -> None:
        if record:
            unavailable("warnings.catch_warnings(record=True)")

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


CLASSES.add(Warnings)
HELD.add(Warnings)


def _filter_warnings(action: Any, *args: object, **options: object) -> None:
    if action == "error":
        unavailable("warnings that are errors")


def _levels() -> dict[str, int]:
    names = ("CRITICAL", "DEBUG", "ERROR", "INFO", "NOTSET", "WARNING", "WARN", "FATAL")
    return {name: getattr(logging, name) for name in names} | {"OFF": 60}


def _logging() -> dict[str, Any]:
    names = (
        "Formatter FileHandler Handler Logger LoggerAdapter StreamHandler addLevelName basicConfig "
        "captureWarnings critical debug disable error exception getLevelName getLogger info log "
        "setLevel warn warning"
    )
    return {**dict.fromkeys(names.split(), NullLogger()), **_levels()}


def _typing() -> dict[str, Any]:
    table = _public("typing")
    for value in table.values():
        if not isinstance(value, (type, types.FunctionType)):
            HELD.add(type(value))
    table["NamedTuple"] = classes.NAMED_TUPLE
    table["TypedDict"] = classes.TYPED_DICT
    table["Type"] = table["List"]  # in annotations only; Type[int] could be called
    table.pop("ForwardRef", None)
    table["Any"] = typing.Any
    listed = ("assert_never", "assert_type", "cast", "overload")
    _list({name: table[name] for name in listed if name in table})
    for name in ("NewType", "TypeVar", "ParamSpec"):
        if name in table:
            _list({name: table[name]})
    _list({name: value for name, value in table.items() if isinstance(value, type)})
    # Python's own mark their argument, which may be an object of NKI.
    table |= {name: Facade(name, lambda own: own) for name in ("final", "override")}
    return table


def _numpy() -> dict[str, Any]:
    table = _public("numpy")
    table.pop("typing", None)
    for value in table.values():
        if isinstance(value, type):
            CLASSES.add(value)
        elif callable(value) and not isinstance(value, np.ufunc):
            list_function(value)
    CALLABLE.add(np.ufunc)
    HELD.add(type(np.add))
    return table


_HIGHER = {
    "itertools": "accumulate dropwhile filterfalse groupby starmap takewhile",
    "functools": "cached_property cmp_to_key reduce",
    "collections": "defaultdict",
    "re": "sub subn",
    "dataclasses": "field",
}
"""The functions of each module that call their arguments."""


def _list_higher() -> None:
    """Register the functions that call their arguments."""
    for module, names in _HIGHER.items():
        for name in names.split():
            function = getattr(importlib.import_module(module), name)
            HIGHER[id(function)] = function
    for function in (map, filter, sorted, min, max, iter, property):
        HIGHER[id(function)] = function


def _standard_modules() -> dict[str, dict[str, Any]]:
    tables = {
        name: _public(name)
        for name in _MODULES
        if name not in ("numpy", "typing", "numpy.typing", "types")
    }
    for table in tables.values():
        _list(table)
    _list_mixins(tables["collections.abc"])
    tables["functools"] |= {
        "partial": Partial,
        "wraps": Facade("wraps", _wraps),
        "lru_cache": Facade(
            "lru_cache", functools.partial(_cached, functools.lru_cache)
        ),
        "cache": Facade("cache", functools.partial(_cached, _unbounded)),
        "total_ordering": Facade("total_ordering", _total_ordering),
    }
    tables["operator"] |= {
        "attrgetter": Facade("attrgetter", _attrgetter),
        "methodcaller": Facade("methodcaller", _methodcaller),
        "mod": Facade("mod", texts.percent),
    }
    tables["contextlib"] |= {
        "contextmanager": Facade("contextmanager", _contextmanager),
        "ExitStack": ExitStack,
        "suppress": Suppress,
    }
    tables["dataclasses"] |= {
        "dataclass": Facade("dataclass", classes.dataclass),
        "fields": Facade("fields", classes.fields),
        "asdict": Facade("asdict", classes.as_dict),
        "astuple": Facade("astuple", classes.as_tuple),
        "replace": Facade("replace", classes.replace),
        "is_dataclass": Facade("is_dataclass", classes.is_dataclass),
    }
    tables["abc"]["ABCMeta"] = classes.ABC_META
    tables["enum"] |= classes.ENUMERATIONS
    tables["collections"]["namedtuple"] = Facade("namedtuple", classes.namedtuple)
    tables["numpy"] = _numpy()
    tables["typing"] = _typing()
    tables["numpy.typing"] = dict.fromkeys(
        ("ArrayLike", "DTypeLike", "NDArray"),
        typing.List,  # noqa: UP006
    )
    tables["types"] = {"SimpleNamespace": Namespace}
    tables["copy"] = {
        "copy": Facade("copy", functools.partial(_copied, deep=False)),
        "deepcopy": Facade("deepcopy", functools.partial(_copied, deep=True)),
    }
    tables["json"] = {"dumps": Facade("dumps", _json_text)}
    tables["time"] = {
        name: Facade(name, functools.partial(_clock, read))
        for name, read in tables["time"].items()
    }
    tables["gc"] = {"collect": Facade("collect", lambda *_: int(STATE.is_inverted))}
    tables["logging"] = _logging()
    tables["warnings"] = {
        **dict.fromkeys(("warn", "resetwarnings"), NullLogger()),
        "filterwarnings": Facade("filterwarnings", _filter_warnings),
        "simplefilter": Facade("simplefilter", _filter_warnings),
        "catch_warnings": Warnings,
    }
    return tables


class Namespace:
    """``types.SimpleNamespace`` of a candidate."""

    def __init__(self, **names: Any) -> None:
        # NumPy reads special attributes of an object, such as an address of memory.
        for name in names:
            if is_special(exact_text(name, "the name of an attribute")):
                raise refusal(f"the attribute {name} is set")
        vars(self).update(names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Namespace) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


for _kind, _name in {
    Namespace: "SimpleNamespace",
    Partial: "partial",
    Suppress: "suppress",
    Warnings: "catch_warnings",
}.items():
    _kind.__name__ = _kind.__qualname__ = _name
type.__setattr__(Namespace, texts.OWN, True)
SHARED_CLASSES.add(Namespace)
CLASSES.add(Namespace)
HELD |= {random.Random, uuid.UUID, re.RegexFlag, *SCALARS}
READERS[random.Random] = _methods(_MODULES["random"].split(), "random.{}")
READERS[uuid.UUID] = _attributes(("hex", "int", "bytes"), "the attribute {} of a UUID")
_list_higher()
STANDARD = _standard_modules()
"""The names of the modules that do not depend on the candidate."""


def standard_tables(write: Callable[[str], object]) -> dict[str, Table]:
    """Return the tables of the modules that a candidate can import, without NKI's.

    Parameters
    ----------
    write : writes the text that the candidate prints.
    """
    out = StandardOutput(write)
    tables = {name: Table(names) for name, names in STANDARD.items()}
    tables["sys"] = Table(
        {
            "maxsize": sys.maxsize,
            "float_info": sys.float_info,
            "version_info": sys.version_info,
            "stdout": out,
            "stderr": out,
        }
    )
    tables["os"] = Table({"getenv": Facade("getenv", _environ_name)}, _os_name)
    return tables


HELD.add(type(sys.version_info))
READERS[type(sys.version_info)] = _attributes(
    ("major", "minor", "micro", "releaselevel", "serial"), "sys.version_info.{}"
)


def _read_float_info(value: Any, name: str) -> Any:
    if name.startswith("_"):
        return unavailable(f"sys.float_info.{name}")
    return kept(getattr(value, name))


HELD.add(type(sys.float_info))
READERS[type(sys.float_info)] = _read_float_info
