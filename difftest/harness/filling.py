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

from hypothesis import settings

from difftest.analysis.placement import limit_of, needed
from difftest.backends.base import Backend, Outcome, Ran
from difftest.harness.case import Case
from difftest.harness.edges import Edge, case_of, is_size, plainest
from difftest.harness.spec import KernelSpec, elements_of, is_choice
from difftest.harness.strategies import source_of
from difftest.simulator.machine import TRN2
from difftest.simulator.trace import Space, Trace

MOST_ELEMENTS = 2**23
"""Of all arrays of a case together: no kernel is grown beyond that."""
MOST_WORK = 2**27
"""Elements that all instructions of a case together touch, as far as they can be foreseen."""
WORK_OF_A_CASE = 3 * 2**19
"""So many for each case that the profile of Hypothesis draws: who waits for few waits for less."""
INSTRUCTION = 2**12
"""Elements that NumPy computes in the time that an instruction takes beside."""
_MEMORIES = (Space.SBUF, Space.PSUM)
_LIMITS = tuple(limit_of(space, TRN2) for space in _MEMORIES) * 2
"""Of each figure of :func:`footprint_of`."""
_LOOKS = (1, 2, 4)
"""How many times its plainest value a name has, when it is seen whether the footprint grows."""
_NEAR = 2
"""Steps of a footprint from its limit, at most, of a memory that counts as full."""


@dataclass(frozen=True)
class _Look:
    """A run of a grown case: whether it fits, and its footprint."""

    count: int
    case: Case
    outcome: Outcome

    @property
    def spilled(self) -> bool:
        return any(size > limit for size, limit in zip(self.footprint, _LIMITS, strict=False))

    @property
    def fits(self) -> bool:
        return isinstance(self.outcome, Ran) and not self.spilled

    @property
    def trace(self) -> Trace | None:
        return self.outcome.trace if isinstance(self.outcome, Ran) else None

    @cached_property
    def footprint(self) -> tuple[int, ...]:
        return () if self.trace is None else footprint_of(self.trace)

    @cached_property
    def work(self) -> int:
        return 0 if self.trace is None else work_of(self.trace)


def footprint_of(trace: Trace) -> tuple[int, ...]:
    """Bytes of a partition that no placement of the tensors can do without.

    Those of SBUF and of PSUM that live together, and those of the largest tensor in each.
    """
    found = needed(trace, TRN2)
    largest = dict.fromkeys(_MEMORIES, 0)
    for one in trace.allocations:
        if one.space in largest:
            largest[one.space] = max(largest[one.space], one.partition_bytes)
    return (*(found.get(space, 0) for space in _MEMORIES), *largest.values())


def work_of(trace: Trace) -> int:
    """What it takes to simulate a launch, in elements that its instructions touch."""
    touched = sum(
        sum(region.elements for region in (*event.writes, *event.reads)) for event in trace.events
    )
    return touched + INSTRUCTION * len(trace.events)


def fillings_of(spec: KernelSpec, run: Callable[[KernelSpec, Case], Outcome]) -> Iterator[Edge]:
    """For each name on which the footprint depends, the last case that fits and the first not.

    ``run`` runs a case and records its trace.
    """
    filled: set[int] = set()
    for name, value in _sizes_of(spec):
        looks = _Looks(spec, name, value, run)
        memories = _growing(looks) - filled
        found = _limit_of(looks) if memories else None
        if found is not None:
            filled |= _full(looks.first[-1], found[0]) & memories
            for look, side in zip(found, ("just under", "just over"), strict=True):
                size = f"{name}={look.case.values[name]}"
                yield Edge(look.case, f"{size}, {side} the limit", fills=True)


def has_sizes(spec: KernelSpec) -> bool:
    """Whether an array of the spec has a dimension that may grow: see :func:`_sizes_of`."""
    tokens = [token for one in (*spec.inputs, *spec.outputs) for token in spec.dimensions(one)]
    named = not all(token.isdecimal() for token in tokens)
    is_open = any(not is_choice(source) for source in spec.domain.values())
    return named and (is_open or bool(spec.rejects))


