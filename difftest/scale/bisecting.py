"""Since when a finding is wrong: its case at other commits, and at other levels of NKI."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from difftest.choices import LEVELS
from difftest.scale.found import Found

_STEP = """
import subprocess, sys
code = subprocess.call([sys.executable, "-m", "pytest", *sys.argv[2:]], cwd=sys.argv[1])
sys.exit(code if code in (0, 1) else 125)
"""
"""One commit: passes, fails, or cannot be tried, such as one before the test was written."""
_OUTCOMES = {pytest.ExitCode.OK: "passes", pytest.ExitCode.TESTS_FAILED: "fails"}


def bisect_commits(found: Found, good: str, bad: str = "HEAD") -> str:
    """The first commit at which the case of a finding fails, as ``git bisect`` says it."""
    top = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel").strip())
    prefix = _git(Path.cwd(), "rev-parse", "--show-prefix").strip()
    with tempfile.TemporaryDirectory(prefix="difftest-bisect-") as folder:
        tree = Path(folder).resolve() / "tree"
        _git(top, "worktree", "add", "--detach", str(tree), bad)
        try:
            _git(tree, "bisect", "start", bad, good)
            step = [sys.executable, "-c", _STEP, str(tree / prefix), *found.arguments]
            said = _git(tree, "bisect", "run", *step, "-p", "no:cacheprovider")
        finally:
            _git(top, "worktree", "remove", "--force", str(tree))
    at = said.find(" is the first bad commit")
    return said[said.rfind("\n", 0, at) + 1 :] if at >= 0 else said


def by_level(found: Found) -> Iterator[tuple[str, str]]:
    """Each level of NKI, and whether the case passes at it."""
    options = [one for one in found.arguments if not one.startswith("--nki-level")]
    for level in LEVELS:
        words = [sys.executable, "-m", "pytest", f"--nki-level={level}", *options]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        yield level, _OUTCOMES.get(pytest.ExitCode(done.returncode), "cannot be tried")


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"{done.stdout}{done.stderr}".strip()[-2000:]
        raise click.ClickException(f"git {' '.join(words[:2])}: {said}")
    return done.stdout
