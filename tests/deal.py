"""CI deals the files of tests over the Pythons that are there: each file to one of them.

Which one follows from the file's place among all files and the number of the commit. Neighbours,
which often take alike, go to different ones. Within as many commits as there are Pythons, five at
most, each test meets each of them, as long as no file comes or goes. What is collected is dealt
before it is imported: to import all tests takes a Python 20 seconds of processor time.
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
"""What tox-uv looks with; uv stands on the PATH of its environments."""


def pythons_here() -> list[str]:
    """The Pythons that tox finds here, and has an environment for."""
    if shutil.which("uv") is None:
        raise pytest.UsageError("--deal asks uv which Pythons are here; tox-uv brings it along")
    looks = {name: subprocess.run([*_LOOK, name], capture_output=True) for name in PYTHONS}
    return [name for name, look in looks.items() if look.returncode == 0]


def number_of_commit(root: Path) -> int:
    """How many commits lead to this one; in a clone without their history its name, as a number.

    So there, too, it varies with the commit, but does not go round in turn. It is 0 without git.
    """

    def git(*words: str) -> str:
        run = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        return run.stdout.strip()

    if git("rev-parse", "--is-shallow-repository") == "true":
        return int(git("rev-parse", "HEAD"), 16)
    return int(git("rev-list", "--count", "HEAD") or 0)


class Deal:
    """The files that fall to one Python of those that are here, at one commit.

    ``files`` are paths from the root, with slashes; the order does not matter.
    """

    def __init__(self, pythons: list[str], own: str, commit: int, files: Iterable[str]) -> None:
        first = (pythons.index(own) - commit) % len(pythons)
        self.files = set(sorted(files)[first :: len(pythons)])

    @classmethod
    def of_this_run(cls, root: Path) -> Deal:
        own = "{}.{}".format(*sys.version_info)
        files = (file.relative_to(root).as_posix() for file in root.glob("tests/**/test_*.py"))
        return cls(pythons_here(), own, number_of_commit(root), files)
