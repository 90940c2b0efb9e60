"""A prediction in numbers: Neuron Explorer's summary fields, tables, and memory over time.

Field names are Neuron Explorer's. As in Neuron Explorer, fields named ``_percent`` are fractions
from 0 to 1, times are in seconds, and -1 means not available. The report also gives the least time
for a kernel's arithmetic, and the least time for its traffic.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from difftest.analysis.finding import group_by
from difftest.simulator.trace import Allocation, Engine, Region, Space
from difftest.timing.compiler import DescriptorSource
from difftest.timing.dma import Transfer, software_transfer
from difftest.timing.evidence import Evidence
from difftest.timing.interval import COVERAGE
from difftest.timing.prediction import Prediction
from difftest.timing.program import LoweredInstruction, Program
from difftest.timing.schedule import Schedule, Span

Resident = tuple[Allocation, float, float]
"""A tensor, and the start and end of its residence in microseconds."""


class UsageStep(NamedTuple):
    """A change in memory use: from ``time`` on, ``bytes`` of each partition are in use."""

    time: float
    """Microseconds from the start of the kernel's own part."""
    bytes: int


class MemoryHolder(NamedTuple):
    """Tensors that one source line created, at the peak."""

    name: str
    line: str
    tensors: int
    bytes: int
    """Total bytes in each partition."""


@dataclass(frozen=True)
class MemoryUsage:
    """The use of one memory over time."""

    capacity: int
    """Bytes of a partition that are available to tensors."""
    steps: list[UsageStep]
    peak: int
    holders: list[MemoryHolder]
    """The tensors at the peak, largest first."""


def memory_usage(schedule: Schedule, space: Space) -> MemoryUsage:
    """Return the use of SBUF or PSUM on the fullest core, in requested bytes per partition."""
    machine = schedule.program.machine
    allocations = schedule.program.allocations
    resident: list[list[Resident]] = [[] for _ in range(schedule.program.cores)]
    for number, (start, end) in schedule.residence.items():
        if allocations[number].space is space:
            core = schedule.program.instructions[
                schedule.program.dependence_graph.opener[number]
            ].core
            resident[core].append((allocations[number], start / 1e3, end / 1e3))
    capacity = machine.sbuf_usable_bytes
    if space is Space.PSUM:
        capacity = machine.psum_partition_bytes
    usages = [_usage(capacity, of_core) for of_core in resident]
    return max(usages, key=lambda usage: usage.peak)


def _usage(capacity: int, resident: list[Resident]) -> MemoryUsage:
    """Return the memory use of one core."""
    changes = Counter({0.0: 0})
    for allocation, start, end in resident:
        changes[start] += allocation.partition_bytes
        changes[end] -= allocation.partition_bytes
    times = sorted(changes)
    totals = itertools.accumulate(changes[time] for time in times)
    steps = list(map(UsageStep, times, totals))
    top = max(steps, key=lambda step: step.bytes)
    there = [tensor for tensor, start, end in resident if start <= top.time < end]
    return MemoryUsage(capacity, steps, top.bytes, _holders(there))


def _holders(allocations: list[Allocation]) -> list[MemoryHolder]:
    """Return the tensors of a memory by name and line, the largest first."""
    places = group_by(
        allocations,
        lambda tensor: (
            tensor.name or "tile",
            str(tensor.location or "(added by the compiler)"),
        ),
    )
    holders = [
        MemoryHolder(
            *place, len(group), sum(tensor.partition_bytes for tensor in group)
        )
        for place, group in places.items()
    ]
    return sorted(holders, key=lambda holder: (-holder.bytes, holder.line))


ENGINES = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.SYNC)
UNAVAILABLE = -1.0


class ReportRow(NamedTuple):
    """The instructions of one group; times in microseconds."""

    group: str
    instructions: int
    busy: float
    """Time that they kept their engines."""
    bytes: int
    """Bytes that their DMAs moved."""
    critical: float
    """Their time on the critical path."""
    evidence: Evidence
    """The weakest evidence of their costs."""


