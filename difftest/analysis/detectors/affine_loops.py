"""Iterations of ``affine_range`` that are not independent of each other.

For each run of a loop and each tensor that several iterations touch, the iterations are replayed in
program order on an element map. The map records the last writer of each element, and the readers
that read it before they write it. A matmul may accumulate in PSUM in any order; all other accesses
conflict.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from difftest.analysis.detectors.access_index import (
    IterationAccess,
    OperandAccess,
    access_index,
    affine_runs,
    is_accumulation,
    register_reductions,
)
from difftest.analysis.detectors.element_map import (
    Cells,
    ElementMap,
    are_disjoint,
    first_true,
)
from difftest.analysis.finding import (
    ERROR,
    NOTE,
    WARNING,
    Finding,
    Found,
    Hazard,
    InconclusiveFinding,
    deduplicated,
    unique_locations,
)
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Event, Location, Loop, LoopKind, Space, Trace

CARRIED = Hazard(
    "affine-carried",
    ERROR,
    "an iteration of affine_range reads what another one writes",
)
REDUCTION = Hazard(
    "affine-reduction",
    WARNING,
    "iterations of affine_range add to one tensor outside PSUM",
)
REWRITTEN = Hazard(
    "affine-rewritten",
    ERROR,
    "iterations of affine_range share what each writes and reads",
)
WRITTEN_TWICE = Hazard(
    "affine-written-twice",
    ERROR,
    "several iterations of affine_range write one element",
)
ORDER = Hazard(
    "affine-order",
    ERROR,
    "outputs depend on the order of affine_range, through indices",
)
HAZARDS = (CARRIED, REDUCTION, REWRITTEN, WRITTEN_TWICE, ORDER)

ASSOCIATIVE = {"add", "multiply", "maximum", "minimum", "max", "min"}
ASSOCIATIVE |= {
    f"{kind}_{op}" for kind in ("bitwise", "logical") for op in ("and", "or", "xor")
}
"""Operators whose reduction is not loop-carried according to AWS's documentation."""

_NOBODY = -1

_RULE = (
    "iterations of nl.affine_range claim to be independent: the compiler may run them in any "
    "order, or at once; only a matmul's accumulation in PSUM may go on from one to the next"
)
_SEQUENTIAL = "use nl.sequential_range, which keeps the order"


@deduplicated
def find_loop_conflicts(trace: Trace, machine: Machine) -> Found:
    """Yield findings on conflicts between iterations of ``affine_range`` loops."""
    index = access_index(trace)
    if not index.has_affine:
        return
    unrolled = trace.dialect == "nki"
    for accesses in index.accesses.values():
        if unrolled and accesses[0].region.allocation.space is Space.PSUM:
            continue  # other detectors check its chains
        for run in affine_runs(accesses):
            if are_disjoint(accesses[0].region.allocation, run.regions):
                continue
            loop = run.loop
            iterations = run.accesses
            conflicts = list(_conflicts(iterations))
            if not conflicts:
                continue
            if unrolled:
                yield from _unrolled(loop, conflicts)
            else:
                yield from _judged(loop, conflicts, iterations, accesses)
    if not unrolled:
        yield from _registers(trace)


def _registers(trace: Trace) -> Iterator[Finding]:
    """Yield findings on iterations that share values in an engine's reduction registers.

    If all of them only add, and the sum leaves the registers after the loop, it is a reduction.
    """
    begun: dict[tuple[object, ...], Event] = {}
    before: dict[tuple[object, ...], Event] = {}
    for event, command, key in register_reductions(trace):
        if command not in ("reduce", "read"):
            begun[key] = event
        elif key in before and (depth := affine_depth(before[key], event)) is not None:
            yield _register_finding(event, before[key], begun.get(key), depth)
        before[key] = event


def affine_depth(earlier: Event, later: Event) -> int | None:
    """Return the depth of the ``affine_range`` with the two events in different iterations."""
    for depth, (iteration, other) in enumerate(
        zip(earlier.loops, later.loops, strict=False)
    ):
        if iteration.loop.id != other.loop.id:
            return None
        if iteration.number != other.number:
            if iteration.loop.kind is LoopKind.AFFINE:
                return depth
            return None
    return None


