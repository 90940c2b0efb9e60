"""Who touches what: the accesses of a trace by the tensor that they touch, for several readers."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple
from weakref import WeakKeyDictionary

from difftest.analysis.purpose import Purpose, purpose
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    Iteration,
    LoopKind,
    Region,
    Space,
    Trace,
)


class Touch(NamedTuple):
    """One operand of one instruction."""

    event: Event
    region: Region
    writes: bool


def adds(event: Event) -> bool:
    """Whether a DMA adds to what its destination holds."""
    return event.engine is Engine.DMA and any(region.role == "dst" for region in event.reads)


class Survey:
    """What several readers need of a trace, gathered in one pass over its events.

    Attributes
    ----------
    seen : the events in whose values something stood out.
    has_affine : whether a loop of the launch is an ``affine_range``.
    has_scatter : whether an instruction writes through indices in HBM.
    has_reduce_res : whether an instruction makes a reduction beside its result.
    accesses : by the id of the allocation, the accesses to it in program order, an instruction's
        reads before its writes. Left out are tensors that nothing writes, a kernel's inputs, and
        those of which no reader can say anything: in SBUF, or in HBM where nothing scatters, all
        accesses by one program in the one turn of the loops that made the tensor.
    """

    def __init__(self, trace: Trace) -> None:
        self.seen: list[Event] = []
        self.has_affine = False
        self.has_scatter = False
        self.has_reduce_res = False
        self._begins: list[int] = []
        """Numbers of the events at which another turn of a loop, or another program, begins."""
        self._loops: list[tuple[Iteration, ...]] = []
        """The loops around the events from each of them on."""
        self._divide(trace)
        self.accesses = self._gathered(trace)

    def _divide(self, trace: Trace) -> None:
        loops: tuple[Iteration, ...] | None = None
        program: tuple[int, ...] | None = None
        for event in trace.events:
            if event.seen:
                self.seen.append(event)
            if purpose(event) is Purpose.SCATTER:
                self.has_scatter = True
            if len(event.writes) > 1:
                self.has_reduce_res |= event.operand("reduce_res") is not None
            if event.loops is not loops or event.program is not program:
                loops, program = event.loops, event.program
                self._begins.append(event.number)
                self._loops.append(loops)
                if not self.has_affine:
                    self.has_affine = any(turn.loop.kind is LoopKind.AFFINE for turn in loops)

    def _gathered(self, trace: Trace) -> dict[int, list[Touch]]:
        shared = {base for base in trace.allocations if base.writes and not self._is_local(base)}
        accesses: dict[int, list[Touch]] = {}
        if not shared:
            return accesses
        for event in trace.events:
            for region in event.reads:
                allocation = region.allocation
                if allocation in shared:
                    touch = Touch(event, region, False)
                    accesses.setdefault(allocation.id, []).append(touch)
            for region in event.writes:
                allocation = region.allocation
                if allocation in shared:
                    touch = Touch(event, region, True)
                    accesses.setdefault(allocation.id, []).append(touch)
        return accesses

    def _is_local(self, tensor: Allocation) -> bool:
        """Whether no reader can say anything of a tensor's accesses."""
        if tensor.space is Space.PSUM or (self.has_scatter and tensor.space.is_hbm):
            return False
        turn = bisect_right(self._begins, tensor.first)
        if turn < len(self._begins) and self._begins[turn] <= tensor.last:
            return False
        return not tensor.loops or tensor.loops is self._loops[turn - 1]


_SURVEYS: WeakKeyDictionary[Trace, Survey] = WeakKeyDictionary()


def survey_of(trace: Trace) -> Survey:
    """The survey of a trace that is over; made once."""
    survey = _SURVEYS.get(trace)
    if survey is None:
        survey = _SURVEYS[trace] = Survey(trace)
    return survey
