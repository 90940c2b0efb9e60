"""Objects that kernels pass around: ``nl.NKIObject``, and what an instruction's call returns."""

from __future__ import annotations

import dataclasses
from typing import Any

from difftest.simulator.errors import SignatureError
from difftest.simulator.frontend.arguments import not_taken


class NKIObject:
    """``nl.NKIObject``: the base class of a kernel's own dataclasses.

    Without an ``__init__`` of its own a class takes its fields in their order or as keywords; those
    left out have their default or None, and ``__post_init__`` is called (NKI Language Guide,
    v2.32.0). A default without an annotation makes a field too. ``@dataclass`` changes none of
    that: by itself it would ask for what has no default, and what has no annotation would be the
    class's.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = vars(cls).get("__annotations__", {})
        defaults = [name for name, value in vars(cls).items() if _is_default(name, value)]
        added = [name for name in defaults if name not in annotations]
        for name in annotations:
            if not hasattr(cls, name):
                setattr(cls, name, None)
        cls.__annotations__ = {**annotations, **dict.fromkeys(added, Any)}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fields = {
            name: getattr(type(self), name, None)
            for kind in reversed(type(self).__mro__)
            for name in vars(kind).get("__annotations__", {})
        }
        name = type(self).__name__
        if len(args) > len(fields):
            got = f"{len(args)} values for {len(fields)} fields"
            received, limit = f"{', '.join(map(repr, args)):.80}", ", ".join(fields) or "no field"
            takes = "a value for each field"
            raise not_taken(name, takes, got, received, error=SignatureError, limit=limit)
        given = dict(zip(fields, args, strict=False))
        twice = sorted(given.keys() & kwargs.keys())
        if twice:
            takes, got = "a value for a field once", f"two values for {', '.join(twice)}"
            received = f"{len(args)} values by position, and {', '.join(kwargs)} by name"
            raise not_taken(name, takes, got, received, error=SignatureError)
        for field, value in {**fields, **given, **kwargs}.items():
            setattr(self, field, value)
        after = getattr(self, "__post_init__", None)
        if after is not None:
            after()


def _is_default(name: str, value: Any) -> bool:
    """Whether a class attribute is a field's default: no method, no class, not mutable."""
    dunder = name.startswith("__") and name.endswith("__")
    behaves = callable(value) or hasattr(type(value), "__get__")
    return not (dunder or behaves or type(value).__hash__ is None)


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