def _register_finding(
    event: Event, before: Event, begun: Event | None, depth: int
) -> Finding:
    """Return a finding on a reduction in registers that another iteration began."""
    iteration = event.loops[depth]
    earlier = before.loops[depth]
    inside = begun is not None and any(
        other.loop.id == iteration.loop.id for other in begun.loops
    )
    shown = (
        event.operand("reduce_res") is not None
        and before.operand("reduce_res") is not None
    )
    hazard = CARRIED if inside or shown else REDUCTION
    location = iteration.loop.location
    where = f" at line {location.line}" if location else ""
    return hazard.finding(
        f"iteration {iteration.value} of the affine_range{where} continues the reduction of "
        f"iteration {earlier.value} in the registers of the {event.engine.value} engine",
        _RULE,
        f"reset them in each iteration (reduce_cmd.reset_reduce), or {_SEQUENTIAL}",
        event,
        before,
        lines=_locations(event, before, iteration.loop),
    )


class Conflict(NamedTuple):
    """Two iterations that touch one element, and at least one of them writes it."""

    kind: str
    """"carried": an iteration reads an element that an earlier one wrote. "overwritten": it writes
    an element that an earlier one read. "written": it writes an element that an earlier one
    wrote."""
    earlier: IterationAccess
    later: IterationAccess
    element: tuple[int, ...]
    exact: bool = True
    """True if both surely touch the element."""


def _conflicts(iterations: list[IterationAccess]) -> Iterator[Conflict]:
    """Yield one conflict of each kind for each pair of source lines."""
    allocation = iterations[0].access.region.allocation
    element_map = ElementMap(
        [allocation], [iteration.access.region for iteration in iterations]
    )
    replay = _IterationReplay(element_map, iterations)
    for iteration in iterations:
        if iteration.access.writes:
            yield from replay.write(iteration)
        else:
            yield from replay.read(iteration)


class _IterationReplay:
    """The iterations of one run, replayed on an element map."""

    def __init__(
        self, element_map: ElementMap, iterations: list[IterationAccess]
    ) -> None:
        self.element_map = element_map
        self.iterations = iterations
        self.writer: Cells = element_map.filled(_NOBODY)
        """The place in ``iterations`` of the last write of each cell."""
        self.reader: Cells = element_map.filled(_NOBODY)
        """The place of the first read of a cell that its iteration had not written."""
        self.number = np.array(
            [iteration.number for iteration in iterations] + [_NOBODY], np.int32
        )
        """The iteration of each place; _NOBODY, the last index, maps to itself."""
        self.place = -1
        self.said: set[tuple[object, ...]] = set()

    def read(self, iteration: IterationAccess) -> Iterator[Conflict]:
        """Replay a read; yield a conflict if another iteration wrote the cells."""
        self.place += 1
        region = iteration.access.region
        writer = self.element_map.read(self.writer, region)
        others = self.number[writer]
        foreign = others != iteration.number
        if not foreign.any() or is_accumulation(iteration.access):
            return
        carried = foreign & (others != _NOBODY)
        if carried.any():
            yield from self._report("carried", iteration, writer, carried)
        reader = self.element_map.read(self.reader, region)
        first = np.where(foreign & (reader == _NOBODY), self.place, reader)
        self.element_map.write(self.reader, region, first)

    def write(self, iteration: IterationAccess) -> Iterator[Conflict]:
        """Replay a write; yield conflicts with other iterations' writes and earlier reads."""
        self.place += 1
        region = iteration.access.region
        writer = self.element_map.read(self.writer, region)
        reader = self.element_map.read(self.reader, region)
        others = self.number[writer]
        twice = (others != iteration.number) & (others != _NOBODY)
        if is_accumulation(iteration.access):
            # earlier products remain in the sum: later readers depend on their writers
            self.element_map.write(
                self.writer, region, np.where(twice, writer, self.place)
            )
            return
        if twice.any():
            yield from self._report("written", iteration, writer, twice)
        others = self.number[reader]
        early = (others != iteration.number) & (others != _NOBODY)
        if early.any():
            yield from self._report("overwritten", iteration, reader, early)
        self.element_map.write(self.writer, region, self.place)

    def _report(
        self, kind: str, iteration: IterationAccess, places: Cells, wrong: NDArray[Any]
    ) -> Iterator[Conflict]:
        """Yield a conflict of two iterations, once for each pair of source lines."""
        other = self.iterations[int(places[first_true(wrong)])]
        key = kind, other.access.event.location, iteration.access.event.location
        exact = all(
            self.element_map.is_exact(side.access.region) for side in (other, iteration)
        )
        if (*key, exact) not in self.said:
            self.said.add((*key, exact))
            element = self.element_map.element(iteration.access.region, wrong)
            yield Conflict(kind, other, iteration, element, exact)


