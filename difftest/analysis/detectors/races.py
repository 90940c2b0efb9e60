"""Unordered accesses of a grid's programs, or a logical NeuronCore's cores, to one place.

Synchronization points (a barrier, a sendrecv) divide the events of programs into epochs. Work of
one program before such a point is finished when the other continues. Inside an epoch, two programs
are unordered. A barrier blocks only one engine, so it orders accesses to its own tensor
(``nisa.core_barrier`` at v2.32.0), and work that depends on them.

The data that a rank sends reach its peers' receive buffers when it enters an all-to-all, even if
the peers are not there yet. If two exchanges share a buffer, the data of the second arrive while
the first are still being read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from difftest.analysis.detectors.access_index import (
    OperandAccess,
    access_index,
    is_accumulation,
    loses_additions,
)
from difftest.analysis.detectors.element_map import Cells, ElementMap, first_true
from difftest.analysis.detectors.happens_before import (
    HappensBefore,
    collective_calls,
    is_synchronization,
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
    group_by,
    unique_locations,
)
from difftest.analysis.footprint import footprint
from difftest.simulator.machine import Machine
from difftest.simulator.trace import (
    Allocation,
    Event,
    Loop,
    LoopKind,
    Purpose,
    Space,
    Trace,
)

RACE = Hazard(
    "program-race", ERROR, "a program touches what another one writes, unordered"
)
WRITTEN_TWICE = Hazard(
    "program-written-twice", WARNING, "several programs write one element"
)
IGNORED_ID = Hazard(
    "program-id-ignored", WARNING, "all programs write one place by one instruction"
)
ORDER = Hazard(
    "program-order", ERROR, "outputs depend on the order of programs, through indices"
)
OTHER_BARRIER = Hazard(
    "program-other-barrier",
    WARNING,
    "the barrier between two programs is on another tensor",
)
TRIP_COUNTS = Hazard(
    "program-trip-counts",
    ERROR,
    "a device loop has different trip counts in two programs",
)
ADDRESSES = Hazard(
    "program-other-address",
    WARNING,
    "two programs exchange tensors that lie at other addresses",
)
NAME_TWICE = Hazard(
    "shared-name-twice", WARNING, "two tensors in shared HBM have one name"
)
HAZARDS = (
    RACE,
    WRITTEN_TWICE,
    IGNORED_ID,
    ORDER,
    OTHER_BARRIER,
    TRIP_COUNTS,
    ADDRESSES,
    NAME_TWICE,
)

_NOBODY = -1
_RULE = (
    "programs of a grid run at once, or in any order: what one writes, another may touch only "
    "after a barrier on that tensor"
)
_BARRIER = (
    "let each program write a part of its own (nl.program_id), or put nisa.core_barrier on "
    "this tensor between the two"
)
_PARTS = (
    "let each program write a part of its own (nl.program_id), and what reads the others' "
    "parts be another kernel: a classic grid has no barriers"
)


class _Epochs(NamedTuple):
    """The number of earlier synchronization points of each event, by the event's number."""

    any: Mapping[int, int]
    own: Mapping[int, Mapping[int, int]]
    """Tensor id -> points at barriers on it alone. Tensors without barriers are absent."""

    def of(self, event: Event, tensors: Iterable[Allocation]) -> int:
        """Return the number of synchronization points that order accesses to these tensors."""
        owns = (self.own.get(tensor.id) for tensor in tensors)
        return sum(own[event.number] for own in owns if own is not None)


def find_races(trace: Trace, machine: Machine) -> Found:
    """Yield findings on races between the programs of a launch."""
    if len({event.program for event in trace.events}) < 2:
        return
    for race in _with_one_ignored_id(_all_races(trace)):
        yield race if trace.dialect == "nki" else _without_barriers(race)
    yield from _trip_counts(trace)
    yield from _addresses(trace)
    if trace.dialect == "nki":
        yield from _names(trace)


def _without_barriers(
    race: Finding | InconclusiveFinding,
) -> Finding | InconclusiveFinding:
    """Return the race with a remedy that exists in the classic dialect."""
    if isinstance(race, InconclusiveFinding):
        return race._replace(differs=replace(race.differs, remedy=_PARTS))
    if race.remedy is _BARRIER:
        return replace(race, remedy=_PARTS)
    return race


