"""Hypothesis profiles: the number of cases that a kernel test draws.

``quick`` is for interactive work, ``ci`` for a branch (the same cases each time), and ``nightly``
for a long search. ``device`` is for cases that compile for minutes. It adds few cases to the
explicit ones and to cases of Hypothesis's database, which failed on a simulator before. The number
of cases also limits other work: see ``WORK_OF_A_CASE`` in :mod:`difftest.testing.harness.edges`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, settings

PROFILES: Mapping[str, Mapping[str, Any]] = {
    "quick": {"max_examples": 20},
    "ci": {"max_examples": 50, "derandomize": True, "database": None},
    "nightly": {"max_examples": 2000},
    "device": {"max_examples": 3},
}
_BEFORE = "before difftest"


def kernel_settings(own: settings) -> settings:
    """Return settings with what each kernel test needs.

    There is no deadline, because the first case of a kernel may compile it. The explain phase is
    left out: it would name lines of the harness. A test may use any fixture: a function's fixture
    is made once for all of its cases.
    """
    left = {HealthCheck.too_slow, HealthCheck.function_scoped_fixture}
    return settings(
        own,
        deadline=None,
        phases=[phase for phase in own.phases if phase is not Phase.explain],
        suppress_health_check=[*{*own.suppress_health_check, *left}],
    )


def register_profiles() -> None:
    """Make the profiles known to Hypothesis; ``ci`` replaces Hypothesis's own.

    Their tests print the blob for ``@reproduce_failure``.
    """
    shared = kernel_settings(settings.get_profile("default"))
    for name, values in PROFILES.items():
        settings.register_profile(name, shared, print_blob=True, **values)


@contextmanager
def default_profile(name: str) -> Iterator[None]:
    """Load a profile within the block.

    At the end the previous profile is loaded again, unless another one was loaded since.
    """
    settings.register_profile(_BEFORE, settings.default)
    register_profiles()
    settings.load_profile(name)
    ours = settings.default
    try:
        yield
    finally:
        if settings.default is ours:
            settings.load_profile(_BEFORE)
