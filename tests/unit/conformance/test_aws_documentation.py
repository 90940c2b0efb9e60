"""The recipe for AWS's documentation on stand-ins: scripts by their exit code, tests by pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_examples_go_by_their_exit_code(tmp_path, capsys):
    folder = tmp_path / "nki" / "examples" / "copy"
    folder.mkdir(parents=True)
    (folder / "passes.py").write_text(f"{EXAMPLE}assert np.array_equal(copy(x), x)\n")
    (folder / "fails.py").write_text(f"{EXAMPLE}assert np.array_equal(copy(x), x + 1), 'no'\n")
    (folder / "differs.py").write_text("print('NKI and Torch differ')\n")
    (folder.parent / "layout-violation.py").write_text("raise SystemExit\n")
    assert aws_documentation.main([str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "| nki/examples/copy | 3 | 1 | 2 | 0 |" in printed.splitlines()
    assert "| nki/examples/copy | fails.py | failed | `AssertionError: no` |" in printed
    assert "`NKI and Torch differ`" in printed
    assert "| nki/examples | 1 | 0 | 1 | 0 |" in printed.splitlines(), "a misuse must be refused"


def test_examples_that_pass_end_with_0(tmp_path, capsys):
    """A misuse that is refused among them, and the device's frameworks are there."""
    folder = tmp_path / "nki" / "examples"
    folder.mkdir(parents=True)
    (folder / "layout-violation.py").write_text("raise ValueError('129 partitions')\n")
    torch = "import torch_xla\nassert torch_xla.device() == 'cpu'\n"
    (folder / "script.py").write_text(f"{torch}print('NKI and Torch match')\n")
    assert aws_documentation.main([str(tmp_path)]) == 0, capsys.readouterr().out


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


@every(
    "options, message",
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
