"""`difftest verdict`: judge a kernel, or a batch of kernels, by one spec."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from difftest.support.choices import install_hint
from difftest.support.pool import LONGEST_WAIT
from difftest.testing.host.collection import with_spec
from difftest.testing.host.options import OutputFile, given_options
from difftest.tools.verdict.audit import audit_spec
from difftest.tools.verdict.batch import judge_batch
from difftest.tools.verdict.candidate import CASES, JudgeSettings, judge_candidate
from difftest.tools.verdict.fork_server import Limits
from difftest.tools.verdict.formats import (
    ANY,
    CLASSES,
    FORMS,
    exit_code,
    verdict_text,
    write_forms,
)
from difftest.tools.verdict.outcome import Outcome


def _check_audit(context: click.Context) -> None:
    """Raise click.UsageError if the command line has options that an audit does not use."""
    unused = {parameter.name or "" for parameter in context.command.params}
    unused -= {"names", "audit", "cases"}
    if others := given_options(context, unused):
        raise click.UsageError(f"--audit does not go with {', '.join(others)}")


def _check_files(
    files: Mapping[str, Path], batch: str | None, results: Path | None
) -> None:
    """Raise click.UsageError if the options for files do not fit each other."""
    if (batch is None) != (results is None):
        raise click.UsageError("--batch and --results go together")
    if "html" in files and (lack := install_hint("jinja2", "--html", "report")):
        raise click.UsageError(lack)
    if batch is not None and "json" in files:
        raise click.UsageError(
            "--json is for one kernel; --results has the objects of a batch"
        )


def _check_names(names: tuple[str, ...], *, has_kernel: bool) -> None:
    """Raise click.UsageError if the arguments are not a test, or a kernel and a test."""
    if len(names) == (2 if has_kernel else 1):
        return
    wanted = "PATH::TEST with --batch or --audit"
    if has_kernel:
        wanted = "FILE.py:KERNEL and PATH::TEST"
    raise click.UsageError(f"it takes {wanted}; got {' '.join(names) or 'nothing'}")


_FAIL_ON = f"Only these classes fail the command; repeatable: {', '.join(CLASSES)}."


@click.command()
@click.argument("names", nargs=-1, metavar="[FILE.py:KERNEL] PATH::TEST")
@click.option("--json", type=OutputFile(), help="Write the verdict as JSON.")
@click.option("--junit", type=OutputFile(), help="Write JUnit's XML.")
@click.option("--markdown", type=OutputFile(), help="Write Markdown.")
@click.option(
    "--html", type=OutputFile(), help="Write a page (needs the extra `report`)."
)
@click.option(
    "--fail-on",
    multiple=True,
    metavar="CLASS",
    type=click.Choice(CLASSES),
    help=_FAIL_ON,
)
@click.option(
    "--cases",
    type=click.IntRange(1),
    default=CASES,
    show_default=True,
    help="Drawn cases.",
)
@click.option("--seed", type=int, help="Seed of the drawn cases. Default: random.")
@click.option("--audit", is_flag=True, help="Check whether fake outputs pass the test.")
@click.option(
    "--batch",
    metavar="DIR:KERNEL|FILE.jsonl",
    help="Judge many kernels; needs --results.",
)
@click.option(
    "--results",
    type=OutputFile(grows=True),
    help="File with a line for each kernel of a batch.",
)
@click.option(
    "-n", "processes", type=click.IntRange(1), default=os.cpu_count(), help="Processes."
)
@click.option(
    "--original",
    default="",
    metavar="FILE",
    help="File with the constants that the test reads.",
)
@click.option("--case", metavar="JSON", help="Judge only this case.")
@click.option(
    "--require-isolation", is_flag=True, help="Fail if isolation is incomplete."
)
@click.option(
    "--allow",
    multiple=True,
    metavar="MODULE",
    help="Module that the kernel may import.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=Limits().seconds,
    show_default=True,
    help="Seconds for the kernel's import, and for each run of it.",
)
@click.option(
    "--memory",
    type=click.IntRange(256),
    default=4096,
    show_default=True,
    help="MiB of address space for the kernel's process.",
)
@click.pass_context
def verdict(
    context: click.Context,
    /,
    names: tuple[str, ...],
    timeout: float,
    memory: int,
    audit: bool,
    **options: Any,
) -> None:
    """Judge an untrusted kernel by a kernel test.

    The kernel's Python runs in a separate process without access to the reference and the test
    data. The exit code is 0 if the kernel agrees; docs/reference/verdict.md lists the others.
    --batch judges many kernels by one test.
    """
    batch = options.pop("batch")
    results = options.pop("results")
    processes = options.pop("processes")
    fail_on = options.pop("fail_on")
    files = {form: file for form in FORMS if (file := options.pop(form)) is not None}
    limits = Limits(min(timeout, LONGEST_WAIT), memory * 2**20)
    settings = JudgeSettings(limits=limits, **options)
    if audit:
        _check_audit(context)
    if batch is None and given_options(context, {"processes"}):
        raise click.UsageError("-n is for the processes of a --batch")
    _check_files(files, batch, results)
    _check_names(names, has_kernel=batch is None and not audit)
    if audit:
        result = with_spec(names[0], lambda spec: audit_spec(spec, settings.cases))
        click.echo(f"{names[0]}: {result}")
        outcome = Outcome.WEAK_SPEC if result.weaknesses else Outcome.AGREES
        context.exit(outcome.exit_code)
    if batch is not None:
        documents = judge_batch(batch, names[0], settings, results, processes)
        write_forms(files, documents)
        context.exit(exit_code(documents, fail_on))
    judgement = judge_candidate(names[0], names[1], settings)
    document = judgement.as_mapping()
    click.echo(verdict_text(document))
    write_forms(files, [document], [judgement])
    context.exit(exit_code([document], fail_on or [ANY]))
