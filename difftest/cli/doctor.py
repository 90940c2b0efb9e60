"""`difftest doctor`: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from difftest.backends.device.diagnosis import Diagnosis

_MARKS = {True: "ok", False: "--", None: "  "}


@click.command()
@click.pass_context
def doctor(context: click.Context) -> None:
    """Say which backends work here and why the others do not, and what to install.

    Nothing is run on a device, and nothing is changed. The exit code is 0 if the device works, 1 if
    only simulators do.
    """
    from difftest.backends.device.diagnosis import diagnose

    diagnoses = diagnose()
    for line in _lines(diagnoses):
        click.echo(line)
    works = any(one.subject == "--device" and one.works for one in diagnoses)
    context.exit(0 if works else 1)


def _lines(diagnoses: list[Diagnosis]) -> list[str]:
    """Each diagnosis with its reason, and with what to do where something is to be done."""
    width = max(len(one.subject) for one in diagnoses)
    lines = []
    for one in diagnoses:
        lines.append(f"{_MARKS[one.works]}  {one.subject:<{width}}  {one.reason}")
        lines += [
            f"{'':<{width + 4}}  {'-> ' if not i else '   '}{text}"
            for i, text in enumerate(one.remedy)
        ]
    return lines
