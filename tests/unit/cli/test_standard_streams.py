"""``-`` for standard input and output, and commands whose streams are closed."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from difftest.cli.main import main
from difftest.support import output
from tests.every import every

NUMBERS = itertools.count()
CALL = ["--shape", "128,64"]
WRONG = """import nki
import nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.ndarray((nl.par_dim(128), 64), x.dtype, nl.sbuf)
    return x
"""
OTHER = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def copied(x):
    print("the kernel says so")
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


@pytest.fixture
def named(tmp_path: Path) -> str:
    """A kernel that prints, as commands take it."""
    return written(tmp_path)


def written(folder: Path) -> str:
    """Write the kernel to a module of its own name."""
    file = folder / f"copied_{next(NUMBERS)}.py"
    file.write_text(OTHER)
    return f"{file}:copied"


def run(*args: str, stdin: str | None = None):
    return CliRunner().invoke(main, list(args), input=stdin)


def test_a_refused_command_gives_standard_output_back() -> None:
    refused = run("profile", "kernel.py:kernel", "--json", "-", "--perfetto", "-")
    assert refused.exit_code == 2
    assert output._KEPT == []


@every(
    "command",
    [
        ["check", "--json", "-"],
        ["profile", "--json", "-"],
        ["profile", "--perfetto", "-"],
        ["trace", "-o", "-"],
    ],
)
def test_a_file_named_dash_is_standard_output_alone(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(command[0], written(tmp_path), *CALL, *command[1:])
    assert result.exit_code == 0, result.output
    assert isinstance(json.loads(result.stdout), dict)
    assert "the kernel says so" in result.stderr
    assert not Path("-").exists()


def test_the_text_of_a_command_goes_to_standard_error_beside_a_file_named_dash(
    named: str,
) -> None:
    plain = run("check", named, *CALL)
    both = run("check", named, *CALL, "--json", "-")
    assert plain.stdout.splitlines()[-1].startswith("copied on")
    assert plain.stdout.splitlines()[-1] in both.stderr


def test_two_files_named_dash_are_refused(named: str) -> None:
    result = run("profile", named, *CALL, "--json", "-", "--perfetto", "-")
    assert result.exit_code == 2
    assert "standard output takes one file" in result.stderr


def test_a_picture_needs_a_name(named: str) -> None:
    result = run("profile", named, *CALL, "--plot", "-")
    assert result.exit_code == 2
    assert "its name ends in" in result.stderr


def test_lint_reads_standard_input() -> None:
    result = run("lint", "-", "--sdk", "2.33", stdin=WRONG)
    assert result.exit_code == 1
    assert result.stdout.startswith("-:7:24: NKU302 [*] nl.par_dim ended")
    [row] = json.loads(run("lint", "--format", "json", "-", stdin=WRONG).stdout)
    assert (row["file"], row["line"]) == ("-", 7)
    assert "-: cannot be read as Python" in run("lint", "-", stdin="def f(:").stderr


def test_lint_reads_standard_input_beside_files(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(WRONG)
    said = run("lint", str(file), "-", stdin=WRONG).stdout.splitlines()
    assert [line.partition(":7:")[0] for line in said] == [str(file), "-"]


def test_lint_writes_the_fixed_input_to_standard_output() -> None:
    fixed = WRONG.replace("nl.par_dim(128)", "128")
    result = run("lint", "-", "--fix", "--deny", "NKU302", stdin=WRONG)
    assert (result.exit_code, result.stdout) == (0, fixed)
    assert "1 file fixed" in result.stderr
    assert run("lint", "-", "--fix", stdin=fixed).stdout == fixed
    shown = run("lint", "-", "--diff", stdin=WRONG).stdout
    assert "+    tile = nl.ndarray((128, 64)" in shown
    wrong = WRONG.replace("    return x", "    if x is not tile:\n        return x")
    left = run("lint", "-", "--fix", "--sdk", "2.32", stdin=wrong)
    assert left.stdout == wrong.replace("nl.par_dim(128)", "128")
    assert "NKL106" in left.stderr


def test_explain_reads_a_log_from_standard_input() -> None:
    result = run("explain", "-", stdin="[NCC_EVRF007] too many\n[NCC_IZZZ999]\n")
    assert result.exit_code == 0
    assert "NCC_EVRF007: " in result.stdout
    assert "1 of 2 codes in the log are not known: NCC_IZZZ999" in result.stdout
    nothing = run("explain", "-", stdin="one\ntwo\n")
    assert nothing.exit_code == 1
    assert "the log has no code or text that is known" in nothing.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_ends_no_command_with_a_traceback(
    named: str, closed: str
) -> None:
    command = f"{sys.executable} -m difftest profile {named} --shape 128,64 {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_a_file_that_a_command_writes_is_whole_where_standard_output_is_closed(
    named: str, tmp_path: Path
) -> None:
    """The first file that a process opens would have standard output's number."""
    file = tmp_path / "profile.json"
    command = (
        f"{sys.executable} -m difftest profile {named} --shape 128,64 --json {file} >&-"
    )
    subprocess.run(["sh", "-c", command], check=True)
    assert json.loads(file.read_text())["advice"] is not None