@dataclass(frozen=True, eq=False)
class Report:
    """The figures of a prediction."""

    prediction: Prediction

    def summary(self) -> dict[str, float]:
        """Return Neuron Explorer's summary fields; the total is -1 if a cost is unknown."""
        spans = self.prediction.schedule.spans
        own = self.prediction.middle / 1e6
        is_known = not self.prediction.unknown
        total = self.prediction.total_time / 1e6 if is_known else UNAVAILABLE
        fields: dict[str, float] = {"total_time": total, "total_exec_time": own}
        active = covered((span.start, span.end) for span in spans) / 1e9
        fields["total_active_time"] = active
        fields["total_active_time_percent"] = active / own
        fields |= self._flop_fields(own)
        fields |= self._byte_fields(own)
        fields |= self._dma_fields(own)
        for engine in ENGINES:
            fields |= self._engine_fields(engine, own)
        return fields

    def _flop_fields(self, own: float) -> dict[str, float]:
        """Return the fields on arithmetic; ``own`` is the time of the kernel in seconds."""
        program = self.prediction.program
        clock = program.parameters.clocks[Engine.TENSOR].value * 1e9
        flops = [0, 0]
        streamed: float = 0
        matmuls = 0
        widest = 1
        for step in program.instructions:
            if work := step.matmul:
                flops[work.transposes] += work.flops
                streamed += work.passes * work.rows * work.width
                matmuls += work.passes
                widest = max(widest, work.width)
        model, turned = flops
        hardware = streamed * 2 * program.machine.pe_cells
        peak = 2 * program.machine.pe_cells * clock * widest * program.cores
        moved = sum(self._hbm_bytes)
        return {
            "model_flops": model,
            "transpose_flops": turned,
            "hardware_flops": hardware,
            "mfu_estimated_percent": model / (peak * own),
            "mfu_max_achievable_estimated_percent": model / max(1, hardware),
            "hfu_estimated_percent": hardware / (peak * own),
            "mm_arithmetic_intensity": model / moved if moved else UNAVAILABLE,
            "peak_flops_bandwidth_ratio": peak / (program.hbm_rate * 1e9),
            "matmul_instruction_count": matmuls,
            "neuroncore_cycle_count": own * clock,
        }

    @property
    def _hbm_bytes(self) -> list[int]:
        """Bytes read and bytes written."""
        return [
            counter[Space.SHARED_HBM] + counter[Space.PRIVATE_HBM]
            for counter in self._traffic
        ]

    @cached_property
    def _traffic(self) -> tuple[Counter[Space], Counter[Space]]:
        counts: tuple[Counter[Space], Counter[Space]] = Counter(), Counter()
        for step in self.prediction.program.instructions:
            for counted, regions in zip(
                counts, (step.event.reads, step.event.writes), strict=True
            ):
                for region in regions:
                    counted[region.allocation.space] += region_bytes(region)
        return counts

    def _byte_fields(self, own: float) -> dict[str, float]:
        """Return the fields on the traffic of memories."""
        reads, writes = self._traffic
        hbm_read, hbm_write = self._hbm_bytes
        rate = self.prediction.program.hbm_rate * 1e9
        spilled = UNAVAILABLE if self.prediction.schedule.timeline.spilled else 0.0
        return {
            "hbm_read_bytes": hbm_read,
            "hbm_write_bytes": hbm_write,
            "sbuf_read_bytes": reads[Space.SBUF],
            "sbuf_write_bytes": writes[Space.SBUF],
            "psum_read_bytes": reads[Space.PSUM],
            "psum_write_bytes": writes[Space.PSUM],
            "mbu_estimated_percent": (hbm_read + hbm_write) / (rate * own),
            "mbu_min_read_util_percent": self._distinct_read() / (rate * own),
            "spill_save_bytes": spilled,
            "spill_reload_bytes": spilled,
        }

    def _distinct_read(self) -> int:
        """Return the bytes of the tensors in HBM that are read at all."""
        tensors = {
            region.allocation.id: region.allocation
            for step in self.prediction.program.instructions
            for region in step.event.reads
            if region.allocation.space.is_hbm
        }
        return sum(math.prod(t.shape) * t.dtype.itemsize for t in tensors.values())

    def _dma_fields(self, own: float) -> dict[str, float]:
        """Return the fields on DMAs."""
        dmas = [
            span for span in self.prediction.schedule.spans if span.instruction.transfer
        ]
        transfers = [
            span.instruction.transfer for span in dmas if span.instruction.transfer
        ]
        total = sum(transfer.bytes for transfer in transfers)
        active = (
            covered((span.transfer_start, span.transfer_end) for span in dmas) / 1e9
        )
        rows = self._descriptor_rows(transfers)
        return {
            "dma_active_time": active,
            "dma_active_time_percent": active / own,
            "dma_transfer_count": len(transfers),
            "dma_transfer_total_bytes": total,
            "dma_transfer_average_bytes": total / len(transfers) if transfers else 0.0,
            "dma_queue_count": len({span.instruction.is_store for span in dmas}),
            "static_dma_packet_count": rows[DescriptorSource.LAID_DOWN]
            + rows[DescriptorSource.IN_TURN],
            "software_dynamic_dma_packet_count": rows[DescriptorSource.SOFTWARE],
            "hardware_dynamic_dma_packet_count": rows[DescriptorSource.HARDWARE],
        }

    def _descriptor_rows(
        self, transfers: Iterable[Transfer]
    ) -> Counter[DescriptorSource]:
        """Return the rows of the transfers, by the source of their descriptors."""
        schedule = self.prediction.schedule
        sources = schedule.descriptor_sources
        rows = Counter[DescriptorSource]()
        for transfer in transfers:
            source = sources[transfer.kind]
            if source is DescriptorSource.SOFTWARE:
                transfer = software_transfer(transfer)
            rows[source] += transfer.rows
        return rows

    def _engine_fields(self, engine: Engine, own: float) -> dict[str, float]:
        """Return the fields on one engine."""
        spans = [
            span for span in self.prediction.schedule.spans if span.engine is engine
        ]
        active = covered((span.start, span.start + span.busy) for span in spans) / 1e9
        name = f"{engine.value}_engine"
        return {
            f"{name}_instruction_time": sum(span.end - span.start for span in spans)
            / 1e9,
            f"{name}_active_time": active,
            f"{name}_active_time_percent": active / own,
            f"{name}_instruction_count": len(spans),
        }

    def by_line(self) -> list[ReportRow]:
        """Return the instructions of each source line, most critical first."""
        return self._grouped(lambda span: _place(span.instruction))

    def by_instruction(self) -> list[ReportRow]:
        """Return the instructions of each opcode and engine, most critical first."""
        return self._grouped(lambda span: f"{span.instruction.opcode} ({unit(span)})")

    def _grouped(self, key: Callable[[Span], str]) -> list[ReportRow]:
        """Return a row for each group of instructions, most critical first."""
        critical = self.prediction.schedule.critical
        rows = []
        for group, spans in group_by(self.prediction.schedule.spans, key).items():
            steps = [span.instruction for span in spans]
            row = ReportRow(
                group,
                instructions=len(spans),
                busy=sum(span.busy for span in spans) / 1e3,
                bytes=sum(step.transfer.bytes for step in steps if step.transfer),
                critical=sum(critical.get(step.index, 0.0) for step in steps),
                evidence=max(map(span_evidence, spans), key=list(Evidence).index),
            )
            rows.append(row)
        return sorted(rows, key=lambda row: (-row.critical, -row.busy, row.group))

    def evidence(self) -> dict[str, float]:
        """Return evidence class -> its share of the engines' and DMAs' time."""
        times: dict[str, float] = {}
        for span in self.prediction.schedule.spans:
            name = span_evidence(span).value
            times[name] = times.get(name, 0.0) + span.busy
        total = sum(times.values())
        return {name: time / total for name, time in sorted(times.items())}


