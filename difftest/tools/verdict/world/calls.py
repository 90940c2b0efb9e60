"""The guards of a candidate's calls: the functions, and the arguments that they get."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from difftest.tools.verdict.world.held import (
    CALLABLE,
    CLASSES,
    Facade,
    Kind,
    has_numbers,
    kept,
)
from difftest.tools.verdict.world.kinds import NARROW, SCALARS
from difftest.tools.verdict.world.refusal import (
    STATE,
    Absent,
    need,
    refusal,
    unavailable,
)
from difftest.tools.verdict.world.texts import (
    OWN,
    Opaque,
    is_own_class,
    is_own_function,
    opaque_refusal,
)


def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Return ``function(*args, **kwargs)``: the guard of a call."""
    kind = type(function)
    if kind is FunctionType and function.__builtins__ is STATE.builtins:
        return function(*args, **kwargs)
    if kind is Facade:
        return _call_facade(function, args, kwargs)
    if id(function) in HIGHER:
        return kept(function(*guarded(args), **guarded_options(kwargs)))
    if kind is FunctionType or kind in CALLABLE:
        check_arguments(function, args, kwargs)
        if kind is np.ufunc:
            args = as_numbers(args)
        return kept(function(*args, **kwargs))
    return _call_other(function, kind, args, kwargs)


def _call_facade(facade: Facade, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of the world; refuse arguments that Python's own function may take."""
    try:
        return facade._call(*args, **kwargs)
    except TypeError as error:
        trace = error.__traceback__
        if trace is not None and trace.tb_next is None:
            what = f"{facade.__name__} with such arguments"
            raise refusal(what, is_question=True) from None
        raise


def _inner_function(function: Any, kind: type) -> Any:
    """Return the function that a static method or an alias such as ``list[int]`` calls."""
    if kind is staticmethod:
        return function.__func__
    if kind.__module__ in ("types", "typing"):
        return getattr(function, "__origin__", None)
    return None


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
    return _call_wrapped(function, kind, args, kwargs)


def _call_wrapped(
    function: Any, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a static method or an alias such as ``list[int]`` by what it wraps; others as is."""
    if (inner := _inner_function(function, kind)) is not None:
        return call(inner, *args, **kwargs)
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


IGNORE_ARGUMENTS: set[type] = set()
"""Types whose values can be called and ignore their arguments, as loggers do."""
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


def check_arguments(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Make the opaque text of ``name=`` plain for NKI; refuse absent and other opaque values."""
    if type(function) in IGNORE_ARGUMENTS:
        return
    names = [kwargs.get("name")] if is_nki(function) else []
    for value in itertools.chain(args, kwargs.values()):
        kind = type(value)
        if kind is Absent:
            need(value)
        elif kind is Opaque and not any(value is name for name in names):
            raise opaque_refusal()
    if type(kwargs.get("name")) is Opaque:
        kwargs["name"] = kwargs["name"].shown


def as_numbers(args: Iterable[Any]) -> tuple[Any, ...]:
    """Return the arguments of a function of NumPy for numbers; refuse others.

    NumPy calculates with objects as Python does: ``np.mod("%s", nl.add)`` is a text.
    """
    return tuple(map(_as_number, args))


def _as_number(value: Any) -> Any:
    kind = type(value)
    if kind in (np.ndarray, bool, int, float, complex) or kind in SCALARS:
        return value
    if value is None or is_nki(value):
        return value
    array = np.asarray(value)
    if not has_numbers(array.dtype):
        raise refusal("a function of NumPy of what is no number")
    return array


def is_nki(value: Any) -> bool:
    """Return whether a function, class or object is of NKI."""
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).startswith("difftest.simulator.")
