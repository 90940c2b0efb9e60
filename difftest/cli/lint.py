"""`difftest lint`: what the compiler would refuse, read off the source, or off a kernel's run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from difftest.cli.kernel_run import KernelRun, argument_options
from difftest.lint.check import Diagnostic, rules
from difftest.lint.files import new_in_files, new_in_trace
from difftest.lint.formats import FORMATS
from difftest.lint.listing import rules_page
from difftest.lint.offer import offers
from difftest.lint.sdk import SDKS, TARGETS


def _with_arguments(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(argument_options):
        command = option(command)
    return command


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--sdk", type=click.Choice(list(SDKS)), help="Else the newest of a file's dialect.")
@click.option("--from", "before", type=click.Choice(list(SDKS)), help="Tell what is new since.")
@click.option("--to", "sdk", type=click.Choice(list(SDKS)), help="The same as --sdk.")
@click.option("--target", type=click.Choice(TARGETS), help="Else the rules of all of them.")
@click.option("--select", "ids", multiple=True, metavar="ID", help="Rules to ask; else all.")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="text")
@click.option("--explain", metavar="ID", help="Show the page of a rule, and read no file.")
@click.option("--rules", "listed", is_flag=True, help="List all rules, as Markdown.")
@click.option("--kernel", metavar="KERNEL", help="Run it with --shape or --case, and read its run.")
@_with_arguments
@click.pass_context
def lint(
    context: click.Context, /, files: Sequence[Path], form: str, explain: str | None, **given: Any
) -> None:
    """Look in FILES, or in the files of folders, for what the compiler would refuse.

    Nothing is compiled. No kernel runs but that of --kernel (MODULE:KERNEL, FILE.py:KERNEL or
    PATH::TEST), on the simulator. The exit code is 1 if something is found, 2 if a file could not
    be read. `# difftest: ignore[ID] reason` at a statement silences a rule there.
    """
    _check_ids(*given["ids"], *([explain] if explain else []))
    if explain:
        click.echo(rules()[explain].page, nl=False)
        return
    if given.pop("listed"):
        click.echo(rules_page(), nl=False)
        return
    if not files and not given["kernel"]:
        raise click.UsageError("name a file, or a folder, of kernels, or a --kernel to run")
    asked: dict[str, Any] = {name: SDKS.get(given.pop(name)) for name in ("sdk", "before")}
    asked |= {name: given.pop(name) for name in ("target", "ids")}
    diagnostics, unread = new_in_files(files, **asked)
    for text in unread:
        click.echo(text, err=True)
    if given["kernel"]:
        diagnostics += _traced(asked, given)
    text = FORMATS[form](diagnostics)
    if text:
        click.echo(text)
    if form == "text":
        for text in offers(diagnostics):
            click.echo(text, err=True)
        count = len(diagnostics)
        said = "nothing found" if not count else f"{count} finding{'s' if count > 1 else ''}"
        click.echo(said, err=True)
    context.exit(2 if unread else int(bool(diagnostics)))


def _check_ids(*ids: str) -> None:
    for id in ids:
        if id not in rules():
            raise click.UsageError(f"there is no rule {id}; the rules are {', '.join(rules())}")


def _traced(asked: dict[str, Any], given: dict[str, Any]) -> list[Diagnostic]:
    """What the run of a kernel breaks."""
    level = asked["sdk"].level if asked["sdk"] else None
    trace = KernelRun(machine=asked.pop("target"), level=level, **given).launch().trace
    return new_in_trace(trace, **asked)
