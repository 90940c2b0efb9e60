"""The `difftest` command."""

from __future__ import annotations

from typing import Any

import click

from difftest.cli.api import api
from difftest.cli.bench import bench
from difftest.cli.bench_kernel import kernel
from difftest.cli.bench_own import own
from difftest.cli.check import check
from difftest.cli.doctor import doctor
from difftest.cli.grade import grade
from difftest.cli.init import init
from difftest.cli.measure import measure
from difftest.cli.migrate import migrate
from difftest.cli.profile import profile
from difftest.cli.run import run
from difftest.cli.timing import timing
from difftest.cli.trace import trace

INTERRUPTED = 130
"""What shells make of a program that an interrupt ends: 128 + SIGINT."""


class InterruptibleGroup(click.Group):
    """Commands that Ctrl-C ends with the exit code of an interrupt."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=InterruptibleGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nki-difftest")
def main() -> None:
    """Run, test and measure NKI kernels on the embedded simulator."""


main.add_command(init)
main.add_command(run)
bench.add_command(kernel)
bench.add_command(own)
main.add_command(bench)
main.add_command(grade)
main.add_command(timing)
main.add_command(profile)
main.add_command(trace)
main.add_command(check)
main.add_command(doctor)
main.add_command(measure)
main.add_command(migrate)
main.add_command(api)
