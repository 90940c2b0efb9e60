"""What a kernel does that it need not do, with what it costs and what to do instead.

Each detector looks at the schedule and yields findings; what one is worth is how much less the
busiest unit would have to do (``lost``). All times are predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from difftest.timing.advice.copies import (
    added_in_sbuf,
    busy_copies,
    redundant_copies,
    single_elements,
)
from difftest.timing.advice.loads import loaded_again, small_dmas, unused_data
from difftest.timing.advice.memory import full_sbuf, reused_tensors
from difftest.timing.advice.tensor import (
    empty_psum,
    strided_weights,
    transposed_again,
    wide_operands,
)
from difftest.timing.advice.waits import device_loops, waits
from difftest.timing.advice.worth import Advice, Units, ranked
from difftest.timing.schedule import Schedule

Detector = Callable[[Schedule, Units], Iterator[Advice]]

DETECTORS: tuple[Detector, ...] = (
    unused_data,
    loaded_again,
    small_dmas,
    single_elements,
    redundant_copies,
    added_in_sbuf,
    transposed_again,
    strided_weights,
    wide_operands,
    empty_psum,
    busy_copies,
    full_sbuf,
    reused_tensors,
    device_loops,
    waits,
)


def advise(schedule: Schedule) -> list[Advice]:
    """All findings on a schedule, the largest first."""
    units = Units(schedule)
    findings = [finding for detector in DETECTORS for finding in detector(schedule, units)]
    return ranked(findings, schedule.end / 1e3)


__all__ = ["DETECTORS", "Advice", "advise"]
