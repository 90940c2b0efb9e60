import gc
import io
import itertools
import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.plugin.conftest import MORE


def counts(result):
    """The rows of the summary: kernel -> heading -> its number."""
    lines = [re.split("  +", line) for line in result.outlines]
    head = next(n for n, line in enumerate(lines) if line[0] == "kernel")
    rows = itertools.takewhile(
        lambda line: len(line) == len(lines[head]), lines[head + 1 :]
    )
    return {
        row[0]: {
            name: int(cell) for name, cell in zip(lines[head][1:], row[1:], strict=True)
        }
        for row in rows
    }


def test_the_summary_counts_the_comparisons(project):
    project.add_test(more=MORE)
    result = project.run("--simulate", "--hypothesis-profile=ci")  # the same each time
    row = counts(result)["add"]
    assert 50 <= row["cases"] <= 50 + 2  # a case that was drawn before is none
    assert row["elements"] >= 2 * 128 * 2048 + 50
    assert 0 < row["bit for bit"] < 52
    assert row["rejections"] == 1
    assert {"both reject", "inconclusive"}.isdisjoint(row)
    # as before: garbage is not collected while modules are loaded
    assert gc.isenabled()


def test_a_backend_without_kernel_tests_says_so(project):
    project.pytester.makepyfile(test_other="def test_other(): ...")
    result = project.run("--simulate")
    result.stdout.fnmatch_lines(["no kernel test ran"])
    collected = project.run("--simulate", "--collect-only", "-q").stdout
    collected.no_fnmatch_line("*kernel*")  # the session has no tests to run


def test_the_printed_line_runs_exactly_the_failing_case(project):
    """From another folder, too; and the output does not show the harness."""
    folder = project.pytester.mkdir("deep")
    project.add_test("subtract")
    (project.pytester.path / "test_add.py").rename(folder / "test_deep.py")
    result = project.run("--simulate", "deep")
    assert "runner.py" not in result.stdout.str()
    assert "decorator.py" not in result.stdout.str()
    line = re.search(r"run again: +pytest (.*)", result.stdout.str()).group(1)
    words = shlex.split(line)
    assert words[1] == "deep/test_deep.py::test_add"
    again = project.run(*words)
    again.assert_outcomes(failed=1)
    assert counts(again)["subtract"] == {"cases": 1, "elements": 1}
    again.stdout.fnmatch_lines(["*first wrong: out[[]0, 0[]]: got -1.0, expected 1.0"])
    assert "Hypothesis" not in again.stdout.str()


def test_an_explicit_case_and_a_rejection_fail_on_their_own(project):
    project.add_test(
        "subtract",
        more="""
    rejects=[Rejection({"m": 3, "n": 2}, match="partition")],
    examples=[{"m": 128, "n": 4}],
""",
        edges=True,
    )
    result = project.run("--simulate")
    result.assert_outcomes(failed=5)
    result.stdout.fnmatch_lines(
        [
            "subtract disagrees with its reference",
            "  case:        m=1, n=1, float32",
            "  also wrong:  3 other cases (float32, float16, at the edges)",
            "  run again:   pytest --simulate test_add.py::test_add --case *",
            "subtract must reject m=3, n=2",
            "  embedded:    accepted it",
        ]
    )
    assert result.stdout.str().count("\nFAILED ") == 2


BODY = """
import numpy as np
from hypothesis import HealthCheck, Phase, example, reproduce_failure, seed, settings
from difftest import Case, Fill, Input, Ones, Zeros, kernel_test
from hypothesis import strategies as st
from kernel import add, subtract
from reference_add import add as reference

SPEC = dict(reference=reference, domain={"n": range(1, 9)}, inputs={"a": "n 2", "b": "n 2"})


def renamed(name):
    def kernel(a, b):
        return add(a, b)
    kernel.__name__ = name
    return kernel

"""


def run_body(project, body, *options):
    project.pytester.makepyfile(test_body=BODY + body)
    return project.run("--simulate", *options)


