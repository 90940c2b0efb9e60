"""The tables beside this package: ``data/*.csv``."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from importlib.resources import files


def rows_of(name: str) -> Iterator[dict[str, str]]:
    """The rows of ``data/<name>.csv``, by their headings."""
    text = (files("difftest.timing") / "data" / f"{name}.csv").read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())