def span_evidence(span: Span) -> Evidence:
    """Return the evidence of an instruction's own cost."""
    timed = span.instruction.times.get(span.engine)
    if timed is None:
        return span.instruction.modelled
    return timed.cost.evidence if timed.cost else Evidence.ASSUMED


def unit(span: Span) -> str:
    """Return the engine's name, or "dma" for a transfer."""
    return "dma" if span.instruction.transfer else span.engine.value


def _place(step: LoweredInstruction) -> str:
    if step.implied and step.transfer is not None:
        return "(identity for transposes)"
    location = step.event.location
    return location.place if location else "(unknown)"


def region_bytes(region: Region) -> int:
    """Return the bytes of a region's elements."""
    return region.elements * region.dtype.itemsize


def as_mapping(report: Report) -> Mapping[str, object]:
    """Return the report in JSON's types, marked as predicted."""
    prediction = report.prediction
    latencies = interval = None
    if not prediction.unknown:
        latencies = {str(p): prediction.get_latency_percentile(p) for p in (0, 50, 100)}
        interval = {
            "coverage": COVERAGE,
            "nc_latency": list(prediction.latency_interval),
            "total_time": list(prediction.total_time_interval),
        }
    return {
        "predicted": True,
        "machine": prediction.program.machine.name,
        "descriptors": prediction.schedule.toolchain.value,
        "unknown_costs": prediction.unknown,
        "nc_latency_us": latencies,
        "interval_us": interval,
        "rests_on": prediction.error_budget.shares,
        "caution": prediction.caution,
        "evidence": report.evidence(),
        "summary": report.summary(),
        "by_line": [_line(line) for line in report.by_line()],
        "by_instruction": [_line(line) for line in report.by_instruction()],
    }


