import re
import shlex
import sys
from pathlib import Path

import pytest

from difftest.simulator import Strictness
from difftest.support.choices import STRICTNESSES
from difftest.testing.backends import selection
from difftest.testing.session.options import OPTIONS


@pytest.fixture
def no_modules(monkeypatch):
    """Make this process look like a session without a simulator."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "neuronxcc"]:
        monkeypatch.delitem(sys.modules, name)


def test_the_option_does_not_swallow_the_path_after_it(project):
    """In addopts too, where it is a default of the project's."""
    project.add_test()
    project.add_test(name="test_other")
    result = project.run("--simulate", "test_add.py")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["difftest: the embedded simulator, in NumPy*"])
    project.pytester.makeini("[pytest]\npythonpath = .\naddopts = --simulate=auto")
    project.run("test_other.py").assert_outcomes(passed=1)


@pytest.mark.parametrize("key", ["", "difftest_simulate = auto"])
def test_another_value_is_a_usage_error_with_the_accepted_values(project, key):
    project.pytester.makeini(f"[pytest]\n{key}\n")
    result = project.run("--simulate=hardware")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*error: argument --difftest-simulate/--simulate/*/--simulate=plain/"
            "--simulate=sdk: ignored explicit argument 'hardware'"
        ]
    )


def test_help_names_the_options(project):
    result = project.run("--help", "--simulate")
    result.stdout.fnmatch_lines(
        [
            "kernels against their references (difftest):",
            "*--difftest-simulate, --simulate, *",
            "*--difftest-device, --device*",
            "*--difftest-case*, --case=JSON*",
            "*difftest_simulate*",
        ]
    )


def test_a_missing_sdk_is_a_usage_error_that_says_how_to_get_it(project):
    project.add_test()
    result = project.run("--simulate=sdk")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: the Neuron SDK's simulator is not here.",
            "  found:  *",
            "  remedy: on Linux x86-64, install neuronx-cc from AWS's own package index",
        ]
    )
    assert "passed" not in result.stdout.str()


def test_a_missing_device_is_a_usage_error_never_a_fallback(project):
    project.add_test()
    result = project.run("--simulate", "--device")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: a Neuron device cannot be used here.",
            "  found:  no Neuron device: /dev shows no neuron0",
            "  found:  *",
            "  remedy: run on a Trn1, Trn2 or Inf2 instance*",
        ]
    )
    assert "passed" not in result.stdout.str()


CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--device", default="cpu")
    parser.addoption("--simulate", action="store_true")
    parser.addoption("--case")
"""


THEIRS = """
import sys

def test_theirs(pytestconfig):
    assert "neuronxcc" not in sys.modules, "as after a run that asked for none"
    given = [pytestconfig.getoption(name) for name in ("device", "simulate", "case")]
    assert given == {given}
"""


def test_options_of_a_conftest_come_first(project, no_modules):
    project.add_test()
    project.pytester.makeconftest(CONFTEST)
    project.pytester.makepyfile(test_theirs=THEIRS.format(given=["cpu", False, None]))
    result = project.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "difftest: --simulate, --device, --case are declared by another plugin or a conftest "
            "and are left to it; use --difftest-simulate, --difftest-device, --difftest-case",
            "1 module of kernel tests was not collected*",
        ]
    )
    project.pytester.makepyfile(test_theirs=THEIRS.format(given=["gpu", True, "other"]))
    words = [
        "--device",
        "gpu",
        "--simulate",
        "--case",
        "other",
        "-o",
        "difftest_simulate=no",
    ]
    project.run(*words).assert_outcomes(passed=1)


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_requesting_a_backend_by_an_option_of_another_plugin_is_a_usage_error(
    project, no_modules, workers
):
    """And not green, with no kernel run."""
    project.add_test("subtract")
    project.pytester.makeconftest(CONFTEST)
    project.pytester.makepyfile(test_theirs=THEIRS.format(given=["cpu", True, None]))
    result = project.run("--simulate", *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (result.stdout if workers else result.stderr).fnmatch_lines(
        [
            "ERROR: --simulate was given, but a conftest or another plugin has declared it: the "
            "kernel tests in test_add.py would not run.",
            "  remedy: pass --difftest-simulate to run them, or -o difftest_simulate=no, which is "
            "an ini key too, if the other option is meant",
        ]
    )
    if not workers:
        assert project.run("test_theirs.py", "--simulate").ret == pytest.ExitCode.OK
        meant = project.run("--simulate", "--difftest-simulate", "test_add.py")
        meant.assert_outcomes(failed=1)


def test_one_option_that_a_plugin_takes_leaves_the_others(project):
    project.add_test()
    project.pytester.makepyfile(
        theirs="def pytest_addoption(parser):\n    parser.addoption('--device', default='cpu')\n"
    )
    project.pytester.syspathinsert()
    result = project.run("-p", "theirs", "--simulate", "--device", "gpu")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "difftest: --device is declared by another plugin or a conftest and is left to it; use "
            "--difftest-device"
        ]
    )


def test_help_shows_the_options_that_are_ours(project):
    project.pytester.makeconftest(CONFTEST)
    result = project.run("--help")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*--difftest-report=FILE*", "*difftest_case*"])


def test_ini_keys_replace_options_that_a_conftest_owns(project):
    """An option overrides its key; the line that runs a case again has the option's long name."""
    project.add_test("subtract")
    project.pytester.makeconftest(CONFTEST)
    project.pytester.makeini(
        "[pytest]\npythonpath = .\ndifftest_simulate = no\ndifftest_device = no\n"
    )
    assert project.run().ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result = project.run(
        "--device", "gpu", "--simulate", "-o", "difftest_simulate=embedded"
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["difftest: --case is declared by another plugin or a conftest *"]
    )
    line = re.search(r"run again: +pytest (.*)", result.stdout.str()).group(1)
    assert line.startswith(
        "-o difftest_simulate=embedded test_add.py::test_add --difftest-case '{"
    )
    again = project.run(*shlex.split(line))
    again.assert_outcomes(failed=1)
    assert "Hypothesis" not in again.stdout.str()


ROUNDED = """
import numpy as np

from difftest import Uniform, Input, kernel_test
from kernel import add


@kernel_test(
    kernel=add,
    reference=lambda a, b: (a.astype(np.float64) + b) * (1 + 2**-30),
    domain={"n": (8,)},
    inputs={"a": Input("n n", data=Uniform(0, low=1, high=2)), "b": "n n"},
)
def test_rounded(case):
    case.check()
"""
"""Its reference is off by less than a rounding into float32, which only an exact run shows."""


def test_both_modes_have_an_exact_run_and_one_option_disables_it(project):
    """The line that runs a case again knows of it."""
    project.pytester.makepyfile(test_rounded=ROUNDED)
    for simulate, name in (("--simulate", "embedded"), ("--simulate=plain", "plain")):
        result = project.run(simulate)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            [f"*{name}: *the algorithm differs: without rounding too*"]
        )
    project.run("--simulate", "-o", "difftest_exact=no").assert_outcomes(passed=1)
    project.add_test("subtract")
    result = project.run("--simulate", "--no-exact")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*embedded:    values differ by more than rounding explains",
            "*run again:   pytest --simulate --no-exact test_add.py::test_add --case *",
        ]
    )


TODAYS = """
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def add(a, b):
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    nl.fori_loop(0, 1, lambda i: nisa.tensor_tensor(left, left, right, nl.add))
    nisa.dma_copy(result, left)
    return result
"""


def test_kernels_of_the_current_dialect_have_the_named_level(project):
    """By the ini key, and by an option before it."""
    project.pytester.makepyfile(kernel=TODAYS)
    project.add_test()
    project.pytester.makeini("[pytest]\npythonpath = .\ndifftest_nki_level = 0.5\n")
    result = project.run("--simulate=embedded")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*nl.fori_loop exists since NKI 0.6*"])
    project.run("--simulate=embedded", "--nki-level=0.6").assert_outcomes(passed=1)


NOTED = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def add(a, b):
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    both = nl.ndarray((a.shape[0], 2, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    both[:, 0, :] = nl.load(a)
    both[:, 1, :] = nl.load(b)
    nl.store(result, nisa.tensor_reduce(np.add, both, axis=[1], dtype=a.dtype))
    return result
"""
"""It reduces an axis that is not the last, which is a note."""


@pytest.mark.parametrize("simulator", ["embedded", "plain"])
def test_a_strictness_holds_for_each_kernel(project, simulator):
    """By the ini key, and by an option before it."""
    project.pytester.makepyfile(kernel=NOTED)
    project.add_test()
    project.pytester.makeini(
        "[pytest]\npythonpath = .\ndifftest_nki_strictness = seen\n"
    )
    words = [f"--simulate={simulator}", "-W", "ignore::UserWarning"]
    project.run(*words).assert_outcomes(passed=1)
    result = project.run(*words, "--nki-strictness=documented")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*tensor_reduce takes the last consecutive axes of the tile*"]
    )


def test_the_settings_match_the_simulator():
    """They are written twice, to keep the plugin light where no kernel test runs."""
    assert tuple(one.value for one in Strictness) == STRICTNESSES


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            "-o difftest_simulate=yes",
            "*difftest_simulate = yes: *auto, embedded, plain, sdk, no",
        ),
        ("-o difftest_device=trn2", "*difftest_device = trn2: *yes, no"),
        ("-o difftest_device=yes", "ERROR: a Neuron device cannot be used here."),
        ("-o difftest_exact=never", "*difftest_exact = never: *yes, no"),
        ("--simulate --nki-level=0.8", "*invalid choice: '0.8'*"),
        ("--simulate -o difftest_nki_level=1", "*difftest_nki_level*1*0.3, 0.4*"),
        ("--simulate=sdk --nki-level=0.5", "*(0.5)*embedded simulator*"),
        ("--simulate --nki-strictness=lax", "*invalid choice: 'lax'*"),
        (
            "--simulate -o difftest_nki_strictness=lax",
            "*difftest_nki_strictness*lax*documented, seen*",
        ),
        ("--simulate=sdk --nki-strictness=relaxed", "*(relaxed)*embedded simulator*"),
    ],
)
def test_another_value_is_a_usage_error(project, monkeypatch, options, text):
    monkeypatch.setattr(selection, "sdk_simulator", lambda: None)
    project.add_test()
    result = project.run(*options.split())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([text])


THEIR_PLUGIN = """
import pytest

NAMES = ("--simulate", "--device", "--case", "--no-exact", "--case-timeout", "--case-memory")

def pytest_addoption(parser):
    for name in (*NAMES, "--nki-level", "--nki-strictness"):
        parser.addoption(name, default="theirs")

@pytest.fixture(autouse=True)
def given(pytestconfig):
    yield
    assert pytestconfig.getoption("case") == "5"
"""
"""A plugin that takes every short name."""


def test_long_names_remain_where_a_plugin_takes_all_short_ones(project):
    project.add_test("subtract")
    project.pytester.makepyfile(theirs=THEIR_PLUGIN)
    project.pytester.syspathinsert()
    long = [
        "--difftest-simulate=embedded",
        "--difftest-nki-level=0.6",
        "--difftest-nki-strictness=seen",
        "--difftest-no-exact",
        "--difftest-case-timeout=300",
    ]
    result = project.run("-p", "theirs", "--case", "5", *long)
    result.assert_outcomes(failed=1)
    line = re.search(r"run again: +pytest (.*)", result.stdout.str()).group(1)
    *options, node, name, case = shlex.split(line)
    assert set(options) == {
        *long[:3],
        "--difftest-no-exact",
        "--difftest-case-timeout=300",
    }
    assert (node, name) == ("test_add.py::test_add", "--difftest-case")
    again = project.run("-p", "theirs", "--case=5", *options, node, name, case)
    again.assert_outcomes(failed=1)
    assert "Hypothesis" not in again.stdout.str()
    assert "unrecognized" not in again.stderr.str()


def test_long_names_and_short_ones_are_one_option(project):
    project.add_test()
    for word in ("--simulate=plain", "--difftest-simulate=plain"):
        result = project.run(word)
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["difftest: the embedded simulator in plain mode*"])


TABLE = """
[project]
name = "theirs"

[tool.difftest]
simulate = "embedded"
nki_level = "0.6"
case_timeout = 300
strict = true
exact = false

[tool.difftest.lint]
sdk = "2.33"
"""


def test_the_table_of_pyproject_has_all_settings(project):
    """An ini key wins over the table, and an option over both."""
    project.add_test("subtract")
    (project.pytester.path / "pyproject.toml").write_text(TABLE)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*embedded:    values differ by more than rounding explains",
            "*run again:   pytest test_add.py::test_add --case *",
        ]
    )
    ini = "-o", "difftest_simulate=plain"
    project.run(*ini).stdout.fnmatch_lines(["difftest: *plain mode*"])
    said = project.run(*ini, "--simulate=embedded").stdout.str()
    assert "difftest: the embedded simulator, in NumPy" in said
    off = project.run("-o", "difftest_simulate=no")
    assert off.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_table_counts_in_workers_and_is_read_in_the_root_folder_alone(project):
    project.add_test()
    (project.pytester.path / "pyproject.toml").write_text(TABLE)
    project.run_apart("-n", "1").assert_outcomes(passed=1)
    folder = project.pytester.mkdir("below")
    (folder / "pyproject.toml").write_text("[tool.difftest]\nsimulate = 'none'\n")
    project.run("test_add.py").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        (
            "simulat = 'plain'",
            [
                "ERROR: *pyproject.toml: ?tool.difftest? has no setting 'simulat'",
                "  remedy: did you mean simulate? accepted are simulate, device, *",
            ],
        ),
        (
            "nki-level = '0.6'",
            ["*no setting 'nki-level'", "  remedy: did you mean nki_level? *"],
        ),
        ("zzz = 1", ["*no setting 'zzz'", "  remedy: accepted are simulate, *"]),
        (
            "simulate = 'fast'",
            [
                "ERROR: pyproject.toml: ?tool.difftest? simulate = fast: accepted are auto, *"
            ],
        ),
        ("device = 'trn2'", ["*device = trn2: accepted are yes, no"]),
        ("case_timeout = 'long'", ["ERROR: *case-timeout: received long; accepted: *"]),
    ],
)
def test_a_wrong_setting_of_the_table_is_one_clear_error(project, table, texts):
    project.add_test()
    (project.pytester.path / "pyproject.toml").write_text(f"[tool.difftest]\n{table}\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(texts)
    assert "Traceback" not in result.stderr.str()


def test_the_page_lists_each_name_and_setting():
    page = Path(__file__).parents[2] / "docs" / "reference" / "pytest-options.md"
    text = page.read_text(encoding="utf-8").partition("| long name |")[2]
    rows = [
        [cell.strip(" `").partition(" = ")[0] for cell in line.split("|")[1:-1]]
        for line in text.partition("\n\n")[0].splitlines()[2:]
    ]
    expected = [
        [option.names[0], "".join(option.names[1:]), option.key, option.setting]
        for option in OPTIONS
    ]
    assert sorted(rows) == sorted(expected)