def _sizes_of(spec: KernelSpec) -> Iterator[tuple[str, int]]:
    """The names that can grow, each with its plainest value.

    A list says which values there are. A spec without rejections promises nothing beyond it.
    """
    values = plainest(spec, {}) or {}
    for name, value in values.items():
        if is_size(value) and (spec.rejects or not is_choice(source_of(spec, name, values))):
            yield name, value


@dataclass
class _Looks:
    """Runs of a spec's plainest case in which one name is a multiple of its plainest value."""

    spec: KernelSpec
    name: str
    value: int
    run: Callable[[KernelSpec, Case], Outcome]

    @cached_property
    def first(self) -> list[_Look]:
        """The first looks at the name; none if one of them does not fit."""
        looks: list[_Look] = []
        for count in _LOOKS:
            look = self.at(count)
            if look is None or not look.fits:
                return []
            looks.append(look)
        return looks

    def at(self, count: int, work: float = 0) -> _Look | None:
        """The run with ``count`` times the value; None if there is none, or it is too large."""
        values = plainest(self.spec, {self.name: count * self.value})
        most_work = min(MOST_WORK, WORK_OF_A_CASE * settings().max_examples)
        if values is None or elements_of(self.spec, values) > MOST_ELEMENTS or work > most_work:
            return None
        case = case_of(self.spec, values)
        return None if case is None else _Look(count, case, self.run(self.spec, case))


def _growing(looks: _Looks) -> set[int]:
    """The memories of which larger cases take more, by their place in the footprint."""
    footprints = [look.footprint for look in looks.first]
    figures = enumerate(zip(*footprints, strict=True))
    return {place % len(_MEMORIES) for place, sizes in figures if len({*sizes}) > 1}


def _full(small: _Look, under: _Look) -> set[int]:
    """The memories that the next count overfills: a kernel's own limit may come long before."""
    most = zip(small.footprint, under.footprint, _LIMITS, strict=True)
    steps = under.count - small.count or 1
    return {
        place % len(_MEMORIES)
        for place, (least, size, limit) in enumerate(most)
        if size + _NEAR * (size - least) / steps > limit
    }


def _limit_of(looks: _Looks) -> tuple[_Look, _Look] | None:
    """The last multiple that fits, and the next; None if the limit is out of reach."""
    below, under = looks.first[-2:]
    over: _Look | None = None
    count, step = _crossing(below, under), 1
    while over is None or over.count - under.count > 1:
        growth = (under.work - below.work) / (under.count - below.count)
        found = looks.at(count, under.work + growth * (count - under.count))
        if found is None:
            return None
        if found.fits:
            below, under, step = under, found, 0 if over else step
            count = (under.count + over.count) // 2 if over else _crossing(below, under)
        elif found.spilled and not (over and over.spilled):
            over, step = found, 1  # how much too large it is says where the limit was
            count = _crossing(under, over)
        else:  # the guess was a good one: the limit is not far below
            over, middle = found, (under.count + found.count) // 2
            count = max(over.count - step, under.count + 1) if step else middle
            step *= 16  # the next step down goes farther
    return under, over


def _crossing(first: _Look, second: _Look) -> int:
    """The first count that is too large, if what is needed grows on as between two looks."""
    found = [1.0 * MOST_ELEMENTS]
    for least, most, limit in zip(first.footprint, second.footprint, _LIMITS, strict=True):
        growth = (most - least) / (second.count - first.count)
        if growth > 0:
            found.append(first.count + (limit - least) / growth)
    guess = math.floor(min(found)) + 1
    return max(guess, second.count + 1) if second.fits else min(guess, second.count - 1)


def keeps_traces(backend: Backend) -> bool:
    """Whether a backend can say what a kernel's tensors take."""
    return backend.name == "embedded"
