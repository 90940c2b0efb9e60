"""The terminal that commands print tables to, and tell how far they are."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

LEAST = 100
"""Columns of what is no terminal, such as a file, at least."""
EVERY = 60.0
"""Seconds between two lines on how far a command is, where no terminal shows a bar."""
_WIDE = 10_000
"""More than any table needs: in less the least width of its words is not known."""


def table_console(min_width: int = LEAST) -> Console:
    """Standard output; at least so wide where no terminal sets the width."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, min_width))


def titled_table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    """A table with columns of text, then of numbers."""
    table = Table(title=title, title_justify="left")
    for heading in left:
        table.add_column(heading, overflow="fold")
    for heading in right:
        table.add_column(heading, justify="right")
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table; where not even its words fit the width, its rows one below the other."""
    wide = console.options.update(max_width=_WIDE)
    least = []
    widths = []
    for column in table.columns:
        cells = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
        least.append(max(cell.minimum for cell in cells))
        widths.append(max(cell.maximum for cell in cells))
    room = console.width - 3 * len(widths) - 1  # beside the lines, and a blank on each side
    if sum(least) > room:
        _print_rows(console, table)
        return
    while sum(widths) > room:  # rich would cut words
        widths[max(range(len(widths)), key=lambda n: widths[n] - least[n])] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    console.print(table)


def _print_rows(console: Console, table: Table) -> None:
    """A line for each cell that is not empty, an empty line between two rows."""
    if table.title:
        console.print(table.title, style="italic", highlight=False)
    headings = [str(column.header) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        console.print()
        for heading, cell in zip(headings, cells, strict=True):
            value = cell if isinstance(cell, Text) else Text.from_markup(str(cell))
            if value.plain:
                console.print(Text(f"{heading}: " if heading else "") + value)
    if table.caption:
        console.print(table.caption, highlight=False)


@contextlib.contextmanager
def progress(what: str, total: int, done: int = 0) -> Iterator[Callable[[], None]]:
    """A bar of how many of ``total`` are done; call what it gives after each.

    Where standard error is no terminal, a line says so each minute.
    """
    # While pytest collects, sys.stderr is its own.
    console, told = Console(file=sys.__stderr__), time.monotonic()
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()

    def advance() -> None:
        nonlocal done, told
        done += 1
        bars.update(bar, completed=done)
        if not console.is_terminal and time.monotonic() >= told + EVERY:
            told = time.monotonic()
            console.print(f"{what}: {done} of {total}", highlight=False)

    # rich prints what goes to standard output above the bar: not if that is a file.
    bars = Progress(
        *(TextColumn(what), *columns),
        console=console,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    )
    with bars:
        bar = bars.add_task(what, total=total, completed=done)
        yield advance
