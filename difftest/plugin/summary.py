"""The summary at the end of a run: the comparisons, and the points that need action."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from difftest.support.wording import count_of
from difftest.testing.harness.coverage import ITERATIONS, uncovered_branches

if TYPE_CHECKING:
    from difftest.testing.harness.coverage import UncoveredBranch
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
    kernels, backends = zip(*rows, strict=True)
    columns: dict[str, Collection[str]] = {"kernel": kernels}
    if len(set(backends)) > 1:
        columns["backend"] = backends
    for title, name in COLUMNS.items():
        counts = [row[name] for row in rows.values()]
        is_hidden = name == "nonfinite" and not verbose
        if any(counts) and not is_hidden:
            columns[title] = list(map(str, counts))
    return padded_table(columns)


def padded_table(columns: Mapping[str, Collection[str]]) -> list[str]:
    """Return the lines of a table by its titles: names on the left, numbers on the right."""
    padded = []
    for title, cells in columns.items():
        lines = [title, *cells]
        width = max(map(len, lines))
        is_name = title in ("kernel", "backend")
        padded.append([x.ljust(width) if is_name else x.rjust(width) for x in lines])
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


def _table_rows(tally: Tally, verbose: bool) -> dict[tuple[str, str], Counter[str]]:
    """Return the counts of each row, by kernel and backend.

    Identical kernels share a row. In a long table, kernels without points to act on share one too.
    """
    rows = _rows_by_name(tally)
    if verbose or len(rows) <= 2 * _FEW:
        return rows
    quiet = [
        key
        for key, row in rows.items()
        if not row["inconclusive"] + row["both_rejected"]
    ]
    count = len({name for name, _ in quiet})
    noun = "others" if len(quiet) < len(rows) else "kernels"
    for name, backend in quiet:
        counts = rows.pop((name, backend))
        rows[f"{count} {noun} (-v)", backend].update(counts)
    return rows


def _rows_by_name(tally: Tally) -> defaultdict[tuple[str, str], Counter[str]]:
    """Return the counts by kernel and backend; identical kernels are added up."""
    identical = {
        (second, backend): first
        for (first, second, backend), row in tally.agreements.items()
        if row.exact == row.cases
    }
    shared = set(identical.values())
    rows: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (kernel, backend), counts in sorted(tally.rows.items()):
        name = identical.get((kernel, backend), kernel)
        if name in shared:
            name = name.rpartition(" (")[0] or name
        rows[name, backend].update(asdict(counts))
    return rows


def _agreement_lines(tally: Tally) -> Iterator[str]:
    """Yield one line for the pairs of kernels that always agree, and one for each other pair."""
    agree = sum(row.exact == row.cases for row in tally.agreements.values())
    if agree:
        pairs = count_of(agree, "pair")
        yield f"identical kernels: all bits agree in all cases of {pairs}"
    for (one, other, on), row in sorted(tally.agreements.items()):
        if row.exact != row.cases:
            yield f"{one} and {other} on {on}: all bits agree in {row.exact} of {row.cases} cases"


def _inconclusive_lines(tally: Tally, verbose: bool) -> Iterator[str]:
    """Yield each reason with its number of cases and its kernels; numbers in it are ignored."""
    reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[str, str] = {}
    for text, cases in sorted(tally.reasons.items()):
        kernel, _, reason = text.partition(": ")
        key = text
        if not verbose:
            kernel = kernel.partition(" (")[0]
            key = re.sub(r"\d[\d.e+-]*", "", reason)
            cause, *others = reason.split("; ")
            reason = "; ".join([cause, *others[-1:]])  # the cause and the remedy
        reasons[key][kernel] += cases
        examples.setdefault(key, reason)
    for key, kernels in reasons.items():
        count = count_of(kernels.total(), "case")
        yield f"inconclusive: {count} of {_named(kernels, 3)}: {examples[key]}"


def aimed_lines(tally: Tally) -> Iterator[str]:
    """Yield the branches that cases were aimed at, and that none took."""
    places = [place for place in uncovered_branches(tally.coverage) if place.tried]
    for line, _ in _grouped(places):
        yield line


def coverage_lines(tally: Tally) -> Iterator[str]:
    """Yield the other branches that no case took in the kernels' own code.

    Lines of a file are grouped, and only the first few groups are shown. Loops without a third
    iteration are not shown: often no case of the domain has one.
    """
    places = [
        place
        for place in uncovered_branches(tally.coverage)
        if not place.tried and place.what != ITERATIONS[-1]
    ]
    groups = list(_grouped(places))
    for line, _ in groups[:_FEW]:
        yield line
    left = sum(count for _, count in groups[_FEW:])
    if left:
        yield f"no case: and {left} more branches and loops; -v has all"


def _grouped(places: Iterable[UncoveredBranch]) -> Iterator[tuple[str, int]]:
    """Yield a line for branches of a file that differ in their lines alone, and their number."""
    groups: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for place in places:
        key = place.file, place.what, _named(place.kernels, 1), _tried(place)
        groups[key].append(str(place.line))
    for (file, what, names, tried), lines in groups.items():
        yield f"no case: {file}:{_named(lines)}: {what} ({names}){tried}", len(lines)


def all_coverage_lines(tally: Tally) -> Iterator[str]:
    """Yield two lines for each branch that no case took, and the reasons for unknown branches."""
    for place in uncovered_branches(tally.coverage):
        names = ", ".join(place.kernels)
        yield f"no case: {place.file}:{place.line}: {place.what} ({names}){_tried(place)}"
        yield f"           {place.source}"
    for why in sorted(tally.coverage.unknown):
        yield f"the branches and loops of some cases are unknown: {why}"


def _tried(place: UncoveredBranch) -> str:
    """Return the end of a line on a branch: the values that were tried to reach it."""
    return f": {place.tried}" if place.tried else ""


def _named(names: Collection[str], most: int = _FEW) -> str:
    text = ", ".join(list(names)[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text


def _idle_lines(ran: Collection[str]) -> Iterator[str]:
    """Yield one line for each backend that did not run."""
    for name, option in BACKENDS.items():
        if name not in ran:
            yield f"not run: {name} ({option} was not given)"


def _tally_lines(tally: Tally, verbose: bool) -> list[str]:
    """Return the lines on the kernel tests that ran."""
    lines = table_text(tally, verbose) if tally.rows else []
    lines += tally.inferred_lines()
    if not verbose:
        lines += aimed_lines(tally)
    lines += _agreement_lines(tally)
    lines += _inconclusive_lines(tally, verbose)
    lines += [f"exact run: {doubt}" for doubt in sorted(tally.doubts)]
    lines += sorted(tally.broken)
    lines += all_coverage_lines(tally) if verbose else coverage_lines(tally)
    return lines


def summary_lines(
    tally: Tally | None,
    ran: Collection[str],
    left: Collection[str],
    *,
    launched: bool = False,
    verbose: bool = False,
) -> list[str]:
    """Return the lines of the summary; empty for a session without kernel tests.

    Parameters
    ----------
    tally : counts of the session; None if no backend was requested.
    ran : names of the backends that ran.
    left : modules of kernel tests that were left out.
    launched : whether another table shows launches of tests that call kernels themselves.
    verbose : whether to show points that need no action.
    """
    lines = []
    if tally is not None:
        if not tally.rows and not launched:
            lines.append("no kernel test ran")
        lines += _tally_lines(tally, verbose)
        if verbose:
            lines += _idle_lines(ran)
    if left:
        verb = "were" if len(left) > 1 else "was"
        modules = count_of(len(left), "module")
        lines.append(
            f"{modules} of kernel tests {verb} not collected, because no backend was requested: "
            "run with --simulate (a simulator) or --device (a NeuronCore)"
        )
    return lines
