"""Indices below the syntax of a dialect: integers, and affine walks.

The hardware walks memory by a start and one step for each axis, so every static index is affine.
:class:`Index` keeps that form and never makes an array of indices.
"""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError, NkiError, ShapeError

Shape = tuple[int, ...]


def as_integer(value: object, what: str) -> int:
    """``value`` as a Python integer.

    Raises
    ------
    KernelError : it is none; a float is refused, not cut off.
    """
    if type(value) is int:
        return value
    if isinstance(value, SupportsIndex):
        try:
            return value.__index__()
        except NkiError:  # a register, which says more
            raise
        except TypeError:  # an array of several elements has __index__ too
            pass
    raise KernelError(
        "indices and sizes are integers known when the kernel is traced",
        happened="an index or a size is no integer",
        received=f"{what} {value!r:.80} ({type(value).__name__})",
        remedy="use // instead of / in index arithmetic; for an offset held in a tile use "
        "nisa.tensor_copy_dynamic_src",
    )


def as_integers(values: object, what: str) -> Shape:
    """``values``, a sequence or one integer, as Python integers; see :func:`as_integer`."""
    given = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(as_integer(value, what) for value in given)


def broadcast_shapes(a: Shape, b: Shape, what: str) -> Shape:
    """NumPy's broadcast shape of ``a`` and ``b``; ``what`` names the operands in the error."""
    if a == b:
        return a
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ShapeError(
            f"{what} must have shapes that broadcast",
            happened=f"{what} have shapes that do not broadcast",
            received=f"shapes {a} and {b}",
        ) from None


def is_integer(value: object) -> bool:
    """Whether a value is an integer: Python's, NumPy's, or anything with ``__index__``."""
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
        """The values, int64, of shape ``self.shape``."""
        total = np.full(self.shape, self.start, dtype=np.int64)
        for axis, (size, step) in enumerate(zip(self.shape, self.steps, strict=True)):
            line = np.arange(size, dtype=np.int64) * step
            total += line.reshape((-1,) + (1,) * (self.ndim - axis - 1))
        return total

    def spread(self, shape: Shape) -> Index:
        """The same values broadcast to ``shape``: step 0 along the axes that repeat."""
        missing = len(shape) - self.ndim
        steps = (0,) * missing + tuple(
            step if size == self.shape[axis] else 0
            for axis, (size, step) in enumerate(zip(shape[missing:], self.steps, strict=True))
        )
        return Index(shape, self.start, steps)
