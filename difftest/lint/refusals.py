"""What the compiler was seen to refuse on each machine, and what this project does about each.

The rows are data (``data/refusals.csv``), in the order in which they were collected. Source:
records of the compiler's answers, most of them foxl-ai/kiln docs/neuron-notes.md, SDK 2.32.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple


class Refusal(NamedTuple):
    """One thing that the compiler refuses: what, where, and who says so here."""

    what: str
    machines: str
    rules: list[str]
    simulator: str
    reason: str
    """Why no rule looks for it."""


def _rows() -> tuple[Refusal, ...]:
    with (Path(__file__).parent / "data/refusals.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Refusal(**{**row, "rules": row["rules"].split()})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        )


REFUSALS = _rows()
