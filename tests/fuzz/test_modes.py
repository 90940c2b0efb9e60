"""The fast mode and the plain one give the same values, holes and refusals on drawn kernels.

A few hundred programs, the same each time, in every run; under ``--hypothesis-profile=nightly`` a
campaign of several minutes beside them. ``python -m tests.fuzz --minutes 60`` is a longer one.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.campaign import Campaign
from tests.fuzz.comparison import check
from tests.fuzz.program import Program
from tests.fuzz.strategies import programs

NIGHTLY = settings.get_current_profile_name() == "nightly"
PROGRAMS = 200
NIGHTLY_MINUTES = 20


@settings(
    max_examples=PROGRAMS,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(programs())
def test_drawn_kernels_agree(program: Program) -> None:
    check(program)


if NIGHTLY:

    def test_a_campaign_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
        campaign = Campaign()
        for minute in range(NIGHTLY_MINUTES):
            campaign.run(60, seed=1000 * minute)
            with capsys.disabled():
                print(f"\n{campaign.statistics}", end="", flush=True)
        assert campaign.statistics.statements
        assert not campaign.statistics.failures, "\n\n".join(
            map(str, campaign.statistics.failures.values())
        )
