"""The written elements of a tensor as a few regular parts, without a code for each element.

Kernels write a tensor in tiles, one after the other. Tiles that complete each other become one
part, so that few parts describe the tensor at any time. A part is a tuple of integers in elements
of the tensor: ``count`` runs of ``length`` adjacent elements, the first run at ``start``, each
``step`` elements after the run before. A single run has the step 0.
"""

from __future__ import annotations

from functools import lru_cache

from difftest.simulator.pattern import Pattern, Shape

Part = tuple[int, int, int, int]
"""``start``, ``length``, ``step`` and ``count``."""
MOST_PARTS = 8
"""The largest number of parts of a tensor. Tensors in more parts have a code for each element."""


def part_of(pattern: Pattern) -> Part | None:
    """Return the part that has the pattern's elements, in any order; None if no part has."""
    runs = _runs_of(pattern[1], pattern[2])
    if runs is None:
        return None
    return (pattern[0], *runs)


@lru_cache(maxsize=4096)
def _runs_of(shape: Shape, strides: Shape) -> tuple[int, int, int] | None:
    """Return the length, the step and the count of a pattern's runs; None if it has no such runs.

    Patterns that name an element twice, or walk backwards, have none.
    """
    if 0 in shape:
        return None
    axes = sorted(
        (stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1
    )
    length = 1
    while axes and axes[0][0] == length:
        length *= axes.pop(0)[1]
    if not axes:
        return length, 0, 1
    step, count = axes.pop(0)
    while axes and axes[0][0] == step * count:
        count *= axes.pop(0)[1]
    if axes or step < length:
        return None
    return length, step, count


def joined(one: Part, other: Part) -> Part | None:
    """Return the part that has the elements of two parts and no others; None if no part has."""
    if one == other:
        return one
    if one > other:
        one, other = other, one
    if one[3] == other[3] == 1:
        return _joined_runs(one, other)
    if one[1] == other[1]:
        longer = _with_more_runs(one, other)
        if longer is not None:
            return longer
    return _with_longer_runs(one, other)


def _joined_runs(one: Part, other: Part) -> Part | None:
    """Join two single runs, of which ``other`` does not start before ``one``."""
    start, length, _, _ = one
    further, more, _, _ = other
    if further <= start + length:
        return start, max(length, further - start + more), 0, 1
    if length == more:
        return start, length, further - start, 2
    return None


def _with_more_runs(one: Part, other: Part) -> Part | None:
    """Join two parts with runs of one length, if the runs of ``other`` follow those of ``one``."""
    start, length, step, count = one
    further, _, stride, times = other
    distance = step or stride
    follows = further == start + count * distance
    if follows and stride in (0, distance):
        return start, length, distance, count + times
    return None


def _with_longer_runs(one: Part, other: Part) -> Part | None:
    """Join two parts if each run of ``other`` continues one of ``one``."""
    start, length, step, count = one
    further, more, stride, times = other
    width = length + more
    if (stride, times, further) != (step, count, start + length) or width > step:
        return None
    if width == step:
        return start, step * count, 0, 1
    return start, width, step, count


def with_part(parts: tuple[Part, ...], part: Part) -> tuple[Part, ...]:
    """Return parts and a new one, joined where that is possible; the newest part is the last."""
    kept = list(parts)
    at = len(kept) - 1
    while at >= 0:
        union = joined(kept[at], part)
        if union is None:
            at -= 1
            continue
        part = union
        del kept[at]
        at = len(kept) - 1
    return (*kept, part)


def contains(part: Part, pattern: Pattern) -> bool:
    """Return whether all elements of a pattern are in a part; False may also mean unknown."""
    start, length, step, count = part
    if count == 1:
        low, high = pattern.extent()
        return start <= low and high < start + length
    inner = part_of(pattern)
    if inner is None:
        return False
    first, wide, stride, times = inner
    if stride not in (0, step):
        return False
    row, column = divmod(first - start, step)
    return row >= 0 and row + times <= count and column + wide <= length


def elements_of(part: Part) -> Pattern:
    """Return the pattern of a part's elements."""
    start, length, step, count = part
    return Pattern(start, (count, length), (step, 1))


def volume(parts: tuple[Part, ...]) -> int:
    """Return the number of elements; an element of two parts counts twice."""
    return sum(length * count for _, length, _, count in parts)
