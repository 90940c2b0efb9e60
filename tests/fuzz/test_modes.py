"""The fast mode and the plain one give the same values, holes and refusals on drawn kernels.

A few hundred programs, the same each time, in every run; under ``--hypothesis-profile=nightly`` a
campaign of several minutes beside them. ``python -m tests.fuzz --minutes 60`` is a longer one.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from difftest.simulator.instructions.record import INSTRUCTIONS
from tests.fuzz.campaign import Campaign

NOT_CLASSIC = {
    "activate2",
    "dma_compute",
    "exponential",
    "nc_matmul_mx",
    "nc_n_gather",
    "nonzero_with_count",
    "quantize_mx",
    "rand2",
    "rng",
    "tensor_scalar_cumulative",
}
"""Instructions that today's dialect alone can name: the drawn kernels are classic."""
NIGHTLY = settings.get_current_profile_name() == "nightly"
PROGRAMS = 250
NIGHTLY_MINUTES = 20


def test_drawn_kernels_agree() -> None:
    """The same programs every time: Hypothesis draws them from one seed and keeps no database."""
    failure = Campaign().search(seed=0, count=PROGRAMS)
    assert failure is None, failure


if NIGHTLY:

    def test_a_campaign_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
        campaign = Campaign()
        for minute in range(NIGHTLY_MINUTES):
            campaign.run(60, seed=1000 * minute)
            with capsys.disabled():
                print(f"\n{campaign.statistics}", end="", flush=True)
        failures = campaign.statistics.failures.values()
        assert not failures, "\n\n".join(map(str, failures))
        drawn = set(campaign.statistics.opcodes)
        assert not set(INSTRUCTIONS) - NOT_CLASSIC - drawn, "never drawn"
