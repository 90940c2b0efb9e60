"""Versions that a report records."""

from __future__ import annotations

import platform
from importlib import metadata


def versions() -> dict[str, str]:
    """Return the versions of this package, Python, NumPy and Hypothesis, and the system."""
    return {
        "python": platform.python_version(),
        **{
            name: metadata.version(name)
            for name in ("nki-difftest", "numpy", "hypothesis")
        },
        "platform": f"{platform.system()} {platform.machine()}",
    }
