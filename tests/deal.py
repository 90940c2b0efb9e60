"""Deal the test files over the installed Pythons in CI: each file runs on a single Python.

The Python follows from the file's place among all files and the number of the commit. Neighbouring
files, which often take equally long, go to different Pythons. If no file is added or removed, each
test runs on each Python within five commits. Files are dealt before they are imported, because
importing all tests takes 20 seconds of processor time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
_LOOK = ("uv", "python", "find", "--system", "--no-python-downloads")
_LOOK += ("--python-preference", "only-system")
"""The command of tox-uv's search; uv is on the PATH of its environments."""


def pythons_here() -> list[str]:
    """The Pythons that tox finds here, and has an environment for."""
    if shutil.which("uv") is None:
        raise pytest.UsageError(
            "--deal asks uv which Pythons are here; tox-uv brings it along"
        )
    looks = {
        name: subprocess.run([*_LOOK, name], capture_output=True) for name in PYTHONS
    }
    return [name for name, look in looks.items() if look.returncode == 0]


def number_of_commit(root: Path) -> int:
    """Return the number of commits up to this one, or 0 without git.

    In a shallow clone the commit's hash, as a number, replaces it. It also varies with the commit,
    but not in turn.
    """

    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return run.stdout.strip()

    if git("rev-parse", "--is-shallow-repository") == "true":
        return int(git("rev-parse", "HEAD"), 16)
    return int(git("rev-list", "--count", "HEAD") or 0)


class Deal:
    """Return the files for an installed Python at a commit.

    ``files`` are paths from the root, with slashes; the order does not matter.
    """

    def __init__(
        self, pythons: list[str], own: str, commit: int, files: Iterable[str]
    ) -> None:
        first = (pythons.index(own) - commit) % len(pythons)
        self.files = set(sorted(files)[first :: len(pythons)])

    @classmethod
    def of_this_run(cls, root: Path) -> Deal:
        own = "{}.{}".format(*sys.version_info)
        files = (
            file.relative_to(root).as_posix()
            for file in root.glob("tests/**/test_*.py")
        )
        return cls(pythons_here(), own, number_of_commit(root), files)
