"""The `difftest` command: a group that imports each command when it is called."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from typing import Any

import click

from difftest.support.call_stack import call_with_room
from difftest.support.internal_errors import print_internal_errors
from difftest.support.output import fit_streams, format_write_error


class LazyGroup(click.Group):
    """A group that imports each command when it is called. Ctrl-C ends it with exit code 130.

    Parameters
    ----------
    modules : module of each command, by the command's name. The command's function has the same
        name. Other commands in the help are each in the module of their name, beside this one.
    help : first paragraph of the help, then a line ``Title: command …`` for each section.
    """

    def __init__(
        self, *args: Any, modules: Mapping[str, str], help: str, **kwargs: Any
    ) -> None:
        super().__init__(*args, help=help.split("\n\n")[0], **kwargs)
        parts = [line.split(": ") for line in cleandoc(help).splitlines()[2:]]
        self.sections = dict(parts) or {"Commands": " ".join(sorted(modules))}
        names = " ".join(self.sections.values()).split()
        self.modules = {
            name: modules.get(name, f"difftest.cli.{name}") for name in names
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.modules)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.modules:
            return None
        if (module := self.modules[name]) not in sys.modules:
            gc.disable()
            import_module(module)
            if "hypothesis" in sys.modules:
                from difftest.testing.drawing.examples import make_random_numbers

                make_random_numbers()
            gc.freeze()  # loaded modules stay: garbage collections need not search them
            gc.enable()
        command: click.Command = getattr(sys.modules[module], name)
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """List the commands with their first sentences without importing them."""
        longest = max(map(len, self.modules))
        room = formatter.width - 6 - longest
        for title, names in self.sections.items():
            with formatter.section(title):
                for name in names.split():
                    text = _summary(self.modules[name], name, room)
                    formatter.write(f"  {name:{longest}}  {text}\n")

    def invoke(self, ctx: click.Context) -> Any:
        ctx.call_on_close(print_internal_errors)
        try:
            return call_with_room(super().invoke, ctx)
        except KeyboardInterrupt as interrupt:
            click.echo(str(interrupt) or "interrupted", err=True)
            ctx.exit(130)  # as in shells: 128 + SIGINT

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line; print one line for an output that cannot be written."""
        fit_streams()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            click.echo(f"Error: {format_write_error(error)}", err=True)
            sys.exit(1)


def _summary(module: str, function: str, room: int) -> str:
    """Return a command's first sentence from its source: an import takes most of a second."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    head = f"def {function}("
    with open(spec.origin, encoding="utf-8") as file:
        _, _, own = file.read().partition(f"\n{head}")
    # The function alone is parsed: all of the file takes ten times as long.
    [definition] = ast.parse(head + own.partition("\n\n\n")[0]).body
    assert isinstance(definition, ast.FunctionDef)
    docstring = ast.get_docstring(definition)
    return click.Command(function, help=docstring).get_short_help_str(room)


OTHERS = {
    "bench": "difftest.cli.main",
    "findings": "difftest.tools.scale.command",
    "fuzz": "difftest.tools.scale.command",
    "mutate": "difftest.tools.mutants.command",
    "replay": "difftest.testing.report.replay",
    "serve": "difftest.tools.verdict.serve",
    "sweep": "difftest.tools.scale.sweep",
    "tune": "difftest.tools.scale.tune",
    "verdict": "difftest.tools.verdict.command",
}
"""The group below, and commands in the package that they run; other commands are in cli/."""
MEASURED = ("kernel", "own", "reference")


@click.group(
    cls=LazyGroup,
    modules=OTHERS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="nki-difftest")
def main() -> None:
    """Run, test and measure NKI kernels on the embedded simulator.

    Test: init run fuzz findings sweep replay mutate doctor
    Look: check lint explain trace api stubs migrate
    Judge: verdict serve
    Time: profile tune timing bench
    Course: grade measure
    """


@click.group(cls=LazyGroup, modules=dict.fromkeys(MEASURED, "difftest.cli.bench"))
def bench() -> None:
    """Measure time and memory on this computer, not on a device."""
