"""Tables and progress bars on a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

LEAST_WIDTH = 100
"""The least width in columns of an output that is not a terminal, such as a file."""
LINE_SECONDS = 60.0
"""Seconds between two progress lines, where no terminal shows a bar."""
_WIDE = 10_000
"""A width in columns that exceeds every table: rich measures words wrongly in less."""


def table_console(min_width: int = LEAST_WIDTH) -> Console:
    """Return a console for standard output; without a terminal, the width has a lower limit."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, min_width)
    return console


def titled_table(title: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    """Return a table with columns of text, then columns of numbers."""
    table = Table(title=title, title_justify="left")
    for heading in left:
        table.add_column(heading, overflow="fold")
    for heading in right:
        table.add_column(heading, justify="right")
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table; if its words do not fit the width, print one cell a line."""
    wide = console.options.update(max_width=_WIDE)
    least = []
    widths = []
    for column in table.columns:
        cells = [
            Measurement.get(console, wide, cell)
            for cell in (column.header, *column.cells)
        ]
        least.append(max(cell.minimum for cell in cells))
        widths.append(max(cell.maximum for cell in cells))
    room = console.width - 3 * len(widths) - 1  # a rule and two blanks for each column
    if sum(least) > room:
        _print_rows(console, table)
        return
    _narrow(widths, least, room)
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    console.print(table)


def _narrow(widths: list[int], least: list[int], room: int) -> None:
    """Make the columns with the most space to spare narrower until all fit a width.

    rich itself would cut words.
    """
    while sum(widths) > room:
        roomiest = max(range(len(widths)), key=lambda n: widths[n] - least[n])
        widths[roomiest] -= 1


def _print_rows(console: Console, table: Table) -> None:
    """Print a line for each cell that is not empty, and an empty line between two rows."""
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
    """Show a progress bar within the block, and yield the function that advances it by one.

    If standard error is not a terminal, a line each minute replaces the bar.
    """
    # While pytest collects, it captures sys.stderr.
    console = Console(file=sys.__stderr__)
    last_printed = time.monotonic()
    columns = BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()

    def advance() -> None:
        nonlocal done, last_printed
        done += 1
        bars.update(bar, completed=done)
        if not console.is_terminal and time.monotonic() >= last_printed + LINE_SECONDS:
            last_printed = time.monotonic()
            console.print(f"{what}: {done} of {total}", highlight=False)

    # rich prints standard output above the bar, which is wrong if standard output is a file.
    bars = Progress(
        TextColumn(what),
        *columns,
        console=console,
        disable=not console.is_terminal,
        redirect_stdout=sys.stdout.isatty(),
    )
    with bars:
        bar = bars.add_task(what, total=total, completed=done)
        yield advance
