"""Which instruction must wait for which: reads after writes, writes after reads and writes.

Two instructions depend on each other if their access patterns on one tensor share an element and
one of them writes it. What a later write covers is forgotten, for it stands for what it covered;
a write that touches only a part of its pattern covers nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from difftest.analysis.footprint import Footprint, footprint
from difftest.simulator.trace import Allocation, Region, Space


class _Accesses:
    """The accesses of one kind to one tensor, in program order."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget every access."""
        self.marks: list[Footprint] = []
        self.users: list[int] = []
        self.lows: list[int] = []
        self.highs: list[int] = []
        self.ascending = True
        """Whether low and high ends rise from access to access, so that they can be bisected."""

    def add(self, mark: Footprint, user: int) -> None:
        if self.ascending and self.marks:
            self.ascending = mark.low >= self.lows[-1] and mark.high >= self.highs[-1]
        self.marks.append(mark)
        self.users.append(user)
        self.lows.append(mark.low)
        self.highs.append(mark.high)

    def sharing(self, mark: Footprint) -> list[int]:
        """Positions of the accesses that share an element with ``mark``."""
        marks = self.marks
        if not marks:
            return []
        if self.ascending:
            near = range(bisect_right(self.highs, mark.low), bisect_left(self.lows, mark.high))
        else:
            near = range(len(marks))
        return [i for i in near if marks[i].overlaps(mark)]

    def forget(self, positions: list[int]) -> None:
        """Drop the accesses at these positions."""
        if len(positions) == len(self.marks):
            self.clear()
            return
        gone = set(positions)
        kept = [
            access
            for i, access in enumerate(zip(self.marks, self.users, strict=True))
            if i not in gone
        ]
        self.clear()
        for mark, user in kept:
            self.add(mark, user)


class _History:
    """What has been done to one tensor."""

    def __init__(self) -> None:
        self.writes = _Accesses()
        self.reads = _Accesses()


class Dependences:
    """The dependences of instructions that are given in program order."""

    def __init__(self) -> None:
        self._histories: dict[int | Space, _History] = {}

    def of(
        self, user: int, reads: tuple[Region, ...], writes: tuple[Region, ...]
    ) -> tuple[set[int], set[int]]:
        """The instructions that instruction ``user`` depends on.

        Returns
        -------
        Those whose results it reads, and those that must be over before it writes.
        """
        data: set[int] = set()
        order: set[int] = set()
        for region in reads:
            if _constant(region.allocation):
                continue
            history = self._history(region.allocation)
            mark = footprint(region)
            data.update(history.writes.users[i] for i in history.writes.sharing(mark))
            history.reads.add(mark, user)
        for region in writes:
            if _unread(region.allocation):
                continue
            history = self._history(region.allocation)
            mark = footprint(region)
            for accesses in (history.reads, history.writes):
                shared = accesses.sharing(mark)
                order.update(accesses.users[i] for i in shared)
                covered = [i for i in shared if mark.covers(accesses.marks[i])]
                if covered and region.whole:
                    accesses.forget(covered)
            history.writes.add(mark, user)
        order -= data
        data.discard(user)
        order.discard(user)
        return data, order

    def _history(self, allocation: Allocation) -> _History:
        # Tensors with addresses can overlap: they have their memory's history.
        key = allocation.id if allocation.address is None else allocation.space
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = _History()
        return history


def _constant(allocation: Allocation) -> bool:
    """An input in HBM: nothing to wait for."""
    return allocation.space.is_hbm and allocation.writes == 0


def _unread(allocation: Allocation) -> bool:
    """An output in HBM: its stores keep their queue's order."""
    return allocation.space.is_hbm and allocation.reads == 0
