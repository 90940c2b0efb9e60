"""Honest kernels agree, without a note: no cheat, no error, no hazard.

Each run has an eighth of them; the nightly profile has all.
"""

from pathlib import Path

from hypothesis import settings

from difftest.tools.verdict import candidate
from difftest.tools.verdict.candidate import JudgeSettings
from difftest.tools.verdict.fork_server import Limits, Sandbox
from difftest.tools.verdict.outcome import Outcome
from tests.every import every
from tests.unit.tools.verdict.honest.classic import KERNELS as CLASSIC
from tests.unit.tools.verdict.honest.python import KERNELS as PYTHON
from tests.unit.tools.verdict.honest.today import KERNELS as TODAY
from tests.unit.tools.verdict.honest.unusual import KERNELS as UNUSUAL
from tests.unit.tools.verdict.honest.whole_files import KERNELS as WHOLE
from tests.unit.tools.verdict.kernels import judged

TABLE = {
    **{f"classic: {name}": one for name, one in CLASSIC.items()},
    **{f"today: {name}": one for name, one in TODAY.items()},
    **{f"Python: {name}": one for name, one in PYTHON.items()},
    **{f"whole file: {name}": one for name, one in WHOLE.items()},
    **{f"unusual: {name}": one for name, one in UNUSUAL.items()},
}


NIGHTLY = settings.get_current_profile_name() == "nightly"


ALWAYS = (
    "today: names of a counter",
    "today: an operator and a dtype as parameters",
    *(name for name in TABLE if "updated" in name or "turns" in name),
)


@every("name", TABLE if NIGHTLY else dict.fromkeys([*list(TABLE)[::8], *ALWAYS]))
def test_an_honest_kernel_agrees(fork_server, tmp_path, name):
    honest = TABLE[name]
    with Sandbox(Limits(30.0), fork_server) as worker:
        judgement = judged(worker, tmp_path, honest.text, spec=honest.spec)
    assert judgement.outcome is Outcome.AGREES, judgement.as_mapping()
    assert not any(one["severity"] == "error" for one in judgement.findings)
    assert not any("looks" in note for note in judgement.notes), judgement.notes


OURS = {
    **{
        f"{dialect}/vector_add.py:vector_add_{name}": f"vector_add.py::test_vector_add_{name}"
        for dialect in ("nki", "classic")
        for name in ("naive", "tiled")
    },
    **{
        f"{dialect}/transpose.py:transpose_by_tiles": "transpose.py::test_transpose_by_tiles"
        for dialect in ("nki", "classic")
    },
    **{
        f"nki/conv2d_ladder/{name}.py:conv2d_{name}": f"conv2d_ladder.py::test_conv2d_{name}"
        for name in ("whole_plane", "baseline", "halo_tiles", "cached_weights")
    },
}
"""Kernels of the project, and the tests of them."""


@every("name", OURS if NIGHTLY else list(OURS)[:1])
def test_a_kernel_of_the_project_agrees(fork_server, monkeypatch, name):
    root = Path(__file__).parents[4]
    monkeypatch.chdir(root)
    settings = JudgeSettings(cases=2, shrink=False)
    judgement = candidate.judge_candidate(
        f"kernels/{name}", f"tests/kernels/test_{OURS[name]}", settings, fork_server
    )
    assert judgement.outcome is Outcome.AGREES, judgement.as_mapping()


def test_there_are_at_least_200_honest_kernels():
    assert len(TABLE) + len(OURS) >= 200
