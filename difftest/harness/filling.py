"""Cases that fill a memory to just under its limit, and to just over it.

Drawn sizes are small, and no memory is ever full of them. So each name of the domain on which a
kernel's footprint in SBUF or PSUM depends grows, alone, in the plainest case, until the kernel
refuses it or its tensors no longer fit; one such name for each memory. What comes of the last case
that fits and of the first that does not must be a refusal, or correct.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from difftest.analysis.placement import limit_of, needed
from difftest.backends.base import Backend, Outcome, Ran
from difftest.harness.case import Case
from difftest.harness.edges import grown, plainest
from difftest.harness.spec import KernelSpec
from difftest.simulator.machine import TRN2
from difftest.simulator.trace import Space, Trace

MOST_ELEMENTS = 2**23
"""Of all arrays of a case together: no kernel is grown beyond that."""
MOST_WORK = 2**27
"""Elements that all instructions of a case together touch, as far as they can be foreseen."""
INSTRUCTION = 2**12
"""Elements that NumPy computes in the time that an instruction takes beside."""
_MEMORIES = (Space.SBUF, Space.PSUM)
_LOOKS = (1, 2, 4)
"""How many times its plainest value a name has, when it is seen whether the footprint grows."""


@dataclass(frozen=True)
class Filling:
    """What came of a case at a memory's limit.

    Attributes
    ----------
    why : the name, its value, and on which side of the limit it lies.
    outcome : of the backend.
    spilled : whether the tensors that live at one time exceed a memory, by its trace.
    """

    case: Case
    why: str
    outcome: Outcome
    spilled: bool


@dataclass(frozen=True)
class _Look:
    """A run of a grown case: whether it fits, and its footprint."""

    count: int
    case: Case
    outcome: Outcome

    @property
    def spilled(self) -> bool:
        pairs = zip(self.footprint, _MEMORIES, strict=False)
        return any(size > limit_of(space, TRN2) for size, space in pairs)

    @property
    def fits(self) -> bool:
        return isinstance(self.outcome, Ran) and not self.spilled

    @cached_property
    def footprint(self) -> tuple[int, ...]:
        trace = self.outcome.trace if isinstance(self.outcome, Ran) else None
        return () if trace is None else footprint_of(trace)

    @cached_property
    def work(self) -> int:
        trace = self.outcome.trace if isinstance(self.outcome, Ran) else None
        return 0 if trace is None else work_of(trace)


def footprint_of(trace: Trace) -> tuple[int, ...]:
    """Bytes of a partition of SBUF and of PSUM that no placement of the tensors can do without."""
    found = needed(trace, TRN2)
    return tuple(found.get(space, 0) for space in _MEMORIES)


def work_of(trace: Trace) -> int:
    """What it takes to simulate a launch, in elements that its instructions touch."""
    touched = sum(
        sum(region.elements for region in (*event.writes, *event.reads)) for event in trace.events
    )
    return touched + INSTRUCTION * len(trace.events)


def fillings_of(spec: KernelSpec, run: Callable[[KernelSpec, Case], Outcome]) -> Iterator[Filling]:
    """For each name on which the footprint depends, the last case that fits and the first not.

    Parameters
    ----------
    run : runs a case and records its trace.
    """
    filled: set[int] = set()
    for name, value in (plainest(spec, {}) or {}).items():
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            looks = _looks_at(spec, name, value, run)
            memories = _growing(looks) - filled
            found = _limit_of(looks) if memories else None
            if found is not None:
                filled |= memories
                for look, side in zip(found, ("just under", "just over"), strict=True):
                    size = f"{name}={look.case.values[name]}"
                    why = f"{size}, {side} the limit"
                    yield Filling(look.case, why, look.outcome, look.spilled)


class _Looks:
    """Runs of a spec's plainest case in which one name is a multiple of its plainest value."""

    def __init__(
        self, spec: KernelSpec, name: str, value: int, run: Callable[[KernelSpec, Case], Outcome]
    ) -> None:
        self.spec, self.name, self.value, self.run = spec, name, value, run
        self.first: list[_Look] = []

    def at(self, count: int, work: float = 0) -> _Look | None:
        """The run with ``count`` times the value; None if there is none, or it is too large."""
        case = grown(self.spec, {self.name: count * self.value})
        if case is None:
            return None
        if elements_of(self.spec, case) > MOST_ELEMENTS or work > MOST_WORK:
            return None
        return _Look(count, case, self.run(self.spec, case))


def _looks_at(
    spec: KernelSpec, name: str, value: int, run: Callable[[KernelSpec, Case], Outcome]
) -> _Looks:
    """The first looks at a name; none if one of them does not fit."""
    looks = _Looks(spec, name, value, run)
    for count in _LOOKS:
        found = looks.at(count)
        if found is None or not found.fits:
            looks.first = []
            break
        looks.first.append(found)
    return looks


def _growing(looks: _Looks) -> set[int]:
    """The memories of which larger cases take more."""
    footprints = [look.footprint for look in looks.first]
    return {place for place, sizes in enumerate(zip(*footprints, strict=True)) if len({*sizes}) > 1}


def _limit_of(looks: _Looks) -> tuple[_Look, _Look] | None:
    """The last multiple that fits, and the next; None if the limit is out of reach."""
    below, under = looks.first[-2:]
    over = None
    count = _guess(below, under)
    while over is None or over.count - under.count > 1:
        growth = (under.work - below.work) / (under.count - below.count)
        found = looks.at(count, under.work + growth * (count - under.count))
        if found is None:
            return None
        if found.fits:
            below, under = under, found
            count = _guess(below, under) if over is None else (under.count + over.count) // 2
        else:
            near = over is None and found.count > under.count + 1
            over = found
            count = over.count - 1 if near else (under.count + over.count) // 2
    return under, over


def _guess(below: _Look, under: _Look) -> int:
    """Where the first memory is full, if the footprint grows on as it did between two looks."""
    steps = [1.0 * MOST_ELEMENTS]
    for least, most, space in zip(below.footprint, under.footprint, _MEMORIES, strict=True):
        growth = (most - least) / (under.count - below.count)
        if growth > 0:
            steps.append((limit_of(space, TRN2) - most) / growth)
    return under.count + max(1, int(min(steps)))


def elements_of(spec: KernelSpec, case: Case) -> int:
    """Of all arrays of a case together."""
    return sum(math.prod(spec.shape(name, case.values)) for name in (*spec.inputs, *spec.outputs))


def keeps_traces(backend: Backend) -> bool:
    """Whether a backend can say what a kernel's tensors take."""
    return backend.name == "embedded"
