"""Options that commands share: a file to write, and the limits of a kernel's call."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from difftest.support.output import (
    STANDARD,
    check_output,
    format_write_error,
    kept_for_file,
)
from difftest.support.signature import function_name
from difftest.testing.backends.base import KernelCall
from difftest.testing.contract.limits import LIMITS, limit
from difftest.testing.host.progress import ProgressThread

_KEPT = "difftest.testing.host.options.kept"
PICTURES = (".png", ".svg", ".pdf")


class InputFile(click.Path):
    """A file to read that exists; ``-`` is standard input."""

    def __init__(self, path_type: type[Any] | None = None) -> None:
        super().__init__(exists=True, path_type=path_type, allow_dash=True)


class OutputFile(click.Path):
    """A file to write in an existing folder. It is checked before the run.

    ``kinds`` are the accepted suffixes; without any, all are accepted. ``-`` is standard output,
    and then a command's other text goes to standard error. ``-`` is an ordinary name for a file of
    ``kinds``, and for a file that ``grows``: a command reads it and continues it.
    """

    def __init__(self, *kinds: str, grows: bool = False) -> None:
        super().__init__(
            dir_okay=False,
            writable=True,
            path_type=Path,
            allow_dash=not kinds and not grows,
        )
        self.kinds = kinds

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Return the path if a file can be written there; else fail."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path == STANDARD and self.allow_dash:
            self._keep(param, ctx)
            return path
        if not path.parent.is_dir():
            self.fail(f"the folder {path.parent} does not exist", param, ctx)
        if self.kinds and path.suffix not in self.kinds:
            self.fail(
                f"its name ends in {', '.join(self.kinds)}; got {path.name}", param, ctx
            )
        try:
            check_output(path)
        except OSError as error:
            self.fail(format_write_error(error), param, ctx)
        return path

    def _keep(self, param: click.Parameter | None, ctx: click.Context | None) -> None:
        """Reserve standard output for the file until the command ends."""
        if ctx is None:
            return
        if _KEPT in ctx.meta:
            self.fail("standard output takes one file: name the other one", param, ctx)
        ctx.meta[_KEPT] = True
        # Click always closes the root context, but not the context of a command it cannot parse.
        ctx.find_root().with_resource(kept_for_file())


def given_options(context: click.Context, names: Collection[str]) -> list[str]:
    """Return the options among parameters of these names that the command line gives.

    The options have their first spelling. Default values do not count.
    """
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def with_progress(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add progress messages and limits to a command that calls kernels."""

    @functools.wraps(command)
    def waited(*args: Any, **keywords: Any) -> Any:
        with contextlib.closing(ProgressThread(lambda: LIMITS.case, _shown)):
            return command(*args, **keywords)

    for option in _LIMITS:
        waited = option(waited)
    return waited


def _shown(case: KernelCall | str) -> str:
    return case if isinstance(case, str) else format_call(case.kernel, case.inputs)


def format_call(kernel: Any, arrays: Sequence[Any]) -> str:
    """Return a call as text, such as ``add on float32[128,512], float32[128,512]``."""
    shapes = ", ".join(
        f"{array.dtype}[{','.join(map(str, array.shape))}]" for array in arrays
    )
    return f"{function_name(kernel)} on {shapes}"


def _limited(
    context: click.Context, option: click.Parameter, value: float | None
) -> None:
    """Limit calls until the command ends."""
    limits = {"case_timeout": None, "case_memory": None, option.name: value}
    try:
        context.call_on_close(
            limit(limits["case_timeout"], limits["case_memory"]).close
        )
    except OSError as error:
        raise click.BadParameter(str(error)) from None


_ABOVE = click.FloatRange(0, min_open=True)
_LIMITS = tuple(
    click.option(
        name,
        metavar=unit,
        type=_ABOVE,
        callback=_limited,
        expose_value=False,
        help=text,
    )
    for name, unit, text in (
        (
            "--case-memory",
            "MIB",
            "Memory of a call beyond the process's present size; Linux only.",
        ),
        ("--case-timeout", "SECONDS", "Time of a call of the kernel."),
    )
)
