"""Bind arrays to the parameters of kernels and references (see KernelSpec)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from difftest.support.annotations import signature_shown
from difftest.support.tracebacks import function_of

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NAMES = ("__name__", "func_name", "kernel_name")
"""Attributes that hold a function's name."""
_SHOWN = re.compile(r"\b(?:function|kernel)\b[ :=('\"]+([A-Za-z_][\w.]*)")
"""A name in an object's repr, such as ``<Kernel function=add>``."""


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of a kernel or a reference for a message.

    An object without a name has the name of the function inside it, or else the name in its repr.
    """
    for candidate in (function, function_of(function)):
        for attribute in _NAMES:
            name = getattr(candidate, attribute, None)
            if name and isinstance(name, str):
                return name
    shown = _SHOWN.search(repr(function))
    name = shown[1].rpartition(".")[2] if shown else ""
    return type(function).__name__ if name in ("", "object", "at") else name


def module_name(function: Callable[..., Any]) -> str:
    """Return the module that a kernel is defined in."""
    own = getattr(function_of(function) or function, "__module__", None)
    return str(own or type(function).__module__)


def distinct_names(names: Sequence[str], *places: Sequence[str]) -> tuple[str, ...]:
    """Return distinct labels for functions: their names, where no two are equal.

    Parameters
    ----------
    names : names of the functions.
    places : sequences with one suffix for each name. Equal names get the suffixes, in parentheses,
        of the first sequence that distinguishes them. An empty suffix does not. If no sequence
        distinguishes them, they are numbered from 1.
    """
    labels = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        equal = [index for index, other in enumerate(names) if other == name]
        suffixes = next(
            (p for p in places if len({p[n] for n in equal} - {""}) == len(equal)), None
        )
        for number, index in enumerate(equal, 1):
            labels[index] = f"{name} ({suffixes[index] if suffixes else number})"
    return tuple(labels)


def format_signature(function: Callable[..., Any]) -> str:
    """Return the name and the signature, or ``(...)`` for a signature that cannot be read."""
    return f"{function_name(function)}{signature_of(function) or '(...)'}"


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature, or None for a compiled or wrapped function without one."""
    try:
        return (_kept if isinstance(function, Hashable) else signature_shown)(function)
    except (TypeError, ValueError):
        return None


_kept = lru_cache(maxsize=1024)(signature_shown)  # each case needs it


def bind_kernel(
    kernel: Callable[..., Any], arrays: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of a kernel's call.

    Arrays are positional as far as they are the kernel's first parameters; others go by name.
    """
    signature = signature_of(kernel)
    known = getattr(signature, "parameters", {}).values()
    if signature is None or not set(arrays) <= {
        p.name for p in known if p.kind not in _VARIADIC
    }:
        return tuple(arrays.values()), dict(parameters)
    call = inspect.BoundArguments(signature, {**arrays})
    return call.args, {**call.kwargs, **parameters}


def bind_reference(
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    parameters: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of a reference's call.

    Inputs go by name if the function has all of the names, else by position. Of ``parameters`` the
    function gets those that it declares.

    Raises
    ------
    TypeError : the function cannot be called with these arguments; the text names the cause.
    """
    signature = signature_of(function)
    if signature is None:
        return tuple(inputs.values()), {}
    names = [p.name for p in signature.parameters.values() if p.kind not in _VARIADIC]
    values = {name: value for name, value in parameters.items() if name in names}
    if set(inputs) <= set(names):
        named = inspect.BoundArguments(signature, {**values, **inputs})
        call = signature.bind(*named.args, **named.kwargs)
    else:
        for place, name in enumerate(inputs, 1):
            if name in names and (other := names.index(name) + 1) != place:
                where = (
                    f"number {place} of the inputs and number {other} of its parameters"
                )
                raise TypeError(f"{name!r} is {where}")
        call = signature.bind(*inputs.values(), **values)
    return call.args, call.kwargs
