"""Record the events of a trace, and fuse moves with the instructions that made their data.

:func:`region_of` runs for each operand of each instruction, so it is written for speed. Recording
dominates the time of a launch of many small instructions.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from difftest.simulator.descriptor import RUNNING
from difftest.simulator.errors import Location, kernel_stack
from difftest.simulator.follower import Follower
from difftest.simulator.trace import (
    Allocation,
    Anomaly,
    Event,
    EventKind,
    Places,
    Region,
)

if TYPE_CHECKING:
    from difftest.simulator.dtypes import Array
    from difftest.simulator.tile import Tile

_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_make = tuple.__new__  # a NamedTuple's own __new__ takes twice the time


def region_of(tile: Tile, role: str) -> Region:
    """Return the region of all of ``tile``, under the instruction's name ``role``.

    A tile keeps its regions, because instructions often read one tile several times.
    """
    for region in tile._regions:
        if region.role == role:
            return region
    storage = tile._storage
    pattern = tile._pattern
    dtype = tile.dtype
    strided = tile._strided
    region = _make(
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
    tile._regions = (*tile._regions, region)
    return region


class LineTracker:
    """The kernel's source lines that are being executed.

    Attributes
    ----------
    caller : the frame that called the simulator, if
        :func:`difftest.simulator.frontend.dispatch.entering` noted it. Frames further in contain no
        line of a kernel. None if the kernel's frame must be searched for.
    tracer : the ``sys.settrace`` function that watches kernels and nothing within the simulator.
        None without one.
    """

    def __init__(self) -> None:
        self.caller: FrameType | None = None
        self._frame: FrameType | None = None
        self._stacks: dict[int, tuple[Location, ...]] = {}
        """The stacks of that frame, by its last instruction."""
        self._callers: tuple[Location, ...] | None = None
        """The lines of the frame's callers, once they are found."""
        tracer = sys.gettrace()
        self.tracer = tracer if getattr(tracer, "of_kernels", False) else None

    def watch(self, *, kernel: bool) -> None:
        """Enable the tracer for kernel code, or disable it; keep a foreign one, e.g. a debugger."""
        if sys.gettrace() is (None if kernel else self.tracer):
            sys.settrace(self.tracer if kernel else None)

    def stack(self) -> tuple[Location, ...]:
        """Return the lines, innermost first.

        The callers' lines stay the same as long as a function's frame runs, so they are looked up
        once.
        After that, only the frame's own line is. A generator may be resumed by a different caller.
        """
        frame = self.caller
        if frame is None:
            return kernel_stack()
        if frame is not self._frame:
            if frame.f_code.co_flags & _RESUMED:
                return kernel_stack(frame)
            self._frame = frame
            self._stacks = {}
            self._callers = None
        lines = self._stacks.get(frame.f_lasti)
        if lines is None:
            lines = self._stacks[frame.f_lasti] = kernel_stack(frame, self._callers)
            self._callers = lines[1:]
        return lines


Part = tuple["Tile", "Array | None"]
"""A tile that an instruction accesses in part, and its accessed elements: bools over the tile's
elements, or element numbers in the tensor. None if the elements are unknown.
"""


class InstructionAccesses(NamedTuple):
    """The tiles that an instruction read and wrote.

    Attributes
    ----------
    roles : one for each of ``writes``, then one for each of ``reads``.
    numbers : the numeric operands that ``kind`` names.
    parts : the tiles that are accessed in part, with the accessed elements.
    moved : the tile that the instruction only moves to its destination: see :func:`fuse_moves`.
    """

    kind: EventKind
    writes: Sequence[Tile]
    reads: Sequence[Tile]
    roles: Sequence[str]
    numbers: tuple[Any, ...] = ()
    parts: Sequence[Part] = ()
    moved: Tile | None = None


class EventRecorder(Follower):
    """The follower that records the events of a trace.

    Attributes
    ----------
    moved : number of an event -> the result that it only moves to its destination.
    """

    name = "events"

    def __init__(self) -> None:
        self.moved: dict[int, Allocation] = {}

    def touched(self, number: int, touched: InstructionAccesses) -> None:
        kind, writes, reads, roles, numbers, parts, moved = touched
        # looked up each time: a stored core would keep its launch alive
        core: Any = RUNNING.get()
        written = tuple(map(region_of, writes, roles))
        read = tuple(map(region_of, reads, roles[len(writes) :]))
        observer = core.followers.observer
        seen = () if observer is None else tuple(observer.anomalies)
        if seen:
            observer.anomalies.clear()
        if moved is not None:
            self.moved[number] = moved._storage.allocation
        if parts:
            written = marked_in_part(written, writes, parts)
            read = marked_in_part(read, reads, parts)
        stack = core.lines.stack()
        turns = core.loops.turns
        program = core.seat.program
        event = Event(number, kind, written, read, stack, turns, program, seen, numbers)
        core.trace.events.append(event)


def marked_in_part(
    regions: tuple[Region, ...], tiles: Sequence[Tile], parts: Sequence[Part]
) -> tuple[Region, ...]:
    """Return the regions of ``tiles``; those accessed in part have their accessed elements."""
    return tuple(map(functools.partial(_marked_in_part, parts), regions, tiles))


def _marked_in_part(parts: Sequence[Part], region: Region, tile: Tile) -> Region:
    for touched, chosen in parts:
        if tile is touched:
            return region._replace(whole=False, places=_places(tile, chosen))
    return region


def _places(tile: Tile, chosen: Array | None) -> Places | None:
    if chosen is None or (chosen.dtype == np.bool_ and chosen.size != tile.size):
        return None
    if chosen.dtype == np.bool_:
        chosen = _numbers(tile)[chosen.reshape(-1)]
    return Places(chosen)


def _numbers(tile: Tile) -> Array:
    """Return the numbers of a tile's elements, flat."""
    return tile._take(tile._pattern.elements()).reshape(-1)


def fuse_moves(events: list[Event], moved: Mapping[int, Allocation]) -> list[Event]:
    """Fuse each result that was only moved to its destination with the instruction that made it.

    In the classic API an instruction returns a tile, and ``dst[...] = instruction(...)`` moves it
    to its destination. The hardware's instruction writes to ``dst`` directly. The simulator runs
    both steps, and the trace shows one. The two must be adjacent in program order. An instruction
    is fused with one move at most. A product that was only accumulated elsewhere is left out: the
    matmul that accumulates has an event of its own.

    Parameters
    ----------
    events : in program order; fused events are changed.
    moved : number of an event -> the result that it only moves to its destination.
    """
    fused: list[Event] = []
    joined = False
    """True if the last fused event has been joined with its move."""
    seen: tuple[Anomaly, ...] = ()
    """The anomalies of products that are left out. The accumulating matmul takes them over."""
    for event in events:
        source = moved.get(event.number)
        is_made = (
            source is not None and fused and fused[-1].writes[0].allocation is source
        )
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
