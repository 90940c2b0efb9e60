"""The meanings of the API's functions, by name, and of what Python's syntax does to tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

MEANINGS: dict[str, Callable[[str, dict[str, Any]], Any]] = {}
"""Takes a function's name (such as ``nl.load``) and all its arguments by name."""


def means(*names: str, **roles: Callable[..., Any]) -> Callable[[F], F]:
    """Register the meaning of functions; a role checks one argument and converts it.

    The roles are those of :mod:`difftest.simulator.plain.rules`. The decorated function is left as
    it is, to be called with arguments that are converted already.
    """

    def register(function: F) -> F:
        def checked(where: str, arguments: dict[str, Any]) -> Any:
            for name, role in roles.items():
                arguments[name] = role(arguments[name], name, where)
            return function(**arguments)

        for name in names:
            MEANINGS[name] = checked
        return function

    return register


def meant(name: str, **arguments: Any) -> Any:
    """What ``name`` does with these arguments."""
    return MEANINGS[name](name, arguments)
