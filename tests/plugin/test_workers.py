"""The plugin under pytest-xdist."""

import json
import re
from argparse import Namespace

from threadpoolctl import threadpool_limits

from difftest.testing.session.options import Request, distribute
from tests.plugin.conftest import KERNEL, REFERENCE
from tests.plugin.test_running import counts

SHOWN = """
import sys
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from difftest.plugin import failure_output

# as in runs in this process: see tests/plugin/conftest.py
providers._get_local_constants = Constants
failure_output.rerun_alone = lambda config, failure: ""
sys.modules["libcst"] = None  # Hypothesis imports it to write patches: half a second


def pytest_report_header(config):
    return f"shares: {config.option.dist}"
"""
BRANCHES = """
    if a.shape[1] > 1000:
        a = a[...]
    if a.shape[1] > 9000:
        a = b
    assert len(a.shape)"""
"""One example of the tests takes the first kind, and none the second."""
WIDE = 'rejects=[Rejection({"m": 129, "n": 2}, match="partition")], examples=[{"m": 2, "n": 2048}],'


def test_workers_give_the_verdicts_and_counts_of_one_process(project, whole_profiles):
    """They take work from each other, and say how far they are."""
    project.pytester.makeconftest(SHOWN)
    project.pytester.makepyfile(
        kernel=KERNEL.replace("\n    assert len(a.shape)", BRANCHES)
    )
    project.add_test(more=WIDE)
    project.add_test("subtract", name="test_wrong")
    arguments = (
        "--simulate",
        "--hypothesis-seed=3",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
    )
    # the drawn data depend on the modules of a process
    alone = project.run_apart(*arguments)
    spread = project.run(*arguments, "-n", "2", "--difftest-report=report.json")
    alone.assert_outcomes(passed=4, failed=1)
    spread.assert_outcomes(passed=4, failed=1)
    assert counts(spread) == counts(alone)
    assert list(counts(spread)) == ["add", "subtract"]
    for result in (alone, spread):
        missed = re.findall("^no case: (.*)", result.stdout.str(), re.MULTILINE)
        assert [line.partition(": nearest ")[0] for line in missed] == [
            "kernel.py:10: never true (add)"
        ]
    spread.stdout.fnmatch_lines(
        ["*run again:   pytest --simulate test_wrong.py::test_add --case*"]
    )
    spread.stdout.fnmatch_lines(["shares: worksteal"])
    report = json.loads((project.pytester.path / "report.json").read_text())
    (failure,) = filter(None, (one["details"]["failure"] for one in report["tests"]))
    assert failure["outputs"][0]["looks_like"].startswith(
        "a wrong sign: as if b were negative"
    )
    headline = (
        "FAILED test_wrong.py::test_add - subtract: wrong algorithm at m=1, n=1, *"
    )
    for result in (alone, spread):
        result.stdout.fnmatch_lines([headline])


def test_modules_that_workers_do_not_collect_are_counted_once(project, monkeypatch):
    # Hypothesis's takes a second each
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.add_test()
    project.pytester.makepyfile(test_other="def test_other(): ...")
    result = project.run("-p", "xdist.plugin", "-p", "difftest.plugin.hooks", "-n", "2")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 module of kernel tests was not collected, *"])


def test_a_usage_error_comes_before_any_worker_starts(project):
    project.add_test()
    result = project.run("--device", "-n", "2")
    result.stderr.fnmatch_lines(["ERROR: a Neuron device cannot be used here."])
    assert "gw0" not in result.stdout.str()


COUNTING = REFERENCE.replace(
    "def add(a, b):\n",
    """
from difftest.simulator.program_scheduler import _blas

def add(a, b):
    assert {one["num_threads"] for one in _blas().info()} == {1}
""",
)


def test_a_reference_has_one_blas_thread_too(project):
    """On two cores two threads take as long as a single one, and twice the processor time."""
    project.add_test()
    project.pytester.makepyfile(reference_add=COUNTING)
    with threadpool_limits(2, "blas"):
        project.run("--simulate").assert_outcomes(passed=1)


def test_a_distribution_that_was_chosen_stays():
    for numbers, dist, added in (
        (2, "no", True),
        (2, "loadfile", False),
        (None, "no", False),
    ):
        args = ["tests", "--", "last"]
        request = Request("embedded", False, None, ())
        distribute(
            request, Namespace(numprocesses=numbers, dist=dist, distload=False), args
        )
        assert args == [
            "tests",
            *(["--dist", "worksteal"] if added else []),
            "--",
            "last",
        ]


SURROGATE = """
from difftest import kernel_test
from reference_add import add as right

SPEC = {"domain": {"n": (1, 2)}, "inputs": {"a": "n n", "b": "n n"}, "edges": False}
TEXT = "a lone \\udc80 in it"

def kernel(a, b):
    raise ValueError(TEXT)

def refusing(a, b):
    raise KeyError(TEXT)

@kernel_test(kernel=kernel, reference=right, **SPEC)
def test_kernel(case):
    case.check()

@kernel_test(kernel=kernel, reference=refusing, **SPEC)
def test_reference(case):
    case.check()

@kernel_test(kernel=kernel, reference=right, **SPEC)
def test_own(case):
    raise ValueError(TEXT)
"""


def test_a_lone_surrogate_in_an_error_ends_no_worker(project):
    project.pytester.makepyfile(test_surrogate=SURROGATE)
    result = project.run_apart("--simulate", "-n", "1", "--difftest-report=r.json")
    result.assert_outcomes(failed=3)
    text = result.stdout.str()
    assert "worker 'gw0' crashed" not in text
    assert text.count("a lone \\udc80 in it") >= 3
