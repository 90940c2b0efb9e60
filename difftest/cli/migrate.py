"""`difftest migrate`: a classic kernel file in today's dialect, proven on the simulator."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from difftest.cli.kernel_run import OutputFile, level_option
from difftest.cli.launching import machine_named, parse_grid, parse_keywords, parse_shape
from difftest.migration.proof import Arguments, ProofError, prove
from difftest.simulator import MACHINES


def _migrated(file: Path) -> tuple[str, int]:
    """The file in today's words, and how many comments say what is left to do.

    Raises
    ------
    click.ClickException : LibCST is not installed, or the file is no Python.
    """
    if find_spec("libcst") is None:
        raise click.UsageError("migrating needs LibCST: pip install 'nki-difftest[migrate]'")
    from libcst import ParserSyntaxError

    from difftest.migration.rewriting import migrate

    try:
        result = migrate(file.read_text(encoding="utf-8"))
    except (ParserSyntaxError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file} is no Python: {error}") from None
    return result.text, len(result.left)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=OutputFile(), help="File to write; else standard output.")
@click.option("--kernel", help="Of FILE, to prove: both forms run, and must agree bit for bit.")
@click.option("--shape", "shapes", multiple=True, help="Of each of its inputs: 128,512.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    default=("float32", "bfloat16"),
    help="Of all inputs, one after the other.",
)
@click.option("--set", "keywords", multiple=True, metavar="NAME=VALUE", help="Other arguments.")
@click.option("--grid", help="Of an SPMD kernel: 2, or 4,2.")
@click.option("--machine", type=click.Choice(sorted(MACHINES)), help="Else what the kernel names.")
@level_option
@click.pass_context
def migrate(
    context: click.Context,
    file: Path,
    output: Path | None,
    kernel: str | None,
    shapes: tuple[str, ...],
    dtypes: tuple[str, ...],
    keywords: tuple[str, ...],
    grid: str | None,
    machine: str | None,
    level: str | None,
) -> None:
    """Rewrite the classic kernels of FILE (`neuronxcc.nki`) in today's dialect (`import nki`).

    What no rule rewrites stays, under a comment with the rule and the remedy; the exit code is 1
    then. With --kernel and --shape, both forms run on the simulator and must agree bit for bit.
    docs/migrating.md has the rules.
    """
    if (kernel is None) != (not shapes):
        raise click.UsageError("a proof needs --kernel and the --shape of each input")
    if output is not None and output.resolve() == file.resolve():
        raise click.UsageError(f"-o would replace {file}: name another file")
    given = Arguments(
        [parse_shape(shape) for shape in shapes],
        parse_keywords(keywords),
        parse_grid(grid),
        machine_named(machine),
        level,
    )
    text, left = _migrated(file)
    if output is None:
        click.echo(text, nl=False)
    else:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise click.ClickException(str(error)) from None
    is_proven = _prove(file, text, kernel, dtypes, given)
    if left:
        click.echo(f"{file}: {left} left to do: see '# difftest migrate:'", err=True)
    if left or not is_proven:
        context.exit(1)


def _prove(
    file: Path, text: str, kernel: str | None, dtypes: tuple[str, ...], given: Arguments
) -> bool:
    """Say whether the kernel is proven; False if it was to be and is not."""
    if kernel is None:
        click.echo("not proven: name a --kernel and the --shape of its inputs", err=True)
        return True
    with TemporaryDirectory() as folder:
        new = Path(folder) / file.name
        new.write_text(text, encoding="utf-8")
        try:
            runs = prove(file, new, kernel, dtypes, given)
        except ProofError as error:
            click.echo(f"{kernel} is not proven: {error}", err=True)
            return False
    click.echo(f"{kernel} is proven on these shapes: {runs} runs agree bit for bit", err=True)
    return True
