"""Run mypy in tests, with an untyped NumPy because reading its types takes 3 seconds."""

import sys
from pathlib import Path

from mypy import api

from tests.kernels.budget import NIGHTLY

STUB = "from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n"


def write_untyped_numpy(path: Path) -> None:
    """Write an untyped NumPy to a folder of MYPYPATH, except in the nightly profile."""
    if not NIGHTLY:
        (path / "numpy").mkdir(parents=True)
        (path / "numpy" / "__init__.pyi").write_text(STUB)


def said_by_mypy(*options: str) -> tuple[str, str, int]:
    """Return mypy's output, and restore the recursion limit, which would crash Python 3.11."""
    limit = sys.getrecursionlimit()
    try:
        return api.run(list(options))
    finally:
        sys.setrecursionlimit(limit)
