"""`difftest lint`: code that the compiler would reject, found in the source or in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from difftest.cli.launching import KernelRun, argument_options, ranks_option
from difftest.support.internal_errors import drain_internal_errors
from difftest.support.output import (
    STANDARD,
    kept_for_file,
    read_standard_input,
    write_file,
)
from difftest.support.wording import count_of
from difftest.testing.host.options import InputFile, given_options, with_progress
from difftest.tools.lint import files as reading
from difftest.tools.lint.check import Diagnostic, rules
from difftest.tools.lint.formats import FORMATS, format_summary, rules_page
from difftest.tools.lint.rule import SDKS, TARGETS


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    texts = ("Do not report.", "Report.", "Report, and exit with 1.")
    options = list(reversed(argument_options))
    for level, text in zip(reading.Level, texts, strict=True):
        name = f"--{level.value}"
        options.append(click.option(name, multiple=True, metavar="ID|GROUP", help=text))
    for option in options:
        command = option(command)
    return command


@click.command()
@click.argument("files", nargs=-1, type=InputFile(path_type=Path))
@click.option(
    "--sdk",
    type=click.Choice(list(SDKS)),
    help="SDK to check for. Default: the newest of a file's dialect.",
)
@click.option(
    "--from",
    "before",
    type=click.Choice(list(SDKS)),
    help="Report only code that this SDK still accepted.",
)
@click.option("--to", "sdk", type=click.Choice(list(SDKS)), help="An alias of --sdk.")
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    help="Machine to check for. Default: all machines.",
)
@click.option(
    "--select",
    "ids",
    multiple=True,
    metavar="ID|GROUP",
    help="Rule or group to check. Default: all rules.",
)
@click.option("--fix", is_flag=True, help="Write safe fixes into the files.")
@click.option(
    "--unsafe-fixes", is_flag=True, help="Write fixes that may change results, too."
)
@click.option(
    "--diff", "shown", is_flag=True, help="Show the changes of --fix; write nothing."
)
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="text")
@click.option(
    "--explain",
    type=click.Choice(list(rules())),
    metavar="ID",
    help="Show the page of a rule and exit.",
)
@click.option("--rules", "listed", is_flag=True, help="List all rules, as Markdown.")
@click.option(
    "--kernel",
    metavar="KERNEL",
    help="Run this kernel with --shape or --case, and check its trace.",
)
@ranks_option
@_with_options
@with_progress
@click.pass_context
def lint(
    context: click.Context,
    /,
    files: Sequence[Path],
    form: str,
    explain: str | None,
    **options: Any,
) -> None:
    """Find code in FILES or folders that the compiler would reject.

    The file - is standard input; --fix writes it to standard output. Nothing is compiled. Only the
    kernel of --kernel (MODULE:KERNEL, FILE.py:KERNEL or PATH::TEST) runs, on the simulator. The
    exit code is 1 if a denied diagnostic is found. By default, errors for the --sdk or --target
    that you name are denied; --deny, --warn and --allow change that. The exit code is 2 if a file
    cannot be read or a rule fails. `# difftest: ignore[ID] reason` at a statement suppresses a
    rule there.
    """
    if explain is not None:
        click.echo(rules()[explain].page, nl=False)
        return
    if options.pop("listed"):
        click.echo(rules_page(), nl=False)
        return
    _check_options(context, files, options)
    fix = options.pop("fix")
    unsafe = options.pop("unsafe_fixes")
    shown = options.pop("shown")
    ranks = options.pop("ranks")
    request = _request(options, files)
    if shown:
        context.exit(int(_show_changes(request, files, unsafe)))
    if fix:
        request = _fix(context, request, files, unsafe)
    diagnostics, unread = request.of_files(files)
    unread += drain_internal_errors()
    for text in unread:
        click.echo(text, err=True)
    if options["kernel"]:
        diagnostics += _diagnostics_of_run(request, ranks, options)
    is_denied = _print_diagnostics(diagnostics, request.levels, form, not unread)
    context.exit(2 if unread else int(is_denied))


_OF_RUN = (
    *("shapes", "dtypes", "bounds", "keywords", "grid", "case", "ranks"),
    *("case_timeout", "case_memory"),
)
"""The parameters that only a kernel to run uses."""


def _check_options(
    context: click.Context, files: Sequence[Path], options: Mapping[str, Any]
) -> None:
    """Raise a click.UsageError if the options do not fit each other, or name nothing to check."""
    fixes = options["fix"] or options["shown"]
    if not files and not options["kernel"]:
        raise click.UsageError(
            "name a file, or a folder, of kernels, or a --kernel to run"
        )
    if fixes and not files:
        raise click.UsageError("name a file, or a folder, to fix")
    if options["unsafe_fixes"] and not fixes:
        raise click.UsageError("--unsafe-fixes goes with --fix or --diff")
    unused = [] if options["kernel"] else given_options(context, _OF_RUN)
    if unused:
        raise click.UsageError(f"{', '.join(unused)} is for a --kernel to run")


def _diagnostics_of_run(
    request: reading.LintRequest, ranks: int, options: dict[str, Any]
) -> list[Diagnostic]:
    """Run the kernel of the command line, and return the diagnostics of its trace."""
    level = None if request.sdk is None else request.sdk.level
    # The options that are left are those of the kernel and its arguments.
    run = KernelRun(machine=request.target, level=level, **options)
    return request.of_trace(run.launch(ranks).trace)


def _print_diagnostics(
    diagnostics: list[Diagnostic], levels: reading.Levels, form: str, is_complete: bool
) -> bool:
    """Print the diagnostics, with their numbers for people; return whether one is denied."""
    if text := FORMATS[form](diagnostics, levels):
        click.echo(text)
    if form == "text" and (diagnostics or is_complete):
        click.echo(format_summary(diagnostics, levels), err=True)
    return bool(levels.denied(diagnostics))


def _request(options: dict[str, Any], files: Sequence[Path]) -> reading.LintRequest:
    """Take the settings out of the command's options, and return the request."""
    try:
        settings = reading.project_settings(Path.cwd())
        for name in ("sdk", "before", "target", "ids"):
            given = options.pop(name)
            if given:
                settings[name] = given
        chosen = {level: options.pop(level.value) for level in reading.Level}
        request = reading.request_of(settings, chosen)
    except reading.SettingsError as error:
        raise click.UsageError(str(error)) from None
    if STANDARD in files:
        return replace(request, stdin=read_standard_input())
    return request


def _show_changes(
    request: reading.LintRequest, files: Sequence[Path], unsafe: bool
) -> bool:
    """Show the changes of the fixed files; return whether there are any."""
    count = 0
    for file, text, fixed in request.fixed_files(files, unsafe):
        click.echo(reading.diff(file, text, fixed), nl=False)
        count += 1
    click.echo(f"{count_of(count, 'file')} would be fixed", err=True)
    return count > 0


def _fix(
    context: click.Context,
    request: reading.LintRequest,
    files: Sequence[Path],
    unsafe: bool,
) -> reading.LintRequest:
    """Write the fixed files, and return the request for the new texts."""
    if STANDARD in files:
        context.with_resource(kept_for_file())
    count = 0
    for file, _, fixed in list(request.fixed_files(files, unsafe)):
        count += 1
        if file != STANDARD:
            write_file(file, fixed, newline="")
    click.echo(f"{count_of(count, 'file')} fixed", err=True)
    if STANDARD not in files:
        return request
    text = request.fixed_text(STANDARD, unsafe)
    write_file(STANDARD, text)
    return replace(request, stdin=text)