def _line(line: ReportRow) -> dict[str, object]:
    return line._asdict() | {"evidence": line.evidence.value}


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the time that at least one of the intervals covers."""
    total = 0.0
    reached = float("-inf")
    for start, end in sorted(intervals):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total


class Roofline(NamedTuple):
    """Lower bounds of a kernel's own part in microseconds, and the prediction."""

    tensor_bound: float
    """The Tensor Engine's time to stream every row at full speed, without waits."""
    memory_bound: float
    """The time that the DMA engines need to move every byte between HBM and the core at their full
    rate."""
    predicted: float
    intensity: float
    """Floating-point operations of the matmuls for each byte of HBM traffic."""
    ridge: float
    """The intensity from which arithmetic is the limit, with two-byte dtypes."""

    @property
    def limit(self) -> str:
        """Return the name of the higher bound."""
        return "arithmetic" if self.tensor_bound >= self.memory_bound else "memory"

    @property
    def share(self) -> float:
        """Return the higher bound over the prediction: 1 is optimal."""
        return max(self.tensor_bound, self.memory_bound) / self.predicted


def roofline(prediction: Prediction) -> Roofline:
    """Return the bounds of a prediction's kernel."""
    return bounds_of(prediction.program)._replace(predicted=prediction.middle)


def bounds_of(program: Program) -> Roofline:
    """Return the bounds of a program without a schedule; its predicted time is infinite."""
    clock = program.parameters.clocks[Engine.TENSOR].value
    rate = program.hbm_rate
    cycles = flops = moved = 0.0
    for step in program.instructions:
        if step.matmul:
            cycles += step.matmul.passes * step.matmul.rows
            flops += 0 if step.matmul.transposes else step.matmul.flops
        if step.transfer:
            moved += step.transfer.bytes * (
                step.transfer.reads_hbm + step.transfer.writes_hbm
            )
    return Roofline(
        tensor_bound=cycles / clock / program.cores / 1e3,
        memory_bound=moved / rate / 1e3,
        predicted=float("inf"),
        intensity=flops / moved if moved else float("inf"),
        ridge=2 * program.machine.pe_cells * clock * program.cores / rate,
    )
