"""An index of a trace's accesses, by tensor, for several readers.

For loops that claim to be independent, it gives the accesses of each iteration to one tensor.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from difftest.analysis.detectors.element_map import are_disjoint
from difftest.analysis.finding import group_by
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    Iteration,
    Loop,
    LoopKind,
    Purpose,
    Region,
    Space,
    Trace,
)


class OperandAccess(NamedTuple):
    """An operand of an instruction."""

    event: Event
    region: Region
    writes: bool


def is_accumulating_dma(event: Event) -> bool:
    """Return whether a DMA adds to the contents of its destination."""
    return event.engine is Engine.DMA and any(
        region.role == "dst" for region in event.reads
    )


def register_reductions(
    trace: Trace,
) -> Iterator[tuple[Event, object, tuple[object, ...]]]:
    """Yield events that use an engine's reduction registers, with the command and the registers."""
    for event in trace.events:
        command = event.kind.options.get("reduce_cmd", "idle")
        if command != "idle":
            yield event, command, (event.program, event.engine)


class AccessIndex:
    """The data of a trace that several readers need, from one pass over its events.

    Attributes
    ----------
    seen : the events with recorded anomalies in their values.
    has_affine : whether a loop of the launch is an ``affine_range``.
    has_scatter : whether an instruction writes through indices in HBM.
    has_reduce_res : whether an instruction computes a reduction in addition to its result.
    accesses : the accesses to each allocation id in program order; an instruction's reads come
        before its writes. Excluded are a kernel's inputs, which nothing writes, and tensors on
        which no reader can report. The latter are tensors in SBUF, or in HBM without scatters,
        whose accesses are all by one program in the iteration that made them. Tensors of
        ``sharing`` are never excluded.
    sharing : groups of tensors in shared HBM that the kernel placed on the same bytes.
    """

    def __init__(self, trace: Trace) -> None:
        self.seen: list[Event] = []
        self.has_affine = False
        self.has_scatter = False
        self.has_reduce_res = False
        self._begins: list[int] = []
        """Numbers of the events where another loop iteration, or another program, begins."""
        self._loops: list[tuple[Iteration, ...]] = []
        """The loops around the events from each of these numbers on."""
        self._find_boundaries(trace)
        self.sharing = sharing_bytes(trace.allocations)
        self.accesses = self._shared_accesses(trace)

    def _find_boundaries(self, trace: Trace) -> None:
        """Note where iterations and programs begin, and which kinds of events the launch has."""
        loops: tuple[Iteration, ...] | None = None
        program: tuple[int, ...] | None = None
        for event in trace.events:
            if event.seen:
                self.seen.append(event)
            if event.purpose is Purpose.SCATTER:
                self.has_scatter = True
            if len(event.writes) > 1:
                self.has_reduce_res |= event.operand("reduce_res") is not None
            if event.loops is not loops or event.program is not program:
                loops = event.loops
                program = event.program
                self._begins.append(event.number)
                self._loops.append(loops)
                if not self.has_affine:
                    self.has_affine = any(
                        iteration.loop.kind is LoopKind.AFFINE for iteration in loops
                    )

    def _shared_accesses(self, trace: Trace) -> dict[int, list[OperandAccess]]:
        """Return the accesses to tensors on which a reader may report."""
        shared = {
            base
            for base in trace.allocations
            if base.writes and not self._is_local(base)
        }
        for tensors in self.sharing:
            shared.update(tensors)
        accesses: dict[int, list[OperandAccess]] = {}
        if not shared:
            return accesses
        for event in trace.events:
            for regions, writes in ((event.reads, False), (event.writes, True)):
                for region in regions:
                    if region.allocation in shared:
                        touch = OperandAccess(event, region, writes)
                        accesses.setdefault(region.allocation.id, []).append(touch)
        return accesses

    def _is_local(self, tensor: Allocation) -> bool:
        """Return whether no reader can report on a tensor's accesses."""
        if tensor.space is Space.PSUM or (self.has_scatter and tensor.space.is_hbm):
            return False
        iteration = bisect_right(self._begins, tensor.first)
        if iteration < len(self._begins) and self._begins[iteration] <= tensor.last:
            return False
        return not tensor.loops or tensor.loops is self._loops[iteration - 1]


def sharing_bytes(tensors: Iterable[Allocation]) -> list[list[Allocation]]:
    """Return the groups of tensors in shared HBM that overlap by their addresses.

    Two tensors of one group share a byte, or a chain of tensors between them does. A tensor that
    shares nothing is in no group.
    """
    placed = [
        (area.low, area.high, tensor)
        for tensor in tensors
        if tensor.space is Space.SHARED_HBM and (area := tensor.area) is not None
    ]
    groups: list[list[Allocation]] = []
    reached = -1
    for low, high, tensor in sorted(placed, key=lambda place: place[:2]):
        if low >= reached:
            groups.append([])
        groups[-1].append(tensor)
        reached = max(reached, high)
    return [group for group in groups if len(group) > 1]


