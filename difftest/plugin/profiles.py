"""The Hypothesis profile of a pytest session."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from hypothesis.errors import InvalidArgument

from difftest.testing.harness.profiles import PROFILES
from difftest.testing.session.options import is_campaign


def pytest_configure(config: pytest.Config) -> None:
    """Raise a usage error for an unknown profile, where Hypothesis would end pytest.

    This module is a plugin that runs after conftests, which may register profiles, and before
    Hypothesis.
    """
    name = config.getoption("hypothesis_profile")
    try:
        settings.get_profile(name)
    except InvalidArgument:
        accepted = f"{', '.join(PROFILES)}, or one that a conftest.py registers"
        message = f"--hypothesis-profile: received {name}; accepted: {accepted}"
        raise pytest.UsageError(message) from None


def usual_profile(device: bool) -> str:
    """Return ``device`` for a device, ``ci`` if the environment sets CI, else ``quick``."""
    if device:
        return "device"
    return "ci" if os.environ.get("CI") and not is_campaign() else "quick"