def is_read_modify_write(event: Event) -> bool:
    """Return whether an event updates its destination, ``x += y``, with an associative operator."""
    if not event.writes:
        return False
    target = event.writes[0]
    return event.attributes.op in ASSOCIATIVE and any(
        region.allocation is target.allocation and region[1:4] == target[1:4]
        for region in event.reads
    )


def _unrolled(loop: Loop, conflicts: list[Conflict]) -> Found:
    """Yield a note in the current dialect, where the loop is an alias of ``range``."""
    carried = [
        c for c in conflicts if c.exact and c.kind == "carried" and not _both_update(c)
    ]
    if carried:
        yield replace(
            _conflict_finding(CARRIED, loop, carried[0]),
            severity=NOTE,
            rule="in the current dialect nl.affine_range is a deprecated alias of range, which "
            "keeps the order. In the classic dialect this would be wrong",
            remedy="use range",
        )


def _both_update(conflict: Conflict) -> bool:
    """Return whether both accesses are of the accumulator of one reduction."""
    return all(
        is_read_modify_write(touch.event)
        and touch.region[1:4] == touch.event.writes[0][1:4]
        for touch in (conflict.earlier.access, conflict.later.access)
    )


def _judged(
    loop: Loop,
    conflicts: list[Conflict],
    iterations: list[IterationAccess],
    accesses: Sequence[OperandAccess],
) -> Found:
    """Yield the findings on one run's conflicts; ``accesses`` are all accesses to the tensor."""
    exact = [conflict for conflict in conflicts if conflict.exact]
    if not exact:
        yield _unsure(loop, conflicts[0])
        return
    reads = _of_kind("carried", exact) + _of_kind("overwritten", exact)
    if reads:
        yield _read(loop, reads, iterations)
        return
    first = exact[0]
    only_writes = all(iteration.access.writes for iteration in iterations)
    if not only_writes and not _outlives(iterations, accesses):
        yield _rewritten(loop, first, iterations)
        return
    # A row without readers, such as that of dummy indices, may have any value.
    if first.earlier.access.region.whole and first.later.access.region.whole:
        yield _conflict_finding(WRITTEN_TWICE, loop, first)
    else:
        yield _unsure(loop, first)


def _of_kind(kind: str, conflicts: list[Conflict]) -> list[Conflict]:
    return [conflict for conflict in conflicts if conflict.kind == kind]


def _unsure(loop: Loop, conflict: Conflict) -> InconclusiveFinding:
    """Return a conflict that a run in another order settles."""
    return InconclusiveFinding(
        _conflict_finding(ORDER, loop, conflict), None, loop.location
    )


def _read(
    loop: Loop, reads: list[Conflict], iterations: list[IterationAccess]
) -> Finding:
    """Return the finding on reads of another iteration's data."""
    for conflict in reads:
        if not _both_update(conflict):
            return _conflict_finding(CARRIED, loop, conflict)
    used = _read_of_partial_sum(iterations)
    if used is not None:
        return _conflict_finding(CARRIED, loop, used)
    return _conflict_finding(REDUCTION, loop, reads[0])


def _rewritten(
    loop: Loop, conflict: Conflict, iterations: list[IterationAccess]
) -> Finding:
    """Return the finding on a tensor that each iteration writes and reads."""
    later = conflict.later
    in_hbm = later.access.region.allocation.space.is_hbm
    # The compiler can privatise a tile for each iteration, but not memory in HBM.
    finding = _conflict_finding(REWRITTEN, loop, conflict)
    readers = [iteration for iteration in iterations if not iteration.access.writes]
    reader = next(
        (iteration for iteration in readers if iteration.number == later.number),
        readers[0],
    )
    return replace(
        finding,
        severity=ERROR if in_hbm else WARNING,
        happened=f"{finding.happened}; iteration {reader.value} reads it back",
        locations=_locations(later.access.event, reader.access.event, loop),
        evidence=(*finding.evidence, reader.access.event.number),
    )