CHECK = "def test_{0}(case):\n    case.check()\n"
EXAMPLE = """@settings(phases=[Phase.explicit])
@example(case=Case({"n": 500}, "float32", {"a": Ones(), "b": Zeros()}))
@kernel_test(kernel=subtract, edges=False, **SPEC)
"""
TESTS = {
    "domain": """SPEC["domain"] = {"n": lambda: None}
@kernel_test(kernel=add, **SPEC)
""",
    "nan": """SPEC["inputs"] = dict.fromkeys("ab", Input("n 2", data=st.just(Fill(float("nan")))))
@kernel_test(kernel=subtract, edges=False, **SPEC)
""",
    "refused": """def refusing(a, b):
    assert len(a) < 500
SPEC |= {"domain": {"n": (500,)}, "reference": refusing}
@kernel_test(kernel=add, **SPEC)
""",
    "settings": """@settings(max_examples=7)
@kernel_test(kernel=renamed("seven"), edges=False, **SPEC)
""",
    "example": EXAMPLE + CHECK.format("example2") + EXAMPLE,
    "place": """def shifted_sum(a, b):
    return np.add(a, 1, out=a) + b
SPEC["reference"] = shifted_sum
@kernel_test(kernel=add, edges=False, **SPEC)
""",
}
"""Tests of their own modules, without their last two lines."""
SAID = {
    "domain": [
        "*SpecError: domain*: what its function returned: received None; accepted: *"
    ],
    "nan": [
        "the kernel test compared nothing: no case ran to a comparison, of subtract on embedded",
        "* NaN against NaN proves *",
    ],
    "refused": [
        "the kernel test compared nothing: no case ran to a comparison, of add on embedded"
    ],
    "example": ["*only the kernel rejects the case: LimitError*"],
    "place": [
        "add cannot be judged: the reference shifted_sum wrote to its argument a",
        "*where:*def shifted_sum(a, b):",
        "  run again:   pytest --simulate*test_place.py::test_place --case *",
    ],
    "idle": ["the test of add compared nothing: *"],
}
"""The output for kernels that fail."""


def test_a_wrong_test_gives_one_clear_error(project):
    """Each in a module of its own, all in one run."""
    modules = {
        f"test_{name}": BODY + body + CHECK.format(name) for name, body in TESTS.items()
    }
    idle = "@kernel_test(kernel=add, **SPEC)\ndef test_idle(case): ...\n"
    fixtures = CHECK.replace("(case)", "(case, tmp_path, monkeypatch)").format(
        "fixtures"
    )
    fixtures = f"@kernel_test(kernel=add, edges=False, **SPEC)\n{fixtures}"
    modules |= {"test_idle": BODY + idle, "test_fixtures": BODY + fixtures}
    project.pytester.makepyfile(**modules)
    result = project.run("--simulate", "--difftest-report=report.json")
    result.assert_outcomes(failed=len(SAID) + 2, passed=2)
    text = result.stdout.str()
    assert text.count("FAILED test_example.py") == 2, (
        "the second is not the first, by a number"
    )
    assert text.count("what its function returned: received None; accepted: ") == 2, (
        "edges, too"
    )
    for name, lines in SAID.items():
        report = text.partition(f"_ test_{name} _")[2].partition("\n___")[0]
        pytest.LineMatcher(report.splitlines()).fnmatch_lines(lines)
        assert "During handling" not in report
    assert counts(result)["seven"]["cases"] == 7
    assert counts(result)["add"]["both reject"] > 0
    tests = json.loads((project.pytester.path / "report.json").read_text())["tests"]
    (place,) = (test for test in tests if test["id"].endswith("test_place"))
    assert place["case"]["values"] == {"n": 1}