def _with_one_ignored_id(results: Found) -> Found:
    """Yield the races, with the finding on an ignored program id only at the first place.

    Without other findings, no program reads another program's data. All programs then
    write the same data in any order, and no run is necessary.
    """
    races = list(results)
    agreements = (getattr(race, "agrees", None) for race in races)
    ignored = [each for each in agreements if each and each.id == IGNORED_ID.id]
    if ignored and len(ignored) == len(races):
        yield ignored[0]
        return
    for race in races:
        if isinstance(race, InconclusiveFinding) and race.agrees in ignored[1:]:
            yield race._replace(agrees=None)
        else:
            yield race


def _all_races(trace: Trace) -> Found:
    """Yield the races on each memory that several programs touch."""
    epochs = _count_barriers(trace)
    chains = HappensBefore(trace)
    accesses = access_index(trace).accesses
    facts = _RaceFacts(
        trace.divided, at_once=trace.dialect == "nki" or len(set(trace.cores)) > 1
    )
    for tensors in _memories(trace):
        touched = [touch for tensor in tensors for touch in accesses.get(tensor.id, ())]
        touches = [touch for touch in touched if not is_synchronization(touch.event)]
        if len(tensors) > 1:
            touches.sort(key=lambda touch: (touch.event.number, touch.writes))
        if len({touch.event.program for touch in touches}) > 1:
            yield from _races(touches, tensors, epochs, chains, facts)


def _memories(trace: Trace) -> Iterator[list[Allocation]]:
    """Yield the tensors in shared HBM that several programs may touch.

    Tensors that the kernel placed on the same bytes are one list; each other tensor is its own
    list.
    """
    index = access_index(trace)
    grouped_ids = {tensor.id for tensors in index.sharing for tensor in tensors}
    yield from index.sharing
    for number, touches in index.accesses.items():
        tensor = touches[0].region.allocation
        if tensor.space is Space.SHARED_HBM and number not in grouped_ids:
            yield [tensor]


class _RaceFacts(NamedTuple):
    """Facts of a launch that decide how severe a race is.

    Attributes
    ----------
    divided : whether the kernel reads its program id.
    at_once : whether the programs surely run at once, on cores of their own.
    """

    divided: bool
    at_once: bool


def _count_barriers(trace: Trace) -> _Epochs:
    """Count the barriers before each event: all of its program, and those on each tensor."""
    total: dict[tuple[int, ...], int] = {}
    own: dict[int, dict[tuple[int, ...], int]] = {}
    for event in trace.events:
        if event.purpose is Purpose.BARRIER:
            own.setdefault(event.writes[0].allocation.id, {})
    by_any: dict[int, int] = {}
    by_own: dict[int, dict[int, int]] = {tensor: {} for tensor in own}
    for event in trace.events:
        program = event.program
        number = event.number
        if is_synchronization(event):
            total[program] = total.get(program, 0) + 1
        if event.purpose is Purpose.BARRIER:
            counts = own[event.writes[0].allocation.id]
            counts[program] = counts.get(program, 0) + 1
        by_any[number] = total.get(program, 0)
        for tensor, counts in own.items():
            by_own[tensor][number] = counts.get(program, 0)
    return _Epochs(by_any, by_own)


class Race(NamedTuple):
    """Two programs that touch one element in no order, with at least one write."""

    kind: str
    """"read": the second program reads an element that the first writes. "written": both write it.
    "added": both add to it, through indices."""
    first: OperandAccess
    second: OperandAccess
    element: tuple[int, ...]
    own: bool = False
    """For a read: whether its program also wrote the element in the same epoch."""
    exact: bool = True
    """True if both surely touch the element."""


def _races(
    touches: list[OperandAccess],
    tensors: list[Allocation],
    epochs: _Epochs,
    chains: HappensBefore,
    facts: _RaceFacts,
) -> Found:
    """Yield one race of each kind for each pair of source lines."""
    said: set[tuple[object, ...]] = set()
    element_map = ElementMap(tensors, [touch.region for touch in touches])
    reported: set[tuple[object, ...]] = set()
    for inside in _grouped(touches, lambda touch: epochs.any[touch.event.number]):
        for race in _Epoch(element_map, inside).races():
            lines = race.first.event.location, race.second.event.location
            if (race.kind, *lines, race.exact, race.own) not in reported:
                reported.add((race.kind, *lines, race.exact, race.own))
                said.add(lines)
                yield _judge(race, facts)
    for inside in _grouped(touches, lambda touch: epochs.of(touch.event, tensors)):
        met = {epochs.any[touch.event.number] for touch in inside}
        if len(met) > 1 and any(_Epoch(element_map, inside).races()):
            yield from _behind_other_barriers(element_map, inside, chains, said)


