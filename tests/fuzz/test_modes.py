"""The fast mode and the plain mode give equal values, holes and rejections on drawn kernels.

Some programs, the same each time on one Python, in every run; under the profile ``nightly`` a
campaign of ``--fuzz-minutes`` (20) beside them. ``python -m tests.fuzz --minutes 60`` is a longer
one.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from hypothesis import settings

from difftest.simulator.instructions.record import INSTRUCTIONS
from tests.fuzz.campaign import DIALECTS, Campaign
from tests.fuzz.scene import EndedError, Scene

NIGHTLY = settings.get_current_profile_name() == "nightly"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_drawn_kernels_agree(dialect: str) -> None:
    """Draw equal programs every time: Hypothesis draws them from a seed without a database."""
    failure = Campaign(dialect=dialect).search(seed=sys.version_info.minor, count=30)
    assert failure is None, failure


def test_a_view_without_elements_ends_a_kernel() -> None:
    """For two elements of HBM [-1:1] is such a slice, and the fuzzer died of it."""
    scene = Scene(None, "nki", lawful=True)  # it draws nothing
    scene.names["a"] = np.zeros(2)
    with pytest.raises(EndedError):
        scene.access("a[-1:1]", None)


if NIGHTLY:

    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_a_campaign_finds_nothing(
        dialect: str, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
    ) -> None:
        campaign = Campaign(dialect=dialect)
        left = 60 * pytestconfig.getoption("--fuzz-minutes") / len(DIALECTS)
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
        if dialect == "classic":
            assert (
                not {name for name, record in INSTRUCTIONS.items() if record.classic}
                - drawn
            ), "never drawn"
