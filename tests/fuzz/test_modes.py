"""The fast mode and the plain one give the same values, holes and refusals on drawn kernels.

A few hundred programs, the same each time, in every run; under ``--hypothesis-profile=nightly`` a
campaign of ``--fuzz-minutes`` (20) beside them. ``python -m tests.fuzz --minutes 60`` is a longer
one.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings

from difftest.simulator.instructions.record import classic_instructions
from tests.fuzz.campaign import Campaign

NIGHTLY = settings.get_current_profile_name() == "nightly"
PROGRAMS = 250


def test_drawn_kernels_agree() -> None:
    """The same programs every time: Hypothesis draws them from one seed and keeps no database."""
    failure = Campaign().search(seed=0, count=PROGRAMS)
    assert failure is None, failure


if NIGHTLY:

    def test_a_campaign_finds_nothing(
        capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
    ) -> None:
        campaign = Campaign()
        left = 60 * pytestconfig.getoption("--fuzz-minutes")
        for seed in itertools.count(0, 1000):
            if left <= 0:
                break
            campaign.run(min(left, 60), seed)
            left -= 60
            with capsys.disabled():
                print(f"\n{campaign.statistics}", end="", flush=True)
        failures = campaign.statistics.failures.values()
        assert not failures, "\n\n".join(map(str, failures))
        drawn = set(campaign.statistics.opcodes)
        assert not set(classic_instructions()) - drawn, "never drawn"
