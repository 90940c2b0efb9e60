"""`difftest verdict`: a kernel, or a batch of them, by one spec."""

from __future__ import annotations

import os
from typing import Any

import click

from difftest.choices import missing
from difftest.host.output import OutputFile
from difftest.verdict.alone import CASES, JudgeSettings, judged
from difftest.verdict.audit import audit_test
from difftest.verdict.batch import judge_batch
from difftest.verdict.formats import ANY, CLASSES, FORMS, exit_code, text_of, write_forms
from difftest.verdict.nursery import Limits


def _processes(context: click.Context, option: click.Parameter, value: str) -> int:
    count = os.cpu_count() or 1 if value == "auto" else int(value) if value.isdecimal() else 0
    if not count:
        raise click.BadParameter(f"takes a number from 1, or auto; got {value}", context, option)
    return count


_FAIL_ON = f"What alone makes the exit code other than 0, several times: {', '.join(CLASSES)}."


@click.command()
@click.argument("names", nargs=-1, metavar="[FILE.py:KERNEL] PATH::TEST")
@click.option("--json", type=OutputFile(), help="The verdict, as its schema says.")
@click.option("--junit", type=OutputFile(), help="JUnit's XML.")
@click.option("--markdown", type=OutputFile(), help="For a comment, or GitHub's step summary.")
@click.option("--html", type=OutputFile(), help="A page; needs the extra `report`.")
@click.option(
    "--fail-on", multiple=True, metavar="CLASS", type=click.Choice(CLASSES), help=_FAIL_ON
)
@click.option("--cases", type=click.IntRange(1), default=CASES, show_default=True, help="Drawn.")
@click.option("--seed", type=int, help="Of what is drawn; else another one each time.")
@click.option("--audit", is_flag=True, help="Judge no kernel: ask whether zeros pass this test.")
@click.option("--batch", metavar="DIR:KERNEL|FILE.jsonl", help="Judge many; see --results.")
@click.option("--results", type=OutputFile(), help="Of a batch: a JSON object a line. It goes on.")
@click.option("-n", "processes", default="auto", callback=_processes, help="Of a batch.")
@click.option(
    "--original", default="", metavar="FILE", help="The test was written for its constants."
)
@click.option("--case", metavar="JSON", help="Judge this case alone.")
@click.option("--require-isolation", is_flag=True, help="Judge nothing without all walls.")
@click.option("--allow", multiple=True, metavar="MODULE", help="Open a module to the kernel.")
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
    **given: Any,
) -> None:
    """Judge a kernel that nobody trusts, by a kernel test.

    The kernel's Python runs in a process of its own, and sees neither the reference nor the data
    that it is judged on. The exit code is 0 if it agrees; docs/reference/verdict.md has the others.
    With --batch many kernels are judged by one test.
    """
    batch, results, processes = (given.pop(one) for one in ("batch", "results", "processes"))
    fail_on = given.pop("fail_on")
    files = {form: file for form in FORMS if (file := given.pop(form)) is not None}
    settings = JudgeSettings(limits=Limits(timeout, memory * 2**20), **given)
    if (batch is None) != (results is None):
        raise click.UsageError("--batch and --results go together")
    if "html" in files and (lack := missing("jinja2", "--html", "report")):
        raise click.UsageError(lack)
    if batch is not None and "json" in files:
        raise click.UsageError("--json is of one kernel; --results has the objects of a batch")
    alone = batch is None and not audit
    if len(names) != (2 if alone else 1):
        wanted = "FILE.py:KERNEL and PATH::TEST" if alone else "PATH::TEST with --batch or --audit"
        raise click.UsageError(f"it takes {wanted}; got {' '.join(names) or 'nothing'}")
    if audit:
        context.exit(audit_test(names[0]))
    if batch is not None:
        documents = judge_batch(batch, names[0], settings, results, processes)
        write_forms(files, documents)
        context.exit(exit_code(documents, fail_on))
    judgement = judged(names[0], names[1], settings)
    document = judgement.as_mapping()
    click.echo(text_of(document))
    write_forms(files, [document], [judgement])
    context.exit(exit_code([document], fail_on or [ANY]))
