"""The accesses to one tensor, found by what they touch.

Accesses with one footprint are one :class:`Access` with many users. Where a tensor has few
footprints they are tried one by one; where it has many, those that can share an element with a
given one are found by their first partition and their first element.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

from difftest.analysis.footprint import Footprint

FEW = 16
"""Footprints of a tensor that are tried one by one."""


class Access:
    """What touches one footprint."""

    __slots__ = ("mark", "users")

    def __init__(self, mark: Footprint) -> None:
        self.mark = mark
        self.users: list[int] = []


class _Line:
    """Accesses of about one size that begin in one partition, by their first element."""

    __slots__ = ("at", "lows")

    def __init__(self) -> None:
        self.lows: list[int] = []
        self.at: dict[int, list[Access]] = {}

    def add(self, access: Access) -> None:
        low = access.mark.low
        if low not in self.at:
            insort(self.lows, low)
            self.at[low] = []
        self.at[low].append(access)

    def remove(self, access: Access) -> None:
        low = access.mark.low
        here = self.at[low]
        here.remove(access)
        if not here:
            del self.at[low]
            del self.lows[bisect_left(self.lows, low)]

    def between(self, above: int, below: int) -> Iterator[Access]:
        """Those whose first element lies between two others, neither included."""
        lows = self.lows
        for low in lows[bisect_right(lows, above) : bisect_left(lows, below)]:
            yield from self.at[low]


class Accesses:
    """The accesses of one kind (reads, or writes) to one tensor."""

    __slots__ = ("_by_mark", "_lines")

    def __init__(self) -> None:
        self._by_mark: dict[Footprint, Access] = {}
        self._lines: dict[tuple[int, int], dict[int, _Line]] | None = None
        """(partitions, elements) that an access has at most, powers of two -> its first partition
        -> the accesses. None while there are few."""

    def add(self, mark: Footprint, user: int) -> None:
        """Note that ``user`` touches ``mark``."""
        access = self._by_mark.get(mark)
        if access is None:
            access = self._by_mark[mark] = Access(mark)
            if self._lines is not None:
                self._line(mark).add(access)
            elif len(self._by_mark) > FEW:
                self._lines = {}
                for each in self._by_mark.values():
                    self._line(each.mark).add(each)
        access.users.append(user)

    def sharing(self, mark: Footprint) -> list[Access]:
        """The accesses that share an element with ``mark``."""
        if not self._by_mark:
            return []
        near: Iterable[Access] = self._by_mark.values() if self._lines is None else self._near(mark)
        return [access for access in near if access.mark.overlaps(mark)]

    def forget(self, accesses: Iterable[Access]) -> None:
        """Drop these accesses."""
        for access in accesses:
            del self._by_mark[access.mark]
            if self._lines is not None:
                self._line(access.mark).remove(access)

    def _line(self, mark: Footprint) -> _Line:
        assert self._lines is not None
        size = (_power(mark.last - mark.first), _power(mark.high - mark.low))
        lines = self._lines.setdefault(size, {})
        line = lines.get(mark.first)
        if line is None:
            line = lines[mark.first] = _Line()
        return line

    def _near(self, mark: Footprint) -> Iterator[Access]:
        assert self._lines is not None
        for (partitions, elements), lines in self._lines.items():
            first = mark.first - partitions + 1
            for start in range(first, mark.last) if mark.last - first < len(lines) else lines:
                line = lines.get(start)
                if line is not None and first <= start < mark.last:
                    yield from line.between(mark.low - elements, mark.high)


def _power(size: int) -> int:
    """The power of two from ``size`` on."""
    return 1 << (size - 1).bit_length()
