"""The terminal that commands print tables to."""

from __future__ import annotations

from rich.console import Console

LEAST = 100
"""Columns that a table needs: in fewer its numbers would be cut. A narrow terminal wraps lines."""


def table_console() -> Console:
    """Standard output, wide enough for tables."""
    console = Console()
    return console if console.width >= LEAST else Console(width=LEAST)
