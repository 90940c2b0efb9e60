"""The table ``[tool.difftest]`` of a pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def difftest_table(file: Path) -> dict[str, Any]:
    """Return the table ``[tool.difftest]`` of a file; empty if the file has none.

    Raises
    ------
    OSError : the file cannot be read.
    ValueError : it is not TOML, or ``[tool.difftest]`` is not a table.
    """
    document: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    for name in ("tool", "difftest"):
        document = document.get(name, {})
        if not isinstance(document, dict):
            raise ValueError(f"{name} is not a table")
    return dict(document)
