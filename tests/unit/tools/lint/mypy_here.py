"""mypy in tests, and NumPy for it where its types do not matter: to read those takes 3 seconds."""

import sys
from pathlib import Path

from mypy import api

from tests.kernels.budget import NIGHTLY

STUB = "from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n"


def write_untyped_numpy(path: Path) -> None:
    """Into a folder of MYPYPATH; the nightly profile has the types that people have."""
    if not NIGHTLY:
        (path / "numpy").mkdir(parents=True)
        (path / "numpy" / "__init__.pyi").write_text(STUB)


def said_by_mypy(*options: str) -> tuple[str, str, int]:
    """What it prints; the recursion limit that it sets would end Python 3.11 in a later test."""
    limit = sys.getrecursionlimit()
    try:
        return api.run(list(options))
    finally:
        sys.setrecursionlimit(limit)
