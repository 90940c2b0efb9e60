"""`difftest migrate`: rewrite classic kernels in the current dialect and prove the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from difftest.cli.launching import machine_by_name, parse_dtypes
from difftest.cli.run import level_option, machine_option
from difftest.simulator.dtypes import as_dtype
from difftest.support.choices import install_hint
from difftest.support.output import write_file
from difftest.support.signature import function_name
from difftest.testing.contract.limits import too_large
from difftest.testing.host.loading import parse_grid, parse_keywords, parse_shape
from difftest.testing.host.options import OutputFile, given_options, with_progress
from difftest.tools.migration.validation import (
    Sources,
    ValidationCall,
    ValidationError,
    ValidationSettings,
    calls_of_shapes,
    calls_of_spec,
    validate_translation,
)

if TYPE_CHECKING:
    from difftest.testing.contract.spec import KernelSpec


class _Output(OutputFile):
    """A file to write, or an existing folder for the files of a folder."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        if Path(value).is_dir():
            return Path(value)
        return super().convert(value, param, ctx)


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=_Output(),
    help="File or folder to write. Default: standard output.",
)
@click.option(
    "--kernel", help="Kernel of FILE to prove: both forms must agree bit for bit."
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    help="Shape of each input: 128,512 or rows,columns.",
)
@click.option(
    "--sizes",
    multiple=True,
    metavar="NAME=SIZES",
    help="Sizes of a name: rows=1:300, or rows=128,256.",
)
@click.option(
    "--test", metavar="PATH::TEST", help="Kernel test whose domain gives the cases."
)
@click.option(
    "--cases",
    "count",
    default=20,
    show_default=True,
    help="Cases to draw in each dtype.",
)
@click.option("--rounding", is_flag=True, help="Accept differences within rounding.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    default=("float32", "bfloat16"),
    help="Dtypes to prove in, each for all inputs.",
)
@click.option(
    "--set",
    "keywords",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another argument of the kernel.",
)
@click.option("--grid", help="Grid of an SPMD kernel: 2, or 4,2.")
@machine_option
@level_option
@with_progress
@click.pass_context
def migrate(
    context: click.Context,
    /,
    file: Path,
    output: Path | None,
    kernel: str | None,
    **options: Any,
) -> None:
    """Rewrite the classic kernels of FILE in the current dialect.

    The command changes `neuronxcc.nki` to `import nki`. Code that no rule rewrites stays, below a
    comment with the rule and the remedy, and the exit code is 1. With --kernel and --shape, or with
    --test, both forms run on the simulator on drawn cases and must agree bit for bit. The files of
    a folder are rewritten together; pass -o for the new folder. docs/reference/migration-rules.md
    lists the rules.
    """
    if lack := install_hint("libcst", "migrating", "migrate"):
        raise click.UsageError(lack)
    from libcst import ParserSyntaxError

    _check_places(file, output)
    setting = ValidationSettings(
        machine_by_name(options.pop("machine")),
        options.pop("level"),
        options.pop("rounding"),
    )
    if options["test"] is not None:
        of_shapes = ("sizes", "dtypes", "keywords", "grid")
        if unused := given_options(context, of_shapes):
            raise click.UsageError(
                f"{unused[0]} does not go with --test: the test's spec decides it"
            )
    kernel, calls = _calls(kernel, **options)

    def proven(old: Sources, new: Sources) -> bool:
        return kernel is None or _prove(old, new, kernel, calls, setting)

    change = _folder if file.is_dir() else _file
    try:
        left, is_proven = change(file, output, kernel, proven)
    except (ParserSyntaxError, UnicodeDecodeError) as error:
        place = file / getattr(error, "place", "")  # in a folder
        raise click.ClickException(f"{place} is not Python: {error}") from None
    if kernel is None:
        click.echo(
            "not proven: name a --kernel and the --shape of its inputs, or --test",
            err=True,
        )
    if left:
        click.echo(f"{file}: {left} left to do: see '# difftest migrate:'", err=True)
    if left or not is_proven:
        context.exit(1)


def _check_places(file: Path, output: Path | None) -> None:
    """Raise a click.UsageError if the new files have no place."""
    if output is None:
        if file.is_dir():
            raise click.UsageError("a folder needs -o, the folder for the new files")
        return
    if output.resolve() == file.resolve():
        raise click.UsageError(f"-o would replace {file}: name another place")
    if output.is_dir() and not file.is_dir():
        raise click.UsageError(
            f"{output} is a folder, and {file} is a file: name the new file"
        )
    if output.is_file() and file.is_dir():
        raise click.UsageError(f"{output} is a file, and the new files need a folder")


def _calls(
    kernel: str | None,
    test: str | None,
    shapes: Sequence[str],
    count: int,
    **others: Any,
) -> tuple[str | None, list[ValidationCall]]:
    """Return the kernel to prove and its calls, from the command's options."""
    if count < 1:
        raise click.BadParameter(f"--cases is at least 1; got {count}")
    if test is not None and shapes:
        raise click.UsageError("the cases come from --shape or from --test; got both")
    if test is not None:
        return _calls_of_test(kernel, test, count)
    if (kernel is None) != (not shapes):
        raise click.UsageError(
            "a proof needs --kernel and the --shape of each input, or --test"
        )
    if kernel is None:
        return None, []
    return kernel, _calls_of_shapes(shapes, count, **others)


