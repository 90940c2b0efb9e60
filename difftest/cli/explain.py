"""`difftest explain`: the meaning of codes and logs of the compiler and the runtime."""

from __future__ import annotations

import functools
import textwrap
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from difftest.support.output import STANDARD, read_standard_input
from difftest.support.wording import did_you_mean
from difftest.testing.backends.codes import CODES, Explanation, full_code
from difftest.testing.backends.codes import explain_log as explained_in

if TYPE_CHECKING:
    from difftest.analysis.finding import Detector

_LAST = 3
"""Number of a log's last lines that are shown if it holds no known code."""


@click.command()
@click.argument("what", metavar="CODE|LOGFILE|NAME|RULE|DETECTOR")
@click.pass_context
def explain(context: click.Context, what: str) -> None:
    """Explain a code, a log, a name of NKI, a rule or a detector.

    A code comes from the compiler (NCC_EVRF007) or from the runtime (NRT_TIMEOUT). For a log file,
    the command explains each code and counts unknown codes; - is standard input. The explanations
    come from public tables and threads, which each answer names. For a name of NKI
    (nisa.activation) the command prints its signatures, and for a rule (NKL101) its page. For a
    detector of hazards (program-race) it prints the fault, the severity and the page. The exit code
    is 1 if no explanation is found.
    """
    path = Path(what)
    is_log = path == STANDARD or path.is_file()
    is_explained = _explain_log(path) if is_log else _explain_word(what)
    context.exit(int(not is_explained))


def _explain_log(path: Path) -> bool:
    """Explain the codes of a log; return whether there is an explanation."""
    log = _log(path)
    if "\0" in log:
        raise click.BadParameter(f"{path} is not a log: it is a binary file")
    answers = list(explained_in(log))
    _say("\n".join(map(_code_text, answers)))
    unknown = [answer.said for answer in answers if answer.cause is None]
    if unknown:
        counted = f"{len(unknown)} of {len(answers)} codes in {_name(path)}"
        _say(f"{counted} are not known: {', '.join(unknown)}")
    if not answers:
        _say(_nothing_in(log, path), err=True)
    return len(unknown) < len(answers)


def _explain_word(word: str) -> bool:
    """Explain codes, a rule, a detector or a name; return whether there is an explanation."""
    answers = list(explained_in(word))
    if answers:
        _say("\n".join(map(_code_text, answers)))
        return any(answer.cause for answer in answers)
    from difftest.analysis.detectors.table import detectors
    from difftest.tools.lint.check import rules

    if rule := rules().get(word):
        click.echo(rule.page, nl=False)
        return True
    if detector := detectors().get(word):
        _say(_detector_text(detector))
        return True
    from difftest.cli.signatures import explained_name  # and the simulator

    text = explained_name(word)
    _say(text or _unknown(word), err=not text)
    return bool(text)


def _say(text: str, *, err: bool = False) -> None:
    """Print lines as wide as the terminal, and indent their continuations."""
    keep = functools.partial(
        textwrap.fill, break_long_words=False, break_on_hyphens=False
    )
    for line in text.splitlines():
        inner = " " * (len(line) - len(line.lstrip(" -")) + 2)
        click.echo(
            keep(line, get_terminal_size().columns, subsequent_indent=inner), err=err
        )


def _code_text(answer: Explanation) -> str:
    """Return the explanation of a code: its meaning, remedy, lint rules and source."""
    cause = answer.cause
    if cause is None:
        times = f", {answer.times} times" if answer.times > 1 else ""
        return f"{answer.said}: not in the public tables that difftest knows{times}"
    near = ", ".join(answer.lines)
    lint = ", ".join(cause.rules)
    rows = {"near": near, "remedy": cause.remedy, "lint": lint, "source": cause.source}
    lines = [f"  {name + ':':<8}{text}" for name, text in rows.items() if text]
    code = full_code(answer.said)
    also = f" ({code})" if code in CODES and code != answer.said else ""
    number = f" ({cause.number})" if cause.number is not None else ""
    return "\n".join([f"{answer.said}{also}{number}: {cause.meaning}", *lines])


def _detector_text(detector: Detector) -> str:
    """Return the fault, severity and page of a detector, and the comment that allows it."""
    rows = {
        "group": detector.group,
        "severity": f"{detector.severity.value} at most",
        "page": detector.page,
        "to allow": f"write `# difftest: allow[{detector.id}] REASON` at the kernel's line",
    }
    lines = [f"  {name + ':':<10}{text}" for name, text in rows.items()]
    return "\n".join([f"{detector.id}: {detector.title}", *lines])


def _log(path: Path) -> str:
    """Return the text of a log."""
    if path == STANDARD:
        return read_standard_input()
    return path.read_text(encoding="utf-8", errors="replace")


def _name(path: Path) -> str:
    """Return the name of a log in a message."""
    return "the log" if path == STANDARD else f"{path}"


def _unknown(what: str) -> str:
    """Return the message for a word that none of the tables has."""
    from difftest.analysis.detectors.table import detectors
    from difftest.cli.signatures import signatures

    names = [name.rpartition(".")[2] for name in signatures()]
    message = (
        f"no explanation of {what!r}: it is not a file, a function of NKI, a lint rule, a detector "
        "or a known code"
    )
    nearest = did_you_mean(what.rpartition(".")[2], [*names, *detectors()], 0.8)
    return f"{message}; {nearest}" if nearest else message


def _nothing_in(log: str, path: Path) -> str:
    """Return the message for a log without a known code or text, with its last lines."""
    last = [f"  {row}" for row in log.splitlines() if row.strip()][-_LAST:]
    message = (
        f"{_name(path)} has no code or text that is known.\n"
        "A log that ends in the middle is often that of a compiler that was killed: see the "
        "memory of the machine, and unroll less.\nIt ends with:"
    )
    return "\n".join([message, *last])
