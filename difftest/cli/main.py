"""The `difftest` command."""

from __future__ import annotations

import click

from difftest.cli.commands import LazyGroup

COMMANDS = (
    *("api", "bench", "check", "doctor", "explain", "grade", "init", "lint"),
    *("measure", "migrate", "profile", "run", "stubs", "timing", "trace"),
)
OTHERS = {
    "findings": "difftest.scale.command",
    "fuzz": "difftest.scale.fuzzing",
    "mutate": "difftest.report.mutants.command",
    "replay": "difftest.report.replay",
    "serve": "difftest.verdict.serve",
    "sweep": "difftest.scale.sweep",
    "tune": "difftest.scale.tune",
    "verdict": "difftest.verdict.command",
}
"""Those that stand beside what they run."""


@click.group(
    cls=LazyGroup,
    modules={name: f"difftest.cli.{name}" for name in COMMANDS} | OTHERS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="nki-difftest")
def main() -> None:
    """Run, test and measure NKI kernels on the embedded simulator."""
