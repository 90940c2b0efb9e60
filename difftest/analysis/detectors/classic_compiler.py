"""Legal Python that the classic compiler rejects or miscompiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from difftest.analysis.detectors.access_index import (
    access_index,
    is_within,
    register_reductions,
)
from difftest.analysis.detectors.affine_loops import affine_depth, is_read_modify_write
from difftest.analysis.finding import (
    ERROR,
    WARNING,
    Finding,
    Found,
    Hazard,
    deduplicated,
)
from difftest.simulator.machine import Machine
from difftest.simulator.trace import (
    Allocation,
    Event,
    Iteration,
    Location,
    LoopKind,
    Trace,
)

SCOPE = Hazard("tensor-scope", ERROR, "a tensor is used outside the loop that makes it")
REDUCTION = Hazard(
    "reduce-res-accumulated",
    WARNING,
    "reduce_res of an instruction is added up over iterations",
)


@deduplicated
def find_compiler_violations(trace: Trace, machine: Machine) -> Found:
    """Yield findings on constructs that the classic compiler mishandles."""
    if trace.dialect != "classic":
        return
    yield from _scopes(trace)
    yield from _reductions(trace)
    yield from _registers(trace)


def _scopes(trace: Trace) -> Iterator[Finding]:
    """Yield findings on tensors made in a loop and touched after that iteration."""
    for touches in access_index(trace).accesses.values():
        last = touches[-1]
        tensor = last.region.allocation
        scope = _scope(tensor)
        if scope and not is_within(scope, last.event):
            first = next(
                touch.event for touch in touches if not is_within(scope, touch.event)
            )
            loop = scope[-1].loop.location
            where = f" at line {loop.line}" if loop else ""
            yield SCOPE.finding(
                f"{tensor} is made inside the loop{where} and {first.opcode} uses it when "
                "that iteration is over",
                "a tensor lives in the block that makes it (err_local_variable_used_out_of_"
                "scope): the compiler refuses a use after the loop, or in another iteration",
                "make it before the loop with nl.ndarray, and write it with tile[...] = ...",
                first,
                lines=(first.location, tensor.location, loop),
            )


def _scope(tensor: Allocation) -> tuple[Iteration, ...]:
    """Return the loops around a tensor's life; static_range is unrolled during tracing."""
    loops = tensor.loops
    while loops and loops[-1].loop.kind is LoopKind.STATIC:
        loops = loops[:-1]
    return loops


def _reductions(trace: Trace) -> Iterator[Finding]:
    """Yield findings on secondary reductions of an instruction that accumulate over iterations."""
    writers: dict[int, Event] = {}
    """Tensor id -> the event that wrote it as a ``reduce_res``."""
    added: dict[int, tuple[Location, ...]] = {}
    """Tensor id -> the lines of the last addition. Equal lines mean the previous iteration, also of
    Python's ``range``."""
    if not access_index(trace).has_reduce_res:
        return
    for event in trace.events:
        if writers and is_read_modify_write(event):
            total = event.writes[0].allocation
            is_repeated = added.get(total.id) == event.stack
            added[total.id] = event.stack
            if is_repeated:
                yield from _added_up(event, writers)
        for region in event.writes:
            if region.role == "reduce_res":
                writers[region.allocation.id] = event
            else:
                writers.pop(region.allocation.id, None)


def _added_up(event: Event, writers: Mapping[int, Event]) -> Iterator[Finding]:
    """Yield findings on the reductions in one iteration whose results an event adds up."""
    for source in _sources(event, writers):
        if source.loops == event.loops:
            yield _repeated_reduction(
                event,
                source,
                f"is added up over iterations in {event.writes[0].allocation}",
                "reduce with nisa.tensor_reduce",
            )


def _sources(event: Event, writers: Mapping[int, Event]) -> Iterator[Event]:
    """Yield the events that computed, by a reduction, the addend of an event."""
    total = event.writes[0].allocation
    for region in event.reads:
        if region.allocation is not total and region.allocation.id in writers:
            yield writers[region.allocation.id]


def _registers(trace: Trace) -> Iterator[Finding]:
    """Yield findings on register reductions that continue over iterations of a loop."""
    before: dict[tuple[object, ...], Event] = {}
    for event, command, key in register_reductions(trace):
        last = before.get(key)
        before[key] = event
        if last is None or command != "reduce":
            continue
        is_repeated = last.stack == event.stack and last.opcode == event.opcode
        # The detector affine_loops reports iterations of an affine_range.
        if is_repeated and affine_depth(last, event) is None:
            yield _repeated_reduction(
                event,
                last,
                f"continues in the registers of the {event.engine.value} engine over the "
                "iterations of a loop",
                "reset them in each iteration (reduce_cmd.reset_reduce)",
            )


def _repeated_reduction(
    event: Event, maker: Event, happened: str, remedy: str
) -> Finding:
    return REDUCTION.finding(
        f"the reduction that {maker.opcode} makes in addition to its result {happened}",
        "the classic compiler ran the instruction once more for its reduction, and gave wrong sums "
        "over several iterations (observed on trn2)",
        f"{remedy}, or keep each one's sum in a column of its own and add them up after the loop",
        event,
        maker,
    )