def _behind_other_barriers(
    element_map: ElementMap,
    touches: list[OperandAccess],
    chains: HappensBefore,
    said: set[tuple[object, ...]],
) -> Iterator[Finding]:
    """Yield findings on accesses of two programs without a barrier that orders them.

    ``said`` are the pairs of lines that already have a finding.
    """
    exact = [touch for touch in touches if element_map.is_exact(touch.region)]
    for write in exact:
        if not write.writes:
            continue
        cells = element_map.filled(0)
        element_map.write(cells, write.region, 1)
        for touch in exact:
            lines = write.event.location, touch.event.location
            if not said.isdisjoint((lines, lines[::-1])):
                continue
            if touch.event.program == write.event.program:
                continue
            common = element_map.read(cells, touch.region) == 1
            if common.any() and not chains.precedes(write.event, touch.event):
                said.add(lines)
                element = element_map.element(touch.region, common)
                race = Race(_kind_of(touch), write, touch, element)
                yield _race_finding(OTHER_BARRIER, race)


def _kind_of(touch: OperandAccess) -> str:
    if touch.writes:
        return "written"
    return "read"


def _grouped(
    touches: list[OperandAccess], epoch: Callable[[OperandAccess], int]
) -> Iterable[list[OperandAccess]]:
    """Yield the accesses of each epoch with several programs."""
    together = group_by(touches, epoch).values()
    return (
        group for group in together if len({touch.event.program for touch in group}) > 1
    )


class _Epoch:
    """Unordered accesses of several programs to one tensor."""

    def __init__(self, element_map: ElementMap, touches: list[OperandAccess]) -> None:
        self.element_map = element_map
        self.writes = [touch for touch in touches if touch.writes]
        self.by_program = group_by(touches, lambda touch: touch.event.program)
        self.number = {
            program: number for number, program in enumerate(self.by_program)
        }
        programs = [self.number[touch.event.program] for touch in self.writes]
        self.program = np.array([*programs, _NOBODY], np.int32)
        self.adds = np.array([*map(is_accumulation, self.writes), False])
        self.loses = np.array([*map(loses_additions, self.writes), False])
        """For each write: its program, whether it adds, and whether another addition can undo it.
        The last entry is for ``_NOBODY``."""

    def races(self) -> Iterator[Race]:
        """Yield pairs of writes to an element, then reads of another program's elements."""
        last = self.element_map.filled(_NOBODY)
        """The place in ``writes`` of each cell's last write."""
        before = self.element_map.filled(_NOBODY)
        """The place of the last write of another program than that of ``last``."""
        for place, touch in enumerate(self.writes):
            under = self.element_map.read(last, touch.region)
            foreign = (under != _NOBODY) & (self.program[under] != self.program[place])
            others = np.where(foreign, under, _NOBODY)
            yield from self._race("written", touch, others)
            yield from self._additions(touch, others)
            other = self.element_map.read(before, touch.region)
            self.element_map.write(
                before, touch.region, np.where(foreign, under, other)
            )
            self.element_map.write(last, touch.region, place)
        for program, touches in self.by_program.items():
            mine = self.program[last] == self.number[program]
            yield from self._reads(touches, np.where(mine, before, last))

    def _reads(self, touches: list[OperandAccess], foreign: Cells) -> Iterator[Race]:
        """Yield a program's reads of others' data: ``foreign`` has the last write of each cell."""
        if not (foreign != _NOBODY).any():
            return
        own = self.element_map.filled(0)
        for touch in touches:
            if not touch.writes:
                written = self.element_map.read(own, touch.region)
                others = self.element_map.read(foreign, touch.region)
                yield from self._race("read", touch, np.where(written, _NOBODY, others))
                yield from self._race(
                    "read", touch, np.where(written, others, _NOBODY), own=True
                )
            elif self.element_map.is_exact(touch.region):
                self.element_map.write(own, touch.region, 1)

    def _race(
        self, kind: str, touch: OperandAccess, others: Cells, *, own: bool = False
    ) -> Iterator[Race]:
        """Yield a race on cells of another program: ``others`` has that program's writes."""
        wrong = others != _NOBODY
        if is_accumulation(touch):  # two additions are a separate kind of race
            wrong &= ~self.adds[others]
        if wrong.any():
            first = self.writes[int(others[first_true(wrong)])]
            exact = self._has_exactly(first, touch)
            yield Race(
                kind,
                first,
                touch,
                self.element_map.element(touch.region, wrong),
                own,
                exact,
            )

    def _additions(self, touch: OperandAccess, others: Cells) -> Iterator[Race]:
        """Yield races of additions with another program's additions: ``others`` has its writes."""
        if not loses_additions(touch):
            return
        wrong = (others != _NOBODY) & self.loses[others]
        if wrong.any():
            first = self.writes[int(others[first_true(wrong)])]
            if self._has_exactly(first, touch):
                yield Race(
                    "added", first, touch, self.element_map.element(touch.region, wrong)
                )

    def _has_exactly(self, *touches: OperandAccess) -> bool:
        """Return whether the map has exactly the touched elements."""
        return all(self.element_map.is_exact(touch.region) for touch in touches)


