"""Tests of both dialects' kernels with an SDK of one dialect, or of both."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.testing.backends.opaque_sdk import WRITERS
from tests.unit.testing.backends.sdk_standin import forget

ROOT = Path(__file__).parents[2]
ONE = "left out on sdk: 1 kernel of {}, with 1 test that needs them"
"""The line of the summary on the kernels of one dialect."""
FOUND = {
    "neuronxcc.nki": "the package neuronxcc, which fails to import: *",
    "nki": "no package nki",
}
REMEDY = {
    "neuronxcc.nki": "port the kernel (*), or use an SDK of 2.21 to 2.29",
    "nki": "use an SDK from 2.29 on",
}

CLASSIC_KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=nisa.tensor_tensor(a, b, op=nl.add))
    return out
"""
NEWER_KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.tensor_tensor(dst=out, data1=a, data2=b, op=nl.add)
    return out
"""
EITHER_KERNEL = """
try:
    import nki
    import nki.isa as nisa
    import nki.language as nl
    IS_CLASSIC = False
except ImportError:
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
    IS_CLASSIC = True

@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    if IS_CLASSIC:
        nisa.dma_copy(dst=out, src=nisa.tensor_tensor(a, b, op=nl.add))
    else:
        nisa.tensor_tensor(dst=out, data1=a, data2=b, op=nl.add)
    return out
"""
TEST = """
import numpy as np
from difftest import Rejection, kernel_test
{imports}

def reference(a, b):
    return a.astype(np.float64) + b.astype(np.float64)

@kernel_test(
    kernels=({kernels},),
    reference=reference,
    domain={{"m": range(1, 9), "n": (4,)}},
    inputs={{"a": "m n", "b": "m n"}},
    examples=[{{"m": 8, "n": 4}}],
)
def test_add(case):
    case.check()
