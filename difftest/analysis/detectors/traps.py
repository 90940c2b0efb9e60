"""The classic compiler's traps: legal Python that it refuses, or compiles to something else."""

from __future__ import annotations

from collections.abc import Iterator

from difftest.analysis.detectors.order import updates
from difftest.analysis.detectors.survey import survey_of
from difftest.analysis.detectors.turns import is_within
from difftest.analysis.finding import Finding, Found, Severity, each_line
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Allocation, Event, Iteration, Location, LoopKind, Trace

SCOPE = "tensor-scope"
REDUCTION = "reduce-res-accumulated"


def traps(trace: Trace, machine: Machine) -> Found:
    """What a kernel of the classic dialect does that its compiler is known to trip over."""
    if trace.dialect != "classic":
        return
    yield from _once(_scopes(trace))
    yield from _once(_reductions(trace))
    yield from _once(_registers(trace))


def _once(findings: Iterator[Finding]) -> Iterator[Finding]:
    said: set[tuple[Location, ...]] = set()
    for finding in findings:
        if finding.locations not in said:
            said.add(finding.locations)
            yield finding


def _scopes(trace: Trace) -> Iterator[Finding]:
    """Tensors that are made in a loop and touched when that turn of it is over."""
    for touches in survey_of(trace).accesses.values():
        last = touches[-1]
        made = last.region.allocation
        scope = _scope(made)
        if scope and not is_within(scope, last.event):
            first = next(touch.event for touch in touches if not is_within(scope, touch.event))
            loop = scope[-1].loop.location
            where = f" at line {loop.line}" if loop else ""
            yield Finding(
                id=SCOPE,
                severity=Severity.ERROR,
                happened=f"{made} is made inside the loop{where} and {first.opcode} uses it when "
                "that iteration is over",
                rule="a tensor lives in the block that makes it (err_local_variable_used_out_of_"
                "scope): the compiler refuses a use after the loop, or in another iteration",
                locations=each_line(first.location, made.location, loop),
                remedy="make it before the loop with nl.ndarray, and write it with tile[...] = ...",
                evidence=(first.number,),
            )


def _scope(made: Allocation) -> tuple[Iteration, ...]:
    """The turn in which a tensor lives: static_range is unrolled when the kernel is traced."""
    loops = made.loops
    while loops and loops[-1].loop.kind is LoopKind.STATIC:
        loops = loops[:-1]
    return loops


def _reductions(trace: Trace) -> Iterator[Finding]:
    """Sums that an instruction makes beside its result, accumulated from turn to turn."""
    made: dict[int, Event] = {}
    """By the id of a tensor, the event that wrote it as a ``reduce_res``."""
    if not survey_of(trace).has_reduce_res:
        return
    for event in trace.events:
        if event.loops and made and updates(event):
            total = event.writes[0].allocation
            for region in event.reads:
                source = made.get(region.allocation.id)
                if (
                    source is not None
                    and region.allocation is not total
                    and source.loops == event.loops
                    and len(total.loops) < len(event.loops)
                ):
                    yield Finding(
                        id=REDUCTION,
                        severity=Severity.WARNING,
                        happened=f"the reduction that {source.opcode} makes beside its result is "
                        f"added up over iterations in {total}",
                        rule="the classic compiler was seen to run the instruction once more for "
                        "its reduction, and to spoil sums over several iterations (trn2)",
                        locations=each_line(event.location, source.location),
                        remedy="reduce with nisa.tensor_reduce, or keep each iteration's sum in a "
                        "column of its own and add them up after the loop",
                        evidence=(source.number, event.number),
                    )
        for region in event.writes:
            if region.role == "reduce_res":
                made[region.allocation.id] = event
            else:
                made.pop(region.allocation.id, None)


def _registers(trace: Trace) -> Iterator[Finding]:
    """Reductions that the turns of a loop, or of Python's range, take on from each other."""
    before: dict[tuple[object, ...], Event] = {}
    for event in trace.events:
        command = event.arguments.get("reduce_cmd", "idle")
        if command == "idle":
            continue
        key = event.program, event.engine
        last = before.get(key)
        again = last is not None and last.stack == event.stack and last.opcode == event.opcode
        if command == "reduce" and again and last is not None and not _in_affine(event):
            yield Finding(
                id=REDUCTION,
                severity=Severity.WARNING,
                happened=f"the reduction that {event.opcode} makes beside its result goes on in "
                f"the registers of the {event.engine.value} engine from turn to turn of a loop",
                rule="the classic compiler was seen to run the instruction once more for its "
                "reduction, and to spoil sums over several iterations (trn2)",
                locations=each_line(event.location),
                remedy="reset them in each turn (reduce_cmd.reset_reduce), keep each turn's sum in "
                "a column of its own and add them up after the loop",
                evidence=(last.number, event.number),
            )
        before[key] = event


def _in_affine(event: Event) -> bool:
    """Whether another detector looks at the turns."""
    return any(turn.loop.kind is LoopKind.AFFINE for turn in event.loops)
