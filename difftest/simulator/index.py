"""Indices that both dialects share: integers, slices, ellipses and affine walks.

The hardware walks memory by a start and one step for each axis, so every static index is affine.
:class:`Index` keeps that form and never makes an array of indices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeVar

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import (
    KernelError,
    NkiError,
    OutOfBoundsError,
    ShapeError,
)

Shape = tuple[int, ...]
Choice = TypeVar("Choice")


def as_integer(value: object, role: str) -> int:
    """Return ``value`` as a Python integer; floats are rejected, not truncated."""
    if type(value) is int:
        return value
    if isinstance(value, SupportsIndex):
        try:
            return value.__index__()
        except NkiError:  # a register's own message is more specific
            raise
        except TypeError:  # an array of several elements has __index__ too
            pass
    raise KernelError(
        "indices and sizes are integers known when the kernel is traced",
        happened="an index or a size is not an integer",
        received=f"{role} {value!r:.80} ({type(value).__name__})",
        remedy="use // instead of / in index arithmetic; for an offset held in a tile use "
        "nisa.tensor_copy_dynamic_src, or in the current dialect tensor.ap(..., scalar_offset=...)",
    )


def as_integers(values: object, role: str) -> Shape:
    """Return ``values``, a sequence or one integer, as Python integers; see :func:`as_integer`."""
    items = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(
        [item if type(item) is int else as_integer(item, role) for item in items]
    )


def as_choice(value: object, choices: Iterable[Choice], role: str) -> Choice:
    """Return ``value`` if it is one of ``choices``; raise :class:`KernelError` if not."""
    options = list(choices)
    for choice in options:
        if type(value) is type(choice) and value == choice:
            return choice
    raise KernelError(
        f"{role} is one of the accepted values",
        happened=f"{role} is {value!r:.40}, which is not accepted",
        received=f"{value!r}",
        limit=", ".join(map(str, options)),
    )


def broadcast_shapes(a: Shape, b: Shape, role: str) -> Shape:
    """Return NumPy's broadcast shape of ``a`` and ``b``; ``role`` names the operands in errors."""
    if a == b:
        return a
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ShapeError(
            f"{role} must have shapes that broadcast",
            happened=f"{role} have shapes that do not broadcast",
            received=f"shapes {a} and {b}",
        ) from None


def is_index_integer(value: object) -> bool:
    """Return whether a value is an integer: Python's, NumPy's, or anything with ``__index__``."""
    return type(value) is int or hasattr(value, "__index__")


class Index:
    """An affine expression over index axes: ``start + sum(steps[k] * i_k)``, ``i_k < shape[k]``."""

    __slots__ = ("shape", "start", "steps")

    def __init__(self, shape: Shape, start: int, steps: Shape) -> None:
        self.shape = shape
        self.start = start
        self.steps = steps

    def __repr__(self) -> str:
        return f"Index(shape={self.shape}, start={self.start}, steps={self.steps})"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def array(self) -> Array:
        """Return the values: int64, of shape ``self.shape``."""
        total = np.full(self.shape, self.start, dtype=np.int64)
        for axis, (size, step) in enumerate(zip(self.shape, self.steps, strict=True)):
            line = np.arange(size, dtype=np.int64) * step
            total += line.reshape((-1,) + (1,) * (self.ndim - axis - 1))
        return total

    def spread(self, shape: Shape) -> Index:
        """Return the values broadcast to ``shape``: step 0 along the axes that repeat."""
        missing = len(shape) - self.ndim
        steps = (0,) * missing + tuple(
            step if size == self.shape[axis] else 0
            for axis, (size, step) in enumerate(
                zip(shape[missing:], self.steps, strict=True)
            )
        )
        return Index(shape, self.start, steps)


# -- indices between brackets ----------------------------------------------------------------------


def slice_bounds(item: slice, size: int) -> tuple[int, int, int]:
    """Return start, stop and step of a slice over ``size`` elements; stop may exceed ``size``."""
    start = 0 if item.start is None else as_integer(item.start, "slice start")
    stop = size if item.stop is None else as_integer(item.stop, "slice stop")
    step = 1 if item.step is None else as_integer(item.step, "slice step")
    if step < 1:
        raise KernelError(
            "a slice's step is positive",
            happened=f"a slice has the step {step}",
            received=spell(item),
        )
    return start, stop, step


def no_index(
    item: object, kinds: str, place: str, remedy: str | None = None
) -> KernelError:
    """Return the error for an invalid index; ``kinds`` lists the dialect's valid ones."""
    return KernelError(
        f"a tensor is indexed with {kinds}",
        happened=f"a tensor was indexed with a {type(item).__name__}",
        received=f"{item!r:.60} at {place}",
        remedy=remedy,
    )


def no_element(item: slice, place: str) -> ShapeError:
    """Return the error for a slice that selects no element."""
    return ShapeError(
        "a slice selects at least one element",
        happened=f"the slice {spell(item)} selects no element",
        received=f"{spell(item)} at {place}",
    )


def left_tensor(
    role: str, place: str, received: str, limit: str, remedy: str | None = None
) -> OutOfBoundsError:
    """Return the error for an access, an index or an offset that leaves its tensor at ``place``."""
    return OutOfBoundsError(
        f"{role} stays inside its tensor",
        happened=f"{role} left its tensor: {place}",
        received=received,
        limit=limit,
        remedy=remedy,
    )


def spell(item: object) -> str:
    """Return an index as the kernel writes it."""
    if isinstance(item, slice):
        parts = ["" if p is None else str(p) for p in (item.start, item.stop)]
        return ":".join(parts + ([str(item.step)] if item.step is not None else []))
    if item is Ellipsis:
        return "..."
    return repr(item)


def expand_ellipsis(
    items: tuple[Any, ...], ndim: int, view: object, *, adds: bool = False
) -> tuple[Any, ...]:
    """Return one index for each of ``ndim`` dimensions, with '...' expanded.

    None indices are allowed beside them if ``adds`` is true; otherwise None counts as an index.
    """
    ellipses = [at for at, item in enumerate(items) if item is Ellipsis]
    count = len(items) - len(ellipses)
    if adds:
        count -= sum(item is None for item in items)
    if count > ndim or len(ellipses) > 1:
        asked = f"[{', '.join(map(spell, items))}]"
        raise ShapeError(
            "there are no more indices than dimensions, and at most one '...'",
            happened=f"{ndim} dimensions were indexed by {asked:.60}",
            received=f"{asked} on {view!r}",
        )
    fill = (slice(None),) * (ndim - count)
    if not ellipses:
        return items + fill
    at = ellipses[0]
    return items[:at] + fill + items[at + 1 :]
