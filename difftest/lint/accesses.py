"""Rules of traces: partitions, steps and offsets of access patterns, and what DMAs can move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from difftest.lint.instructions import RECORDED, TODAYS, TRN1, free_elements
from difftest.lint.rule import Breach, Group, trace_rule
from difftest.lint.sdk import Frontend
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Region, Space, Trace

_STEP_MAX = 2**15 - 1
_ALIGNED = 32
"""Bytes, of what a DMA transposes to."""
_DESCRIPTORS_MAX = 16_777_200
MANY_INSTRUCTIONS = 250_000


def on_chip(event: Event) -> Iterator[Region]:
    """The operands of a compute instruction in SBUF and PSUM."""
    if event.engine is not Engine.DMA:
        yield from (one for one in event.writes + event.reads if not one.allocation.space.is_hbm)


def first_partition(region: Region) -> int:
    """The partition at which a region begins."""
    start = region.allocation.address[0] if region.allocation.address else 0
    width = region.allocation.partition_step
    if region.view is not None:
        width = width * region.allocation.dtype.itemsize // region.view.itemsize
    return start + (region.offset // width if width else 0)


@trace_rule("NKI521", **{**RECORDED, "group": Group.CORRECTNESS})
def _span(trace: Trace, machine: Machine) -> Iterator[Breach]:
    limits = {32: 32, 64: 64, 96: 32}
    for event in trace:
        for one in on_chip(event):
            first = first_partition(one)
            if one.allocation.partitions > 1 and one.partitions > limits.get(first, 128):
                yield event, f"{event.opcode} has {one.partitions} partitions from {first} on"


@trace_rule("NKI522", **{**RECORDED, "group": Group.CORRECTNESS})
def _step(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for one in on_chip(event):
            steps = [abs(step) for size, step in one.free_axes if size > 1]
            if steps and max(steps) > _STEP_MAX:
                yield event, f"{event.opcode} has a step of {max(steps):,} elements in {one.role}"


@trace_rule("NKI523", **TRN1)
def _dynamic(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for one in on_chip(event):
            if f"register of {one.role}" in event.arguments:
                yield event, f"{event.opcode} has {one.role} at the offset of a register"


@trace_rule("NKI524", **RECORDED)
def _mixed(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for space in (Space.SBUF, Space.PSUM):
        own = [one for one in trace.allocations if one.space is space and not one.is_temporary]
        placed = [one for one in own if one.address is not None]
        for one in own if placed else ():
            if one.address is None:
                yield one, f"{one} has no address, and {placed[0]} has one"


@trace_rule("NKI525", **TRN1)
def _indices(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        index = event.operand("index")
        if event.engine is Engine.DMA and index is not None and free_elements(index) > 1:
            yield event, f"{event.opcode} got {free_elements(index)} indices a partition"


@trace_rule("NKI526", **TRN1)
def _dma_transpose(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in _transposes(trace):
        src, dst = event.operand("src"), event.operand("dst")
        is_indirect = event.operand("index") is not None
        if src and dst and (is_indirect or not src.allocation.space.is_hbm):
            spaces = f"{src.allocation.space.value} to {dst.allocation.space.value}"
            yield event, f"dma_transpose goes from {spaces}{' by indices' * is_indirect}"


@trace_rule("NKI527", **RECORDED)
def _rows(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in _transposes(trace):
        for one in event.writes:
            width, size = one.allocation.partition_step or one.elements, one.dtype.itemsize
            first = one.offset % width * size
            step = one.strides[0] * size if one.shape[0] > 1 and one.allocation.space.is_hbm else 0
            if first % _ALIGNED:
                yield event, f"dma_transpose writes from byte {first} of the rows on"
            elif step % _ALIGNED:
                yield event, f"dma_transpose writes rows {step} bytes apart"


def _transposes(trace: Trace) -> Iterator[Event]:
    return (event for event in trace if event.opcode.startswith("dma_transpose"))


@trace_rule(
    "NKI528",
    group=Group.PORTABILITY,
    frontends=frozenset({Frontend.CLASSIC}),
    targets=frozenset({"trn2"}),
)
def _broadcast(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for one in event.reads if event.engine is Engine.DMA else ():
            if one.whole and one.shape and one.shape[0] > 1 and one.strides[0] == 0:
                yield event, f"{event.opcode} reads one row for {one.shape[0]} partitions"


@trace_rule("NKI529", **{**RECORDED, "targets": frozenset({"trn2"})})
def _moved_on_chip(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        src, dst, index = (event.operand(role) for role in ("src", "dst", "index"))
        if event.opcode != "dma_copy" or src is None or dst is None or index is None:
            continue
        is_of_src = _is_part(src) and not _is_part(dst)  # what moves inside of it is no whole
        if is_of_src and not src.allocation.space.is_hbm:
            yield event, "dma_copy reads SBUF at an offset that stands in a tile"


def _is_part(region: Region) -> bool:
    return region.elements < prod(region.allocation.shape)


@trace_rule("NKI530", **TRN1)
def _descriptors(trace: Trace, machine: Machine) -> Iterator[Breach]:
    total = 0
    for event in trace:
        if event.engine is Engine.DMA:
            before, total = total, total + max(map(_runs, event.writes + event.reads), default=0)
            if before <= _DESCRIPTORS_MAX < total:
                yield event, f"the DMAs up to this one have {total:,} runs"


def _runs(region: Region) -> int:
    """Pieces of adjacent elements."""
    length = 1
    axes: Sequence[tuple[int, int]] = tuple(zip(region.shape, region.strides, strict=True))
    for size, step in reversed(axes):
        if size > 1 and step != length:
            break
        length *= size
    return region.elements // max(length, 1)


@trace_rule("NKI531", group=Group.PERFORMANCE, frontends=TODAYS)
def _many(trace: Trace, machine: Machine) -> Iterator[Breach]:
    if len(trace) > MANY_INSTRUCTIONS:
        generated = [event for event in trace if _is_generated(event)]
        if len(generated) > MANY_INSTRUCTIONS:
            lines = Counter(event.location for event in generated)
            [(most, _)] = lines.most_common(1)
            event = next(event for event in generated if event.location == most)
            yield event, f"the kernel has {len(generated):,} instructions, most at this line"


def _is_generated(event: Event) -> bool:
    """Whether it is an instruction of its own: a device loop has those of one turn."""
    return all(one.loop.kind.value != "dynamic" or one.number == 0 for one in event.loops)
