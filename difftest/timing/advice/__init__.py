"""Unnecessary work in a kernel, with its cost and a remedy.

Each detector reads the schedule and yields findings. A finding's estimated savings (``lost``) are
the most that the kernel would gain. All times are predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from difftest.timing.advice.copies import (
    added_in_sbuf,
    busy_copies,
    few_partitions,
    redundant_copies,
    single_elements,
)
from difftest.timing.advice.loads import (
    loaded_again,
    small_dmas,
    through_hbm,
    unused_data,
)
from difftest.timing.advice.savings import (
    LEAST,
    LEAST_SHARE,
    Advice,
    Units,
    ranked,
)
from difftest.timing.advice.tensor import (
    empty_psum,
    strided_weights,
    transposed_again,
    wide_operands,
)
from difftest.timing.advice.waits import device_loops, full_sbuf, reused_tensors, waits
from difftest.timing.collection import no_collection
from difftest.timing.schedule import Schedule, reschedule_without

SMALL = 20_000
"""Up to this many instructions, the schedule is computed again."""
TRIED = 8
"""The most findings with a new schedule."""
Detector = Callable[[Schedule, Units], Iterator[Advice]]

DETECTORS: tuple[Detector, ...] = (
    unused_data,
    loaded_again,
    through_hbm,
    small_dmas,
    few_partitions,
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
    """Return the findings on a schedule that gain something, the largest first.

    A new schedule without the cost of a finding gives its savings. A gain below 2 % of the kernel's
    own part, or below 1 us, is not a finding.
    """
    with no_collection():
        return _advice(schedule)


def _advice(schedule: Schedule) -> list[Advice]:
    units = Units(schedule)
    least = max(LEAST, LEAST_SHARE * schedule.end / 1e3)
    found = (finding for detector in DETECTORS for finding in detector(schedule, units))
    findings = ranked(found, least)
    if len(schedule.program.instructions) <= SMALL:
        tried = [_rescheduled(schedule, advice) for advice in findings[:TRIED]]
        findings[:TRIED] = tried
    return ranked(findings, least)


def _rescheduled(schedule: Schedule, advice: Advice) -> Advice:
    """Return a finding that gains no more than a new schedule without its work does."""
    if not advice.spared:
        return advice
    finish = reschedule_without(schedule, advice.spared).finish
    return replace(advice, lost=min(advice.lost, (schedule.end - finish) / 1e3))


__all__ = ["DETECTORS", "Advice", "advise"]
