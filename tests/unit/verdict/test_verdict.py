"""The whole way: a kernel in a worker, judged by a spec, as one object."""

from __future__ import annotations

from difftest.verdict.outcome import Outcome, Stage
from tests.unit.verdict.kernels import RIGHT, WRONG, judged


def test_a_right_kernel_agrees(worker, tmp_path):
    judgement = judged(worker, tmp_path, RIGHT)
    assert judgement.outcome is Outcome.AGREES, judgement.report
    assert judgement.stage is Stage.TIME
    assert judgement.exit_code == 0
    assert judgement.evidence.decided == judgement.evidence.cases >= 5
    assert judgement.time["predicted_us"] > 0


def test_a_wrong_kernel_has_its_smallest_case(worker, tmp_path):
    judgement = judged(worker, tmp_path, WRONG)
    assert judgement.outcome is Outcome.WRONG_ALGORITHM
    assert judgement.exit_code == 1
    document = judgement.as_mapping()
    assert document["case"]["values"] == {"p": 1, "n": 1}
    assert document["first_wrong"]["index"] == [0, 0]
