"""Access patterns: the elements of a tensor that an instruction accesses, in order.

The hardware's engines and the DMA take an offset, and a count and a step for each axis (AWS writes
the pairs ``[step, count]``, ``nki/deep-dives/nki-aps.rst`` at tag v2.32.0). Here counts are the
``shape`` and steps the ``strides``, all in elements. A pattern consists of integers alone. It has
no memory, dtype or data.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

Shape = tuple[int, ...]


class Pattern(NamedTuple):
    """Element ``(i, j, ...)`` is number ``offset + i * strides[0] + j * strides[1] + ...``."""

    offset: int
    shape: Shape
    strides: Shape

    @staticmethod
    @lru_cache(maxsize=4096)
    def whole(shape: Shape) -> Pattern:
        """Return the pattern of a whole tensor of this shape, in row-major order."""
        return Pattern(0, shape, contiguous_strides(shape))

    @property
    def size(self) -> int:
        """The number of elements; an element that occurs twice counts twice."""
        return math.prod(self.shape)

    def elements(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Return the element numbers, in the pattern's shape."""
        numbers = np.array(self.offset, dtype=np.int64)
        for count, stride in zip(self.shape, self.strides, strict=True):
            numbers = np.add.outer(numbers, np.arange(count, dtype=np.int64) * stride)
        return numbers

    def extent(self) -> tuple[int, int]:
        """Return the lowest and the highest element number."""
        below, above = _reach(self.shape, self.strides)
        return self.offset + below, self.offset + above

    def fits(self, size: int) -> bool:
        """Return whether each element is one of the first ``size``."""
        low, high = self.extent()
        return low >= 0 and high < size

    def in_order(self) -> bool:
        """Return whether the elements are adjacent in row-major order, each once."""
        return _in_order(self.shape, self.strides)

    def is_whole(self, size: int) -> bool:
        """Return whether the pattern is a whole tensor of ``size`` elements in its own order."""
        return (
            self.offset == 0
            and self.size == size
            and _in_order(self.shape, self.strides)
        )

    def repeats(self) -> bool:
        """Return whether an element occurs more than once."""
        return _repeats(self.shape, self.strides)

    # -- patterns of patterns: each names some of the same elements --------------------------

    def splice(
        self, first: int, end: int, shape: Shape, strides: Shape, further: int = 0
    ) -> Pattern:
        """Replace the axes ``first`` to ``end``, and move the start by ``further`` elements."""
        return Pattern(
            self.offset + further,
            self.shape[:first] + shape + self.shape[end:],
            self.strides[:first] + strides + self.strides[end:],
        )

    def slice(self, axis: int, start: int, count: int, step: int = 1) -> Pattern:
        """Return ``count`` places of an axis from ``start``, with a step."""
        stride = self.strides[axis]
        return self.splice(axis, axis + 1, (count,), (stride * step,), start * stride)

    def select(self, axis: int, index: int) -> Pattern:
        """Return one place of an axis, without that axis."""
        return self.splice(axis, axis + 1, (), (), index * self.strides[axis])

    def permute(self, axes: Shape) -> Pattern:
        """Return the pattern with its axes in another order."""
        return Pattern(
            self.offset,
            tuple([self.shape[axis] for axis in axes]),
            tuple([self.strides[axis] for axis in axes]),
        )

    def expand(self, axis: int) -> Pattern:
        """Insert an axis of size 1 before ``axis``."""
        return self.splice(axis, axis, (1,), (0,))

    def broadcast_to(self, shape: Shape) -> Pattern | None:
        """Broadcast as NumPy does: axes of size 1 repeat (stride 0), new ones come first.

        Or None.
        """
        missing = len(shape) - len(self.shape)
        if missing < 0:
            return None
        strides = [0] * missing
        for have, want, stride in zip(
            self.shape, shape[missing:], self.strides, strict=True
        ):
            if have not in (1, want):
                return None
            strides.append(stride if have == want else 0)
        return Pattern(self.offset, shape, tuple(strides))

    def reshape(self, shape: Shape) -> Pattern | None:
        """Return the elements in the same order in another shape of equal size.

        None if no strides express it, because the elements are not adjacent.
        """
        strides = _reshaped(self.shape, self.strides, shape)
        if strides is None:
            return None
        return Pattern(self.offset, shape, strides)

    def finer(self, parts: int) -> Pattern:
        """Split each element into ``parts`` of ``1 / parts`` its size, along a new last axis."""
        strides = tuple([stride * parts for stride in self.strides])
        return Pattern(self.offset * parts, (*self.shape, parts), (*strides, 1))

    def coarser(self, parts: int) -> Pattern | None:
        """Merge each ``parts`` adjacent elements of the last axis into one element.

        None if that is impossible: the last axis has a step or is not a multiple of ``parts``, or
        another axis or the offset leads into the middle of an element.
        """
        *counts, last = self.shape or (1,)
        *steps, step = self.strides or (1,)
        if last % parts or (step != 1 and last > 1):
            return None
        walked = zip(counts, steps, strict=True)
        moves = [stride for count, stride in walked if count > 1]
        if math.gcd(self.offset, *moves) % parts:
            return None
        strides = [stride // parts for stride in steps]
        return Pattern(self.offset // parts, (*counts, last // parts), (*strides, 1))


@lru_cache(maxsize=4096)
def contiguous_strides(shape: Shape) -> Shape:
    """Return row-major strides, in elements."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@lru_cache(maxsize=4096)
def with_free_axes(shape: Shape, ndim: int) -> Shape:
    """Return a shape with axes of size 1 after its first axis, the partitions, up to ``ndim`` axes.

    NumPy would add missing axes before the partitions.
    """
    return shape[:1] + (1,) * (ndim - len(shape)) + shape[1:]


def _reach(shape: Shape, strides: Shape) -> tuple[int, int]:
    """Return how far a pattern extends below and above its first element."""
    reach = [stride * (size - 1) for size, stride in zip(shape, strides, strict=True)]
    return sum(min(0, step) for step in reach), sum(max(0, step) for step in reach)


@lru_cache(maxsize=4096)
def _in_order(shape: Shape, strides: Shape) -> bool:
    walked = zip(shape, strides, contiguous_strides(shape), strict=True)
    return all(size == 1 or stride == step for size, stride, step in walked)


@lru_cache(maxsize=4096)
def _repeats(shape: Shape, strides: Shape) -> bool:
    """Return whether a pattern names an element twice."""
    axes = [
        (abs(stride), size)
        for size, stride in zip(shape, strides, strict=True)
        if size > 1
    ]
    reach = 0
    for stride, size in sorted(axes):
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    if not min(axes)[0]:
        return True
    # An axis that steps into the reach of another may still miss its elements.
    offsets = np.zeros(1, dtype=np.int64)
    for stride, size in axes:
        offsets = np.add.outer(offsets, np.arange(size) * stride).ravel()
    return len(np.unique(offsets)) < len(offsets)


def _runs(shape: Shape, strides: Shape) -> list[tuple[int, int]]:
    """Return size and stride of the axes from the last, joined where one continues another."""
    runs: list[tuple[int, int]] = []
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if runs and stride == runs[-1][0] * runs[-1][1]:
            runs[-1] = (runs[-1][0] * size, runs[-1][1])
        else:
            runs.append((size, stride))
    return runs


@lru_cache(maxsize=4096)
def _reshaped(shape: Shape, strides: Shape, wanted: Shape) -> Shape | None:
    """Return the strides of a pattern in another shape; None if it has none."""
    runs = _runs(shape, strides)
    left, step = runs.pop(0) if runs else (1, 1)
    steps = []
    for size in reversed(wanted):
        if size > 1 and left == 1 and runs:
            left, step = runs.pop(0)
        if left % size:
            return None
        steps.append(step)
        left = left // size
        step = step * size
    return tuple(reversed(steps))
