"""The counts of launches: of one kernel, of communicating ranks, and of several workers."""

from __future__ import annotations

from types import SimpleNamespace

from difftest.analysis.finding import Finding, Severity
from difftest.plugin.launches import LaunchCounts
from difftest.simulator.errors import Location

RACE = Finding(
    id="race",
    severity=Severity.WARNING,
    happened="two writes",
    rule="one",
    remedy="a barrier",
    locations=(Location("k.py", 3),),
)


def launched(rank: int | None) -> SimpleNamespace:
    return SimpleNamespace(kernel=None, rank=rank)


def test_ranks_are_one_launch_with_the_hazards_of_each():
    counts = LaunchCounts()
    counts.record(launched(0), [])
    counts.record(launched(1), [RACE])
    (row,) = counts.as_mappings()
    assert (row["kernel"], row["launches"]) == ("a kernel on ranks", 1)
    assert len(row["hazards"]) == 1


def test_the_counts_of_workers_are_added_and_a_hazard_stays_one():
    total = LaunchCounts()
    for _ in range(2):
        worker = LaunchCounts()
        worker.record(launched(None), [RACE])
        total.merge(worker.as_plain())
    (row,) = total.as_mappings()
    assert (row["launches"], len(row["hazards"])) == (2, 1)
