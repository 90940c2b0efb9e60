"""The references and kernels of this repository, in a source tree or a wheel.

In the source tree `reference/` and `kernels/` are next to this package. In the wheel both folders
are inside this package (see `force-include` in pyproject.toml).
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).resolve().parents[2]


def shipped_folder() -> Path:
    """Return the folder with `reference/` and `kernels/`."""
    inside = _PACKAGE / "shipped_sources"
    return inside if inside.is_dir() else _PACKAGE.parent


def import_shipped(name: str) -> ModuleType:
    """Import a module such as "reference.conv2d"; an ImportError if another package has its name.

    Kernels import `neuronxcc`: the caller installs the embedded modules around the call.
    """
    folder = str(shipped_folder())
    sys.path.insert(0, folder)
    try:
        module = importlib.import_module(name)
    finally:
        sys.path.remove(folder)
    if not str(module.__file__).startswith(folder):
        raise ImportError(f"{name} is another package's module, at {module.__file__}")
    return module
