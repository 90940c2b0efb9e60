import csv
from dataclasses import replace
from importlib.resources import files

import pytest

from difftest.timing import interval
from difftest.timing.cost_table import all_costs
from difftest.timing.evidence import Evidence
from difftest.timing.interval import (
    MEASURED,
    OTHER_MACHINE,
    SPILLED,
    Range,
    own_ranges,
    range_of,
    spilled,
)

ASSUMED = [cost for cost in all_costs() if cost.evidence is Evidence.ASSUMED]


def test_every_assumed_row_carries_a_range():
    assert len(ASSUMED) > 50
    for cost in ASSUMED:
        low, high = range_of(cost)
        assert low < 1 < high, cost
        assert high / low >= 1.5, (
            f"{cost.instruction} is assumed and claims to be known"
        )


def test_an_assumed_row_without_a_range_is_refused():
    row = next(cost for cost in ASSUMED if cost.machine == "trn2")
    with pytest.raises(
        ValueError, match=r"ranges.csv has no range for the assumed cost of sort"
    ):
        range_of(replace(row, instruction="sort"))
    assert range_of(replace(row, instruction="sort", machine="trn3")) == OTHER_MACHINE


def test_every_range_says_why_and_is_used():
    text = (files("difftest.timing") / "data" / "ranges.csv").read_text(
        encoding="utf-8"
    )
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == len(own_ranges())
    known = {(cost.instruction, cost.evidence) for cost in all_costs()}
    for row in rows:
        assert row["why"]
        assert (row["instruction"], Evidence(row["evidence"])) in known


def test_measured_costs_have_the_narrowest_range():
    measured = next(cost for cost in all_costs() if cost.evidence is Evidence.MEASURED)
    assert range_of(measured) == MEASURED
    for other in (
        interval.DOCUMENTED,
        interval.ASSUMED,
        interval.OTHER_MACHINE,
        interval.CHOSEN,
    ):
        assert other.low < MEASURED.low
        assert other.high > MEASURED.high


def test_a_little_that_does_not_fit_may_cost_a_little():
    assert spilled(0.0) == Range(0.9, 1.0)
    assert spilled(0.08).high == pytest.approx(1.32)
    assert spilled(0.5) == spilled(0.9) == SPILLED
