"""Read the tables that the package ships as CSV."""

from __future__ import annotations

import csv
from pathlib import Path


def csv_rows(file: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file as mappings from heading to cell."""
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))
