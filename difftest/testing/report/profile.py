"""The predicted profile of a launch: the figures, the memories and the advice, as text and HTML."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.etree.ElementTree import Element

from rich.console import Console
from rich.table import Table
from rich.text import Text

from difftest.analysis.finding import Finding
from difftest.analysis.inspection import memory_text
from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.launchable import Launchable
from difftest.simulator.machine import MACHINES, Machine
from difftest.simulator.trace import Trace
from difftest.support.console import print_table
from difftest.support.html import code, element, panel, table
from difftest.timing.advice import advise
from difftest.timing.compiler import Toolchain
from difftest.timing.prediction import predict
from difftest.timing.report import Report
from difftest.timing.views.text import (
    format_engines,
    format_findings,
    format_lines,
    format_totals,
)

MEMORIES = "Live ranges in SBUF and PSUM, in the order of the instructions"
ADVICE = "Advice, the largest gain first (predicted)"
_WIDTH = 100
"""The columns of a profile as text that is not on a terminal."""
_BLUE = "#0b5cad"


@dataclass(frozen=True, eq=False)
class Profile:
    """The predicted profile of one launch. All its times are predicted.

    Attributes
    ----------
    report : the figures, such as ``report.prediction.latency`` in microseconds.
    advice : findings, the largest gain first.
    trace : the trace of the launch.
    machine : the machine of the launch.
    """

    report: Report
    advice: Sequence[Finding]
    trace: Trace
    machine: Machine

    def __str__(self) -> str:
        file = io.StringIO()
        console = Console(
            file=file, width=_WIDTH, force_jupyter=False, force_terminal=False
        )
        self.print(console, _WIDTH)
        return file.getvalue()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the profile in IPython."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Return the profile as HTML, which a notebook displays."""
        answer, *more = format_totals(self.report)
        parts = [
            element("p", element("b", answer)),
            *(element("div", line) for line in more),
            *map(_html_table, self._tables()),
            element("div", MEMORIES),
            element("pre", self._memories(_WIDTH), style="line-height: 1.1"),
            element("div", element("b", ADVICE)),
            code("\n".join(format_findings(self.advice))),
        ]
        return panel(_BLUE, *parts)

    def print(self, console: Console, chart_width: int) -> None:
        """Print the summary, the tables, the memories and the advice.

        ``chart_width`` is the width of the memories' charts in columns.
        """
        say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
        for line in format_totals(self.report):
            say(textwrap.fill(line, console.width))
        console.print()
        for each in self._tables():
            print_table(console, each)
        console.print(MEMORIES, style="italic")
        say(self._memories(chart_width))
        console.print(f"\n{ADVICE}", style="bold")
        for line in format_findings(self.advice):
            # Indent continuation lines, so that the numbers stand out.
            say(textwrap.fill(line, console.width, subsequent_indent="   "))

    def _tables(self) -> Iterator[Table]:
        yield format_engines(self.report)
        yield format_lines("Source lines", self.report.by_line())
        yield format_lines("Instructions", self.report.by_instruction())

    def _memories(self, width: int) -> str:
        return memory_text(self.trace, self.machine, width)


def _html_table(shown: Table) -> Element:
    """Return a table of rich as HTML."""
    columns = shown.columns
    rows = zip(*(map(_plain, column.cells) for column in columns), strict=True)
    made = table(
        [str(column.header) for column in columns],
        rows,
        caption=str(shown.title),
        numbers=[column.justify == "right" for column in columns],
    )
    if shown.caption:
        made.append(element("tr", element("td", str(shown.caption))))
    return made


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def profile(
    kernel: Launchable | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    grid: tuple[int, ...] = (),
    machine: str | None = None,
    toolchain: str | None = None,
) -> Profile:
    """Predict how long a launch takes on a device. Nothing is measured.

    Parameters
    ----------
    kernel : a function decorated with the embedded ``nki.jit``.
    args, kwargs : its arguments; NumPy arrays become tensors in HBM.
    grid : the SPMD grid, as in ``kernel[4, 2]``.
    machine : "trn1", "trn2" or "trn3"; None means the kernel's own. "trn2" has timing data.
    toolchain : the compiler, a value of ``difftest profile --toolchain``; None means the usual one
        of the kernel's dialect.

    Returns
    -------
    The profile: ``print`` shows it as text, and a notebook displays it.

    Raises
    ------
    NkiError : the kernel breaks a rule of NKI or of the hardware.
    ValueError : the kernel issued no instruction, or ``toolchain`` is unknown.
    KeyError : there is no such machine.
    UnknownCostError : there is no timing data for the machine.
    """
    target = getattr(kernel, "machine", TRN2) if machine is None else MACHINES[machine]
    result = launch(kernel, args, kwargs, grid=grid, machine=target)
    compiler = None if toolchain is None else Toolchain(toolchain)
    prediction = predict(result.trace, target, dge=compiler)
    advice = advise(prediction.schedule)
    return Profile(Report(prediction), advice, result.trace, target)
