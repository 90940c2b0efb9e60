"""Honest kernels agree, and nothing is said of them: no cheat, no error, no hazard.

Each run has a quarter of them; the nightly profile has all.
"""

from __future__ import annotations

from hypothesis import settings

from difftest.verdict.nursery import Limits, Sandbox
from difftest.verdict.outcome import Outcome
from tests.every import every
from tests.unit.verdict.honest.classic import KERNELS as CLASSIC
from tests.unit.verdict.honest.today import KERNELS as TODAY
from tests.unit.verdict.kernels import judged

TABLE = {
    **{f"classic: {name}": one for name, one in CLASSIC.items()},
    **{f"today: {name}": one for name, one in TODAY.items()},
}


NIGHTLY = settings.get_current_profile_name() == "nightly"


@every("name", TABLE if NIGHTLY else [*TABLE][::4])
def test_an_honest_kernel_agrees(nursery, tmp_path, name):
    honest = TABLE[name]
    with Sandbox(Limits(30.0), nursery) as worker:
        judgement = judged(worker, tmp_path, honest.text, spec=honest.spec)
    assert judgement.outcome is Outcome.AGREES, judgement.as_mapping()
    assert not any(one["severity"] == "error" for one in judgement.findings)
    assert not any("looks" in note for note in judgement.notes), judgement.notes


def test_there_are_many():
    assert len(TABLE) >= 40
