"""Bind arrays to the parameters of kernels and references (see KernelSpec)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
    indices: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        indices.setdefault(name, []).append(index)
    for name, equal in indices.items():
        if len(equal) > 1:
            for index, suffix in zip(equal, _suffixes(equal, places), strict=True):
                labels[index] = f"{name} ({suffix})"
    return tuple(labels)


def _suffixes(indices: Sequence[int], places: Iterable[Sequence[str]]) -> list[str]:
    """Return different suffixes for functions, from the first of ``places`` that has them."""
    for place in places:
        own = [place[index] for index in indices]
        if len(set(own) - {""}) == len(own):
            return own
    return [str(number) for number, _ in enumerate(indices, 1)]


def format_signature(function: Callable[..., Any]) -> str:
    """Return the name and the signature, or ``(...)`` for a signature that cannot be read."""
    return f"{function_name(function)}{signature_of(function) or '(...)'}"


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature, or None for a compiled or wrapped function without one."""
    try:
        if isinstance(function, Hashable):
            return _cached_signature(function)
        return signature_shown(function)
    except (TypeError, ValueError):
        return None


_cached_signature = lru_cache(maxsize=1024)(signature_shown)  # each case needs it


def bind_kernel(
    kernel: Callable[..., Any], arrays: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of a kernel's call.

    Arrays are positional as far as they are the kernel's first parameters; others go by name.
    """
    signature = signature_of(kernel)
    if signature is None or not set(arrays) <= set(_names_of(signature)):
        return tuple(arrays.values()), dict(parameters)
    call = inspect.BoundArguments(signature, {**arrays})
    return call.args, {**call.kwargs, **parameters}


def _names_of(signature: inspect.Signature) -> list[str]:
    """Return the names of the parameters, without ``*args`` and ``**kwargs``."""
    rows = signature.parameters.values()
    return [row.name for row in rows if row.kind not in _VARIADIC]


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
    names = _names_of(signature)
    values = {name: value for name, value in parameters.items() if name in names}
    if set(inputs) <= set(names):
        named = inspect.BoundArguments(signature, {**values, **inputs})
        call = signature.bind(*named.args, **named.kwargs)
    else:
        for place, name in enumerate(inputs, 1):
            if name in names and names.index(name) + 1 != place:
                other = f"number {names.index(name) + 1} of its parameters"
                raise TypeError(f"{name!r} is number {place} of the inputs and {other}")
        call = signature.bind(*inputs.values(), **values)
    return call.args, call.kwargs