def test_a_test_with_half_of_its_cases_inconclusive_proves_too_little(project):
    text = "@seed(1)\n@settings(max_examples=20)\n@kernel_test(kernel=add, edges=False, **SPEC{})\n"
    data = "{'a': 'n 2', 'b': Input('n 2', data=lambda n: Fill(float('nan') if n % 4 else 1.0))}"
    result = run_body(
        project,
        f"SPEC['inputs'] = {data}\n"
        + text.format("")
        + CHECK.format("weak")
        + text.format(", allow_inconclusive=True")
        + CHECK.format("allowed")
        + "SPEC['domain'] = {'n': range(8, 99, 4)}\n"
        + text.format("")
        + CHECK.format("strong"),
    )
    result.assert_outcomes(failed=1, passed=2)
    said = "the test of add proves too little on embedded: * compared cases are inconclusive"
    result.stdout.fnmatch_lines(
        [said, "  most:   add: *NaN*", "  remedy: give inputs data=*"]
    )


def test_reproduce_failure_of_hypothesis_runs_the_one_failing_case(project):
    body = (
        "@kernel_test(kernel=subtract, **SPEC)\n"
        "def test_add(case):\n    seen.append(case.case)\n    case.check()\n"
        "\nseen = []\n\ndef test_last():\n    print('SEEN', len(seen), seen[0])\n    assert 0\n"
    )
    first = run_body(project, body, "-v").stdout.str()
    decorator = re.search(r"@reproduce_failure\(.*?\)", first).group()
    again = run_body(project, f"{decorator}\n{body}").stdout.str()
    shrunk = "Case(values={'n': 1}, dtype='float32', data={'a': Zeros(), 'b': Ones()})"
    # Hypothesis replays it, and simpler data that may fail alike are tried once
    most = 2 + 1
    assert any(f"SEEN {count} {shrunk}" in again for count in range(1, most + 1))


def test_a_seed_gives_the_same_cases(project):
    body = (
        "seen = []\n\n"
        "@kernel_test(kernel=add, **SPEC)\n"
        "def test_add(case):\n    seen.append(case.case.to_json())\n    case.check()\n"
        "\ndef test_last():\n    import json, pathlib\n"
        "    pathlib.Path('seen.json').write_text(json.dumps(seen))\n"
    )

    def seen(seed):
        project.pytester.makepyfile(test_body=BODY + body)
        project.run("--simulate", f"--hypothesis-seed={seed}").assert_outcomes(passed=2)
        return json.loads((project.pytester.path / "seen.json").read_text())

    assert seen(1) == seen(1) != seen(2)


SEEDED = """
from difftest import Input, Random, seeded
SPEC["inputs"] = {name: Input("n 2", data=seeded(Random)) for name in "ab"}
@kernel_test(kernel=add, **SPEC)
def test_add(case):
    case.check()
"""
"""Hardly a case is drawn twice: of repeats in a row the fifth is not replaced at first."""


def test_in_ci_the_profile_is_ci(project, monkeypatch):
    """Others are in tests/unit/plugin/test_profiles.py."""
    monkeypatch.setenv("CI", "true")
    assert counts(run_body(project, SEEDED))["add"]["cases"] == 50


