"""The end of a run, on the terminal: what was compared, and what a reader may act on."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from difftest.testing.harness.coverage import TURNS, uncovered_branches

if TYPE_CHECKING:
    from difftest.testing.harness.tally import Tally

BACKENDS = {"embedded": "--simulate=embedded", "sdk": "--simulate=sdk", "device": "--device"}
"""Each backend, and the option that asks for it."""
_FEW = 5
"""How many kernels or places are named in a line or a list, unless all are asked for."""
COLUMNS = {
    "cases": "cases",
    "elements": "elements",
    "bit for bit": "exact",
    "rejections": "rejections",
    "both reject": "both_rejected",
    "inconclusive": "inconclusive",
    "not finite": "nonfinite",
}
"""Each heading, and the count that stands below it; none where all of them are 0."""


def table_text(tally: Tally, verbose: bool) -> list[str]:
    """The counts of each kernel; those of twins are one, and of many those that ask for nothing."""
    twins = {
        (second, backend): first
        for (first, second, backend), row in tally.agreements.items()
        if row.exact == row.cases
    }
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (kernel, backend), counts in sorted(tally.rows.items()):
        name = twins.get((kernel, backend), kernel)
        label = name.rpartition(" (")[0] if name in twins.values() else ""
        rows[label or name, backend].update(asdict(counts))
    well = [key for key, row in rows.items() if not row["inconclusive"] + row["both_rejected"]]
    what = "others" if len(well) < len(rows) else "kernels"
    for key in well if len(rows) > 2 * _FEW and not verbose else ():
        rows[f"{len({name for name, _ in well})} {what} (-v)", key[1]].update(rows.pop(key))
    columns = {"kernel": [kernel for kernel, _ in rows], "backend": [on for _, on in rows]}
    if len(set(columns["backend"])) < 2:
        del columns["backend"]
    for title, name in COLUMNS.items():
        if any(counts[name] for counts in rows.values()) and (verbose or name != "nonfinite"):
            columns[title] = [str(counts[name]) for counts in rows.values()]
    sides = {"kernel": "<", "backend": "<"}
    forms = [f"{sides.get(k, '>')}{max(map(len, [k, *cells]))}" for k, cells in columns.items()]
    lines = [tuple(columns), *zip(*columns.values(), strict=True)]
    return ["  ".join(map(format, cells, forms)).rstrip() for cells in lines]


def _said_of_twins(tally: Tally) -> Iterator[str]:
    """Once of all kernels of one contract whose bits agree in all cases, and of each other pair."""
    agree = sum(row.exact == row.cases for row in tally.agreements.values())
    if agree:
        yield f"twins: all bits agree in all cases of {agree} pair{'s' if agree > 1 else ''}"
    for (one, other, on), row in sorted(tally.agreements.items()):
        if row.exact != row.cases:
            yield f"{one} and {other} on {on}: all bits agree in {row.exact} of {row.cases} cases"


def _inconclusive(tally: Tally, verbose: bool) -> Iterator[str]:
    """Each reason, whatever numbers it has: of how many cases, and of which kernels."""
    reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[str, str] = {}
    for text, cases in sorted(tally.reasons.items()):
        kernel, _, reason = text.partition(": ")
        first, *_, last = list(reason.split("; ")) * 2  # what it is, and what to do about it
        key = text if verbose else re.sub(r"\d[\d.e+-]*", "", reason)
        reasons[key][kernel if verbose else kernel.partition(" (")[0]] += cases
        examples.setdefault(key, reason if verbose or first == last else f"{first}; {last}")
    for key, kernels in reasons.items():
        count = f"{kernels.total()} case{'s' if kernels.total() > 1 else ''}"
        yield f"inconclusive: {count} of {_named(kernels, 3)}: {examples[key]}"


def coverage_lines(tally: Tally, verbose: bool) -> Iterator[str]:
    """What no case did in the kernels' own code: the first few, those of a file together, or all.

    That a loop never had a third turn is said to who wants all: often nothing in the domain can.
    """
    places = [
        place for place in uncovered_branches(tally.coverage) if verbose or place.what != TURNS[-1]
    ]
    alike: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for at in places:
        tried = at.tried and f": {at.tried}"
        alike[at.file, at.what, _named(at.kernels, 1), tried].append(str(at.line))
        if verbose:
            yield f"no case: {at.file}:{at.line}: {at.what} ({', '.join(at.kernels)}){tried}"
            yield f"           {at.source}"
    for (file, what, names, tried), lines in [] if verbose else list(alike.items())[:_FEW]:
        yield f"no case: {file}:{_named(lines)}: {what} ({names}){tried}"
    if not verbose and (left := sum(map(len, list(alike.values())[_FEW:]))):
        yield f"no case: and {left} more branches and loops; -v has all"
    for why in sorted(tally.coverage.unknown) if verbose else ():
        yield f"not every case's branches and loops are known: {why}"


def _named(names: Collection[str], most: int = _FEW) -> str:
    return ", ".join(list(names)[:most]) + f" and {len(names) - most} more" * (len(names) > most)


def summary_lines(
    tally: Tally | None, ran: Collection[str], left: Collection[str], *, verbose: bool = False
) -> list[str]:
    """The whole summary; empty if the session had nothing to do with kernels.

    ``tally`` is None if no backend was asked for; ``ran`` names those that were, and ``left`` the
    modules of kernel tests that were left out. What nobody acts on is said if ``verbose``.
    """
    lines = []
    if tally is not None:
        lines += table_text(tally, verbose) if tally.rows else ["no kernel test ran"]
        lines += [*_said_of_twins(tally), *_inconclusive(tally, verbose)]
        lines += [f"exact run: {doubt}" for doubt in sorted(tally.doubts)]
        lines += [*sorted(tally.broken), *coverage_lines(tally, verbose)]
        idle = {name: option for name, option in BACKENDS.items() if verbose and name not in ran}
        lines += [f"not run: {name} ({option} was not given)" for name, option in idle.items()]
    if left:
        several = "modules of kernel tests were" if len(left) > 1 else "module of kernel tests was"
        lines.append(
            f"{len(left)} {several} not collected, for no backend was asked for: run with "
            "--simulate (a simulator) or --device (a NeuronCore)"
        )
    return lines
