"""`difftest bench`: what things cost on this computer."""

from __future__ import annotations

import click

from difftest.cli.commands import LazyGroup

COMMANDS = ("kernel", "own", "reference")


@click.group(cls=LazyGroup, modules={name: f"difftest.cli.bench_{name}" for name in COMMANDS})
def bench() -> None:
    """Measure time and memory on this computer (never a prediction for a device)."""