def _calls_of_shapes(
    shapes: Sequence[str], count: int, **others: Any
) -> list[ValidationCall]:
    """Return calls with arrays of the shapes, sizes and dtypes of the command line."""
    named = dict(map(_parse_sizes, others["sizes"]))
    dtypes = others["dtypes"]
    own = [_parse_named_shape(shape, named) for shape in shapes]
    parse_dtypes(dtypes, as_dtype)  # a classic kernel's
    keywords = parse_keywords(others["keywords"])
    grid = parse_grid(others["grid"])
    calls = calls_of_shapes(own, named, dtypes, keywords, grid, count)
    for call in calls:
        size = as_dtype(call.dtype).itemsize
        if problem := too_large((shape, size) for shape in call.shapes):
            raise click.BadParameter(f"--shape: {problem}")
    return calls


def _calls_of_test(
    kernel: str | None, test: str, count: int
) -> tuple[str, list[ValidationCall]]:
    """Return the kernel to prove, by default the test's, and calls of the test's domain."""
    from difftest.testing.host.collection import with_spec  # and pytest

    def of_spec(spec: KernelSpec) -> tuple[str, list[ValidationCall]]:
        return kernel or function_name(spec.kernel), calls_of_spec(spec, count)

    return with_spec(test, of_spec)


def _parse_sizes(text: str) -> tuple[str, Any]:
    """Parse ``rows=1:300`` or ``rows=128,256`` into a name and the strategy for its sizes."""
    from hypothesis.strategies import sampled_from

    from difftest.testing.drawing.sizes import sizes as between

    name, separator, values = text.partition("=")
    first, colon, last = values.partition(":")
    try:
        if colon:
            least = int(first)
            source = between(least, int(last))
        else:
            listed = list(map(int, values.split(",")))
            least = min(listed)
            source = sampled_from(listed)
    except ValueError:
        least = 0
    if not separator or least < 1 or not name.isidentifier():
        raise click.BadParameter(f"sizes are NAME=1:300 or NAME=128,256; got {text!r}")
    return name, source


def _parse_named_shape(text: str, named: Mapping[str, Any]) -> list[int | str]:
    """Parse a shape such as ``rows,512``, whose sizes may be names of --sizes."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if part.isidentifier() and part not in named:
            raise click.BadParameter(
                f"--shape {text}: {part} has no --sizes {part}=..."
            )
    sizes: list[int | str] = []
    sizes += parse_shape(",".join("1" if part in named else part for part in parts))
    for place, part in enumerate(parts):
        if part in named:
            sizes[place] = part
    return sizes


Proven = Callable[[Sources, Sources], bool]


def _file(
    file: Path, output: Path | None, kernel: str | None, proven: Proven
) -> tuple[int, bool]:
    """Rewrite one file; return the number of comments for work left, and whether it is proven."""
    from difftest.tools.migration.rewriting import migrate_source as rewrite

    text = file.read_text(encoding="utf-8")
    result = rewrite(text)
    if result.text == text:
        click.echo(f"{file} has nothing of neuronxcc.nki: it stays as it is", err=True)
    with ExitStack() as held:
        new = output or Path(held.enter_context(TemporaryDirectory()), file.name)
        write_file(new, result.text)
        if output is None:
            click.echo(result.text, nl=False)
        root = file.resolve().parent
        return len(result.left), proven(
            Sources(file.resolve()), Sources(new.resolve(), root)
        )


def _folder(
    folder: Path, output: Path | None, kernel: str | None, proven: Proven
) -> tuple[int, bool]:
    """Rewrite the files of a folder together; return what :func:`_file` returns."""
    from difftest.tools.lint.files import python_files
    from difftest.tools.migration.rewriting import Package

    assert output is not None
    package = Package(folder, output, python_files([folder]))
    results = package.migrated()
    if not results:
        raise click.ClickException(f"{folder} has no Python file")
    for place, result in results.items():
        write_file(output / place, result.text)
        click.echo(f"{output / place}: {len(result.left)} left to do")
    left = sum(len(result.left) for result in results.values())
    if kernel is None:
        return left, True
    places = [place for place, result in results.items() if kernel in result.kernels]
    if len(places) != 1:
        raise click.ClickException(
            f"{len(places)} files of {folder} have a kernel {kernel}"
        )
    old = package.sources(folder, places[0])
    return left, proven(old, package.sources(output, places[0]))


def _prove(
    old: Sources,
    new: Sources,
    kernel: str,
    calls: Sequence[ValidationCall],
    setting: ValidationSettings,
) -> bool:
    """Prove the kernel, print the result, and return whether it is proven."""
    try:
        proof = validate_translation(old, new, kernel, calls, setting)
    except ValidationError as error:
        # The folder may be temporary.
        why = str(error).replace(f"{new.file.parent}{os.sep}", "")
        click.echo(f"{kernel} is not proven: {why}", err=True)
        return False
    click.echo(f"{kernel} is proven: {proof.text()}", err=True)
    return True
