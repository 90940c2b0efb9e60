"""The end of a run, on the terminal: what was compared, and what did not run and why."""

from __future__ import annotations

import io
from collections.abc import Collection

from difftest.harness.coverage import Coverage, missed
from difftest.harness.tally import Tally

BACKENDS = {"embedded": "--simulate=embedded", "sdk": "--simulate=sdk", "device": "--device"}
"""Each backend, and the option that asks for it."""
_MIN_WIDTH = 120
_FEW_PLACES = 5
"""How many branches and loops that no case took are named, unless all are asked for."""
COLUMNS = {
    "cases": "cases",
    "elements": "elements",
    "bit for bit": "exact",
    "rejections": "rejections",
    "both reject": "both_rejected",
    "inconclusive": "inconclusive",
}
"""Each heading, and the count that stands below it."""
NOT_FINITE = {"not finite": "nonfinite"}
"""One column more, where there are such elements."""


def table_text(tally: Tally, width: int) -> list[str]:
    """The counts of each kernel on each backend.

    >>> from difftest.harness.tally import Counts
    >>> counts = Counts(cases=50, elements=2097152, exact=50, rejections=1)
    >>> for line in table_text(Tally({("matrix_transpose", "embedded"): counts}), width=100):
    ...     print(line)
    kernel            backend   cases  elements  bit for bit  rejections  both reject  inconclusive
    matrix_transpose  embedded     50   2097152           50           1            0             0
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("kernel", overflow="fold")
    table.add_column("backend")
    some = any(counts.nonfinite for counts in tally.rows.values())
    columns = {**COLUMNS, **(NOT_FINITE if some else {})}
    for column in columns:
        table.add_column(column, justify="right")
    for (kernel, backend), counts in sorted(tally.rows.items()):
        table.add_row(kernel, backend, *(str(getattr(counts, one)) for one in columns.values()))
    console = Console(file=io.StringIO(), width=max(width, _MIN_WIDTH), color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def coverage_lines(coverage: Coverage, verbose: bool) -> list[str]:
    """What no case did in the kernels' own code: a line each, the first few unless all are wanted.

    >>> coverage = Coverage()
    >>> coverage.saw("vector_add", {("add.py", 7): True})
    >>> coverage.did(("add.py", 7), 0)
    >>> coverage_lines(coverage, verbose=False)
    ['no case: add.py:7: never a second turn (vector_add)']
    """
    found = missed(coverage)
    lines = []
    for one in found if verbose else found[:_FEW_PLACES]:
        first, *others = one.kernels
        more = f" and {len(others)} more" if others else ""
        names = ", ".join(one.kernels) if verbose else first + more
        lines.append(f"no case: {one.file}:{one.line}: {one.what} ({names})")
        if verbose:
            lines.append(f"           {one.source}")
    if not verbose and len(found) > _FEW_PLACES:
        lines.append(f"no case: and {len(found) - _FEW_PLACES} more branches and loops; -v has all")
    lines += [
        f"not every case's branches and loops are known: {why}" for why in sorted(coverage.unknown)
    ]
    return lines


def summary_lines(
    tally: Tally,
    ran: Collection[str],
    uncollected: Collection[str],
    width: int,
    *,
    verbose: bool = False,
) -> list[str]:
    """The whole summary; empty if the session had nothing to do with kernels.

    Parameters
    ----------
    tally : of all tests.
    ran : names of the backends that were asked for.
    uncollected : modules of kernel tests that were left out.
    width : of the terminal, in characters.
    verbose : whether to list all branches and loops that no case took.
    """
    lines = []
    if ran:
        lines += table_text(tally, width) if tally.rows else ["no kernel test ran"]
        lines += [
            f"{first} and {second} on {backend}: all bits agree in {same} of {cases} cases"
            for (first, second, backend), (same, cases) in sorted(tally.agreements.items())
        ]
        lines += [f"inconclusive: {reason}" for reason in sorted(tally.reasons)]
        lines += [f"exact run: {doubt}" for doubt in sorted(tally.doubts)]
        lines += sorted(tally.broken)
        lines += coverage_lines(tally.coverage, verbose)
        lines += [
            f"not run: {name} ({option} was not given)"
            for name, option in BACKENDS.items()
            if name not in ran
        ]
    if uncollected:
        one = len(uncollected) == 1
        noun = "module of kernel tests was" if one else "modules of kernel tests were"
        lines.append(
            f"{len(uncollected)} {noun} not collected, for no backend was asked for: run with "
            "--simulate (a simulator) or --device (a NeuronCore)"
        )
    return lines
