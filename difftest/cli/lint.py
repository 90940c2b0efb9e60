"""`difftest lint`: what the compiler would refuse, read off the source, or off a kernel's run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from difftest.cli.launching import KernelRun, argument_options
from difftest.support.internal_errors import drain_internal_errors
from difftest.support.output import STANDARD, kept_for_file, read_standard_input, write_file
from difftest.testing.host.options import InputFile, with_progress
from difftest.tools.lint import files as reading
from difftest.tools.lint.check import rules
from difftest.tools.lint.formats import FORMATS, format_summary, rules_page
from difftest.tools.lint.rule import SDKS, TARGETS


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    texts = ("Tell not.", "Tell.", "Tell, exit with 1.")
    levels = (
        click.option(f"--{level.value}", multiple=True, metavar="ID|GROUP", help=text)
        for level, text in zip(reading.Level, texts, strict=True)
    )
    for option in (*reversed(argument_options), *levels):
        command = option(command)
    return command


@click.command()
@click.argument("files", nargs=-1, type=InputFile(path_type=Path))
@click.option("--sdk", type=click.Choice(list(SDKS)), help="Else the newest of a file's dialect.")
@click.option("--from", "before", type=click.Choice(list(SDKS)), help="Tell what is new since.")
@click.option("--to", "sdk", type=click.Choice(list(SDKS)), help="The same as --sdk.")
@click.option("--target", type=click.Choice(TARGETS), help="Else the rules of all of them.")
@click.option("--select", "ids", multiple=True, metavar="ID|GROUP", help="To ask; else all.")
@click.option("--fix", is_flag=True, help="Write what has a safe fix into the files.")
@click.option("--unsafe-fixes", is_flag=True, help="And what may compute something else then.")
@click.option("--diff", "shown", is_flag=True, help="Show what --fix would write, and no more.")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="text")
@click.option(
    "--explain",
    type=click.Choice(list(rules())),
    metavar="ID",
    help="Show the page of a rule, and read no file.",
)
@click.option("--rules", "listed", is_flag=True, help="List all rules, as Markdown.")
@click.option("--kernel", metavar="KERNEL", help="Run it with --shape or --case, and read its run.")
@click.option("--ranks", type=click.IntRange(1), default=1, help="For collectives.")
@_with_options
@with_progress
@click.pass_context
def lint(
    context: click.Context, /, files: Sequence[Path], form: str, explain: str | None, **options: Any
) -> None:
    """Look in FILES or folders for what the compiler would refuse.

    The file - is standard input; --fix writes it to standard output. Nothing is compiled. No
    kernel runs but that of --kernel (MODULE:KERNEL, FILE.py:KERNEL or PATH::TEST), on the
    simulator. The exit code is 1 if something denied is found (what the --sdk or --target that you
    name refuses; --deny, --warn and --allow change it), 2 if a file could not be read or a rule
    broke. `# difftest: ignore[ID] reason` at a statement silences a rule there.
    """
    if explain or options.pop("listed"):
        click.echo(rules()[explain].page if explain else rules_page(), nl=False)
        return
    if not files and not options["kernel"]:
        raise click.UsageError("name a file, or a folder, of kernels, or a --kernel to run")
    fix, unsafe, shown = (options.pop(name) for name in ("fix", "unsafe_fixes", "shown"))
    ranks = options.pop("ranks")
    try:
        asked = {name: options.pop(name) for name in ("sdk", "before", "target", "ids")}
        request = reading.request_of(
            {**reading.project_settings(Path.cwd()), **{k: v for k, v in asked.items() if v}},
            {level: options.pop(level.value) for level in reading.Level},
        )
    except reading.SettingsError as error:
        raise click.UsageError(str(error)) from None
    if STANDARD in files:
        request = replace(request, stdin=read_standard_input())
    if fix and not shown and STANDARD in files:
        context.with_resource(kept_for_file())  # for the fixed text
    if fix or shown:
        changed = _change(request, files, unsafe, shown)
        if shown:
            context.exit(int(changed))
        request = replace(request, stdin=request.fixed_text(STANDARD, unsafe))
    diagnostics, unread = request.of_files(files)
    for text in (unread := [*unread, *drain_internal_errors()]):
        click.echo(text, err=True)
    if options["kernel"]:
        machine = request.target
        level = request.sdk.level if request.sdk else None
        run = KernelRun(machine=machine, level=level, **options).launch(ranks)
        diagnostics += request.of_trace(run.trace)
    if text := FORMATS[form](diagnostics, request.levels):
        click.echo(text)
    if form == "text" and (diagnostics or not unread):
        click.echo(format_summary(diagnostics, request.levels), err=True)
    denied = any(request.levels.of(entry.rule) is reading.Level.DENY for entry in diagnostics)
    context.exit(2 if unread else int(denied))


def _change(request: reading.LintRequest, files: Sequence[Path], unsafe: bool, shown: bool) -> bool:
    """Write the fixed files, or show how they would change; whether there are any."""
    changes = list(request.fixed_files(files, unsafe))
    for file, text, fixed in changes:
        if shown:
            click.echo(reading.diff(file, text, fixed), nl=False)
        elif file != STANDARD:
            write_file(file, fixed, newline="")
    if STANDARD in files and not shown:
        write_file(STANDARD, request.fixed_text(STANDARD, unsafe))
    done = f"file{'s' * (len(changes) != 1)} {'would be fixed' if shown else 'fixed'}"
    click.echo(f"{len(changes)} {done}", err=True)
    return bool(changes)
