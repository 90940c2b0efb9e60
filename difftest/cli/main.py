"""The `difftest` command."""

from __future__ import annotations

import click

from difftest.cli.commands import LazyGroup

OTHERS = {
    "bench": "difftest.cli.main",
    "findings": "difftest.scale.command",
    "fuzz": "difftest.scale.command",
    "mutate": "difftest.report.mutants.command",
    "replay": "difftest.report.replay",
    "serve": "difftest.verdict.serve",
    "sweep": "difftest.scale.sweep",
    "tune": "difftest.scale.tune",
    "verdict": "difftest.verdict.command",
}
"""The commands that stand beside what they run, and the group below; all others are in cli/."""
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
    """Measure time and memory on this computer, of no device."""
