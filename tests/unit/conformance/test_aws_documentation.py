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

def test_left_out():
    raise AssertionError
"""


def recipe(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "conformance.aws_documentation",
        *map(str, arguments),
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def scripts(tmp_path, **sources):
    """A checkout whose examples are these scripts."""
    folder = tmp_path / "nki" / "examples"
    folder.mkdir(parents=True)
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    return str(tmp_path)


def test_examples_run_and_go_by_their_exit_code(tmp_path, capsys):
    """The device's frameworks are there."""
    torch = "import torch_xla\nassert torch_xla.device() == 'cpu'\n"
    passes = f"{torch}{EXAMPLE}assert np.array_equal(copy(x), x)\n"
    fails = f"{EXAMPLE}assert np.array_equal(copy(x), x + 1), 'no'\n"
    assert aws_documentation.main([scripts(tmp_path, passes=passes, fails=fails)]) == 1
    printed = capsys.readouterr().out
    assert "| nki/examples | 2 | 1 | 1 | 0 |" in printed.splitlines()
    assert "| nki/examples | fails.py | failed | `AssertionError: no` |" in printed


MISUSE = "layout-violation"
REFUSAL = "ValueError: 129 partitions\n"


@every(
    "name, code, stdout, stderr, failed",
    [
        ("script", 0, "NKI and Torch match", "", 0),
        ("script", 0, "NKI and Torch differ", "", 1),
        ("script", 1, "", REFUSAL, 1),
        (MISUSE, 1, "", REFUSAL, 0),
        (MISUSE, 1, "", "ValueError: no\n", 1),
        (MISUSE, 0, "", "", 1),
    ],
)
def test_the_exit_code_and_the_output_of_a_script_count(
    tmp_path, capsys, monkeypatch, name, code, stdout, stderr, failed
):
    """Its output counts too, and a misuse must be rejected."""
    done = subprocess.CompletedProcess([], code, stdout, stderr)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert aws_documentation.main([scripts(tmp_path, **{name: ""})]) == failed
    assert (
        f"| nki/examples | 1 | {1 - failed} | {failed} | 0 |" in capsys.readouterr().out
    )


def test_code_blocks_are_listed_with_their_results(tmp_path, capsys):
    page = tmp_path / "nki" / "deep-dives" / "page.rst"
    page.parent.mkdir(parents=True)
    blocks = [
        "assert nl.ones((4, 8), nl.float32).ndim == 2",
        "assert 1 == 2, 'no'",
        "f(...)",
    ]
    page.write_text(
        "".join(f".. code-block:: python\n\n   {one}\n\n" for one in blocks)
    )
    assert aws_documentation.main([str(tmp_path), "--blocks"]) == 1
    printed = capsys.readouterr().out
    assert "| nki/deep-dives/page.rst | 2 | 1 | 1 | 1 |" in printed.splitlines()
    assert "| nki/deep-dives/page.rst | 5 | failed | `AssertionError: no` |" in printed
    assert "| 9 | skipped | `it leaves parts out (...)` |" in printed


def test_classic_tests_are_counted(tmp_path):
    folder = tmp_path / "general" / "nki" / "test"
    folder.mkdir(parents=True)
    (folder / "test_copy.py").write_text(TESTS)
    done = recipe(tmp_path, "--classic", "general/nki/test", "-k", "not left_out")
    assert done.returncode == 1, done.stdout + done.stderr
    assert (
        "| general/nki/test/test_copy.py | 2 | 1 | 1 | 0 |" in done.stdout.splitlines()
    )
    assert "not one more" in done.stdout


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
def test_the_error_is_found_in_the_output(stderr, error):
    assert error_of(stderr) == error
