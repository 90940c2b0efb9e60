"""Copies, loads and transposes that only do again what was done: some of them are left out.

A copy repeats an earlier one if both are of the same elements of a tensor that nothing has written
since, and each is all that is ever written into its destination, two tiles of one form. Whoever
reads the second tile then reads the first, which has to stay that long: so as many are left out as
SBUF has room for beside what is live at one time. A transpose goes with the copy of its result, if
that repeats the copy of an earlier one's. Which ones the compiler takes for repeated is
inferred (:mod:`difftest.timing.compiler`).
"""

from __future__ import annotations

from math import prod

from difftest.analysis.placement import needed
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Engine, Event, Iteration, Purpose, Space, Trace
from difftest.timing.compiler import Compiler, RepeatRule, cores_of

Key = tuple[object, ...]


class Repeated:
    """What is left out of a trace.

    Attributes
    ----------
    events : the numbers of the events that are left out.
    twins : a tile that is not made -> the one that has the same contents.
    """

    def __init__(self, trace: Trace, machine: Machine, compiler: Compiler) -> None:
        self.events: set[int] = set()
        self.twins: dict[int, Allocation] = {}
        self._turned: dict[int, tuple[Allocation, int]] = {}
        """The result of a transpose -> that of an earlier equal one, and the transpose's number."""
        self._trace, self._machine, self._cores = trace, machine, cores_of(trace)
        turns = compiler.repeated_transposes
        if turns is RepeatRule.OLDER:
            turns = RepeatRule.INVARIANT if machine.nc_version < 3 else RepeatRule.KEPT
        self._rules = {Engine.DMA: compiler.repeated_loads, Engine.TENSOR: turns}
        self._copies = compiler.repeated_copies
        if {self._copies, *self._rules.values()} != {RepeatRule.KEPT}:
            self._rooms: dict[int, int] = {}
            """Core -> bytes of a partition of its SBUF that no tensor needs."""
            self._written: dict[int, Event] = {}
            """Tensor -> the event that wrote it last."""
            self._lasting: set[int] = set()
            """Tiles that hold a copy of what their loops do not change."""
            self._turning: set[int] = set()
            """Runs of loops with more than one turn."""
            self._find()

    def _find(self) -> None:
        first: dict[Key, Event] = {}
        kept: set[int] = set()
        self._turning = _turning(self._trace.events)
        for event in self._trace.events:
            key = self._key(event)
            for region in event.writes:
                self._written[region.allocation.id] = event
            if key is None:
                continue
            target = event.writes[0].allocation
            self._lasting.add(target.id)
            twin = first.setdefault(key, event)
            if twin is event:
                continue
            tile = twin.writes[0].allocation
            if event.engine is Engine.TENSOR:
                if target.reads == 1:
                    self._turned[target.id] = tile, event.number
                continue
            if tile.id not in kept:
                if not self._fits(tile, self._cores.get(event.program, 0)):
                    continue
                kept.add(tile.id)
            self.events.add(event.number)
            self.twins[target.id] = tile
            source = event.reads[0].allocation.id
            if source in self._turned:
                self.events.add(self._turned[source][1])

    def _innermost(self, event: Event) -> int | None:
        """The innermost loop around an event that has more than one turn."""
        around = (turn.loop.id for turn in reversed(event.loops))
        return next((loop for loop in around if loop in self._turning), None)

    def _fits(self, tile: Allocation, core: int) -> bool:
        """Take the room of a tile that stays on its core; False if there is none."""
        if core not in self._rooms:
            sbuf = needed(self._trace, self._machine).get(Space.SBUF, 0)
            self._rooms[core] = self._machine.sbuf_usable_bytes - sbuf
        if tile.partition_bytes > self._rooms[core]:
            return False
        self._rooms[core] -= tile.partition_bytes
        return True

    def _key(self, event: Event) -> Key | None:
        """What two equal copies have in common; None if it is no copy that could be left out."""
        engine = event.engine
        rule = self._rules.get(engine, self._copies)
        if rule is RepeatRule.KEPT or len(event.reads) != 1 or len(event.writes) != 1:
            return None
        loads, turns = engine is Engine.DMA, engine is Engine.TENSOR
        if event.purpose is not (Purpose.TRANSPOSE if turns else Purpose.COPY):
            return None
        around = self._innermost(event)
        if rule is RepeatRule.INVARIANT and around is None:
            return None
        source, target = event.reads[0], event.writes[0]
        base = target.allocation
        space = Space.PSUM if turns else Space.SBUF
        sole = base.writes == 1 and base.space is space and not base.areas and not base.viewed
        if not (sole and source.whole and target.whole and target.elements == prod(base.shape)):
            return None
        number = source.allocation.id
        held = self._turned.get(number, (self.twins.get(number, source.allocation),))[0]
        if loads and (not held.space.is_hbm or held.writes):
            return None
        before = self._written.get(held.id)
        if rule is RepeatRule.INVARIANT:
            inside = () if before is None else before.loops
            if any(turn.loop.id == around for turn in inside) and held.id not in self._lasting:
                return None
        return (
            self._cores.get(event.program, 0),
            engine,
            held.id,
            -1 if before is None else before.number,
            source[1:5],
            source.view,
            target[1:4],
            base.shape,
            base.dtype,
            base.partition_axis,
        )


def _turning(events: list[Event]) -> set[int]:
    """The runs of loops that have a second turn."""
    ids: set[int] = set()
    last: tuple[Iteration, ...] = ()
    for event in events:
        if event.loops is not last:
            last = event.loops
            ids.update(turn.loop.id for turn in last if turn.number)
    return ids