def _statement(touch: OperandAccess) -> tuple[object, ...]:
    """Return the identity of a write statement, independent of the program."""
    return (touch.event.stack, *touch.region[1:4])


def _judge(race: Race, facts: _RaceFacts) -> Finding | InconclusiveFinding:
    """Return the finding on a race, or an inconclusive one if the trace cannot decide."""
    if race.kind == "added":  # sums agree in any order of a simulator
        severity = ERROR if facts.at_once else WARNING
        return replace(_race_finding(RACE, race), severity=severity)
    in_part = not (race.first.region.whole and race.second.region.whole)
    if not race.exact or (race.kind == "written" and in_part):
        return InconclusiveFinding(_race_finding(ORDER, race))
    finding = _race_finding(RACE, race)
    if race.kind == "written":
        return InconclusiveFinding(finding, _agreement(race, facts))
    # If each program does all of the work, its own write and the other one's are equal. The
    # writes are reported in any case.
    if race.own:
        return InconclusiveFinding(finding)
    return finding


def _agreement(race: Race, facts: _RaceFacts) -> Finding:
    """Return the finding on two programs that write the same data to an element."""
    if not facts.divided:  # all programs do the same
        return _race_finding(IGNORED_ID, race)
    # programs that read their id and write the same have nothing to divide
    replicated = _statement(race.first) == _statement(race.second)
    mild = NOTE if replicated else WARNING
    return replace(_race_finding(WRITTEN_TWICE, race), severity=mild)


_REMEDIES = {
    RACE: _BARRIER,
    ORDER: _BARRIER,
    WRITTEN_TWICE: "let one program write it, or each a part of its own (nl.program_id)",
    IGNORED_ID: "divide the work by nl.program_id, or launch the kernel without a grid",
    OTHER_BARRIER: "put the barrier on the tensor that the programs share",
}


_VERBS = {
    "read": ("reads", "writes"),
    "written": ("writes", "writes too"),
    "added": ("adds to", "adds to as well"),
}


def _race_finding(hazard: Hazard, race: Race) -> Finding:
    """Return a finding on two programs that touch one element."""
    first = race.first
    second = race.second
    verb, other = _VERBS[race.kind]
    happened = (
        f"program {_named(second.event)} {verb} element {list(race.element)} of "
        f"{second.region.allocation}, which program {_named(first.event)} {other}"
    )
    if first.region.allocation is not second.region.allocation:
        happened += (
            f" by the name of {first.region.allocation}, placed on the same bytes"
        )
    if hazard is OTHER_BARRIER:
        happened += "; the barrier or sendrecv between them is on another tensor"
    finding = hazard.finding(
        happened, _RULE, _REMEDIES[hazard], second.event, first.event
    )
    return replace(finding, evidence=(first.event.number, second.event.number))


def _named(event: Event) -> str:
    return ", ".join(map(str, event.program))


def _trip_counts(trace: Trace) -> Found:
    """Yield findings on loops with different numbers of iterations in two programs.

    A loop on the device then hangs. Unrolled loops may differ; the outermost one gets a note.
    """
    programs = {event.program for event in trace.events}
    noted = trace.dialect != "nki"
    for loop, by_program in _iteration_counts(trace).items():
        counts = {program: tuple(runs.values()) for program, runs in by_program.items()}
        on_device = loop.kind is LoopKind.DYNAMIC
        differs = len(set(counts.values())) > 1
        if on_device:
            differs = differs or len(counts) < len(programs)
        elif differs:
            differs = not noted
            noted = True
        if not differs:
            continue
        where = "on the device" if on_device else "that is unrolled"
        yield TRIP_COUNTS.finding(
            f"a loop {where} has different trip counts in two programs: {_shown(counts)}",
            "the cores of a logical NeuronCore run the same control flow: loops on the device "
            "with other trip counts hang, and with other blocks the kernel does not compile",
            "give every program the same trip counts, and mask what one has not to do",
            severity=ERROR if on_device else NOTE,
            lines=(loop.location,),
        )


