"""The counts of many tests, added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from difftest.support.signature import distinct_names
from difftest.testing.harness.tally import PROPERTY, Tally, tally_from_json


def tallies_of(
    reports: Iterable[Any], stopped: Iterable[Iterable[tuple[str, object]]]
) -> list[Tally]:
    """Return the tallies in reports of tests and in the properties of stopped tests."""
    # The reports of a test's other phases have the same properties.
    called = [report for report in reports if getattr(report, "when", "") == "call"]
    tallies = []
    for properties in (*(report.user_properties for report in called), *stopped):
        text = dict(properties).get(PROPERTY)
        if text is not None:
            tallies.append(tally_from_json(str(text)))
    return tallies


def labels_of(tallies: Sequence[Tally]) -> dict[tuple[str, str], str]:
    """Return a distinct label for each kernel, by its name and module."""
    kernels: dict[tuple[str, str], None] = {}
    for tally in tallies:
        kernels.update(dict.fromkeys(tally.homes.items()))
    names = [name for name, _ in kernels]
    homes = [home for _, home in kernels]
    return dict(zip(kernels, distinct_names(names, homes), strict=True))


def total_of(tallies: Sequence[Tally]) -> Tally:
    """Return the sum of the tallies of tests. Equal names of different modules stay separate."""
    labels = labels_of(tallies)
    total = Tally()
    for tally in tallies:
        total.merge(
            tally, {name: labels[name, home] for name, home in tally.homes.items()}
        )
    return total