"""
KERNELS = {"classic": CLASSIC_KERNEL, "newer": NEWER_KERNEL, "either": EITHER_KERNEL}


class Computer:
    """A folder with an SDK of one dialect or both, and tests of kernels."""

    def __init__(self, pytester: pytest.Pytester, situation: str) -> None:
        self.pytester = pytester
        self.folder = pytester.path
        for write in WRITERS[situation]:
            write(self.folder)
        for name, text in KERNELS.items():
            (self.folder / f"kernel_{name}.py").write_text(text)
        pytester.makeini("[pytest]\npythonpath = .\n")

    def add_test(self, *dialects: str) -> None:
        """A test of the kernels of these dialects, in a file named for them."""
        imports = [
            f"from kernel_{dialect} import add as {dialect}" for dialect in dialects
        ]
        text = TEST.format(imports="\n".join(imports), kernels=", ".join(dialects))
        (self.folder / f"test_{'_and_'.join(dialects)}.py").write_text(text)

    def run(self, *arguments: str) -> pytest.RunResult:
        for module in [
            name for name in sys.modules if name.startswith(("kernel_", "test_"))
        ]:
            del sys.modules[module]  # of the run before
        return self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


@pytest.fixture
def computer(pytester, in_process, monkeypatch):
    forget(monkeypatch, "neuronxcc", "nki")
    return lambda situation: Computer(pytester, situation)


def lines_of(package, count=ONE):
    return [
        count.format(package),
        f"  found:  {FOUND[package]}",
        f"  remedy: {REMEDY[package]}",
    ]


@pytest.mark.parametrize(
    ("situation", "missing"),
    [("classic", "nki"), ("newer", "neuronxcc.nki"), ("both", "")],
)
def test_each_kernel_runs_that_has_its_dialect_and_the_others_are_counted(
    computer, situation, missing
):
    """The test of both kernels runs one; the summary says that the other is left out."""
    machine = computer(situation)
    for dialects in (("classic",), ("newer",), ("classic", "newer"), ("either",)):
        machine.add_test(*dialects)
    result = machine.run("--simulate=sdk", "-v", "--difftest-report=report.json")
    tests = 2 * (4 if situation == "both" else 3)
    result.assert_outcomes(passed=tests, deselected=8 - tests)
    if missing:
        result.stdout.fnmatch_lines(lines_of(missing))
    else:
        result.stdout.no_fnmatch_line("*left out*")
        result.stdout.fnmatch_lines(
            ["identical kernels: all bits agree in all cases of 1 pair"]
        )
    groups = json.loads((machine.folder / "report.json").read_text())["left_out"]
    assert [(group["backend"], group["dialect"]) for group in groups] == (
        [("sdk", missing)] if missing else []
    )
    for group in groups:
        (kernel,) = group["kernels"]
        assert kernel == f"kernel_{'newer' if missing == 'nki' else 'classic'}.add"
        assert len(group["tests"]) == 1


def test_workers_tell_the_kernels_that_they_leave_out(computer):
    machine = computer("classic")
    machine.add_test("classic")
    machine.add_test("newer")
    # which takes the SDK that is installed
    result = machine.run("--simulate", "-n", "2", "-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([*lines_of("nki"), "  kernel: kernel_newer.add"])


@pytest.mark.parametrize(
    ("situation", "kernel", "package"),
    [("classic", "newer", "nki"), ("newer", "classic", "neuronxcc.nki")],
)
def test_a_backend_that_runs_no_kernel_is_a_usage_error(
    computer, situation, kernel, package
):
    """A session that runs nothing of the request is never green."""
    machine = computer(situation)
    machine.add_test(kernel)
    workers = ["-n", "1"] if situation == "classic" else []
    for more in ([], ['--case={"values": {"m": 2, "n": 4}}'], workers):
        result = machine.run("--simulate=sdk", *more)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        text = result.stdout.str() + result.stderr.str()
        assert "sdk was requested, but cannot run any of the tested kernels" in text
        assert f"the kernel is written for {package}" in text
        assert f"remedy: {REMEDY[package].partition('*')[0]}" in text


def test_the_first_import_that_a_file_tries_is_real(computer):
    """A kernel of the installed dialect runs, and the other kernel is left out."""
    machine = computer("classic")
    machine.add_test("either", "newer")
    (machine.folder / "test_first.py").write_text(
        "from kernel_either import IS_CLASSIC\n\ndef test_dialect():\n    assert IS_CLASSIC\n"
    )
    machine.run("--simulate=sdk").assert_outcomes(passed=3)


def test_a_kernel_of_the_missing_dialect_refuses_a_call(computer):
    """Nothing falls back to the embedded simulator, in a test of any kind."""
    machine = computer("classic")
    machine.add_test("classic", "newer")
    file = machine.folder / "test_classic_and_newer.py"
    file.write_text(
        file.read_text()
        + "\n\ndef test_call():\n    newer(np.ones((2, 4)), np.ones((2, 4)))\n"
    )
    result = machine.run("--simulate=sdk")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*a kernel of nki was called*", "*found:  no package nki"]
    )
    # without a backend the other tests of a file run, with the same error
    result = machine.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a kernel of nki was called*"])


def test_another_import_error_stays_one(computer):
    machine = computer("classic")
    machine.add_test("classic")
    machine.add_test("newer")
    kernel = machine.folder / "kernel_newer.py"
    kernel.write_text("import no_such_package\n" + kernel.read_text())
    result = machine.run("--simulate=sdk")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*No module named 'no_such_package'*"])


@pytest.mark.parametrize("situation", WRITERS)
def test_this_repositorys_own_tests_run_on_each_sdk(situation, tmp_path):
    """Vector additions have a kernel of each dialect, the softmax the current dialect's only."""
    for write in WRITERS[situation]:
        write(tmp_path)
    named = {
        "classic": "naive or softmax",
        "newer": "naive or softmax",
        "both": "naive",
    }
    options = [
        "-n",
        "0",
        "--simulate=sdk",
        "-p",
        "no:cacheprovider",
        "-q",
        "-k",
        named[situation],
    ]
    files = ["tests/kernels/test_vector_add.py", "tests/kernels/test_softmax.py"]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--hypothesis-profile=quick",
            *options,
            *files,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout
    told = {
        "classic": "left out on sdk: 2 kernels of nki, with 1 test that needs them\n",
        "newer": "left out on sdk: 1 kernel of neuronxcc.nki\n",
        "both": "identical kernels: all bits agree in all cases of 1 pair",
    }
    assert told[situation] in run.stdout
