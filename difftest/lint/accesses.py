"""Rules of traces: partitions, steps and offsets of access patterns, and what DMAs can move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from difftest.lint.instructions import KILN, RECORDED, TODAYS, TRN1, free_elements
from difftest.lint.rule import Breach, Confidence, Group, trace_rule
from difftest.lint.sdk import Frontend
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Engine, Event, Region, Space, Trace

_KDA = "Jerry2423/kda-for-trainium @90770f2aaa14, trn2, classic"
_STEP_MAX = 2**15 - 1
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


@trace_rule(
    "NKI521",
    title="more partitions than the first one allows",
    rule="from partition 32 or 96 an operand has at most 32 partitions, from 64 at most 64",
    remedy="split it: 32 partitions from 32 and 96, 64 from 64; or begin at 0",
    compiler="Pattern accesses 64 (> 32) partitions starting at partition 32",
    **{**RECORDED, "group": Group.CORRECTNESS},
)
def _span(trace: Trace, machine: Machine) -> Iterator[Breach]:
    limits = {32: 32, 64: 64, 96: 32}
    for event in trace:
        for one in on_chip(event):
            first = first_partition(one)
            if one.allocation.partitions > 1 and one.partitions > limits.get(first, 128):
                yield event, f"{event.opcode} has {one.partitions} partitions from {first} on"


@trace_rule(
    "NKI522",
    title="a step beyond 16 bits",
    rule="a step between elements on chip is at most 32767 elements",
    remedy="reshape, or copy in pieces",
    compiler="NCC_IXCG967 ... step 37152 into 16-bit isa_static_pattern.step_elem",
    **{**RECORDED, "group": Group.CORRECTNESS},
)
def _step(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for one in on_chip(event):
            steps = [abs(step) for size, step in one.free_axes if size > 1]
            if steps and max(steps) > _STEP_MAX:
                yield event, f"{event.opcode} has a step of {max(steps):,} elements in {one.role}"


@trace_rule(
    "NKI523",
    title="a dynamic offset in a compute instruction on trn1",
    rule="on trn1 only the addresses of DMAs come from registers",
    remedy="move what is wanted to a fixed place with nisa.dma_copy",
    compiler="[NCC_IBIR829] Requested Argument index 1 out of bounds",
    **TRN1,
)
def _dynamic(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for one in on_chip(event):
            if f"register of {one.role}" in event.arguments:
                yield event, f"{event.opcode} has {one.role} at the offset of a register"


@trace_rule(
    "NKI524",
    title="addresses for some tensors",
    rule="a kernel places all of its tensors in a memory, or none",
    remedy="give all of them address=, or none",
    compiler="NCC_EGCA111 (formerly NCC_IGCA044)",
    **RECORDED,
)
def _mixed(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for space in (Space.SBUF, Space.PSUM):
        own = [one for one in trace.allocations if one.space is space and not one.is_temporary]
        placed = [one for one in own if one.address is not None]
        for one in own if placed else ():
            if one.address is None:
                yield one, f"{one} has no address, and {placed[0]} has one"


@trace_rule(
    "NKI525",
    title="several indices a partition",
    rule="an indirect DMA takes one index a partition on trn1",
    remedy="issue a DMA for each column of indices",
    compiler="'src_index' free dimensions total elements must be 1",
    **TRN1,
)
def _indices(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        index = event.operand("index")
        if event.engine is Engine.DMA and index is not None and free_elements(index) > 1:
            yield event, f"{event.opcode} got {free_elements(index)} indices a partition"


@trace_rule(
    "NKI526",
    title="dma_transpose on chip on trn1",
    rule="on trn1 dma_transpose goes from HBM to SBUF, and takes no indices",
    remedy="nisa.nc_transpose on chip",
    compiler="transpose only supported for HBM->SB",
    **TRN1,
)
def _dma_transpose(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in _transposes(trace):
        src, dst = event.operand("src"), event.operand("dst")
        is_indirect = event.operand("index") is not None
        if src and dst and (is_indirect or not src.allocation.space.is_hbm):
            spaces = f"{src.allocation.space.value} to {dst.allocation.space.value}"
            yield event, f"dma_transpose goes from {spaces}{' by indices' * is_indirect}"


@trace_rule(
    "NKI527",
    title="a DMA transpose to rows that are not aligned",
    rule="the rows that a DMA transpose writes are a multiple of 32 bytes apart",
    remedy="make the rows of dst longer, and use a part of them",
    **{
        **RECORDED,
        "confidence": Confidence.INFERRED,
        "sources": ("nki-difftest issue 24: a rule of the backend",),
    },
)
def _rows(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in _transposes(trace):
        for one in event.writes:
            step = one.strides[0] * one.dtype.itemsize if one.shape[0] > 1 else 0
            if step % 32:
                yield event, f"dma_transpose writes rows {step} bytes apart"


def _transposes(trace: Trace) -> Iterator[Event]:
    return (event for event in trace if event.opcode.startswith("dma_transpose"))


@trace_rule(
    "NKI528",
    title="a DMA from one row to many partitions",
    group=Group.PORTABILITY,
    rule="a classic DMA has no step of 0 between partitions",
    remedy="load the row once, and broadcast it on chip",
    frontends=frozenset({Frontend.CLASSIC}),
    targets=frozenset({"trn2"}),
    confidence=Confidence.RECORDED,
    compiler="[NCC_IBCG901] BIRCodegen does not support broadcast patterns ... {0,+,0}[128]",
    sources=(_KDA,),
)
def _broadcast(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        for one in event.reads if event.engine is Engine.DMA else ():
            if one.whole and one.shape and one.shape[0] > 1 and one.strides[0] == 0:
                yield event, f"{event.opcode} reads one row for {one.shape[0]} partitions"


@trace_rule(
    "NKI529",
    title="a DMA out of SBUF at the offset of a tile",
    rule="an offset that stands in a tile moves what is in HBM",
    remedy="read the offset with nisa.register_load, or move by a loop over static offsets",
    compiler="neuronx-cc ends with a segmentation fault",
    **{
        **RECORDED,
        "targets": frozenset({"trn2"}),
        "sources": ("aws-neuron-sdk issue 1373",),
    },
)
def _moved_on_chip(trace: Trace, machine: Machine) -> Iterator[Breach]:
    for event in trace:
        src, index = event.operand("src"), event.operand("index")
        if event.opcode == "dma_copy" and src and index and not src.allocation.space.is_hbm:
            yield event, "dma_copy reads SBUF at an offset that stands in a tile"


@trace_rule(
    "NKI530",
    title="too many descriptors",
    rule="the static DMAs of a kernel have at most 16,777,200 descriptors, one for each run",
    remedy="make the runs longer: move rows, and transpose on chip",
    compiler="Descriptor limit reached ... 16777200",
    **TRN1,
)
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


@trace_rule(
    "NKI531",
    title="a kernel of very many instructions",
    group=Group.PERFORMANCE,
    rule="a kernel of more than 250,000 instructions takes the compiler half an hour and more",
    remedy="a device loop (nl.fori_loop), larger tiles, or several kernels",
    frontends=TODAYS,
    confidence=Confidence.RECORDED,
    compiler="NCC_EBVF030 Instructions generated ... exceeds the typical limit of 5000000",
    sources=("aws-neuron-sdk issue 1374", KILN),
)
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
