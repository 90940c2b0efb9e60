"""Which instruction must wait for which: reads after writes, writes after reads and writes.

Two instructions depend on each other if their access patterns on one tensor share an element and
one of them writes it. What a later write covers is forgotten, for it stands for what it covered;
a write that touches only a part of its pattern covers nothing.

A tile that is loaded element by element and read by many would have as many dependences as loads
times readers. So those that one access finds are joined, where they are many, and have one number
from then on, for all that come later: time and memory grow with the instructions, not with their
square. What was joined counts as one access to all that its parts touch and what lies between.

Accesses to a tensor with one footprint are one :class:`Access` with many users. Where a tensor has
few footprints they are tried one by one; where it has many, those that can share an element with a
given one are found by their first partition and their first element.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

from difftest.analysis.footprint import Footprint, footprint
from difftest.simulator.trace import Allocation, Region, Space

FEW = 16
"""Footprints of a tensor that are tried one by one."""


class Access:
    """What touches one footprint."""

    __slots__ = ("mark", "users")

    def __init__(self, mark: Footprint) -> None:
        self.mark = mark
        self.users: list[int] = []


class _AccessBucket:
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
        self._lines: dict[tuple[int, int], dict[int, _AccessBucket]] | None = None
        """(partitions, elements) that an access has at most, powers of two -> its first partition
        -> the accesses. None while there are few."""

    def add(self, footprint: Footprint, user: int) -> None:
        """Note that ``user`` touches ``mark``."""
        access = self._by_mark.get(footprint)
        if access is None:
            access = self._by_mark[footprint] = Access(footprint)
            if self._lines is not None:
                self._line(footprint).add(access)
            elif len(self._by_mark) > FEW:
                self._lines = {}
                for each in self._by_mark.values():
                    self._line(each.mark).add(each)
        access.users.append(user)

    def overlapping(self, footprint: Footprint) -> list[Access]:
        """The accesses that share an element with ``mark``."""
        if not self._by_mark:
            return []
        near: Iterable[Access] = (
            self._by_mark.values() if self._lines is None else self._near(footprint)
        )
        return [access for access in near if access.mark.overlaps(footprint)]

    def forget(self, accesses: Iterable[Access]) -> None:
        """Drop these accesses."""
        for access in accesses:
            del self._by_mark[access.mark]
            if self._lines is not None:
                self._line(access.mark).remove(access)

    def _line(self, mark: Footprint) -> _AccessBucket:
        assert self._lines is not None
        size = (_power(mark.last - mark.first), _power(mark.high - mark.low))
        lines = self._lines.setdefault(size, {})
        line = lines.get(mark.first)
        if line is None:
            line = lines[mark.first] = _AccessBucket()
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


MOST = 32
"""Dependences of one access on one tensor that are kept apart."""


class _History:
    """What has been done to one tensor, or to all that have addresses in one memory.

    As long as all of it touched the same elements, two lists of users say everything; most tensors
    are used so. From then on the accesses are kept apart.
    """

    __slots__ = ("apart", "mark", "reads", "writes")

    def __init__(self) -> None:
        self.mark: Footprint | None = None
        """What all accesses touched; None if there were none, or if they are kept apart."""
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.apart: tuple[Accesses, Accesses] | None = None
        """Reads and writes."""

    def accesses(self) -> tuple[Accesses, Accesses]:
        """Reads and writes, kept apart from now on."""
        if self.apart is None:
            self.apart = Accesses(), Accesses()
            for accesses, users in zip(self.apart, (self.reads, self.writes), strict=True):
                for user in users:
                    assert self.mark is not None
                    accesses.add(self.mark, user)
            self.mark = None
            self.reads = []
            self.writes = []
        return self.apart


class _TensorAccesses:
    """A tensor as instructions meet it."""

    __slots__ = ("_mark", "_pattern", "constant", "history", "unread", "watched")

    def __init__(self, allocation: Allocation, history: _History, *, by_tensor: bool) -> None:
        self.history = history
        hbm = allocation.space.is_hbm
        self.constant = hbm and allocation.writes == 0
        """An input in HBM: nothing to wait for."""
        self.unread = hbm and allocation.reads == 0
        """An output in HBM: its stores keep their queue's order."""
        self.watched: Footprint | None = None
        """Where what is waited for may have happened; None if where it is touched."""
        if by_tensor and not hbm and allocation.address is None:
            size = allocation.partition_bytes  # elements or bytes: no tensor has more of either
            self.watched = Footprint(0, allocation.partitions, 0, size, ())
        self._pattern: tuple[object, ...] = ()
        self._mark: Footprint | None = None

    def footprint(self, region: Region) -> Footprint:
        """The footprint of a region of it; most tensors have one region alone."""
        pattern = region[1], region[2], region[3], region[7]
        if self._mark is None or pattern != self._pattern:
            self._mark = footprint(region)
            self._pattern = pattern
        return self._mark


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
        self.widened = False
        self._made: dict[int, int] = {}
        """Tensor that is written once, all of it, before it is read -> who writes it."""
        self._tensors: dict[int, _TensorAccesses] = {}
        self._placed: dict[Space, _History] = {}
        """Tensors with addresses can overlap: they have their memory's history."""

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
        touched: list[tuple[_History, Footprint, bool]] = []
        tensors = self._tensors
        makers = self._made
        for region in reads:
            number = region[0].id
            if number in makers:
                data.add(makers[number])
                continue
            tensor = tensors.get(number) or self._meet(region[0])
            if tensor.constant:
                continue
            history = tensor.history
            mark = tensor.footprint(region)
            if history.mark == mark:
                data.update(history.writes)
                if len(history.writes) > MOST:
                    history.writes = [self.join(history.writes)]
            elif history.mark or history.apart:
                written = history.accesses()[1]
                self.widened |= tensor.watched is not None
                data.update(self._found(written, tensor.watched or mark, forgets=False))
            touched.append((history, mark, False))
        for region in writes:
            allocation = region[0]
            number = allocation.id
            once = allocation.writes == 1 and allocation.address is None
            if once and number not in tensors and region[6] and region[2] == allocation.shape:
                makers[number] = user
                continue
            tensor = tensors.get(number) or self._meet(allocation)
            if tensor.unread:
                continue
            history = tensor.history
            mark = tensor.footprint(region)
            if history.mark == mark:
                self._write_again(history, order, watched=tensor.watched, forgets=region[6])
            elif history.mark or history.apart:
                apart = history.accesses()
                if tensor.watched:
                    self.widened = True
                    order.update(self._found(apart[0], tensor.watched, forgets=False))
                for accesses in apart:
                    order.update(self._found(accesses, mark, forgets=region.whole))
            touched.append((history, mark, True))
        for history, mark, writes_it in touched:  # at last: nothing waits for itself
            if history.mark == mark or not (history.mark or history.apart):
                history.mark = mark
                (history.writes if writes_it else history.reads).append(user)
            else:
                history.accesses()[writes_it].add(mark, user)
        order -= data
        return data, order

    def _write_again(
        self, history: _History, order: set[int], *, watched: Footprint | None, forgets: bool
    ) -> None:
        """Add to ``order`` what a write waits for where all touched what it touches."""
        reads = history.reads
        writes = history.writes
        order.update(reads, writes)
        if len(reads) > MOST:
            history.reads = [self.join(reads)]
            if watched:
                self.widened = True
                order.update(history.reads)
        if len(writes) > MOST:
            history.writes = [self.join(writes)]
        if forgets:
            history.reads = []
            history.writes = []

    def _found(self, accesses: Accesses, mark: Footprint, *, forgets: bool) -> list[int]:
        """The users of what shares an element with ``mark``.

        ``forgets`` says that what ``mark`` covers is over with it.
        """
        shared = accesses.overlapping(mark)
        if not shared:
            return []
        if len(shared) == 1:
            users = shared[0].users
        else:
            users = [user for access in shared for user in access.users]
        if len(users) > MOST:
            _replace(accesses, shared, mark, self.join(users))
            shared = accesses.overlapping(mark) if forgets else []
        if forgets:
            accesses.forget([access for access in shared if mark.covers(access.mark)])
        return users

    def join(self, users: list[int]) -> int:
        """The number of a join of what ``users`` did."""
        self.joins.append(tuple(dict.fromkeys(users)))
        return ~(len(self.joins) - 1)

    def _meet(self, allocation: Allocation) -> _TensorAccesses:
        """A tensor that no instruction has touched yet."""
        if allocation.address is None:
            history = _History()
        else:
            history = self._placed.setdefault(allocation.space, _History())
        tensor = _TensorAccesses(allocation, history, by_tensor=self.by_tensor)
        self._tensors[allocation.id] = tensor
        return tensor


def _replace(accesses: Accesses, shared: list[Access], mark: Footprint, join: int) -> None:
    """Let a join stand for the accesses that ``mark`` shares an element with."""
    marks = [access.mark for access in shared]
    whole = marks[0] if len(marks) == 1 else mark
    if len(marks) > 1 and not all(_has(mark, each) for each in marks):
        first, last, low, high, _ = zip(*marks, strict=True)
        whole = Footprint(min(first), max(last), min(low), max(high), ())
    accesses.forget(shared)
    accesses.add(whole, join)


def _has(mark: Footprint, other: Footprint) -> bool:
    """Whether ``mark``, which shares an element with ``other``, surely has all of it."""
    if mark.covers(other):
        return True
    return other.high - other.low == 1 and mark.first <= other.first and other.last <= mark.last
