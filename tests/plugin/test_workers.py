"""The plugin under pytest-xdist."""

import os

import pytest

from tests.plugin.test_running import MORE, counts


def test_workers_give_the_verdicts_and_counts_of_one_process(project):
    project.add_test(more=MORE)
    project.add_test("subtract", name="test_wrong")
    arguments = ("--simulate", "--hypothesis-seed=3", "-o", "addopts=", "-p", "no:cacheprovider")
    alone = project.run_apart(*arguments)
    spread = project.run_apart(*arguments, "-n", "2")
    alone.assert_outcomes(passed=4, failed=1)
    spread.assert_outcomes(passed=4, failed=1)
    assert counts(spread) == counts(alone)
    assert list(counts(spread)) == ["add", "subtract"]
    spread.stdout.fnmatch_lines(["*run again:   pytest --simulate test_wrong.py::test_add --case*"])


def test_modules_that_workers_do_not_collect_are_counted_once(project):
    project.add_test()
    project.pytester.makepyfile(test_other="def test_other(): ...")
    result = project.run("-n", "2")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 module of kernel tests was not collected, *"])


def test_a_usage_error_comes_before_any_worker_starts(project):
    project.add_test()
    result = project.run("--device", "-n", "2")
    result.stderr.fnmatch_lines(["ERROR: a Neuron device cannot be used here."])
    assert "gw0" not in result.stdout.str()


THREADS = """
import os

def test_threads():
    assert os.environ.get("OPENBLAS_NUM_THREADS") == {expected!r}
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [(("--simulate", "-n", "2"), "1"), (("--simulate",), None), (("-n", "2"), None)],
    ids=["workers", "one process", "no backend"],
)
def test_each_worker_has_one_blas_thread(project, monkeypatch, options, expected):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    project.pytester.makepyfile(test_threads=THREADS.format(expected=expected))
    project.run(*options).assert_outcomes(passed=1)
    assert "OPENBLAS_NUM_THREADS" not in os.environ  # nothing is left behind


def test_a_number_of_threads_that_the_user_chose_stays(project, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    project.pytester.makepyfile(test_threads=THREADS.format(expected="3"))
    project.run("--simulate", "-n", "2").assert_outcomes(passed=1)