def test_a_profile_that_nobody_registered_is_a_usage_error(project):
    for options in ([], ["--simulate"]):
        result = project.run("--hypothesis-profile=nigthly", *options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        told = "ERROR: --hypothesis-profile: received nigthly; accepted: quick, ci, nightly, *"
        result.stderr.fnmatch_lines([told])


def test_a_profile_that_a_conftest_registers_late_is_known(project):
    project.add_test()
    project.pytester.makeconftest(
        "from hypothesis import settings\n"
        "def pytest_configure(): settings.register_profile('mine', max_examples=3)\n"
    )
    run = project.run("--simulate", "--hypothesis-profile=mine")
    assert counts(run)["add"]["cases"] == 3


def test_a_profile_that_a_conftest_loads_stays(project):
    project.add_test()
    project.pytester.makeconftest(
        "from hypothesis import settings\n"
        "settings.register_profile('mine', max_examples=3, deadline=None)\n"
        "settings.load_profile('mine')\n"
    )
    assert counts(project.run("--simulate"))["add"]["cases"] == 3


def test_a_debugger_stops_in_the_kernel(project, monkeypatch):
    """Or in the reference, if that is what broke."""
    project.add_test(more='examples=[{"m": 200, "n": 1}],')
    for at in ("kernel", "reference_add"):
        monkeypatch.setattr("sys.stdin", io.StringIO("q\n"))
        result = project.run(
            "--simulate", "--pdb", "test_add.py::test_add[m=200-n=1-float32]"
        )
        result.stdout.fnmatch_lines([f"> *{at}.py(*)add()*"])
        project.pytester.makepyfile(reference_add="def add(a, b): return a.none")


QUITS = """
import bdb
import pytest


def wrong(a, b):
    {line}


def right(a, b):
    return a.astype(float) + b


@kernel_test(kernel={kernel}, edges=False, **SPEC | dict(reference={reference}))
def test_add(case):
    case.check()


def test_later():
    pass
"""


@pytest.mark.parametrize(
    ("kernel", "reference", "line", "said"),
    [
        ("wrong", "right", "pytest.exit('enough')", "*Exit: enough*"),
        ("add", "wrong", "raise bdb.BdbQuit", ""),
        (
            "add",
            "wrong",
            "raise type('Other', (KeyboardInterrupt,), {})",
            "*test_body.Other*",
        ),
    ],
)
def test_an_error_that_ends_a_session_ends_it(project, kernel, reference, line, said):
    body = QUITS.format(line=line, kernel=kernel, reference=reference)
    if not said:
        with pytest.raises(KeyboardInterrupt):
            run_body(project, body)
        return
    result = run_body(project, body)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([said])
    assert "disagrees" not in result.stdout.str()


@pytest.mark.parametrize("workers", [0, 1])
def test_the_cases_before_ctrl_c_are_counted(project, workers):
    """pytest makes no report of it, and reports carry the counts."""
    stopped = """
import os, signal
ran = []


@kernel_test(kernel=add, edges=False, **SPEC | dict(reference=right))
def test_add(case):
    case.check()
    ran.append(case)
    if len(ran) == 7:
        if WORKERS:  # a terminal sends it to both
            os.kill(os.getppid(), signal.SIGINT)
        raise KeyboardInterrupt
"""
    stopped = f"WORKERS = {workers}\n{stopped}"  # this test may run in a worker itself
    project.pytester.makepyfile(
        test_body=BODY + QUITS.partition("@kernel_test")[0] + stopped
    )
    command = [sys.executable, "-m", "pytest", "--simulate", "-v", f"-n{workers}"]
    result = project.pytester.run(*command, "--difftest-report=r.json")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.re_match_lines([r"add +embedded +7 |add +7 "])
    (row,) = json.loads((project.pytester.path / "r.json").read_text())["kernels"]
    assert (row["kernel"], row["cases"]) == ("add", 7)
    assert "no case: " not in result.stdout.str()


def test_a_debugger_that_is_left_ends_the_session(project):
    body = QUITS.format(line="breakpoint()", kernel="wrong", reference="right")
    project.pytester.makepyfile(test_body=BODY + body)
    command = [sys.executable, "-m", "pytest", "--simulate"]
    result = project.pytester.run(*command, stdin=b"q\n" * 9)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*Exit: Quitting debugger*"])
    assert result.stdout.str().count("(Pdb)") == 1


KEEPING = (
    BODY
    + """
calls = []


def first_only(a, b):
    calls.append(1)
    return a.astype(float) + b.astype(float) + (len(calls) > 3)


SPEC["reference"] = first_only


@kernel_test(kernel=add, **SPEC)
def test_add(case):
    case.check()
"""
)


def test_state_that_is_kept_across_calls_is_reported(project, fresh_runs):
    project.pytester.makepyfile(test_body=KEEPING)
    result = project.run("--simulate")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "  fresh run: * passes in a process of its own: the kernel, its reference or the test *"
        ]
    )


LARGE = """
import numpy as np
from difftest import Input, kernel_test
from hypothesis import strategies as st
from kernel import subtract

X = np.linspace(0, 1, 128 * 64, dtype=np.float32).reshape(128, 64)


@kernel_test(
    kernel=subtract,
    reference=lambda a, b: a.astype(float) + b,
    domain={"rows": [128], "columns": [64]},
    inputs=dict.fromkeys("ab", Input("rows columns", dtype="float32", data=st.just(X))),
)
def test_add(case):
    case.check()
"""


