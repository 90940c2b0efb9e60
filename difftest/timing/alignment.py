"""How a predicted timeline lines up with a device trace of the same kernel, engine by engine.

The instructions of each engine are taken in the order in which they started, on the device and in
the prediction, both timed from their first DMA trigger; the n-th of one is compared with the n-th
of the other. A matmul counts from its LDWEIGHTS to the end of its MATMUL, a DMA from its trigger
to its semaphore. The traces (``data/traces``) are of neuronx-cc 2.21.18209 on a trn2.3xlarge, with
static descriptors; their format was inferred.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from difftest.simulator.trace import Engine
from difftest.timing.evidence import rows_of
from difftest.timing.schedule import Schedule, Span

UNITS = ("load", "tensor", "vector", "scalar", "store")
"""What is compared: the engines that compute, and DMAs by direction."""


class Traced(NamedTuple):
    """One instruction of a device trace; microseconds from the profile's start."""

    unit: str
    opcode: str
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """One engine of a kernel, device against prediction. Times in microseconds."""

    unit: str
    device_count: int
    predicted_count: int
    device_span: tuple[float, float]
    """Start of its first instruction and end of its last."""
    predicted_span: tuple[float, float]
    median_offset: float
    """Median over its instructions of how much later the prediction starts the n-th."""
    worst_offset: float


def device_trace(name: str) -> list[Traced]:
    """The trace ``data/traces/<name>.csv``."""
    return [
        Traced(row["unit"], row["opcode"], float(row["start_us"]), float(row["end_us"]))
        for row in rows_of(f"traces/{name}")
    ]


def align(device: list[Traced], schedule: Schedule) -> list[Alignment]:
    """Compare the engines that the trace or the prediction uses."""
    zero = min(record.start for record in device if record.unit in ("load", "constant"))
    rows = []
    for unit in UNITS:
        real = sorted(
            (record.start - zero, record.end - zero)
            for record in device
            if record.unit == unit and record.opcode != "ACT_TABLE_LOAD"
        )
        ours = sorted(
            (span.start / 1e3, span.end / 1e3) for span in schedule.spans if _unit(span) == unit
        )
        if not real and not ours:
            continue
        offsets = [mine[0] - theirs[0] for mine, theirs in zip(ours, real, strict=False)]
        rows.append(
            Alignment(
                unit=unit,
                device_count=len(real),
                predicted_count=len(ours),
                device_span=_span(real),
                predicted_span=_span(ours),
                median_offset=median(offsets) if offsets else float("nan"),
                worst_offset=max(offsets, key=abs) if offsets else float("nan"),
            )
        )
    return rows


def _unit(span: Span) -> str:
    if span.instruction.implied:
        return "constant"
    if span.instruction.transfer is not None:
        return "store" if span.instruction.is_store else "load"
    return span.engine.value if span.engine is not Engine.DMA else "load"


def _span(times: list[tuple[float, float]]) -> tuple[float, float]:
    starts, ends = zip(*times or [(float("nan"), float("nan"))], strict=True)
    return starts[0], max(ends)
