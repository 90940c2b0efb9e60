"""Kernels that want to be believed: none is, and each is caught by the check that is named.

Each run has one for each check; the nightly profile has all of them.
"""

from __future__ import annotations

from hypothesis import settings

from difftest.verdict.sandbox import Limits, Sandbox
from tests.every import every
from tests.unit.verdict.cheats.host_values import OF_THE_HOST
from tests.unit.verdict.cheats.no_work import WITHOUT_WORK
from tests.unit.verdict.cheats.surroundings import OF_THE_JUDGE, OF_THE_PROCESS
from tests.unit.verdict.kernels import judged

NIGHTLY = settings.get_current_profile_name() == "nightly"
ONE_FOR_EACH_CHECK = (
    "frame walk, float64",
    "a constant tensor of the answer",
    "the output's storage written",
    "an input of its caller's written",
    "zeros",
    "NaN everywhere",
    "NaN beside NaN",
    "the input itself",
    "the output aliased to an input",
    "an output that nothing wrote",
    "hard-coded shapes",
    "right on the first calls",
    "half of the digits",
    "refuses what it does not know",
    "fork",
    "exit without a word",
    "sleeping",
    "memory",
    "a patched comparison",
    "a forged tape of zeros",
    "a forged tape that is none",
    "the tape of another kernel",
    "the memory of the process that forked it",
)
TABLE = {**OF_THE_HOST, **WITHOUT_WORK, **OF_THE_PROCESS, **OF_THE_JUDGE}


@every("name", TABLE if NIGHTLY else ONE_FOR_EACH_CHECK)
def test_a_cheat_is_caught(nursery, tmp_path, name):
    cheat = TABLE[name]
    with Sandbox(Limits(cheat.seconds), (), nursery) as worker:
        judgement = judged(worker, tmp_path, cheat.text, spec=cheat.spec, shrink=NIGHTLY)
    assert judgement.outcome in cheat.outcomes, judgement.as_mapping()
    assert judgement.exit_code != 0
    said = [judgement.reason, judgement.report, *judgement.notes]
    assert any(cheat.because in one for one in said), said


def test_there_are_many():
    assert len(TABLE) >= 40
