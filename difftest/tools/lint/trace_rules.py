"""Trace rules: instructions, accesses and device loops that a device generation rejects.

Sources: records of the compiler's answers. Each rule's page names its record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any

from difftest.analysis.detectors.partitions import START, find_partition_misuse
from difftest.analysis.detectors.races import TRIP_COUNTS, find_races
from difftest.analysis.finding import Finding, InconclusiveFinding, Severity
from difftest.simulator.machine import Machine
from difftest.simulator.trace import (
    Allocation,
    Engine,
    Event,
    Loop,
    LoopKind,
    Region,
    Space,
    Trace,
)
from difftest.tools.lint.rule import PARSER, TODAYS, Breach, Frontend, Group, trace_rule

RECORDED: dict[str, Any] = {"group": Group.PORTABILITY, "frontends": TODAYS}
"""Data of rules that rest on recorded answers of the compiler for the current dialect."""
WRONG: dict[str, Any] = {**RECORDED, "group": Group.CORRECTNESS}
TRN1: dict[str, Any] = {**RECORDED, "targets": frozenset({"trn1"})}
TRN2: dict[str, Any] = {**RECORDED, "targets": frozenset({"trn2"})}
_ARITHMETIC = ("tensor_tensor", "tensor_scalar", "scalar_tensor_tensor")
_STEP_MAX = 2**15 - 1
"""The longest step between elements in an access pattern: 16 bits with a sign."""
_ALIGNED = 32
"""The alignment in bytes of the destination of a DMA transpose."""
_DESCRIPTORS_MAX = 16_777_200
"""The most descriptors of the static DMAs of a kernel."""
MANY_INSTRUCTIONS = 250_000
"""The most instructions of a kernel that compiles in less than half an hour."""


def _each(id: str, **data: Any) -> Callable[[Callable[[Event], str | bool]], None]:
    """Register a trace rule that checks single events.

    The decorated function returns a description of the violation, or a false value.
    """

    def enter(check: Callable[[Event], str | bool]) -> None:
        def reader(trace: Trace, machine: Machine) -> Iterator[Breach]:
            return ((event, str(text)) for event in trace if (text := check(event)))

        trace_rule(id, **data)(reader)

    return enter


def partition_elements(region: Region) -> int:
    """Return the number of elements of a region in each partition."""
    return region.elements // max(region.partitions, 1)


@_each("NKI501", **TRN1)
def _gpsimd(event: Event) -> str | bool:
    if event.engine is not Engine.GPSIMD or event.opcode not in _ARITHMETIC:
        return False
    # Operations on integers, and powers, run on GpSimd by default.
    are_integers = all(part.dtype.kind in "iu" for part in event.writes + event.reads)
    if are_integers or "power" in (event.attributes.op or ""):
        return False
    return f"{event.opcode} runs on the GpSimd Engine of trn1"


@_each("NKI502", **WRONG)
def _copy_bias(event: Event) -> str | bool:
    is_copy = event.attributes.op == "copy" and event.opcode.startswith("activation")
    has_bias = is_copy and event.operand("bias") is not None
    return has_bias and f"{event.opcode} of copy got a tile as bias"


@_each("NKI503", **TRN1)
def _mod(event: Event) -> str | bool:
    has_mod = "mod" in (event.attributes.op or "").split("+")
    return has_mod and f"{event.opcode} got the operator mod"


@_each("NKI504", **TRN1)
def _match_indices(event: Event) -> str | bool:
    if event.opcode != "nc_match_replace8":
        return False
    return event.operand("dst_idx") is not None and "nc_match_replace8 got dst_idx"


@_each("NKI505", **TRN1)
def _transposed(event: Event) -> str | bool:
    if event.opcode != "nc_transpose" and not event.arguments.get("is_transpose"):
        return False
    dst = event.operand("dst")
    if event.engine is not Engine.TENSOR or dst is None:
        return False
    written = dst.dtype.name
    return written != "float32" and f"{event.opcode} writes {written} to PSUM"


@trace_rule("NKI506", **{**RECORDED, "targets": frozenset({"trn1", "trn2"})})
def _float8(trace: Trace, machine: Machine) -> Iterator[Breach]:
    dtypes = {dtype.name for dtype in {tensor.dtype for tensor in trace.allocations}}
    if "float8_e4m3fn" not in dtypes:
        return
    beside = " beside float8_e4m3" if "float8_e4m3" in dtypes else ""
    for tensor in trace.allocations:
        if tensor.dtype.name == "float8_e4m3fn" and (beside or tensor.space.is_hbm):
            yield _place(trace, tensor), f"{tensor} is float8_e4m3fn{beside}"


def _place(trace: Trace, tensor: Allocation) -> Event | Allocation:
    """Return an object with the tensor's line: the tensor, or an argument's first event."""
    if tensor.location is None:
        for event in trace:
            if any(part.allocation is tensor for part in event.writes + event.reads):
                return event
    return tensor


@_each("NKI507", **TRN1)
def _register_store(event: Event) -> str | bool:
    if event.opcode != "register_store":
        return False
    spaces = [part.allocation.space for part in event.writes]
    is_on_chip = any(not space.is_hbm for space in spaces)
    return is_on_chip and f"register_store writes to {spaces[0].value}"


@_each("NKI508", **TRN2)
def _affine_select(event: Event) -> str | bool:
    is_long = event.opcode == "affine_select" and len(event.writes[0].shape) > 3
    return is_long and f"affine_select writes {list(event.writes[0].shape)}"


@_each("NKI509", **TRN2)
def _long_row(event: Event) -> str | bool:
    data = event.operand("data")
    if event.engine is not Engine.SCALAR or data is None:
        return False
    if event.operand("reduce_res") is None:
        return False
    length = partition_elements(data)
    return length > 16384 and f"{event.opcode} reduces {length:,} elements a partition"


@trace_rule("NKI510", **RECORDED)
def _slot(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for region in event.writes:
            step = region.allocation.partition_step
            if region.allocation.space is Space.PSUM and region.view is None and step:
                byte = region.offset % step * region.dtype.itemsize
                if byte % machine.psum_min_align:
                    text = f"{region.dtype.name} at byte {byte} of PSUM"
                    yield event, f"{event.opcode} writes {text}"


@_each("NKI511", **TRN1)
def _collective_on_chip(event: Event) -> str | bool:
    if event.arguments.get("replica_group") is None:
        return False
    parts = event.reads + event.writes
    is_on_chip = any(not part.allocation.space.is_hbm for part in parts)
    return is_on_chip and f"{event.opcode} has a tensor in SBUF"


@trace_rule("NKI512", **TRN1)
def _collective_of_argument(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in collective_events(trace):
        for region in event.reads + event.writes:
            if region.allocation.location is None:
                text = f"{event.opcode} has {region.allocation}"
                yield event, f"{text}, an argument of the kernel"


def collective_events(trace: Trace) -> Iterator[Event]:
    """Yield the events in which ranks communicate."""
    return (
        event for event in trace if event.arguments.get("replica_group") is not None
    )


def on_chip(event: Event) -> Iterator[Region]:
    """Yield the operands of a compute instruction in SBUF and PSUM."""
    if event.engine is not Engine.DMA:
        for part in event.writes + event.reads:
            if not part.allocation.space.is_hbm:
                yield part


@trace_rule("NKI521", **WRONG)
def _span(trace: Trace, machine: Machine) -> Iterator[Breach]:
    return _detected(find_partition_misuse(trace, machine), START.id)


def _detected(
    rows: Iterable[Finding | InconclusiveFinding], id: str
) -> Iterator[Breach]:
    """Yield the errors with this id that a hazard detector reports, as breaches."""
    for row in rows:
        if isinstance(row, Finding) and row.severity is Severity.ERROR and row.id == id:
            yield row, row.happened


@trace_rule("NKI522", **WRONG)
def _step(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for region in on_chip(event):
            if max(map(abs, region.strides), default=0) <= _STEP_MAX:
                continue  # fast path: nearly all regions end here, without computing axes
            steps = [abs(step) for size, step in region.free_axes if size > 1]
            longest = max(steps, default=0)
            if longest > _STEP_MAX:
                text = f"a step of {longest:,} elements in {region.role}"
                yield event, f"{event.opcode} has {text}"


@_each("NKI523", **TRN1)
def _dynamic(event: Event) -> str | bool:
    for part in on_chip(event):
        if f"register of {part.role}" in event.arguments:
            return f"{event.opcode} has {part.role} at the offset of a register"
    return False


@trace_rule("NKI524", **RECORDED)
def _mixed(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for space in (Space.SBUF, Space.PSUM):
        placed: list[Allocation] = []
        others: list[Allocation] = []
        for tile in trace.allocations:
            if tile.space is space and not tile.is_temporary:
                (others if tile.address is None else placed).append(tile)
        for tile in others if placed else ():
            yield tile, f"{tile} has no address, and {placed[0]} has one"


@_each("NKI525", **TRN1)
def _indices(event: Event) -> str | bool:
    index = event.operand("index")
    if event.engine is not Engine.DMA or index is None:
        return False
    count = partition_elements(index)
    return count > 1 and f"{event.opcode} got {count} indices a partition"


@_each("NKI526", **TRN1)
def _dma_transpose(event: Event) -> str | bool:
    src = event.operand("src")
    dst = event.operand("dst")
    is_indirect = event.operand("index") is not None
    if not event.opcode.startswith("dma_transpose") or src is None or dst is None:
        return False
    spaces = f"{src.allocation.space.value} to {dst.allocation.space.value}"
    is_refused = is_indirect or not src.allocation.space.is_hbm
    by_indices = " by indices" if is_indirect else ""
    return is_refused and f"dma_transpose goes from {spaces}{by_indices}"


@trace_rule("NKI527", **RECORDED)
def _rows(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for box in event.writes if event.opcode.startswith("dma_transpose") else ():
            width = box.allocation.partition_step or box.elements
            size = box.dtype.itemsize
            first = box.offset % width * size
            step = 0
            if box.shape[0] > 1 and box.allocation.space.is_hbm:
                step = box.strides[0] * size
            if first % _ALIGNED:
                yield event, f"dma_transpose writes from byte {first} of the rows on"
            elif step % _ALIGNED:
                yield event, f"dma_transpose writes rows {step} bytes apart"


@_each("NKI528", **{**TRN2, "frontends": frozenset({Frontend.CLASSIC})})
def _broadcast(event: Event) -> str | bool:
    if event.engine is not Engine.DMA:
        return False
    for part in event.reads:
        is_one_row = part.whole and part.strides[:1] == (0,)
        if is_one_row and part.shape[0] > 1:
            return f"{event.opcode} reads one row for {part.shape[0]} partitions"
    return False


@_each("NKI529", **TRN2)
def _moved_on_chip(event: Event) -> str | bool:
    if event.opcode != "dma_copy":
        return False
    src, dst, index = (event.operand(role) for role in ("src", "dst", "index"))
    if src is None or dst is None or index is None:
        return False
    # The indexed side is accessed in part.
    if not _is_part(src) or _is_part(dst) or src.allocation.space.is_hbm:
        return False
    return "dma_copy reads SBUF at an offset from a tile"


def _is_part(region: Region) -> bool:
    return region.elements < prod(region.allocation.shape)


@trace_rule("NKI530", **TRN1)
def _descriptors(trace: Trace, machine: Machine) -> Iterator[Breach]:
    total = 0
    for event in trace:
        if event.engine is Engine.DMA:
            before = total
            total += max(map(_runs, event.writes + event.reads), default=0)
            if before <= _DESCRIPTORS_MAX < total:
                yield event, f"the DMAs up to this one have {total:,} runs"


def _runs(region: Region) -> int:
    """Return the number of runs of adjacent elements in a region."""
    length = 1
    for size, step in zip(region.shape[::-1], region.strides[::-1], strict=True):
        if size > 1 and step != length:
            break
        length *= size
    return region.elements // max(length, 1)


@trace_rule("NKI531", group=Group.PERFORMANCE, frontends=TODAYS)
def _many(trace: Trace, machine: Machine) -> Iterator[Breach]:
    if len(trace) <= MANY_INSTRUCTIONS:
        return
    generated = [event for event in trace if not _is_repeated(event)]
    if len(generated) > MANY_INSTRUCTIONS:
        lines = Counter(event.location for event in generated)
        [(most, _)] = lines.most_common(1)
        event = next(event for event in generated if event.location == most)
        count = len(generated)
        yield event, f"the kernel has {count:,} instructions, most at this line"


def _is_repeated(event: Event) -> bool:
    """Return whether an event is of a later iteration of a device loop."""
    return any(
        step.number and step.loop.kind is LoopKind.DYNAMIC for step in event.loops
    )


def enclosing_device_loops(event: Event) -> list[Loop]:
    """Return the device loops around an event, outermost first."""
    return [step.loop for step in event.loops if step.loop.kind is LoopKind.DYNAMIC]


@trace_rule("NKI541", **TRN1)
def _psum(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        loops = enclosing_device_loops(event)
        for region in event.writes + event.reads if loops else ():
            inside = {step.loop.id for step in region.allocation.loops}
            if region.allocation.space is Space.PSUM and loops[-1].id not in inside:
                text = f"{event.opcode} uses {region.allocation}"
                yield event, f"{text}, allocated outside the loop"


@trace_rule("NKI542", **TRN1)
def _static(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        if event.engine is not Engine.DMA or event.arguments.get("dge_mode") != "none":
            continue
        for region in event.reads if enclosing_device_loops(event) else ():
            tensor = region.allocation
            if tensor.space.is_hbm and not tensor.writes:
                yield event, f"{event.opcode} with dge_mode.none reads {tensor}"


@trace_rule("NKI543", **{**TRN1, "frontends": PARSER})
def _nested(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        loops = enclosing_device_loops(event)
        if len(loops) > 1:
            outer = loops[0].location
            where = f" of line {outer.line}" if outer else ""
            text = f"{event.opcode} is inside of {len(loops)} device loops"
            yield event, f"{text}, the outer{where}"


@trace_rule("NKI544", **{**WRONG, "targets": frozenset({"trn2", "trn3"})})
def _programs(trace: Trace, machine: Machine) -> Iterator[Breach]:
    return _detected(find_races(trace, machine), TRIP_COUNTS.id)


@trace_rule("NKI546", **TRN2)
def _collective_of_one(trace: Trace, machine: Machine) -> Iterator[Breach]:
    issued: dict[tuple[int, ...], set[str]] = {event.program: set() for event in trace}
    events = list(collective_events(trace))
    for event in events:
        issued[event.program].add(event.opcode)
    for event in events:
        others = (at for at, opcodes in issued.items() if event.opcode not in opcodes)
        other = next(others, None)
        if other is not None:
            text = f"{event.opcode} is called by program {event.program}"
            yield event, f"{text}, not by {other}"


@trace_rule("NKI545", **{**TRN1, "frontends": PARSER})
def _copied(trace: Trace, machine: Machine) -> Iterator[Breach]:
    written: dict[int, frozenset[int]] = {}
    for event in trace:
        ids = frozenset(
            step.loop.id for step in event.loops if step.loop.kind is LoopKind.STATIC
        )
        is_inside = bool(enclosing_device_loops(event))
        is_copied = event.opcode == "tensor_copy" and not is_inside
        for region in event.reads if is_copied else ():
            if written.get(region.allocation.id, frozenset()) & ids:
                text = f"tensor_copy reads {region.allocation}"
                yield event, f"{text}, which a device loop wrote"
        for part in event.writes:
            written[part.allocation.id] = ids if is_inside else frozenset()
