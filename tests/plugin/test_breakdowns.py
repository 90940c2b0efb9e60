"""An error of a check of ours is a line with its name: a right kernel is green."""

import ast
import dataclasses
import errno

import pytest

from difftest.analysis.detectors import table
from difftest.testing.report import document
from difftest.tools.lint import check
from difftest.tools.lint.check import rules
from difftest.tools.lint.rule import Frontend

END = "(AttributeError: no args): a fault of nki-difftest, and no verdict on the kernel"


def breaks(*_, **__):
    raise AttributeError("no args\nand a second line")


@pytest.fixture
def broken_rules(monkeypatch):
    """Rules of sources and of traces, and a detector, each the first of its kind."""
    every = {rule.reads_traces: id for id, rule in reversed(rules().items())}
    for id in every.values():
        own = {"check": breaks, "reader": breaks, "nodes": (ast.FunctionDef,)}
        everywhere = {
            "since": None,
            "frontends": frozenset(Frontend),
            "targets": frozenset(),
        }
        changed = dataclasses.replace(rules()[id], **own, **everywhere)
        monkeypatch.setitem(rules(), id, changed)
    readers = {breaks: "the detector planted", **table._READERS}
    monkeypatch.setattr(table, "_READERS", readers)
    check._trace_rules.cache_clear()
    yield every
    check._trace_rules.cache_clear()


def test_checks_that_break_down(project, broken_rules):
    project.add_test()
    result = project.run("--simulate", "-W", "error")
    result.assert_outcomes(passed=1)
    assert len(broken_rules) == 2
    for name in (
        "the detector planted",
        *(f"the rule {id}*" for id in broken_rules.values()),
    ):
        result.stdout.fnmatch_lines([f"{name} crashed at test_breakdowns.py:* {END}"])


def test_a_report_that_breaks_down(project, monkeypatch):
    monkeypatch.setattr(document, "details", breaks)
    monkeypatch.setattr("difftest.plugin.session.save_failure", breaks)
    project.add_test()
    project.add_test("subtract", name="test_wrong")
    result = project.run(
        "--simulate", "--difftest-save=saved", "--difftest-report=report.html"
    )
    result.assert_outcomes(passed=1, failed=1)
    for line in (
        f"the report of test_add crashed at test_breakdowns.py:* {END}",
        "*subtract disagrees with its reference",
        f"--difftest-save crashed at test_breakdowns.py:* {END}",
    ):
        result.stdout.fnmatch_lines([line])
    result.stdout.no_fnmatch_line("--difftest-report crashed*")
    assert "test_add" in (project.pytester.path / "report.html").read_text()


def test_a_prediction_that_breaks_down_leaves_the_rest_of_the_report(
    project, monkeypatch
):
    monkeypatch.setattr("difftest.testing.report.performance.memory_text", breaks)
    project.add_test()
    result = project.run("--simulate", "--difftest-report=report.html")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"the predicted time of add crashed at * {END}"])
    assert "test_add" in (project.pytester.path / "report.html").read_text()


def test_a_report_that_cannot_be_written(project, monkeypatch):
    monkeypatch.setattr(document, "session_document", breaks)
    project.add_test()
    result = project.run("--simulate", "--difftest-report=report.json")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR, (
        "what was asked for is not there"
    )
    result.stdout.fnmatch_lines(
        [f"--difftest-report crashed at test_breakdowns.py:* {END}"]
    )


REPORT_LOST = "ERROR: --difftest-report: cannot write r.html: No space left on device"


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_a_report_on_a_full_disk_fails_a_session_whose_tests_pass(
    project, monkeypatch, workers
):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("difftest.support.output.os.replace", full)
    project.add_test()
    result = project.run("--simulate", "--difftest-report=r.html", *workers)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([REPORT_LOST])
    assert result.stdout.str().count("No space left") == 1
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR


def test_files_that_cannot_be_written(project, monkeypatch):
    """The kernel's verdict stands; each file is a line, and no part of one stays."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("difftest.support.output.os.replace", full)
    project.add_test("subtract")
    result = project.run(
        "--simulate",
        "-p",
        "no:cacheprovider",
        "--difftest-save=saved",
        "--difftest-report=r.html",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*subtract disagrees with its reference"])
    told = "a fault of this machine, and no verdict on the kernel"
    result.stdout.fnmatch_lines([f"--difftest-save crashed at *saved*: {told}"])
    result.stdout.fnmatch_lines([REPORT_LOST])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert not list(project.pytester.path.glob("*r.html"))
    assert not list((project.pytester.path / "saved").iterdir())
