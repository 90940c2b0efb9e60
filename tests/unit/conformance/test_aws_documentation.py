"""The recipe for AWS's documentation on stand-ins: scripts by their exit code, tests by pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conformance import aws_documentation
from conformance.aws_documentation import error_of
from tests.every import every

ROOT = Path(__file__).parents[3]

EXAMPLE = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out

x = np.ones((4, 4), np.float32)
"""
TESTS = f"""{EXAMPLE}
def test_passes():
    assert np.array_equal(nki.simulate_kernel(copy, x), x)

def test_fails():
    assert np.array_equal(nki.simulate_kernel(copy, x), x + 1), "not one more"
"""


def recipe(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "conformance.aws_documentation", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_examples_go_by_their_exit_code(tmp_path):
    folder = tmp_path / "nki" / "examples" / "copy"
    folder.mkdir(parents=True)
    (folder / "passes.py").write_text(f"{EXAMPLE}assert np.array_equal(copy(x), x)\n")
    (folder / "fails.py").write_text(f"{EXAMPLE}assert np.array_equal(copy(x), x + 1), 'no'\n")
    done = recipe(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "| nki/examples/copy | 2 | 1 | 1 | 0 |" in done.stdout.splitlines()
    assert "| nki/examples/copy | fails.py | failed | `AssertionError: no` |" in done.stdout
    (folder / "fails.py").unlink()
    assert recipe(tmp_path).returncode == 0


def test_a_script_of_a_misuse_must_be_refused(tmp_path):
    script = tmp_path / "nki" / "examples" / "layout-violation.py"
    script.parent.mkdir(parents=True)
    for text, code in (("raise ValueError('129 partitions')", 0), ("raise SystemExit", 1)):
        script.write_text(text)
        assert recipe(tmp_path).returncode == code


@pytest.mark.parametrize(
    ("printed", "code"), [("NKI and Torch match", 0), ("NKI and Torch differ", 1)]
)
def test_a_script_that_prints_that_it_is_wrong_failed(tmp_path, printed, code):
    script = tmp_path / "nki" / "examples" / "script.py"
    script.parent.mkdir(parents=True)
    script.write_text(f"print({printed!r})\n")
    done = recipe(tmp_path)
    assert done.returncode == code
    assert f"`{printed}`" in done.stdout or not code


def test_scripts_find_the_device_frameworks(tmp_path):
    script = tmp_path / "nki" / "examples" / "script.py"
    script.parent.mkdir(parents=True)
    script.write_text("import torch_xla\nassert torch_xla.device() == 'cpu'\n")
    done = recipe(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_code_blocks_are_listed_with_what_came_of_them(tmp_path):
    page = tmp_path / "nki" / "deep-dives" / "page.rst"
    page.parent.mkdir(parents=True)
    blocks = ["assert nl.ones((4, 8), nl.float32).ndim == 2", "assert 1 == 2, 'no'", "f(...)"]
    page.write_text("".join(f".. code-block:: python\n\n   {one}\n\n" for one in blocks))
    done = recipe(tmp_path, "--blocks")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "| nki/deep-dives/page.rst | 2 | 1 | 1 | 1 |" in done.stdout.splitlines()
    assert "| nki/deep-dives/page.rst | 5 | failed | `AssertionError: no` |" in done.stdout
    assert "| 9 | skipped | `it leaves parts out (...)` |" in done.stdout


def test_classic_tests_are_counted(tmp_path):
    folder = tmp_path / "general" / "nki" / "test"
    folder.mkdir(parents=True)
    (folder / "test_copy.py").write_text(TESTS)
    done = recipe(tmp_path, "--classic")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "| general/nki/test/test_copy.py | 2 | 1 | 1 | 0 |" in done.stdout.splitlines()
    assert "not one more" in done.stdout
    done = recipe(tmp_path, "--classic", "general/nki/test", "-k", "passes")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "is this v2.32.0?"),
        (["--blocks"], "is this v2.32.0?"),
        (["--classic"], "is this v2.26.0?"),
    ],
)
def test_another_folder_is_refused(tmp_path, capsys, options, message):
    assert aws_documentation.main([str(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err


@every(
    "stderr, error",
    [
        ("KernelError: no\n  received: x\n", "KernelError: no"),
        ("warned\nTraceback (most recent call last):\n  File x\nE: y\n", "E: y"),
        ("", "no message"),
    ],
)
def test_the_error_is_found_in_what_was_printed(stderr, error):
    assert error_of(stderr) == error