def _shown(counts: Mapping[tuple[int, ...], tuple[int, ...]]) -> str:
    """Return the trip counts of each program in words."""
    return "; ".join(
        f"program {', '.join(map(str, program))}: {', '.join(map(str, counts[program]))}"
        for program in sorted(counts)
    )


def _iteration_counts(
    trace: Trace,
) -> dict[Loop, dict[tuple[int, ...], dict[int, int]]]:
    """Return loop kind and line -> program -> run of the loop -> its iterations."""
    counts: dict[Loop, dict[tuple[int, ...], dict[int, int]]] = {}
    for event in trace.events:
        for loop, number, _ in event.loops:
            runs = counts.setdefault(loop._replace(id=0), {}).setdefault(
                event.program, {}
            )
            runs[loop.id] = max(runs.get(loop.id, 0), number + 1)
    return counts


def _addresses(trace: Trace) -> Found:
    """Yield findings on tensors that two programs exchange and that have different addresses."""
    reported: set[tuple[object, ...]] = set()
    for pair in collective_calls(trace):
        lines = unique_locations(*(event.location for event in pair))
        for role in ("src", "dst"):
            places = _places(pair, role)
            addresses = {address for _, address in places}
            if None in addresses or len(addresses) == 1 or (*lines, role) in reported:
                continue
            reported.add((*lines, role))
            shown = [f"program {_named(event)} at {at}" for event, at in places]
            yield ADDRESSES.finding(
                f"the programs of a sendrecv have its {role} at other addresses: "
                + "; ".join(shown),
                "a tensor that two cores exchange has the same address on both (trn2)",
                "place the tensor at one address in all programs",
                *pair,
            )


def _places(
    pair: Iterable[Event], role: str
) -> list[tuple[Event, tuple[int, int] | None]]:
    """Return the address of the tensor at a role of each event that has one."""
    used = [(event, event.operand(role)) for event in pair]
    return [(event, r.allocation.address) for event, r in used if r is not None]


def _names(trace: Trace) -> Found:
    """Yield findings on tensors in shared HBM with a name that their program has already used.

    All programs make each tensor together, so that it is in the trace once.
    """
    shared = (
        base
        for base in trace.allocations
        if base.space is Space.SHARED_HBM and base.name
    )
    for name, (first, *others) in group_by(shared, lambda base: base.name).items():
        for other in others:
            yield NAME_TWICE.finding(
                f"the kernel makes {first} and {other} by the name {name!r}",
                "the compiler links the cores' tensors in shared HBM by their names: tensors of "
                "one name point to the same memory (SDK 2.28)",
                "give each tensor a name of its own, or none",
                lines=(other.location, first.location),
            )


SHARED = Hazard(
    "exchange-buffer-shared", WARNING, "two exchanges of ranks share a buffer"
)


@deduplicated
def find_reused_buffers(trace: Trace, machine: Machine) -> Found:
    """Yield findings on exchanges that write to a buffer of an earlier exchange."""
    earlier: dict[tuple[int, ...], list[Event]] = {}
    for event in trace.events:
        if event.purpose is not Purpose.EXCHANGE:
            continue
        before = earlier.setdefault(event.program, [])
        shared = (
            (other, mine.allocation)
            for mine in event.writes
            for other in before
            for theirs in other.writes + other.reads
            if theirs.allocation is mine.allocation
            if footprint(theirs).overlaps(footprint(mine))
        )
        for other, buffer in itertools.islice(shared, 1):
            yield SHARED.finding(
                f"two exchanges share a buffer: {event.opcode} receives into {buffer}, "
                f"which an earlier {other.opcode} sent from or received into",
                "data of a rank may arrive in its peers' buffers before they reach the collective: "
                "8 ranks with two exchanges through one pair of buffers got wrong data, and with a "
                "pair for each exchange none did (observed on inf2, SDK 2.32)",
                "give each exchange of a kernel buffers of its own",
                event,
                other,
            )
        before.append(event)
