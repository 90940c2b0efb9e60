"""``--difftest-mutate``: bugs planted when all kernel tests have passed."""

import pytest

from difftest.tools.mutants import command, generation
from difftest.tools.mutants.campaign import FILE, FOLDER
from difftest.tools.mutants.operators import BUGS

REFUSAL = """rejects=(Rejection({"m": 1, "n": 1}, match="add takes matrices",
                       shapes={"a": (2,), "b": (2,)}),),"""


@pytest.fixture
def mutate(project, monkeypatch):
    """A session on a test with something more; one kind of bug, so that it takes a moment."""
    monkeypatch.setattr(command, "PROCESSES", 0)
    monkeypatch.setattr(
        generation, "BUGS", [one for one in BUGS if one[0] == "check removed"]
    )

    def run(kernel="add", more="", cases="2"):
        project.add_test(kernel, more)
        return project.run("--simulate", f"--difftest-mutate={cases}")

    return run


def test_a_survivor_fails_the_session_until_the_spec_has_its_refusal(mutate, project):
    result = mutate()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*= planted bugs =*",
            "kernel.py:8: check removed, in add: survived",
            "mutants: 1",
            "score: 0.0% of 1: 0 found, 1 survived*",
        ]
    )
    assert (project.pytester.path / FOLDER / FILE).is_file()
    result = mutate(more=REFUSAL, cases="0.5")  # one is the least
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        ["score: 100.0% of 1: 1 found (edge or refusal 1), 0 survived*"]
    )


def test_nothing_is_planted_where_a_test_fails(mutate):
    result = mutate("subtract")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["none: tests failed"])
    assert "mutants:" not in result.stdout.str()


def test_a_number_that_is_none_is_a_usage_error(project):
    project.add_test()
    result = project.run("--simulate", "--difftest-mutate=all")
    result.stderr.fnmatch_lines(
        ["ERROR: --difftest-mutate: received all; accepted: a number*"]
    )
