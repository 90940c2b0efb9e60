"""Hypothesis profiles: how many cases a kernel test draws.

``quick`` for a person who waits, ``ci`` for a branch (the same cases each time), ``nightly`` for a
long look, ``device`` where each case compiles for minutes: few cases beside the explicit ones and
those of Hypothesis's database, which failed on a simulator before. Who asks for few cases waits for
less elsewhere too: see ``WORK_OF_A_CASE`` in :mod:`difftest.testing.harness.edges`. All have no
deadline, for the first case of a kernel may compile it, print the blob that ``@reproduce_failure``
takes, and leave out the phase that explains: it would name lines of the harness. A test may ask
for any fixture: one of a function is made once for all of its cases.
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
    shared = settings(settings.get_profile("default"), phases=phases, suppress_health_check=left)
    for name, values in PROFILES.items():
        settings.register_profile(name, shared, deadline=None, print_blob=True, **values)


def pytest_configure(config: pytest.Config) -> None:
    """A profile that nobody has registered is a usage error, where Hypothesis breaks pytest off.

    This module is a plugin between conftests, which may register one as late, and Hypothesis.
    """
    name = config.getoption("hypothesis_profile")
    try:
        settings.get_profile(name)
    except InvalidArgument:
        accepted = f"{', '.join(PROFILES)}, or one that a conftest.py registers"
        told = f"--hypothesis-profile: received {name}; accepted: {accepted}"
        raise pytest.UsageError(told) from None


@contextmanager
def default_profile(device: bool) -> Iterator[None]:
    """``device`` for a run with one; else ``ci`` where the environment says CI, or ``quick``.

    At the end the one from before is back, unless somebody has loaded another since.
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
