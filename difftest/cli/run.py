"""`difftest run`: run an unmodified script with the embedded simulator as its `neuronxcc`."""

from __future__ import annotations

from pathlib import Path

import click

from difftest.simulator import Strictness, strictness
from difftest.simulator.machine import MACHINES
from difftest.support.choices import LEVELS
from difftest.testing.host.script import run_script

level_option = click.option(
    "--level",
    type=click.Choice(LEVELS),
    help="Level of NKI, for kernels of `import nki`. Names that it lacks raise. Default: any name.",
)
machine_option = click.option(
    "--machine",
    type=click.Choice(list(MACHINES)),
    help="Default: the kernel's own machine.",
)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument(
    "script", metavar="SCRIPT.py", type=click.Path(exists=True, dir_okay=False)
)
@click.argument("arguments", metavar="ARGS...", nargs=-1, type=click.UNPROCESSED)
@level_option
@click.option(
    "--strictness",
    "judged",
    type=click.Choice([word.value for word in Strictness]),
    default=Strictness.SEEN.value,
    show_default=True,
    help="Choose the broken rules that are warnings in place of errors.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Fail for hazards that may be wrong on some device, instead of warning.",
)
@click.pass_context
def run(
    context: click.Context,
    script: str,
    arguments: tuple[str, ...],
    level: str | None,
    judged: str,
    strict: bool,
) -> None:
    """Run SCRIPT.py on the simulator, as `python SCRIPT.py ARGS...`.

    `import nki` and `import neuronxcc.nki` in the script import the simulator, whether or not the
    Neuron SDK is installed. The exit code is the script's. It is 1 instead of 0 if a hazard of a
    kernel is wrong on a device (docs/how-to/find-hazards.md).
    """
    if not Path(script).is_file():
        raise click.BadParameter(
            f"{script} is not a file: a pipe can be read only once"
        )
    with strictness(judged):
        code = run_script(script, arguments, level, strict=strict)
    context.exit(code)