_INDICES: WeakKeyDictionary[Trace, AccessIndex] = WeakKeyDictionary()


def access_index(trace: Trace) -> AccessIndex:
    """Return the index of a finished trace, cached."""
    index = _INDICES.get(trace)
    if index is None:
        index = _INDICES[trace] = AccessIndex(trace)
    return index


class IterationAccess(NamedTuple):
    """An access in one iteration of a loop."""

    number: int
    """The number of the iteration, from 0."""
    value: int
    """The value of the loop variable."""
    access: OperandAccess


class AffineLoopRun(NamedTuple):
    """A run of an ``affine_range`` whose iterations touch a written tensor."""

    depth: int
    """The number of enclosing loops."""
    touches: list[OperandAccess]
    """The accesses in program order."""

    @property
    def loop(self) -> Loop:
        """The loop."""
        return self.touches[0].event.loops[self.depth].loop

    @property
    def accesses(self) -> list[IterationAccess]:
        """Return each access with its iteration."""
        depth = self.depth
        return [
            IterationAccess(*touch.event.loops[depth][1:], touch)
            for touch in self.touches
        ]

    @property
    def regions(self) -> Iterator[tuple[int, Region]]:
        """Return (iteration number, region) of each access."""
        depth = self.depth
        return (
            (touch.event.loops[depth].number, touch.region) for touch in self.touches
        )


def affine_runs(accesses: Sequence[OperandAccess]) -> Iterator[AffineLoopRun]:
    """Yield the runs of each ``affine_range`` that may have conflicts.

    ``accesses`` are all accesses to one tensor.
    """
    loops = accesses[0].event.loops
    if all(touch.event.loops is loops for touch in accesses):
        return
    tensor = accesses[0].region.allocation
    last = accesses[-1].event
    # A tensor whose last access is in the iteration that made it concerns no other iteration.
    yield from _runs(
        accesses, len(tensor.loops) if is_within(tensor.loops, last) else 0
    )


def _runs(accesses: Sequence[OperandAccess], depth: int) -> Iterator[AffineLoopRun]:
    """Yield such runs of loops with ``depth`` enclosing loops."""
    within = (touch for touch in accesses if len(touch.event.loops) > depth)
    for inside in group_by(
        within, lambda touch: touch.event.loops[depth].loop.id
    ).values():
        if not _may_conflict(inside):
            continue
        iterations = group_by(inside, lambda touch: touch.event.loops[depth].number)
        if len(iterations) > 1:
            if not _share_elements(inside):
                continue
            run = AffineLoopRun(depth, inside)
            if run.loop.kind is LoopKind.AFFINE:
                yield run
        for group in iterations.values():
            if len(group) > 1:
                yield from _runs(group, depth + 1)


def _may_conflict(accesses: Sequence[OperandAccess]) -> bool:
    """Return whether some accesses write, and not all of them accumulate."""
    if all(map(is_accumulation, accesses)):
        return False
    return any(touch.writes for touch in accesses)


def _share_elements(accesses: Sequence[OperandAccess]) -> bool:
    """Return whether iterations of a loop, or of inner loops, may share an element."""
    owned = ((id(touch.event.loops), touch.region) for touch in accesses)
    return not are_disjoint(accesses[0].region.allocation, owned)


def is_accumulation(touch: OperandAccess) -> bool:
    """Return whether an access accumulates: a matmul in PSUM, a scatter in HBM, nl.loop_reduce."""
    event = touch.event
    if event.attributes.loop_indices:
        return True
    into = event.attributes.accumulate or (
        event.purpose is Purpose.SCATTER and is_accumulating_dma(event)
    )
    return into and (touch.writes or touch.region.role == "dst")


def loses_additions(touch: OperandAccess) -> bool:
    """Return whether a touch is a scatter's addition in HBM that another addition can undo.

    ``nl.atomic_rmw`` names its operator, and all its additions arrive.
    """
    event = touch.event
    return (
        is_accumulation(touch)
        and event.purpose is Purpose.SCATTER
        and event.attributes.op is None
    )


def is_within(loops: tuple[Iteration, ...], event: Event) -> bool:
    """Return whether an event belongs to an iteration of loops."""
    around, inner = (
        [(iteration.loop.id, iteration.number) for iteration in iterations]
        for iterations in (loops, event.loops[: len(loops)])
    )
    return around == inner
