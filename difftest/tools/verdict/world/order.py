"""Orders and addresses that Python does not specify, and that a candidate may not follow.

The order of a set of texts or objects, ``hash()`` and ``id()`` differ between processes. Here they
differ between the two runs that a verdict compares: the order is reversed, and each bit of a number
is inverted. A kernel that follows them issues other instructions in one of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from difftest.tools.verdict.world.refusal import STATE


def _in_order(values: Iterator[Any]) -> Iterator[Any]:
    """Return the items of a set in the order of the run; numbers keep Python's order."""
    items = list(values)
    if STATE.is_inverted and not all(map(_has_fixed_hash, items)):
        items.reverse()
    return iter(items)


def _has_fixed_hash(value: Any) -> bool:
    """Return whether the hash of a value is the same in all processes."""
    kind = type(value)
    if kind is tuple:
        return all(map(_has_fixed_hash, value))
    return kind in (bool, int, float, complex)


class RunSet(set[Any]):
    """A ``set`` of a candidate, whose order is of the run."""

    def __iter__(self) -> Iterator[Any]:
        return _in_order(super().__iter__())

    def pop(self) -> Any:
        """Remove and return the first item."""
        for item in self:
            self.remove(item)
            return item
        return super().pop()  # raises KeyError

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}" if self else "set()"


class RunFrozenSet(frozenset[Any]):
    """A ``frozenset`` of a candidate, whose order is of the run."""

    def __iter__(self) -> Iterator[Any]:
        return _in_order(super().__iter__())

    def __repr__(self) -> str:
        shown = f"{{{', '.join(map(repr, self))}}}" if self else ""
        return f"frozenset({shown})"


SETS: dict[type, type] = {set: RunSet, frozenset: RunFrozenSet}
"""The classes of a candidate's sets by Python's own."""


def ordered(value: Any) -> Any:
    """Return a value; a set gets the order of the run."""
    kind = SETS.get(type(value))
    return value if kind is None else kind(value)


def number_of_run(number: int) -> int:
    """Return an ``id()`` or a ``hash()`` as the number of the run."""
    return number ^ (_BITS * STATE.is_inverted)


_BITS = 2**60 - 1


def hash_of(value: Any) -> int:
    """Return ``hash(value)`` of a candidate."""
    found = hash(value)
    return found if _has_fixed_hash(value) else number_of_run(found)


def id_of(value: Any) -> int:
    """Return ``id(value)`` of a candidate."""
    return number_of_run(id(value))
