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


CARRIED = """
from neuronxcc import nki
import neuronxcc.nki.language as nl


@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for turn in nl.affine_range(2):
        nl.store(out, nl.load(a) + nl.load(b))  # difftest: allow[affine-written-twice]
    return out
"""


def test_a_comment_of_the_kernels_author_silences_no_hazard(worker, tmp_path):
    judgement = judged(worker, tmp_path, CARRIED)
    assert judgement.outcome is Outcome.HAZARD, judgement.as_mapping()
    assert judgement.exit_code == 4
    assert [one["source"] for one in judgement.findings] == ["hazards"]
