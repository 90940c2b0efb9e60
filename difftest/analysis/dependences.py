"""Dependences between instructions: reads after writes, writes after reads and writes.

Two instructions depend on each other if their access patterns on one tensor share an element and
one of them writes it. An access that a later write covers is dropped, because the write replaces
it. A write that touches only a part of its pattern covers nothing.

A tile that is loaded element by element and has many readers would have loads times readers
dependences. So if one access finds many others, these are joined under one number for all later
accesses. Time and memory then grow with the instructions and not with their square. A join counts
as one access to everything that its members touch, including gaps.

Accesses to a tensor with one footprint are one :class:`Access` with many users. If a tensor has few
footprints, they are tried one by one. If it has many, an index by first partition and first element
finds the candidates.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

from difftest.analysis.footprint import Footprint, footprint
from difftest.simulator.trace import Allocation, Region, Space

FEW = 16
"""The most footprints of a tensor that are tried one by one."""


class Access:
    """The accesses with one footprint."""

    __slots__ = ("mark", "users")

    def __init__(self, mark: Footprint) -> None:
        self.mark = mark
        self.users: list[int] = []


class _AccessBucket:
    """Accesses of similar size that begin in one partition, by their first element."""

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
        """Yield the accesses whose first element is between two others, both excluded."""
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
        """Record that ``user`` touches ``footprint``."""
        access = self._by_mark.get(footprint)
        if access is None:
            access = self._by_mark[footprint] = Access(footprint)
            if self._lines is not None:
                self._bucket(footprint).add(access)
            elif len(self._by_mark) > FEW:
                self._lines = {}
                for each in self._by_mark.values():
                    self._bucket(each.mark).add(each)
        access.users.append(user)

    def overlapping(self, footprint: Footprint) -> list[Access]:
        """Return the accesses that share an element with ``footprint``."""
        if not self._by_mark:
            return []
        near: Iterable[Access] = self._by_mark.values()
        if self._lines is not None:
            near = self._candidates(footprint)
        return [access for access in near if access.mark.overlaps(footprint)]

    def forget(self, accesses: Iterable[Access]) -> None:
        """Drop these accesses."""
        for access in accesses:
            del self._by_mark[access.mark]
            if self._lines is not None:
                self._bucket(access.mark).remove(access)

    def _bucket(self, mark: Footprint) -> _AccessBucket:
        """Return the bucket of footprints with this size and first partition."""
        assert self._lines is not None
        size = (_power(mark.last - mark.first), _power(mark.high - mark.low))
        lines = self._lines.setdefault(size, {})
        line = lines.get(mark.first)
        if line is None:
            line = lines[mark.first] = _AccessBucket()
        return line

    def _candidates(self, mark: Footprint) -> Iterator[Access]:
        """Yield the earlier accesses that may overlap a footprint."""
        assert self._lines is not None
        for (partitions, elements), lines in self._lines.items():
            first = mark.first - partitions + 1
            starts: Iterable[int] = lines
            if mark.last - first < len(lines):
                starts = range(first, mark.last)
            for start in starts:
                line = lines.get(start)
                if line is not None and first <= start < mark.last:
                    yield from line.between(mark.low - elements, mark.high)


def _power(size: int) -> int:
    """Return the least power of two that is at least ``size``."""
    return 1 << (size - 1).bit_length()


MOST = 32
"""The most dependences of one access on one tensor that stay separate."""


class _History:
    """The accesses to one tensor, or to all tensors with addresses in one memory.

    While all accesses touch the same elements, two lists of users suffice; this is the most
    frequent case. After that the accesses are recorded separately.
    """

    __slots__ = ("apart", "mark", "reads", "writes")

    def __init__(self) -> None:
        self.mark: Footprint | None = None
        """The footprint of all accesses; None if there are none, or if they are recorded
        separately."""
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.apart: tuple[Accesses, Accesses] | None = None
        """Reads and writes."""

    def accesses(self) -> tuple[Accesses, Accesses]:
        """Return reads and writes, which are recorded separately from now on."""
        if self.apart is None:
            self.apart = Accesses(), Accesses()
            for accesses, users in zip(
                self.apart, (self.reads, self.writes), strict=True
            ):
                for user in users:
                    assert self.mark is not None
                    accesses.add(self.mark, user)
            self.mark = None
            self.reads = []
            self.writes = []
        return self.apart


class _TensorAccesses:
    """The accesses to one tensor."""

    __slots__ = ("_mark", "_pattern", "constant", "history", "unread", "watched")

    def __init__(
        self, allocation: Allocation, history: _History, *, by_tensor: bool
    ) -> None:
        self.history = history
        hbm = allocation.space.is_hbm
        self.constant = hbm and allocation.writes == 0
        """An input in HBM: nothing to wait for."""
        self.unread = hbm and allocation.reads == 0
        """An output in HBM: its stores keep their queue's order."""
        self.watched: Footprint | None = None
        """The footprint whose accesses an access waits for; None for its own footprint."""
        if by_tensor and not hbm and allocation.address is None:
            # elements or bytes: no tensor has more of either
            size = allocation.partition_bytes
            self.watched = Footprint(0, allocation.partitions, 0, size, ())
        self._pattern: tuple[object, ...] = ()
        self._mark: Footprint | None = None

    def footprint(self, region: Region) -> Footprint:
        """Return the footprint of a region of the tensor; most tensors have only one region."""
        # Offset, shape, strides and view by their numbers: attributes take longer.
        pattern = region[1], region[2], region[3], region[7]
        if self._mark is None or pattern != self._pattern:
            self._mark = footprint(region)
            self._pattern = pattern
        return self._mark


