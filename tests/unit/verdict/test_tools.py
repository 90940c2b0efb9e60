"""What an agent asks is what the commands answer."""

from __future__ import annotations

import os
import subprocess

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.verdict.agent_kernel import AgentKernel, AgentKernelError
from difftest.verdict.tools import PAGE, Tools
from tests.every import every
from tests.unit.verdict.kernels import RIGHT, WRONG

REFERENCE = "def reference(a, b):\n    return a + b\n"
SPECS = [{"shape": [4, 2], "dtype": "float32"}] * 2


def run_here(command, *, cwd, **given):
    """A command in this process: that it starts one of its own is test_serve's to see."""
    before = os.getcwd()
    os.chdir(cwd)
    try:
        done = CliRunner().invoke(main, command[3:])
    finally:
        os.chdir(before)
    return subprocess.CompletedProcess(command, done.exit_code, done.output, "")


def test_a_source_that_is_wrong_is_not_correct(monkeypatch):
    monkeypatch.setattr(subprocess, "run", run_here)
    answer = Tools().nki_verify(WRONG, REFERENCE, SPECS, "add", cases=5)
    assert answer["correct"] is False
    assert answer["outcome"] == "wrong_algorithm"
    assert 0 < answer["mismatched_elements"] <= answer["total_elements"] == 8
    assert answer["error"].startswith("add: wrong algorithm (stage: compare)")
    assert answer["max_abs_error"] is None


@every(
    "kernel, reference, specs, said",
    [
        ("def add(", REFERENCE, SPECS, "kernel_source, line 1"),
        ("def sub(a, b): ...", REFERENCE, SPECS, "no function add; its functions: sub"),
        (RIGHT, "import numpy", SPECS, "no function reference"),
        (RIGHT, "import torch\n" + REFERENCE, SPECS, "write it in NumPy"),
        (RIGHT, REFERENCE, SPECS * 2, "add takes 2 arguments; got 4 input_specs"),
        (RIGHT, REFERENCE, [{"shape": [0], "dtype": "float32"}], "sizes from 1 up; got [0]"),
        (RIGHT, REFERENCE, [{"shape": [1], "dtype": '"); x'}], "a dtype is a name"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_runs(kernel, reference, specs, said):
    with pytest.raises(AgentKernelError) as caught:
        AgentKernel(kernel, "add", specs).test(reference)
    assert said in str(caught.value)


def test_a_long_answer_has_pages_and_one_run(monkeypatch):
    runs = []

    def run(arguments, **given):
        runs.append(arguments)
        text = "\n".join(f"row {row} of many rows" for row in range(400))
        return subprocess.CompletedProcess(arguments, 1, text, "")

    monkeypatch.setattr(subprocess, "run", run)
    tools = Tools()
    first = tools.lint(["kernel.py"])
    assert first.endswith("(page 1 of 3; ask for page=2)")
    rest = [tools.lint(["kernel.py"], page=page) for page in (2, 3)]
    assert len(runs) == 1
    assert rest[-1].endswith("row 399 of many rows\nexit code 1\n(page 3 of 3)")
    rows = [row for text in (first, *rest) for row in text.splitlines() if row.startswith("row")]
    assert len(rows) == 400
    assert max(map(len, (first, *rest))) < PAGE + 100
    tools.lint(["kernel.py"])
    assert len(runs) == 2, "the first page is of the files as they are now"


def test_a_command_that_does_not_end_is_told():
    assert "took more than 0.01 s, and was killed" in Tools(0.01).explain("NCC_EBVF030")
