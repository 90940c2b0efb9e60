"""Which instruction must wait for which: reads after writes, writes after reads and writes.

Two instructions depend on each other if their access patterns on one tensor share an element and
one of them writes it. What a later write covers is forgotten, for it stands for what it covered;
a write that touches only a part of its pattern covers nothing.

A tile that is loaded element by element and read by many would have as many dependences as loads
times readers. So those that one access finds are joined, where they are many, and have one number
from then on, for all that come later: time and memory grow with the instructions, not with their
square. What was joined counts as one access to all that its parts touch and what lies between.
"""

from __future__ import annotations

from difftest.analysis.accesses import Access, Accesses
from difftest.analysis.footprint import Footprint, footprint
from difftest.simulator.trace import Allocation, Region, Space

MOST = 32
"""Dependences of one access on one tensor that are kept apart."""


class _History:
    """What has been done to one tensor."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.writes = Accesses()
        self.reads = Accesses()


class Dependences:
    """The dependences of instructions that are given in program order.

    Parameters
    ----------
    by_tensor : whether what is read of an on-chip tensor waits for all that was written into it,
        and what is written for all that was read of it, wherever: as the compiler of today's
        dialect was seen to have it (published probes on trn1: the slices of one tensor, used in
        turn, serialise; separate tensors do not). Tensors with an address are left out.

    Attributes
    ----------
    joins : what was joined: instructions, and joins before it. Join ``j`` is ``~j`` wherever an
        instruction's number can be.
    """

    def __init__(self, *, by_tensor: bool = False) -> None:
        self.by_tensor = by_tensor
        self.joins: list[tuple[int, ...]] = []
        self._histories: dict[int | Space, _History] = {}

    def of(
        self, user: int, reads: tuple[Region, ...], writes: tuple[Region, ...]
    ) -> tuple[set[int], set[int]]:
        """What instruction ``user`` depends on: instructions, and joins as negative numbers.

        Returns
        -------
        Those whose results it reads, and those that must be over before it writes.
        """
        data: set[int] = set()
        order: set[int] = set()
        touched: list[tuple[Accesses, Footprint]] = []
        for region in reads:
            if _constant(region.allocation):
                continue
            history = self._history(region.allocation)
            mark = footprint(region)
            data.update(self._found(history.writes, self._watched(region, mark), forgets=False))
            touched.append((history.reads, mark))
        for region in writes:
            if _unread(region.allocation):
                continue
            history = self._history(region.allocation)
            mark = footprint(region)
            watched = self._watched(region, mark)
            if watched is not mark:
                order.update(self._found(history.reads, watched, forgets=False))
            for accesses in (history.reads, history.writes):
                order.update(self._found(accesses, mark, forgets=region.whole))
            touched.append((history.writes, mark))
        for accesses, mark in touched:  # once it has been asked for: nothing waits for itself
            accesses.add(mark, user)
        order -= data
        return data, order

    def _watched(self, region: Region, mark: Footprint) -> Footprint:
        """Where what the region waits for may have happened."""
        allocation = region.allocation
        if not self.by_tensor or allocation.space.is_hbm or allocation.address is not None:
            return mark
        size = allocation.partition_bytes  # of elements or of bytes: no tensor has more of either
        return Footprint(0, allocation.partitions, 0, size, ())

    def _found(self, accesses: Accesses, mark: Footprint, *, forgets: bool) -> list[int]:
        """The users of what shares an element with ``mark``.

        ``forgets`` says that what ``mark`` covers is over with it.
        """
        shared = accesses.sharing(mark)
        if not shared:
            return []
        if len(shared) == 1:
            users = shared[0].users
        else:
            users = [user for access in shared for user in access.users]
        if len(users) > MOST:
            _replace(accesses, shared, mark, self._join(users))
            shared = accesses.sharing(mark) if forgets else []
        if forgets:
            accesses.forget([access for access in shared if mark.covers(access.mark)])
        return users

    def _join(self, users: list[int]) -> int:
        self.joins.append(tuple(dict.fromkeys(users)))
        return ~(len(self.joins) - 1)

    def _history(self, allocation: Allocation) -> _History:
        # Tensors with addresses can overlap: they have their memory's history.
        key = allocation.id if allocation.address is None else allocation.space
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = _History()
        return history


def _replace(accesses: Accesses, shared: list[Access], mark: Footprint, join: int) -> None:
    """Let a join stand for the accesses that ``mark`` shares an element with."""
    if len(shared) == 1:
        whole = shared[0].mark
    elif all(_has(mark, access.mark) for access in shared):
        whole = mark
    else:
        marks = [access.mark for access in shared]
        whole = Footprint(
            min(each.first for each in marks),
            max(each.last for each in marks),
            min(each.low for each in marks),
            max(each.high for each in marks),
            (),
        )
    accesses.forget(shared)
    accesses.add(whole, join)


def _has(mark: Footprint, other: Footprint) -> bool:
    """Whether ``mark``, which shares an element with ``other``, surely has all of it."""
    if mark.covers(other):
        return True
    return other.high - other.low == 1 and mark.first <= other.first and other.last <= mark.last


def _constant(allocation: Allocation) -> bool:
    """An input in HBM: nothing to wait for."""
    return allocation.space.is_hbm and allocation.writes == 0


def _unread(allocation: Allocation) -> bool:
    """An output in HBM: its stores keep their queue's order."""
    return allocation.space.is_hbm and allocation.reads == 0