class Dependences:
    """The dependences of instructions, which are passed in program order.

    Parameters
    ----------
    by_tensor : whether a read of an on-chip tensor waits for all earlier writes to the tensor, and
        a write for all earlier reads, regardless of elements. The compiler of the current dialect
        does so (published probes on trn1: slices of one tensor, used in rotation, serialise;
        separate tensors do not). Tensors with an address are excluded.

    Attributes
    ----------
    joins : the members of each join: instructions, and earlier joins. Join ``j`` is ``~j`` where
        an instruction's number can be.
    """

    def __init__(self, *, by_tensor: bool = False) -> None:
        self.by_tensor = by_tensor
        self.joins: list[tuple[int, ...]] = []
        self.widened = False
        self._made: dict[int, int] = {}
        """A tensor with one write, of all of it, before any read -> the writing instruction."""
        self._tensors: dict[int, _TensorAccesses] = {}
        self._placed: dict[Space, _History] = {}
        """Histories of memories: tensors with addresses can overlap and share a history."""

    def of(
        self, user: int, reads: tuple[Region, ...], writes: tuple[Region, ...]
    ) -> tuple[set[int], set[int]]:
        """Return the dependences of an instruction: instructions, and joins as negative numbers.

        Returns
        -------
        The instructions whose results it reads, and those that must end before it writes.
        """
        data: set[int] = set()
        order: set[int] = set()
        touched: list[tuple[_History, Footprint, bool]] = []
        tensors = self._tensors
        # Fields of regions by their numbers, as in _TensorAccesses.footprint.
        for region in reads:
            number = region[0].id
            if number in self._made:
                data.add(self._made[number])
                continue
            tensor = tensors.get(number) or self._meet(region[0])
            if not tensor.constant:
                mark = tensor.footprint(region)
                self._wait_to_read(tensor, mark, data)
                touched.append((tensor.history, mark, False))
        for region in writes:
            number = region[0].id
            if number not in tensors and _is_only_write(region):
                self._made[number] = user
                continue
            tensor = tensors.get(number) or self._meet(region[0])
            if not tensor.unread:
                mark = tensor.footprint(region)
                self._wait_to_write(tensor, mark, order, forgets=region[6])
                touched.append((tensor.history, mark, True))
        _note(user, touched)  # last: no instruction waits for itself
        order -= data
        return data, order

    def _wait_to_read(
        self, tensor: _TensorAccesses, mark: Footprint, data: set[int]
    ) -> None:
        """Add to ``data`` the writes that a read waits for."""
        history = tensor.history
        if history.mark == mark:
            data.update(history.writes)
            if len(history.writes) > MOST:
                history.writes = [self.join(history.writes)]
        elif history.mark or history.apart:
            written = history.accesses()[1]
            self.widened |= tensor.watched is not None
            data.update(self._found(written, tensor.watched or mark, forgets=False))

    def _wait_to_write(
        self,
        tensor: _TensorAccesses,
        mark: Footprint,
        order: set[int],
        *,
        forgets: bool,
    ) -> None:
        """Add to ``order`` the accesses that a write waits for."""
        history = tensor.history
        if history.mark == mark:
            self._write_again(history, order, watched=tensor.watched, forgets=forgets)
        elif history.mark or history.apart:
            apart = history.accesses()
            if tensor.watched:
                self.widened = True
                order.update(self._found(apart[0], tensor.watched, forgets=False))
            for accesses in apart:
                order.update(self._found(accesses, mark, forgets=forgets))

    def _write_again(
        self,
        history: _History,
        order: set[int],
        *,
        watched: Footprint | None,
        forgets: bool,
    ) -> None:
        """Add to ``order`` the dependences of a write if all accesses have its footprint."""
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

    def _found(
        self, accesses: Accesses, mark: Footprint, *, forgets: bool
    ) -> list[int]:
        """Return the users of accesses that share an element with ``mark``.

        ``forgets`` drops the accesses that ``mark`` covers.
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
        """Join ``users`` and return the number of the join."""
        self.joins.append(tuple(dict.fromkeys(users)))
        return ~(len(self.joins) - 1)

    def _meet(self, allocation: Allocation) -> _TensorAccesses:
        """Return the record of a tensor that no instruction has touched yet."""
        if allocation.address is None:
            history = _History()
        else:
            history = self._placed.setdefault(allocation.space, _History())
        tensor = _TensorAccesses(allocation, history, by_tensor=self.by_tensor)
        self._tensors[allocation.id] = tensor
        return tensor


def _is_only_write(region: Region) -> bool:
    """Return whether a write is its tensor's only one, and covers all of the tensor."""
    tensor = region[0]
    once = tensor.writes == 1 and tensor.address is None
    return once and region[6] and region[2] == tensor.shape


def _note(user: int, touched: list[tuple[_History, Footprint, bool]]) -> None:
    """Add the accesses of an instruction to histories."""
    for history, mark, writes_it in touched:
        if history.mark == mark or not (history.mark or history.apart):
            history.mark = mark
            users = history.writes if writes_it else history.reads
            users.append(user)
        else:
            history.accesses()[writes_it].add(mark, user)


def _replace(
    accesses: Accesses, shared: list[Access], mark: Footprint, join: int
) -> None:
    """Replace the accesses that share an element with ``mark`` by a join."""
    marks = [access.mark for access in shared]
    whole = marks[0] if len(marks) == 1 else mark
    if len(marks) > 1 and not all(_has(mark, each) for each in marks):
        first, last, low, high, _ = zip(*marks, strict=True)
        whole = Footprint(min(first), max(last), min(low), max(high), ())
    accesses.forget(shared)
    accesses.add(whole, join)


def _has(mark: Footprint, other: Footprint) -> bool:
    """Return whether ``mark``, which shares an element with ``other``, surely covers all of it."""
    if mark.covers(other):
        return True
    return (
        other.high - other.low == 1
        and mark.first <= other.first
        and other.last <= mark.last
    )
