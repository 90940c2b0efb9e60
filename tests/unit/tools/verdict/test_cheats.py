"""Kernels that cheat: the named check catches each of them.

Each run has a cheat for each check; the nightly profile has all of them.
"""

from hypothesis import settings

from difftest.tools.verdict.fork_server import Limits, Sandbox
from tests.every import every
from tests.unit.tools.verdict.cheats.entered import OF_ENTERED
from tests.unit.tools.verdict.cheats.known import KNOWN
from tests.unit.tools.verdict.cheats.no_work import WITHOUT_WORK, in_place
from tests.unit.tools.verdict.cheats.turns import IN_TURNS
from tests.unit.tools.verdict.kernels import judged

NIGHTLY = settings.get_current_profile_name() == "nightly"
TABLE = WITHOUT_WORK | KNOWN | IN_TURNS | OF_ENTERED


ALWAYS = [name for name, one in TABLE.items() if one.spec is in_place]


@every("name", TABLE if NIGHTLY else dict.fromkeys([*list(TABLE)[::5], *ALWAYS]))
def test_a_cheat_is_caught(fork_server, tmp_path, name):
    cheat = TABLE[name]
    with Sandbox(Limits(cheat.seconds), fork_server) as worker:
        judgement = judged(
            worker, tmp_path, cheat.text, spec=cheat.spec, shrink=NIGHTLY
        )
    assert judgement.outcome in cheat.outcomes, judgement.as_mapping()
    assert judgement.outcome.exit_code != 0
    said = [judgement.reason, judgement.report, *judgement.notes]
    assert any(cheat.because in one for one in said), said
