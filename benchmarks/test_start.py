"""The time that this package adds to a start of Python or pytest.

The plugin is installed in environments whose projects have no kernels. Each of their sessions pays.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS = 7
TEST = "def test_it():\n    pass\n"
BARE = "-p", "no:hypothesispytest", "-p", "no:anyio", "-p", "no:xdist"
PYTEST = "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"
STARTS = {
    "a session without kernels": (
        (*PYTEST, *BARE),
        (*PYTEST, *BARE, "-p", "no:difftest"),
        1.15,
    ),
    "difftest --help": (("-m", "difftest", "--help"), ("-c", "import click"), 1.3),
    "difftest run of an empty script": (
        ("-m", "difftest", "run", "empty.py"),
        ("-c", "import numpy, ml_dtypes"),
        2.3,
    ),
    "a first session of one kernel": (
        (*PYTEST[:-1], "-p", "no:anyio", "--simulate", "scale/test_scale.py"),
        ("-c", "import pytest, hypothesis.extra.numpy, ml_dtypes"),
        2.5,
    ),
}
"""A start, the start to compare it with, and the largest ratio of their times."""


def seconds(words: tuple[str, ...], folder: Path) -> float:
    """Return the CPU time of a Python process."""
    shutil.rmtree(folder / ".hypothesis", ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = [sys.executable, *words]
    subprocess.run(
        run, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=environment()
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def environment() -> dict[str, str]:
    """Return the environment of a start: one thread of BLAS, and compiled bytecode.

    More threads would add to the time of NumPy's import. Bytecode makes it a second start.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    return {**kept, "OPENBLAS_NUM_THREADS": "1"}


@pytest.mark.parametrize("name", STARTS)
def test_start(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "empty.py").touch()
    seconds(("-m", "difftest", "init", "scale"), tmp_path)
    ours, beside, aim = STARTS[name]
    times = [
        (seconds(ours, tmp_path), seconds(beside, tmp_path)) for _ in range(ROUNDS)
    ]
    # in turns: others use the computer too
    own, other = map(min, zip(*times, strict=True))
    said = f"{name}: {own:.2f} s of CPU, {own / other:.2f} times {' '.join(beside)}"
    with capsys.disabled():
        print(f"\n{said} (aim: {aim})")
    assert own < aim * other
