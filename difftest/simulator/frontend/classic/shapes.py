"""Shapes as kernels give them: positive integers, one of them marked by ``nl.par_dim``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from difftest.simulator.errors import ShapeError
from difftest.simulator.index import Shape
from difftest.simulator.strictness import note


class ParDim(int):
    """A dimension marked as the partition dimension by ``nl.par_dim``."""

    def __repr__(self) -> str:
        return f"par_dim({int(self)})"


def _are_plain(shape: tuple[Any, ...]) -> bool:
    """Whether a shape needs no conversion: positive integers, none of them marked."""
    for size in shape:
        if type(size) is not int or size < 1:
            return False
    return bool(shape)


def whole(size: Any, received: str, where: str) -> Any:
    """A size; a float that is a whole number, which compilers take, as an integer."""
    if not isinstance(size, float) or not size.is_integer():
        return size
    error = ShapeError(
        f"{where} takes a shape of integers",
        happened=f"{where} got a whole number as a float",
        received=received,
        remedy="use // instead of /",
    )
    note(error)
    return int(size)


def as_shape(shape: object, where: str) -> tuple[Shape, int]:
    """A shape as integers, and the axis marked with ``nl.par_dim`` (0 if none is)."""
    if type(shape) is tuple and _are_plain(shape):
        return shape, 0
    given: Iterable[Any] = shape if isinstance(shape, (tuple, list)) else (shape,)
    sizes = []
    marked = []
    for axis, size in enumerate(given):
        if isinstance(size, ParDim):
            marked.append(axis)
        size = whole(size, f"{size!r} at axis {axis}", where)
        try:
            sizes.append(size.__index__())
        except (AttributeError, TypeError):
            raise ShapeError(
                f"{where} takes a shape of integers",
                happened=f"{where} got a shape with the size {size!r:.40}",
                received=f"{size!r} at axis {axis}",
            ) from None
    if not sizes or min(sizes) < 1 or len(marked) > 1:
        raise ShapeError(
            f"{where} takes a shape of positive sizes with at most one nl.par_dim",
            happened=f"{where} got the shape {shape!r:.40}",
            received=f"{shape!r}",
            remedy="a size of 0 often comes from M // TILE with M smaller than TILE",
        )
    return tuple(sizes), marked[0] if marked else 0
