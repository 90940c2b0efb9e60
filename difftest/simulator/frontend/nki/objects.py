"""Objects that kernels pass around: ``nl.NKIObject``, and what an instruction's call returns."""

from __future__ import annotations

import dataclasses
from typing import Any


class NKIObject:
    """``nl.NKIObject``: the base class of a kernel's own dataclasses.

    Without an ``__init__`` of its own a class takes its annotated fields as keywords; those left
    out have their default or None, and ``__post_init__`` is called (NKI Language Guide, v2.32.0).
    """

    __slots__ = ()

    def __init__(self, **kwargs: Any) -> None:
        fields = {
            name: getattr(type(self), name, None)
            for kind in reversed(type(self).__mro__)
            for name in vars(kind).get("__annotations__", {})
        }
        for name, value in {**fields, **kwargs}.items():
            setattr(self, name, value)
        after = getattr(self, "__post_init__", None)
        if after is not None:
            after()


def is_record(value: object) -> bool:
    """Whether a kernel's argument is an object whose fields may be arrays."""
    named = isinstance(value, NKIObject) or dataclasses.is_dataclass(value)
    return named and not isinstance(value, type) and hasattr(value, "__dict__")


class NkiInstruction:
    """What an instruction returns: a handle for the scheduler, which changes no value."""

    __slots__ = ()

    def depends_on(self, *producers: Any) -> NkiInstruction:
        """Run after ``producers``: here instructions run in program order anyway."""
        return self


ISSUED = NkiInstruction()
"""The handle of every instruction: the simulator schedules nothing."""
