"""What runs a session: for reports, JUnit's too."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from difftest.backends.base import Backend


def versions() -> dict[str, str]:
    """Of this package, Python, NumPy and Hypothesis, and the system."""
    return {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("nki-difftest", "numpy", "hypothesis")},
        "platform": f"{platform.system()} {platform.machine()}",
    }


def add_suite_properties(config: pytest.Config, backends: Iterable[Backend]) -> None:
    """Tell a JUnit report, if one is written, which backends and versions ran."""
    from _pytest.junitxml import xml_key

    if (xml := config.stash.get(xml_key, None)) is None:
        return
    said = {f"backend_{backend.name}": backend.description for backend in backends}
    said |= {f"version_{name}": version for name, version in versions().items()}
    for name, text in said.items():
        xml.add_global_property(f"difftest_{name}", text)
