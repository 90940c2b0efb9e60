"""NumPy for mypy where its types do not matter: to read those takes mypy three seconds."""

from pathlib import Path

from tests.kernels.budget import NIGHTLY

STUB = "from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n"


def write_untyped_numpy(path: Path) -> None:
    """Into a folder of MYPYPATH; the nightly profile has the types that people have."""
    if not NIGHTLY:
        (path / "numpy").mkdir(parents=True)
        (path / "numpy" / "__init__.pyi").write_text(STUB)
