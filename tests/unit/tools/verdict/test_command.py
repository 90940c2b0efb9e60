"""`difftest verdict`: from two names to an object, a text and an exit code."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.tools.lint.files import LintRequest
from difftest.tools.verdict.candidate import JudgeSettings, judge_candidate
from difftest.tools.verdict.fork_server import Sandbox
from difftest.tools.verdict.formats import verdict_text
from difftest.tools.verdict.outcome import Outcome, Stage
from tests.every import every
from tests.unit.tools.verdict.kernels import RIGHT, WRONG, source
from tests.unit.tools.verdict.schema_check import SCHEMA, breaches

TEST = """
import numpy as np

from difftest import kernel_test, sizes
from {module} import add


def reference(a, b):
    return a.astype(np.float64) + b


@kernel_test(
    kernel=add,
    reference=reference,
    domain={{"p": sizes(1, 128), "n": sizes(1, 8)}},
    inputs={{"a": "p n", "b": "p n"}},
)
def test_add(case):
    case.check()
"""
MARK = "\nimport os\nassert not os.environ, 'it runs beside the test'\n"
FEW = JudgeSettings(cases=3, seed=1, shrink=False)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a test and the kernel that it imports; modules of it are forgotten."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(text, module="right"):
        (tmp_path / f"{module}.py").write_text(text)
        (tmp_path / f"test_{module}.py").write_text(TEST.format(module=module))
        return f"{module}.py:add", f"test_{module}.py::test_add"

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_kernel_that_a_test_imports_is_not_run_beside_it(here, fork_server):
    judgement = judge_candidate(
        *here("from os import environ\n" + RIGHT + MARK), FEW, fork_server
    )
    assert judgement.outcome is Outcome.AGREES, judgement.as_mapping()
    assert any("asks for os.environ" in doubt for doubt in judgement.evidence.doubts)
    assert "right" not in sys.modules


def test_another_file_may_be_a_candidate_for_the_same_contract(here, fork_server):
    _, test = here(RIGHT)
    candidate, _ = here(WRONG, "wrong")
    judgement = judge_candidate(candidate, test, FEW, fork_server)
    assert judgement.outcome is Outcome.WRONG_ALGORITHM
    again = judge_candidate(
        candidate, test, JudgeSettings(case=judgement.case), fork_server
    )
    assert again.outcome is Outcome.WRONG_ALGORITHM
    assert again.wrong == judgement.wrong
    assert again.case == judgement.case
    own = judge_candidate(
        "right.py:add", test, JudgeSettings(case=judgement.case), fork_server
    )
    assert own.reason.startswith("1 case and ")


class Less(Sandbox):
    """A worker of a system that lacks two restrictions."""

    def __init__(self, *given):
        super().__init__(*given)
        self.missing = ("network", "writing")


def test_what_the_system_lacks_is_said_and_may_be_required(
    here, fork_server, monkeypatch
):
    monkeypatch.setattr("difftest.tools.verdict.candidate.Sandbox", Less)
    shown = verdict_text(judge_candidate(*here(RIGHT), FEW, fork_server).as_mapping())
    assert "  missing:     network, writing\n" in shown
    with pytest.raises(click.UsageError, match="lacks restrictions: network, writing"):
        judge_candidate(*here(RIGHT), replace(FEW, require_isolation=True), fork_server)


def breaks(*_, **__):
    raise AttributeError("no args")


def test_checks_of_ours_that_break_down_are_notes(here, fork_server, monkeypatch):
    monkeypatch.setattr(LintRequest, "of_files", breaks)
    monkeypatch.setattr("difftest.tools.verdict.judge.add_time", breaks)
    monkeypatch.setattr("difftest.analysis.inspection.inspector.detect", breaks)
    judgement = judge_candidate(*here(RIGHT), FEW, fork_server)
    assert judgement.outcome is Outcome.AGREES, judgement.as_mapping()
    names = (
        "the linter",
        "the prediction of time and memory",
        "the search for hazards",
    )
    told = [
        (name, note)
        for name in names
        for note in judgement.notes
        if note.startswith(name)
    ]
    assert [name for name, _ in told] == list(names)
    assert all("crashed at test_command.py:" in note for _, note in told)


def test_a_command_tells_what_broke_down(here, monkeypatch):
    kernel, _ = here(RIGHT)
    monkeypatch.setattr("difftest.analysis.inspection.inspector.detect", breaks)
    result = CliRunner().invoke(
        main, ["check", kernel, "--shape", "4,4", "--shape", "4,4"]
    )
    assert result.exit_code == 0, result.output
    assert "the search for hazards crashed at test_command.py:" in result.stderr


FORMS = ("json", "junit", "markdown", "html")


def test_the_command_writes_the_object_that_it_shows(here, monkeypatch):
    kernel, test = here(WRONG)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    names = ["verdict", kernel, test, "--cases", "3", "--seed", "1"]
    names += [f"--{form}=verdict.{form}" for form in FORMS]
    result = CliRunner().invoke(main, names)
    assert result.exit_code == 1, result.output
    with open("verdict.json") as file:
        document = json.load(file)
    assert list(breaches(document, SCHEMA)) == []
    assert document["seed"] == 1
    assert document["outcome"] == "wrong_algorithm"
    assert result.output.startswith("add: wrong algorithm (stage: compare)\n")
    again = "difftest verdict right.py:add test_right.py::test_add"
    assert f"judge again: {again}" in result.output
    texts = {form: Path(f"verdict.{form}").read_text() for form in FORMS}
    assert all(again in texts[form] for form in FORMS if form != "json")
    assert Path("summary.md").read_text() == texts["markdown"]
    for said in (
        "dma_copy wrote output 0",
        "src=tile)",
        "<svg",
        "right.py:add: wrong algorithm",
    ):
        assert said in texts["html"], said


@every(
    "text, outcome, stage",
    [
        ("from nowhere import add", Outcome.OUTSIDE_LANGUAGE, Stage.IMPORT),
        (
            "import nowhere\n" + source("return nowhere.add(a, b)"),
            Outcome.OUTSIDE_LANGUAGE,
            Stage.RUN,
        ),
        ("def add(", Outcome.OUTSIDE_LANGUAGE, Stage.IMPORT),
        ("x = 1 / 0", Outcome.CRASHED, Stage.IMPORT),
        ("from test_right import reference", Outcome.OUTSIDE_LANGUAGE, Stage.IMPORT),
        (source("return nl.nothing"), Outcome.CRASHED, Stage.RUN),
    ],
)
def test_what_is_wrong_with_a_file_is_told_where_it_shows(
    here, fork_server, text, outcome, stage
):
    judgement = judge_candidate(*here(text), FEW, fork_server)
    assert (judgement.outcome, judgement.stage) == (outcome, stage), (
        judgement.as_mapping()
    )


def test_bytes_that_are_no_text_are_outside(here, fork_server, tmp_path):
    kernel, test = here(RIGHT)
    (tmp_path / "right.py").write_bytes(b"# caf\xe9\n" + RIGHT.encode())
    judgement = judge_candidate(kernel, test, FEW, fork_server)
    assert judgement.outcome is Outcome.OUTSIDE_LANGUAGE
    assert "right.py:1: it cannot be read: " in judgement.reason


@every(
    "kernel, test, said",
    [
        ("right:add", "test_right.py::test_add", "FILE.py:KERNEL"),
        ("left.py:add", "test_right.py::test_add", "no regular file at left.py"),
        ("right.py:sub", "test_right.py::test_add", "has no function sub; it has add"),
        ("right.py:load", "test_right.py::test_add", "for the kernel load(x)"),
        ("right.py:add", "test_right.py::test_sub", "no kernel test 'test_sub'"),
        ("test_right.py:add", "test_right.py::test_add", "the test's own file"),
    ],
)
def test_a_name_that_leads_nowhere_is_a_usage_error(
    here, fork_server, kernel, test, said
):
    here(RIGHT)
    with pytest.raises(click.UsageError) as caught:
        judge_candidate(kernel, test, FEW, fork_server)
    assert said in caught.value.message
    assert caught.value.exit_code == 2


def test_a_test_that_needs_code_of_the_kernels_file_is_told(here, fork_server):
    kernel, test = here(RIGHT + "\n\nTABLE = [1, 2]\n")
    with open("test_right.py", "a") as file:
        file.write("\n\nfrom right import TABLE\n")
    with pytest.raises(click.ClickException, match="TABLE"):
        judge_candidate(kernel, test, FEW, fork_server)


def test_a_whole_verdict_has_a_limit(tmp_path, monkeypatch):
    """A reference that never ends is in the judge's process, where no worker's limit helps."""
    text = TEST.format(module="candidate_that_waits").replace(
        "return a", "wait(); return a"
    )
    wait = "def wait():\n    while True:\n        pass\n"
    (tmp_path / "candidate_that_waits.py").write_text(RIGHT)
    (tmp_path / "test_that_waits.py").write_text(text + wait)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("difftest.tools.verdict.candidate.PATIENCE", 0.025)
    judgement = judge_candidate(
        "candidate_that_waits.py:add", "test_that_waits.py::test_add"
    )
    assert judgement.outcome is Outcome.TIMEOUT
    assert judgement.reason.startswith("the whole verdict took more than 1.5 seconds")
