"""Find functions of a module, and suggest names for a name that is missing."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

from difftest.support.wording import did_you_mean
from difftest.testing.backends.sdk import function_of

_LISTED = 12
"""The number of names that are listed before "and more"."""


def is_function(kernel: Any) -> bool:
    """Return whether a value may be a kernel: a Python function, or an object made of one."""
    if isinstance(kernel, type):
        return False
    call = inspect.getattr_static(type(kernel), "__call__", None)
    return function_of(kernel) is not None or isinstance(call, FunctionType)


def function_in(module: ModuleType, name: str, place: object) -> Any:
    """Return a function of a module by name, or raise a LookupError that lists its functions."""
    value = getattr(module, name, None)
    if is_function(value):
        return value
    if value is not None:
        raise LookupError(
            f"{place} has no function {name}; its {name} is of type {type(value).__name__}"
        )
    own = []
    for key, other in vars(module).items():
        is_public = not key.startswith("_")
        if is_public and is_function(other) and other.__module__ == module.__name__:
            own.append(key)
    raise LookupError(f"{place} has no function {name}{suggest_names(name, own)}")


def suggest_names(name: str, names: Iterable[str]) -> str:
    """Return a list of names and the closest one, to end a message on a missing name."""
    choices = sorted(names)
    text = ""
    if choices:
        text = f"; it has {', '.join(choices[:_LISTED])}"
    if len(choices) > _LISTED:
        text += f" and {len(choices) - _LISTED} more"
    if nearest := did_you_mean(name, choices):
        text += f"; {nearest}"
    return text
