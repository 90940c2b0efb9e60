"""A verdict in other formats: JUnit, Markdown, a page; and the chosen exit code."""

from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.testing.report.page import markdown_text, page_text
from difftest.tools.verdict import formats
from difftest.tools.verdict.formats import (
    FINDING,
    exit_code,
    junit_text,
    session_of,
    verdict_text,
)
from difftest.tools.verdict.judgement import Judgement
from difftest.tools.verdict.outcome import Outcome, Stage
from tests.every import every

STRANGE = "\x00 \x1b[31m <b> & ]]> \ud800"


def document_of(outcome, *severities):
    kernel = {"file": f"{outcome.value}.py", "name": "add", "sha256": ""}
    judgement = Judgement(kernel, "t.py::test_add", 1, outcome, Stage.COMPARE, STRANGE)
    judgement.seconds = 1.25
    judgement.findings = [
        dict.fromkeys(("source", "id", "happened", "rule", "remedy"), "x")
        | {"severity": one, "locations": []}
        for one in severities
    ]
    return judgement.as_mapping()


DOCUMENTS = [document_of(one) for one in Outcome]


def test_junit_has_a_test_for_each_kernel():
    suite = ElementTree.fromstring(junit_text(DOCUMENTS))
    count = len(DOCUMENTS)
    assert suite.tag == "testsuite"
    counts = {
        "tests": count,
        "failures": 8,
        "errors": 7,
        "skipped": 0,
        "time": 1.25 * count,
    }
    assert suite.attrib == {
        "name": "difftest verdict",
        **{k: str(v) for k, v in counts.items()},
    }
    assert [one.get("name") for one in suite] == [
        f"{one.value}.py:add" for one in Outcome
    ]
    for test, outcome in zip(suite, Outcome, strict=True):
        assert test.tag == "testcase"
        assert (test.get("classname"), test.get("time")) == ("t.py::test_add", "1.25")
        properties, *rest = test
        assert {one.get("name"): one.get("value") for one in properties} == {
            "outcome": outcome.value,
            "stage": "compare",
            "seed": "1",
        }
        kind = "error" if outcome.exit_code in (6, 7) else "failure"
        assert [one.tag for one in rest] == [kind] * (outcome is not Outcome.AGREES)
        for one in rest:
            assert one.get("type") == outcome.value
            assert (
                one.get("message")
                == one.get("message").strip()
                == "? ?[31m <b> & ]]> ?"
            )
            assert "(stage: compare)" in one.text


def test_a_finding_that_the_report_tells_is_told_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = document_of(Outcome.WRONG_ALGORITHM, "warning", "error")
    first, second = document["findings"]
    first |= {
        "happened": "it never wrote x",
        "locations": [{"file": "a.py", "line": 1}],
    }
    second |= {
        "happened": "it raced",
        "id": "race",
        "locations": [{"file": f"{tmp_path / 'a.py'}", "line": 2}],
    }
    text = verdict_text(
        document | {"report": "add is wrong\nwarning: it never wrote x"}
    )
    assert text.count("never wrote") == 1
    assert "\n  error:       a.py:2: it raced [race]\n" in text


def test_many_kernels_are_one_page_and_one_table():
    session = session_of([document_of(Outcome.AGREES, "warning"), *DOCUMENTS[1:]])
    table = markdown_text(session)
    page = page_text(session)
    assert table.count("| embedded |") == len(DOCUMENTS)
    assert table.count("\n### ") == len(DOCUMENTS) - 1
    assert table.count("| ✅ |") == page.count('class="finding warning"') == 1
    assert page.count('class="failure"') == len(DOCUMENTS) - 1


@every(
    "chosen, code",
    [
        ([], 0),
        (["any"], 1),
        (["crashed"], 6),
        (["crashed", "cheats"], 5),
        (["error"], 0),
        (["warning"], FINDING),
        (["warning", "timeout"], 6),
    ],
)
def test_the_exit_code_is_of_what_was_chosen(chosen, code):
    documents = [document_of(Outcome.AGREES, "note", "warning"), *DOCUMENTS[1:]]
    assert exit_code(documents, chosen) == code


def test_agreement_is_never_chosen_but_its_findings_are():
    assert exit_code([document_of(Outcome.AGREES)], ["any", "warning"]) == 0
    assert exit_code([document_of(Outcome.AGREES, "error")], ["warning"]) == FINDING
    assert "agrees" not in formats.CLASSES


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["--html=x.html", "a.py:add", "t.py::t"],
            "pip install '/path/to/nki-difftest[report]'",
        ),
        (
            ["--batch=m:add", "--results=o", "--json=x", "t.py::t"],
            "--json is for one kernel",
        ),
        (["--fail-on=agrees", "a.py:add", "t.py::t"], "'agrees' is not one of"),
    ],
)
def test_a_form_that_cannot_be_is_a_usage_error(tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("difftest.support.choices.find_spec", lambda name: None)
    result = CliRunner().invoke(main, ["verdict", *given])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
