"""Hypothesis profiles: the number of cases that a kernel test draws.

``quick`` is for interactive work, ``ci`` for a branch (the same cases each time), and ``nightly``
for a long search. ``device`` is for cases that compile for minutes. It adds few cases to the
explicit ones and to cases of Hypothesis's database, which failed on a simulator before. The number
of cases also limits other work: see ``WORK_OF_A_CASE`` in :mod:`difftest.testing.harness.edges`.

All profiles have no deadline, because the first case of a kernel may compile it. They print the
blob for ``@reproduce_failure``. They leave out the explain phase, which would name lines of the
harness. A test may use any fixture: a function's fixture is made once for all of its cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import InvalidArgument

from difftest.testing.session.options import is_campaign

PROFILES: Mapping[str, Mapping[str, Any]] = {
    "quick": {"max_examples": 20},
    "ci": {"max_examples": 50, "derandomize": True, "database": None},
    "nightly": {"max_examples": 2000},
    "device": {"max_examples": 3},
}
_BEFORE = "before difftest"


def register_profiles() -> None:
    """Make the profiles known to Hypothesis; ``ci`` replaces Hypothesis's own."""
    left = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    phases = [phase for phase in Phase if phase is not Phase.explain]
    shared = settings(
        settings.get_profile("default"), phases=phases, suppress_health_check=left
    )
    for name, values in PROFILES.items():
        settings.register_profile(
            name, shared, deadline=None, print_blob=True, **values
        )


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


@contextmanager
def default_profile(device: bool) -> Iterator[None]:
    """Load the default profile within the block.

    That is ``device`` for a run on a device, ``ci`` if the environment sets CI, and ``quick``
    otherwise. At the end the previous profile is loaded again, unless another one was loaded since.
    """
    settings.register_profile(_BEFORE, settings.default)
    register_profiles()
    usual = "ci" if os.environ.get("CI") and not is_campaign() else "quick"
    settings.load_profile("device" if device else usual)
    ours = settings.default
    try:
        yield
    finally:
        if settings.default is ours:
            settings.load_profile(_BEFORE)
