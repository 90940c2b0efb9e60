"""Packages that look like the Neuron SDK's, or like the stubs of its name, written to a folder."""

from __future__ import annotations

import sys
from pathlib import Path

SDK = """
import numpy as np

def simulate_kernel(kernel, *args, **kwargs):
    return kernel(*args, **kwargs)

def baremetal(kernel=None, **options):
    return kernel
"""

STUB_TEXT = "WRONG PACKAGE. Please install the package from Neuron Repository."


def write_package(folder: Path, name: str, nki: str | None, init: str = "") -> None:
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text(init)
    if nki is not None:
        (package / "nki").mkdir()
        (package / "nki" / "__init__.py").write_text(nki)


def write_metadata(folder: Path, name: str, version: str, description: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\n{description}\n"
    (info / "METADATA").write_text(text)


def forget(monkeypatch, *names: str) -> None:
    """Take the modules of these packages out of sys.modules for the length of a test."""
    for module in list(sys.modules):
        if module.split(".")[0] in names:
            monkeypatch.delitem(sys.modules, module)