def test_a_case_too_long_for_a_command_is_reported_as_such(project, fresh_runs):
    """Data that are drawn as arrays travel in the case, and a line has its limits."""
    project.pytester.makepyfile(test_body=LARGE)
    result = project.run("--simulate", "-W", "default")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*disagrees with its reference",
            "*fresh run: * the line above does not start in a process of its own: *",
        ]
    )


def test_a_failure_that_is_the_same_alone_says_no_more_and_costs_one_process(
    project, fresh_runs, monkeypatch
):
    started = []
    run = subprocess.run
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda words, **given: started.append(words) or run(words, **given),
    )
    for name in ("test_add", "test_again"):
        project.add_test("subtract", name=name)
    result = project.run("--simulate")
    result.assert_outcomes(failed=2)
    assert "fresh run" not in result.stdout.str()
    ((*_, node, option, _, _),) = started
    assert (node, option) == ("test_add.py::test_add", "--case")


def test_two_kernels_of_one_name_are_two_rows(project):
    project.add_test()
    kernel = (project.pytester.path / "kernel.py").read_text()
    project.pytester.makepyfile(other_kernel=kernel)
    test = (project.pytester.path / "test_add.py").read_text()
    project.pytester.makepyfile(
        test_other=test.replace("from kernel", "from other_kernel")
    )
    rows = project.run("--simulate").stdout.str()
    assert re.search(r"^add \(kernel\) +\d+ ", rows, re.MULTILINE)
    assert re.search(r"^add \(other_kernel\) +\d+ ", rows, re.MULTILINE)


def test_a_run_in_this_process_remembers_failures_in_its_own_folder(project):
    """Tests of one name and one text share what Hypothesis remembers, wherever they stand."""
    project.add_test("subtract")
    project.run("--simulate").assert_outcomes(failed=1)
    assert any((project.pytester.path / ".hypothesis" / "examples").iterdir())


def test_the_debugger_stops_in_the_authors_test_where_values_are_wrong(project):
    project.add_test("subtract")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--simulate",
        "--pdb",
        "-x",
        "test_add.py::test_add",
    ]
    result = project.pytester.run(*command, stdin=b"p case.dtype\nq\n")
    lines = result.outlines
    at = next(n for n, line in enumerate(lines) if line.startswith("> "))
    assert lines[at].endswith("test_add()"), lines[at]
    assert "test_add.py(" in lines[at]
    assert lines[at + 1] == "-> case.check()"
    result.stdout.fnmatch_lines(["*(Pdb) dtype('float*')"])


SMALLEST = """
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl
from difftest import kernel_test


@nki.jit
def double(x):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, rows, 128):
        last = min(first + 128, rows)
        tile = nl.ndarray((last - first, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[{first}:{last}])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[first:last], src=tile)
    return out


@kernel_test(
    kernel=double, reference=lambda x: 2 * x.astype(float), inputs={{"x": "rows columns"}}
)
def test_double(case):
    case.check()
"""
INFERRED = "domain inferred: rows, columns = sizes(1, 300), float32 (double)"


def test_a_test_without_a_domain_has_one_inferred_and_says_so(project):
    project.pytester.makepyfile(test_it=SMALLEST.format(first="first", last="last"))
    result = project.run("--simulate=embedded")
    result.assert_outcomes(passed=2)  # drawn cases, and full memories
    result.stdout.fnmatch_lines(["double *", INFERRED])
    assert result.stdout.str().count("domain inferred") == 1


def test_an_inferred_domain_reaches_the_second_tile(project):
    project.pytester.makepyfile(test_it=SMALLEST.format(first="0", last="last - first"))
    result = project.run_apart("--simulate=embedded", "-n", "1", "-k", "not edges")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["  case: *rows=129, columns=1, float32", INFERRED])
