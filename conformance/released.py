"""Lint the kernels that AWS released, with the SDK of each release (README.md).

``python -m conformance.released PATH RELEASE… [--write]``: PATH is a clone of
https://github.com/aws-neuron/nki-library or https://github.com/aws-neuron/aws-neuron-sdk. A RELEASE
is a tag or a commit with its SDK, ``62cb67d=2.27``; a tag such as ``2.29`` or ``v2.32.0`` has its
SDK in its name. Nothing should be denied: AWS has compiled what it released.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.linting import PAGE, RULES
from conformance.table import place
from difftest.tools.lint.check import Diagnostic, lint_source
from difftest.tools.lint.files import Level, Levels, python_files
from difftest.tools.lint.rule import LAST_CLASSIC, SDKS, Release
from difftest.tools.lint.source import UNREADABLE, Source

_SDK = re.compile(r"^v?(2\.\d+)")


@dataclass
class Reading:
    """The linter's report on one release.

    Attributes
    ----------
    commit : the full name of the release's commit.
    unread : files that are not Python.
    denied, warned : counts by rule id.
    denials : each denied place, as the linter's text names it.
    """

    name: str
    commit: str
    sdk: Release
    files: int = 0
    unread: list[str] = field(default_factory=list)
    denied: Counter[str] = field(default_factory=Counter)
    warned: Counter[str] = field(default_factory=Counter)
    denials: list[str] = field(default_factory=list)

    def read(self, folder: Path) -> None:
        """Lint each file of a folder at the release's SDK."""
        for path in python_files([folder]):
            self.files += 1
            name = path.relative_to(folder).as_posix()
            try:
                source = Source(Path(name), path.read_text(encoding="utf-8-sig"))
            except UNREADABLE:
                self.unread.append(name)
                continue
            for one in lint_source(source, own_sdk(source, self.sdk)):
                self._count(one)

    def _count(self, one: Diagnostic) -> None:
        """Count a diagnostic by the level that it has where the SDK and the machine are named."""
        level = Levels({}, is_sdk_named=True, is_target_named=True).of(one.rule)
        if level is Level.DENY:
            self.denied[one.id] += 1
            self.denials.append(
                f"{self.name}:{one.path}:{one.line}: {one.id} {one.text}"
            )
        else:
            self.warned[one.id] += 1

    @property
    def row(self) -> str:
        """The release as a row of the table."""
        cells = (
            f"{self.name} ({self.commit[:12]})",
            self.sdk.version,
            f"{self.files:,}",
            str(len(self.unread)),
            _counts(self.denied),
            _counts(self.warned),
        )
        return f"| {' | '.join(cells)} |"


def own_sdk(source: Source, sdk: Release) -> Release:
    """Return the SDK that a file of a release was written for.

    The documentation keeps files of the classic dialect beyond the last SDK that compiles them.
    """
    is_newer = sdk.minor > LAST_CLASSIC.minor
    return LAST_CLASSIC if source.names.is_classic and is_newer else sdk


def release_of(text: str) -> tuple[str, Release]:
    """Return the tag or commit, and the SDK, that ``TAG`` or ``COMMIT=SDK`` names.

    Raises
    ------
    argparse.ArgumentTypeError : the text names no known SDK.
    """
    name, _, version = text.partition("=")
    in_tag = _SDK.match(name)
    version = version or (in_tag[1] if in_tag else "")
    if version not in SDKS:
        known = ", ".join(SDKS)
        raise argparse.ArgumentTypeError(
            f"{text} names no known SDK: write {name}=SDK, one of {known}"
        )
    return name, SDKS[version]


def read_release(clone: Path, name: str, sdk: Release) -> Reading:
    """Lint the Python files of one commit of a clone.

    Raises
    ------
    subprocess.CalledProcessError : the clone has no such commit.
    """
    git = ["git", "-C", str(clone)]
    found = subprocess.run(
        [*git, "rev-parse", f"{name}^{{commit}}"], capture_output=True, check=True
    )
    reading = Reading(name, found.stdout.decode().strip(), sdk)
    python = ["--", ":(glob)**/*.py"]
    archive = [*git, "archive", "--format=zip", reading.commit, *python]
    packed = subprocess.run(archive, capture_output=True, check=True)
    with (
        TemporaryDirectory() as folder,
        zipfile.ZipFile(io.BytesIO(packed.stdout)) as files,
    ):
        files.extractall(folder)
        reading.read(Path(folder))
    return reading


def section(clone: Path, readings: Sequence[Reading]) -> str:
    """Return the table of some releases as a section of the page."""
    title = f"{clone.absolute().name} at the SDK of each release"
    named = " ".join(f"{one.name}={one.sdk.version}" for one in readings)
    lines = [
        f"## {title}",
        "",
        f"By `python -m conformance.released PATH {named}`:",
        "",
    ]
    lines += ["| release | SDK | files | no Python | denied | warnings |"]
    lines += ["| --- | --- | ---: | ---: | --- | --- |", *(one.row for one in readings)]
    return "\n".join(lines) + "\n"


def _counts(counts: Counter[str]) -> str:
    linked = (
        f"{number} [{id}]({RULES}/{id}.md)" for id, number in sorted(counts.items())
    )
    return ", ".join(linked) or "0"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or put it on its page; 1 where something is denied, 2 for a wrong commit."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.released", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("path", type=Path, help="a clone")
    parser.add_argument(
        "releases", nargs="+", type=release_of, metavar="TAG|COMMIT=SDK"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table on its page"
    )
    asked = parser.parse_args(arguments)
    try:
        readings = [read_release(asked.path, name, sdk) for name, sdk in asked.releases]
    except subprocess.CalledProcessError as error:
        print(f"conformance: {error.stderr.decode().strip()}", file=sys.stderr)
        return 2
    text = section(asked.path, readings)
    if asked.write:
        place(text, PAGE)
    else:
        print(text, end="")
    for denial in (denial for one in readings for denial in one.denials):
        print(denial)
    return int(any(one.denied for one in readings))


if __name__ == "__main__":
    sys.exit(main())
