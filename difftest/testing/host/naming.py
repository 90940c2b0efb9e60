"""Functions of a module, and which one was meant by a name that is not there."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from types import FunctionType, ModuleType
from typing import Any

from difftest.testing.backends.sdk import function_of

_LISTED = 12
"""Names, before "and more"."""


def is_function(kernel: Any) -> bool:
    """Whether something may be a kernel: a Python function, or an object made of one."""
    return not isinstance(kernel, type) and (
        function_of(kernel) is not None
        or isinstance(inspect.getattr_static(type(kernel), "__call__", None), FunctionType)
    )


def function_in(module: ModuleType, name: str, place: object) -> Any:
    """The function of that name in a module; a LookupError lists those that ``place`` has."""
    value = getattr(module, name, None)
    if is_function(value):
        return value
    own = [
        key
        for key, other in vars(module).items()
        if is_function(other) and other.__module__ == module.__name__ and key[0] != "_"
    ]
    kind = f"; its {name} is of type {type(value).__name__}"
    raise LookupError(
        f"{place} has no function {name}{suggest_names(name, own) if value is None else kind}"
    )


def suggest_names(name: str, names: Iterable[str]) -> str:
    """What there is instead of a name, to follow the words that say that it is not there."""
    choices = sorted(names)
    more = f" and {len(choices) - _LISTED} more" if len(choices) > _LISTED else ""
    listed = f"; it has {', '.join(choices[:_LISTED])}{more}" if choices else ""
    close = get_close_matches(name, choices, 1)
    return listed + (f"; did you mean {close[0]}?" if close else "")
