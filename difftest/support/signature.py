"""Which array goes to which parameter of a kernel or of a reference: see KernelSpec."""

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

    An object that has none is named for the function inside it, or else for what its repr says.
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
    """The module that a kernel is defined in."""
    own = getattr(function_of(function) or function, "__module__", None)
    return str(own or type(function).__module__)


def distinct_names(names: Sequence[str], *places: Sequence[str]) -> tuple[str, ...]:
    """What to call several functions beside each other: their names, if no two are equal.

    Else each of one name has behind it the first of ``places`` that tells them apart (a list of
    them, one for each name; an empty one tells nothing), or failing those a number.
    """
    labels = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        same = [at for at, other in enumerate(names) if other == name]
        said = next((p for p in places if len({p[at] for at in same} - {""}) == len(same)), None)
        for number, at in enumerate(same, 1):
            labels[at] = f"{name} ({said[at] if said else number})"
    return tuple(labels)


def format_signature(function: Callable[..., Any]) -> str:
    """Name and signature, as far as there is one to show."""
    return f"{function_name(function)}{signature_of(function) or '(...)'}"


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature; None of a compiled or wrapped function that shows none."""
    try:
        return (_kept if isinstance(function, Hashable) else signature_shown)(function)
    except (TypeError, ValueError):
        return None


_kept = lru_cache(maxsize=1024)(signature_shown)  # it is asked for in each case


def bind_kernel(
    kernel: Callable[..., Any], arrays: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call of a kernel: by position as far as its first parameters are arrays, else by name."""
    signature = signature_of(kernel)
    known = getattr(signature, "parameters", {}).values()
    if signature is None or not set(arrays) <= {p.name for p in known if p.kind not in _VARIADIC}:
        return tuple(arrays.values()), dict(parameters)
    call = inspect.BoundArguments(signature, {**arrays})
    return call.args, {**call.kwargs, **parameters}


def bind_reference(
    function: Callable[..., Any], inputs: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call of a reference: the inputs by name, or first by position; and parameters it has.

    Raises
    ------
    TypeError : the function cannot be called so; the text says why.
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
                where = f"number {place} of the inputs and number {other} of its parameters"
                raise TypeError(f"{name!r} is {where}")
        call = signature.bind(*inputs.values(), **values)
    return call.args, call.kwargs
