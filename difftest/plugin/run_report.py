"""What runs a session, for reports, and for the properties of a JUnit report."""

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
        "nki-difftest": metadata.version("nki-difftest"),
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "hypothesis": metadata.version("hypothesis"),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def add_suite_properties(config: pytest.Config, backends: Iterable[Backend]) -> None:
    """Tell a JUnit report, if one is written, which backends and versions ran."""
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is None:
        return
    for one in backends:
        xml.add_global_property(f"difftest_backend_{one.name}", one.description)
    for name, version in versions().items():
        xml.add_global_property(f"difftest_version_{name}", version)
