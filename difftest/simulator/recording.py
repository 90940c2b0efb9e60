"""Events: what the trace says of an instruction; moves joined with what they move.

The first is for each operand, each time, so it is written for speed: a launch of tiny instructions
pays for recording, not for detectors.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from difftest.simulator.descriptor import RUNNING
from difftest.simulator.errors import Location, kernel_stack
from difftest.simulator.follower import Follower
from difftest.simulator.trace import Allocation, Anomaly, Event, EventKind, Places, Region

if TYPE_CHECKING:
    from difftest.simulator.dtypes import Array
    from difftest.simulator.tile import Tile

_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_make = tuple.__new__  # a NamedTuple's own __new__ takes twice the time


def region_of(tile: Tile, role: str) -> Region:
    """All of ``tile``, as the instruction touches it that calls it ``role``."""
    storage = tile._storage
    pattern = tile._pattern
    dtype = tile.dtype
    strided = tile._strided
    return _make(
        Region,
        (
            storage.allocation,
            pattern[0],
            pattern[1],
            pattern[2],
            tile._partition_axis,
            role,
            strided,
            None if dtype is storage.dtype else dtype,
            None if strided else Places(_numbers(tile)),
        ),
    )


class LineTracker:
    """The kernel's lines that are being executed.

    Attributes
    ----------
    caller : the frame that called the simulator, where
        :func:`difftest.simulator.frontend.dispatch.entering` noted it: no kernel's line lies
        further in. None where the kernel has to be looked for.
    tracer : what watches the kernel by ``sys.settrace``, and nothing within the simulator; None
        where nobody does.
    """

    def __init__(self) -> None:
        self.caller: FrameType | None = None
        self._of: FrameType | None = None
        self._stacks: dict[int, tuple[Location, ...]] = {}
        """By place in the code of that frame."""
        self._around: tuple[Location, ...] | None = None
        """The lines around it, once they are known."""
        tracer = sys.gettrace()
        self.tracer = tracer if getattr(tracer, "of_kernels", False) else None

    def watch(self, *, kernel: bool) -> None:
        """Let the tracer see what comes next, or not; another, such as a debugger's, stays."""
        if sys.gettrace() is (None if kernel else self.tracer):
            sys.settrace(self.tracer if kernel else None)

    def stack(self) -> tuple[Location, ...]:
        """The lines, innermost first.

        Those around a function's frame stay the same as long as it runs, so that they are looked
        for once, and then its own line alone. A generator may go on for somebody else.
        """
        frame = self.caller
        if frame is None:
            return kernel_stack()
        if frame is not self._of:
            if frame.f_code.co_flags & _RESUMED:
                return kernel_stack(frame)
            self._of = frame
            self._stacks = {}
            self._around = None
        lines = self._stacks.get(frame.f_lasti)
        if lines is None:
            lines = self._stacks[frame.f_lasti] = kernel_stack(frame, self._around)
            self._around = lines[1:]
        return lines


Part = tuple["Tile", "Array | None"]
"""A tile that an instruction touches in part, and what of it: bools over its elements, or the
numbers of those in its tensor; None where that is not known."""


class InstructionAccesses(NamedTuple):
    """What an instruction read and wrote.

    Attributes
    ----------
    roles : of ``writes``, then of ``reads``, one each.
    numbers : those that ``kind`` names.
    parts : those of the tiles of which not every element is touched, with what is.
    moved : the tile that it only takes to its destination: see :func:`fuse_moves`.
    """

    kind: EventKind
    writes: Sequence[Tile]
    reads: Sequence[Tile]
    roles: Sequence[str]
    numbers: tuple[Any, ...] = ()
    parts: Sequence[Part] = ()
    moved: Tile | None = None


class EventRecorder(Follower):
    """What writes the events of a trace.

    Attributes
    ----------
    moved : number of an event -> the result that it only takes to its destination.
    """

    name = "events"

    def __init__(self) -> None:
        self.moved: dict[int, Allocation] = {}

    def touched(self, number: int, touched: InstructionAccesses) -> None:
        kind, writes, reads, roles, numbers, parts, moved = touched
        core: Any = RUNNING.get()  # kept, it would hold its launch until garbage is collected
        tiles = [*writes, *reads]
        split = len(writes)
        regions = list(map(region_of, tiles, roles))
        observer = core.followers.observer
        seen = () if observer is None else tuple(observer.anomalies)
        if seen:
            observer.anomalies.clear()
        if moved is not None:
            self.moved[number] = moved._storage.allocation
        if parts:
            mark_in_part(regions, tiles, parts)
        stack = core.lines.stack()
        turns = core.loops.turns
        program = core.seat.program
        written = tuple(regions[:split])
        read = tuple(regions[split:])
        event = Event(number, kind, written, read, stack, turns, program, seen, numbers)
        core.trace.events.append(event)


def mark_in_part(regions: list[Region], tiles: Sequence[Tile], parts: Sequence[Part]) -> None:
    """Say which of the regions of ``tiles`` are not touched whole, and what is touched of them."""
    for number, tile in enumerate(tiles):
        for touched, chosen in parts:
            if tile is touched:
                places = _places(tile, chosen)
                regions[number] = regions[number]._replace(whole=False, places=places)
                break


def _places(tile: Tile, chosen: Array | None) -> Places | None:
    if chosen is None or (chosen.dtype == np.bool_ and chosen.size != tile.size):
        return None
    if chosen.dtype == np.bool_:
        chosen = _numbers(tile)[chosen.reshape(-1)]
    return Places(chosen)


def _numbers(tile: Tile) -> Array:
    """A tile's elements by number, flat."""
    return tile._take(tile._pattern.elements()).reshape(-1)


def fuse_moves(events: list[Event], moved: Mapping[int, Allocation]) -> list[Event]:
    """Join each result that was only moved to its destination with the instruction that made it.

    In the classic API an instruction returns a tile and ``dst[...] = instruction(...)`` puts it
    where it belongs; the hardware's instruction writes to ``dst`` directly. A kernel runs in two
    steps here too, and its trace has one. The two must be adjacent in program order, and an
    instruction is joined with one move at most.
    A product that was only accumulated elsewhere is left out: the matmul that accumulates has an
    event of its own.

    Parameters
    ----------
    events : in program order; those that are joined are changed.
    moved : number of an event -> the result that it only takes to its destination.
    """
    fused: list[Event] = []
    joined = False
    """Whether the last of them has been joined with its move."""
    seen: tuple[Anomaly, ...] = ()
    """By a product that is left out: the matmul that accumulates saw the same."""
    for event in events:
        source = moved.get(event.number)
        is_made = source is not None and fused and fused[-1].writes[0].allocation is source
        if source is not None and source.is_temporary and is_made and not joined:
            _join(fused[-1], event)
            joined = True
        elif event.writes and event.writes[0].allocation.is_absorbed:
            seen += event.seen
        else:
            event.seen = seen + event.seen
            seen = ()
            fused.append(event)
            joined = False
    return fused


def _join(producer: Event, move: Event) -> None:
    source = producer.writes[0]
    target = move.writes[0]
    places = target.places
    if source.places is not None and target.whole:
        read = move.reads[0].pattern.elements().reshape(-1)
        order = np.argsort(read)
        at = order[np.searchsorted(read, source.places.elements, sorter=order)]
        places = Places(target.pattern.elements().reshape(-1)[at])
    whole = source.whole and target.whole
    written = target._replace(role=source.role, whole=whole, places=places)
    producer.writes = (written, *producer.writes[1:])
    producer.seen += move.seen
