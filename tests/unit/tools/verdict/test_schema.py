"""The published form of a verdict, and real verdicts of each kind that have it."""

import json

import pytest

from difftest.tools.verdict.formats import verdict_text
from difftest.tools.verdict.judgement import Judgement
from difftest.tools.verdict.outcome import Outcome, Stage
from tests.every import every
from tests.unit.tools.verdict.kernels import RIGHT, WRONG, judged, source
from tests.unit.tools.verdict.schema_check import SCHEMA, breaches

WHOLE = [
    "add: wrong algorithm (stage: compare)",
    "  add disagrees with its reference",
    "    case:        p=1, n=1, float32",
    "    a:           (1, 1) Zeros()",
    "    b:           (1, 1) Ones()",
    "    minimal:     no case with smaller p or n fails",
    "    embedded:    the algorithm differs: without rounding too, values are wrong",
    "    first wrong: out[[]0, 0[]]: got -1.0, expected 1.0",
    "    written by:  *: *",
    "    allowed:     exactly 1.0; the error is 1.68e+07 ULP of float32",
    "    wrong:       1 of 1 elements, which is all of them",
    "    looks like:  a wrong sign: as if b were negative (in p=*, n=*, which fails too)",
    "  judge again: difftest verdict *.py:add *::test_add --case '{*}'",
    "  evidence:    cases: *, elements: *",
    "  seed:        7",
    "  reward:      0.200",
]
"""The text of a wrong kernel's verdict, each line."""


@every(
    "text, outcome",
    [
        (RIGHT, Outcome.AGREES),
        (WRONG, Outcome.WRONG_ALGORITHM),
        (source("raise ValueError"), Outcome.CRASHED),
        (source("import os\nos.fork()"), Outcome.OUTSIDE_LANGUAGE),
    ],
)
def test_a_real_verdict_has_the_published_form(worker, tmp_path, text, outcome):
    judgement = judged(worker, tmp_path, text)
    judgement.kernel = {**judgement.kernel, "sha256": "0" * 64}
    document = json.loads(json.dumps(judgement.as_mapping(), allow_nan=False))
    assert document["outcome"] == outcome.value
    assert list(breaches(document, SCHEMA)) == []
    assert f"add: {outcome.value.replace('_', ' ')} (stage:" in verdict_text(document)
    if text is WRONG:
        pytest.LineMatcher(verdict_text(document).splitlines()).fnmatch_lines(
            WHOLE, consecutive=True
        )
    assert 0 <= document["reward"]["total"] <= 1


@every(
    "change, said",
    [
        ({"outcome": "fine"}, ".outcome: 'fine' is none of those accepted"),
        ({"version": 2}, ".version: 2 is none of those accepted"),
        ({"seed": "7"}, ".seed: '7' is no integer"),
        ({"colour": 1}, ".colour is not known"),
        ({"findings": [{}]}, ".findings[0].source is missing"),
        ({"memory": [3]}, ".memory[0]: 3 is no object"),
    ],
)
def test_another_form_breaks_the_schema(change, said):
    judgement = Judgement({"file": "a.py", "name": "add", "sha256": ""}, "t.py::t", 1)
    assert list(breaches(judgement.as_mapping(), SCHEMA)) == []
    assert said in list(breaches({**judgement.as_mapping(), **change}, SCHEMA))


def test_the_schema_has_each_outcome_and_stage():
    known = SCHEMA["properties"]
    assert known["outcome"]["enum"] == [one.value for one in Outcome]
    assert known["stage"]["enum"] == [one.value for one in Stage]
    assert known["exit_code"]["enum"] == sorted({one.exit_code for one in Outcome})


def test_each_outcome_has_an_exit_code_and_only_agreement_has_none():
    assert [one for one in Outcome if one.exit_code == 0] == [Outcome.AGREES]
    assert 2 not in {one.exit_code for one in Outcome}


@pytest.mark.parametrize("outcome", Outcome)
def test_a_reward_is_the_sum_of_its_parts(outcome):
    judgement = Judgement(
        {"file": "a.py", "name": "add"}, "t.py::t", 1, outcome, Stage.TIME
    )
    parts = judgement.reward()
    assert parts.pop("total") == pytest.approx(sum(parts.values()))
    assert all(part == 0 for part in parts.values()) == (outcome is Outcome.CHEATS)
