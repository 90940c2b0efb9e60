"""The counts of many tests, added up."""

from __future__ import annotations

from collections.abc import Sequence

from difftest.support.signature import distinct_names
from difftest.testing.harness.tally import Tally


def labels_of(tallies: Sequence[Tally]) -> dict[tuple[str, str], str]:
    """Return a distinct label for each kernel, by its name and module."""
    kernels = list(
        dict.fromkeys(home for tally in tallies for home in tally.homes.items())
    )
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