def _read_of_partial_sum(iterations: list[IterationAccess]) -> Conflict | None:
    """Return a read of a partial sum of other iterations: another order gives another number."""
    element_map = ElementMap(
        [iterations[0].access.region.allocation],
        [iteration.access.region for iteration in iterations],
    )
    first = element_map.filled(_NOBODY)
    """The place in ``iterations`` of the first contribution to each cell's present value."""
    number = np.array(
        [iteration.number for iteration in iterations] + [_NOBODY], np.int32
    )
    for place, iteration in enumerate(iterations):
        event = iteration.access.event
        region = iteration.access.region
        cells = element_map.read(first, region)
        is_plain = element_map.is_exact(region) and not is_read_modify_write(event)
        if iteration.access.writes:
            element_map.write(
                first, region, np.where(is_plain | (cells == _NOBODY), place, cells)
            )
        elif is_plain:
            others = number[cells]
            foreign = (others != iteration.number) & (others != _NOBODY)
            if foreign.any():
                earlier = iterations[int(cells[first_true(foreign)])]
                return Conflict(
                    "carried", earlier, iteration, element_map.element(region, foreign)
                )
    return None


def _outlives(
    iterations: list[IterationAccess], accesses: Sequence[OperandAccess]
) -> bool:
    """Return whether an access after the run reads elements that several iterations wrote."""
    end = bisect_right(
        accesses,
        iterations[-1].access.event.number,
        key=lambda touch: touch.event.number,
    )
    many = 2 * len(iterations)
    while True:  # usually the next run overwrites it: start with few accesses
        later = accesses[end : end + many]
        element_map = ElementMap(
            [iterations[0].access.region.allocation],
            [iteration.access.region for iteration in iterations]
            + [touch.region for touch in later],
        )
        answer = _is_read(_contested(element_map, iterations), element_map, later)
        if answer is not None or end + many >= len(accesses):
            return bool(answer)
        many *= 2


def _contested(element_map: ElementMap, iterations: list[IterationAccess]) -> Cells:
    """Return 1 in the cells that several iterations write, else 0."""
    writer = element_map.filled(_NOBODY)
    contested = element_map.filled(0)
    for iteration in iterations:
        if iteration.access.writes:
            region = iteration.access.region
            before = element_map.read(writer, region)
            several = (before != _NOBODY) & (before != iteration.number)
            element_map.write(
                contested, region, element_map.read(contested, region) | several
            )
            element_map.write(writer, region, iteration.number)
    return contested


def _is_read(
    contested: Cells, element_map: ElementMap, later: Sequence[OperandAccess]
) -> bool | None:
    """Return whether an access reads a contested cell before a write; None if neither occurs."""
    for touch in later:
        if not touch.writes:
            if element_map.read(contested, touch.region).any():
                return True
        elif element_map.is_exact(touch.region):
            element_map.write(contested, touch.region, 0)
            if not contested.any():
                return False
    return None


_WORDS = {
    "carried": ("reads", "wrote"),
    "overwritten": ("writes", "read"),
    "written": ("writes", "wrote too"),
}


def _conflict_finding(hazard: Hazard, loop: Loop, conflict: Conflict) -> Finding:
    """Return a finding on two iterations that touch one element."""
    later = conflict.later
    earlier = conflict.earlier
    region = later.access.region
    verb, other = _WORDS[conflict.kind]
    where = f" at line {loop.location.line}" if loop.location else ""
    return hazard.finding(
        f"iteration {later.value} of the affine_range{where} {verb} element "
        f"{list(conflict.element)} of {region.allocation}, which iteration {earlier.value} {other}",
        _RULE,
        _REMEDIES[hazard],
        later.access.event,
        earlier.access.event,
        lines=_locations(later.access.event, earlier.access.event, loop),
    )


_REMEDIES = {
    CARRIED: _SEQUENTIAL,
    REDUCTION: f"{_SEQUENTIAL}, or accumulate in PSUM by a matmul",
    REWRITTEN: "create the tensor inside the loop, so that each iteration has its own",
    WRITTEN_TWICE: f"write disjoint parts, or {_SEQUENTIAL}",
    ORDER: f"index disjoint parts, or {_SEQUENTIAL}",
}


def _locations(*things: Event | Loop) -> tuple[Location, ...]:
    """Return the locations without duplicates."""
    return unique_locations(*(thing.location for thing in things))
