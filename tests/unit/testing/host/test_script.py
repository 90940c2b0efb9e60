"""A script under the embedded simulator behaves as under `python`, run here for comparison."""

import subprocess
import sys

import pytest

from difftest.testing.host.script import run_script
from tests.every import every

# The view of a script on its start; `sibling` is in the same folder.
SELF_PORTRAIT = """
import os, sys
import sibling
print(__name__, os.path.abspath(__file__), sys.argv, os.path.abspath(sys.path[0]))
print(sys.modules["__main__"].__dict__ is globals(), sibling.NAME)
"""

FAILURES = {
    "an error": "def fail():\n    return {}['key']\n\nfail()\n",
    "a chained error": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('text') from e\n"
    ),
    "an error while handling one": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    [][1]\n",
    "a syntax error": "def (:\n",
    "an import error": "import absent_module\n",
    "a message on exit": "import sys\nsys.exit('the message')\n",
    "a failing assertion": "assert 1 == 2, 'the contract'\n",
    "a hook of its own": "import sys\nsys.excepthook = lambda *a: print(a[0])\n1 / 0\n",
}

KERNEL = """
import sys
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def double(a):
    assert a.shape[1] == 2, "two columns"
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a) * 2)
    return out

print(nki.simulate_kernel(double, np.ones((int(sys.argv[1]), int(sys.argv[2])), np.float32)).sum())
"""


@pytest.fixture
def script(tmp_path):
    """Write a script next to the module `sibling`; return its path."""
    (tmp_path / "sibling.py").write_text("NAME = 'sibling'\n")

    def write(source: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(source)
        return str(path)

    return write


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_the_script_starts_as_under_python(script, capsys):
    path = script(SELF_PORTRAIT)
    assert run_script(path, ["--flag", "x"]) == 0
    expected = python(path, "--flag", "x")
    assert expected.returncode == 0
    assert capsys.readouterr().out == expected.stdout


@every("name", FAILURES)
def test_a_failure_reads_as_under_python(script, capsys, monkeypatch, name):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # a script may set its own
    path = script(FAILURES[name])
    expected = python(path)
    assert expected.returncode == 1
    assert run_script(path) == 1
    assert capsys.readouterr() == (expected.stdout, expected.stderr)


def test_kernels_run_on_the_embedded_simulator(script, capsys):
    assert run_script(script(KERNEL), ["128", "2"]) == 0
    assert capsys.readouterr().out == "512.0\n"


def test_a_broken_rule_is_shown_as_its_text_alone(script, capsys):
    path = script(KERNEL)
    assert run_script(path, ["129", "2"]) == 1
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "128" in error
    assert "129" in error
    assert f"{path}:11: " in error  # the line of the kernel


def test_a_broken_contract_shows_the_lines_of_the_script_alone(script, capsys):
    path = script(KERNEL)
    assert run_script(path, ["128", "3"]) == 1
    error = capsys.readouterr().err
    files = [
        line.split('"')[1] for line in error.splitlines() if line.startswith("  File")
    ]
    # the launch and the assert, without frames of ours in between
    assert files == [
        path,
        path,
    ]
    assert error.endswith("AssertionError: two columns\n")


def state():
    """The traces that a run could leave; under --simulate this process has its own neuronxcc."""
    ours = {
        name: module
        for name, module in sys.modules.items()
        if name.startswith("neuronxcc")
    }
    return (
        sys.argv,
        sys.path,
        list(sys.argv),
        list(sys.path),
        sys.modules["__main__"],
        ours,
    )


def test_nothing_is_left_behind(script):
    before = state()
    run_script(
        script(
            "import neuronxcc.nki, sys\nsys.argv.append('x')\nsys.path.append('y')\n1/0"
        )
    )
    assert state() == before


def test_a_script_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no script at .*absent\.py"):
        run_script(str(tmp_path / "absent.py"))


def test_an_error_of_our_own_keeps_every_frame(script, capsys):
    source = "from difftest.cli.bench import measure_call\nmeasure_call(None)\n"
    assert run_script(script(source)) == 1
    assert "bench.py" in capsys.readouterr().err
