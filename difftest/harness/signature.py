"""Which array goes to which parameter of a kernel or of a reference: see KernelSpec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def name_of(function: Callable[..., Any]) -> str:
    """What a kernel or a reference is called in a message."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def home_of(function: Callable[..., Any]) -> str:
    """The module that a kernel is defined in."""
    return str(getattr(function, "__module__", None) or type(function).__module__)


def told_apart(names: Sequence[str], *places: Sequence[str]) -> tuple[str, ...]:
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


def shown(function: Callable[..., Any]) -> str:
    """Name and signature, as far as there is one to show."""
    return f"{name_of(function)}{signature_of(function) or '(...)'}"


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature; None of a compiled or wrapped function that shows none."""
    try:
        return (_kept if isinstance(function, Hashable) else inspect.signature)(function)
    except (TypeError, ValueError):
        return None


_kept = lru_cache(maxsize=1024)(inspect.signature)  # it is asked for in each case


def by_position(
    signature: inspect.Signature, parameters: Sequence[str]
) -> tuple[tuple[str, ...], str | None]:
    """What may be passed by position and is no parameter of the spec; what takes all the others."""
    kinds = {p.name: p.kind for p in signature.parameters.values() if p.name not in parameters}
    others = (name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_POSITIONAL)
    return tuple(name for name, kind in kinds.items() if kind in _POSITIONAL), next(others, None)


def call_of(
    kernel: Callable[..., Any], arrays: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call of a kernel: by position as far as its first parameters are arrays, else by name."""
    signature = signature_of(kernel)
    known = getattr(signature, "parameters", {}).values()
    if signature is None or not {*arrays} <= {p.name for p in known if p.kind not in _VARIADIC}:
        return tuple(arrays.values()), dict(parameters)
    call = inspect.BoundArguments(signature, {**arrays})
    return call.args, {**call.kwargs, **parameters}


def arguments_for(
    function: Callable[..., Any], inputs: Mapping[str, Any], parameters: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call of a reference: the inputs by name or by position, and those parameters it has.

    Raises
    ------
    TypeError : the function cannot be called so; the text says why.
    """
    signature = signature_of(function)
    if signature is None:
        return tuple(inputs.values()), {}
    named = [p.name for p in signature.parameters.values() if p.kind not in _VARIADIC]
    values = {name: value for name, value in parameters.items() if name in named}
    if set(inputs) <= set(named):
        values |= inputs
    else:
        names, others = by_position(signature, tuple(parameters))
        for place, name in enumerate(inputs, 1):
            if name in names and (own := names.index(name) + 1) != place:
                raise TypeError(
                    f"{name!r} is number {place} of the inputs and number {own} of its arrays"
                )
        rest = tuple(inputs.values())[len(names) :]
        if rest and others is None:
            raise TypeError(f"it takes {len(names)} of the {len(inputs)} inputs")
        values |= dict(zip(names, inputs.values(), strict=False))
        values |= {} if others is None else {others: rest}
    call = inspect.BoundArguments(signature, values)
    signature.bind(*call.args, **call.kwargs)  # says what is missing
    return call.args, call.kwargs
