"""The summary at the end of a run: the comparisons, and the points that need action."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from difftest.testing.harness.coverage import TURNS, uncovered_branches

if TYPE_CHECKING:
    from difftest.testing.harness.tally import Tally

BACKENDS = {
    "embedded": "--simulate=embedded",
    "sdk": "--simulate=sdk",
    "device": "--device",
}
"""Names of backends, and the options that request them."""
_FEW = 5
"""Number of kernels or places in a line or a list, unless the output is verbose."""
COLUMNS = {
    "cases": "cases",
    "elements": "elements",
    "bit for bit": "exact",
    "rejections": "rejections",
    "both reject": "both_rejected",
    "inconclusive": "inconclusive",
    "not finite": "nonfinite",
}
"""Column headings, and the counts below them. A column whose counts are all 0 is left out."""


def table_text(tally: Tally, verbose: bool) -> list[str]:
    """Return the lines of the table of counts for each kernel."""
    rows = _table_rows(tally, verbose)
    columns = {
        "kernel": [kernel for kernel, _ in rows],
        "backend": [on for _, on in rows],
    }
    if len(set(columns["backend"])) < 2:
        del columns["backend"]
    for title, name in COLUMNS.items():
        if any(counts[name] for counts in rows.values()) and (
            verbose or name != "nonfinite"
        ):
            columns[title] = [str(counts[name]) for counts in rows.values()]
    sides = {"kernel": "<", "backend": "<"}
    forms = [
        f"{sides.get(k, '>')}{max(map(len, [k, *cells]))}"
        for k, cells in columns.items()
    ]
    lines = [tuple(columns), *zip(*columns.values(), strict=True)]
    return ["  ".join(map(format, cells, forms)).rstrip() for cells in lines]


def _table_rows(tally: Tally, verbose: bool) -> dict[tuple[str, str], Counter[str]]:
    """Return the counts of each row, by kernel and backend.

    Identical kernels share a row. In a long table, kernels without points to act on share one too.
    """
    identical = {
        (second, backend): first
        for (first, second, backend), row in tally.agreements.items()
        if row.exact == row.cases
    }
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (kernel, backend), counts in sorted(tally.rows.items()):
        name = identical.get((kernel, backend), kernel)
        label = name.rpartition(" (")[0] if name in identical.values() else ""
        rows[label or name, backend].update(asdict(counts))
    well = [
        key
        for key, row in rows.items()
        if not row["inconclusive"] + row["both_rejected"]
    ]
    what = "others" if len(well) < len(rows) else "kernels"
    for key in well if len(rows) > 2 * _FEW and not verbose else ():
        rows[f"{len({name for name, _ in well})} {what} (-v)", key[1]].update(
            rows.pop(key)
        )
    return rows


def _agreement_lines(tally: Tally) -> Iterator[str]:
    """Yield one line for the pairs of kernels that always agree, and one for each other pair."""
    agree = sum(row.exact == row.cases for row in tally.agreements.values())
    if agree:
        yield f"twins: all bits agree in all cases of {agree} pair{'s' if agree > 1 else ''}"
    for (one, other, on), row in sorted(tally.agreements.items()):
        if row.exact != row.cases:
            yield f"{one} and {other} on {on}: all bits agree in {row.exact} of {row.cases} cases"


def _inconclusive_lines(tally: Tally, verbose: bool) -> Iterator[str]:
    """Yield each reason with its number of cases and its kernels; numbers in it are ignored."""
    reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[str, str] = {}
    for text, cases in sorted(tally.reasons.items()):
        kernel, _, reason = text.partition(": ")
        first, *_, last = list(reason.split("; ")) * 2  # the cause and the remedy
        key = text if verbose else re.sub(r"\d[\d.e+-]*", "", reason)
        reasons[key][kernel if verbose else kernel.partition(" (")[0]] += cases
        examples.setdefault(
            key, reason if verbose or first == last else f"{first}; {last}"
        )
    for key, kernels in reasons.items():
        count = f"{kernels.total()} case{'s' if kernels.total() > 1 else ''}"
        yield f"inconclusive: {count} of {_named(kernels, 3)}: {examples[key]}"


def coverage_lines(tally: Tally, verbose: bool) -> Iterator[str]:
    """Yield the branches that no case took in the kernels' own code.

    Lines of a file are grouped, and only the first few groups are shown unless ``verbose``. Loops
    without a third iteration are shown only if ``verbose``: often no case of the domain has one.
    """
    if verbose:
        yield from _all_coverage_lines(tally)
        return
    groups: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for place in uncovered_branches(tally.coverage):
        if place.what != TURNS[-1]:
            tried = place.tried and f": {place.tried}"
            groups[place.file, place.what, _named(place.kernels, 1), tried].append(
                str(place.line)
            )
    for (file, what, names, tried), lines in list(groups.items())[:_FEW]:
        yield f"no case: {file}:{_named(lines)}: {what} ({names}){tried}"
    if left := sum(map(len, list(groups.values())[_FEW:])):
        yield f"no case: and {left} more branches and loops; -v has all"


def _all_coverage_lines(tally: Tally) -> Iterator[str]:
    """Yield two lines for each branch that no case took, and the reasons for unknown branches."""
    for place in uncovered_branches(tally.coverage):
        tried = place.tried and f": {place.tried}"
        names = ", ".join(place.kernels)
        yield f"no case: {place.file}:{place.line}: {place.what} ({names}){tried}"
        yield f"           {place.source}"
    for why in sorted(tally.coverage.unknown):
        yield f"not every case's branches and loops are known: {why}"


def _named(names: Collection[str], most: int = _FEW) -> str:
    return ", ".join(list(names)[:most]) + f" and {len(names) - most} more" * (
        len(names) > most
    )


def summary_lines(
    tally: Tally | None,
    ran: Collection[str],
    left: Collection[str],
    *,
    verbose: bool = False,
) -> list[str]:
    """Return the lines of the summary; empty for a session without kernel tests.

    Parameters
    ----------
    tally : counts of the session; None if no backend was requested.
    ran : names of the backends that ran.
    left : modules of kernel tests that were left out.
    verbose : whether to show points that need no action.
    """
    lines = []
    if tally is not None:
        lines += table_text(tally, verbose) if tally.rows else ["no kernel test ran"]
        lines += [*_agreement_lines(tally), *_inconclusive_lines(tally, verbose)]
        lines += [f"exact run: {doubt}" for doubt in sorted(tally.doubts)]
        lines += [*sorted(tally.broken), *coverage_lines(tally, verbose)]
        idle = {
            name: option
            for name, option in BACKENDS.items()
            if verbose and name not in ran
        }
        lines += [
            f"not run: {name} ({option} was not given)" for name, option in idle.items()
        ]
    if left:
        several = (
            "modules of kernel tests were"
            if len(left) > 1
            else "module of kernel tests was"
        )
        lines.append(
            f"{len(left)} {several} not collected, for no backend was asked for: run with "
            "--simulate (a simulator) or --device (a NeuronCore)"
        )
    return lines
