"""The whole way: a kernel in a worker, judged by a spec, as one object."""

from __future__ import annotations

import pytest

from difftest.verdict.candidate import Candidate
from difftest.verdict.judge import Judge
from difftest.verdict.judgement import Judgement
from difftest.verdict.outcome import Outcome, Stage
from difftest.verdict.sandbox import Limits, Sandbox
from tests.unit.verdict.kernels import RIGHT, WRONG, spec_of


@pytest.fixture(scope="module")
def worker():
    with Sandbox(Limits(seconds=30.0)) as one:
        yield one


def judged(worker, tmp_path, source, cases=5):
    file = tmp_path / f"candidate_{abs(hash(source))}.py"
    file.write_text(source)
    kernel = {"file": str(file), "name": "add"}
    described = worker.ask({"request": "load", "kernel": kernel}).header
    assert described["how"] == "loaded", described
    candidate = Candidate("add", "candidate", described["signature"])
    judgement = Judgement(kernel, "test_add.py::test_add", 7)
    return Judge(spec_of(candidate), worker, judgement, cases).run()


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
