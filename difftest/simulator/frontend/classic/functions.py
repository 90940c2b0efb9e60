"""How the functions of ``nki.language`` are named, which instructions also take as ``op``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NkiFunction = Callable[..., Any]


def named(function: NkiFunction, name: str, doc: str) -> NkiFunction:
    """``function`` with the name and the documentation that it has in ``nki.language``."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.nki_name = name  # type: ignore[attr-defined]
    return function
