"""Which mode runs a kernel's calls: the fast one, or the plain one (``launch(..., plain=True)``).

A kernel's module took hold of ``nki.language`` and ``nki.isa`` when it was imported, so the choice
is made at each call, by the launch that is running.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from difftest.simulator.core import PlainMode, entering


def dispatching(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, or in a launch in plain mode what that has under ``name``."""
    signature = inspect.signature(function)

    def in_plain_mode(plain: PlainMode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return plain.call(name, signature, args, kwargs)

    return functools.update_wrapper(
        entering(function, in_plain_mode),
        function,
        updated=() if isinstance(function, type) else ("__dict__",),
    )


class _Grid:
    """``nl.mgrid``, whose brackets are a call."""

    def __init__(self, grid: Any) -> None:
        self._get = dispatching("nl.mgrid", lambda key: grid[key])

    def __getitem__(self, key: Any) -> Any:
        return self._get(key)


UNMODED = frozenset({"nc", "spmd_dim"})
"""Functions about the launch grid, which is made before a launch."""


def make_dispatching(short: str, names: dict[str, Any], public: list[str]) -> None:
    """Let the functions among a module's ``public`` names dispatch; ``short`` is nl or nisa."""
    for name in public:
        value = names[name]
        if name == "mgrid":
            names[name] = _Grid(value)
        elif name == "ds" or (inspect.isfunction(value) and name not in UNMODED):
            names[name] = dispatching(f"{short}.{name}", value)
