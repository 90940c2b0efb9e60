"""Lint AWS's own code: its files and the traces of its launches (README.md).

``python -m conformance.linting PATH scripts|blocks|classic|library [--sdk 2.32] [--write] [pytest's
arguments]``: PATH is a checkout of https://github.com/aws-neuron/aws-neuron-sdk, or for ``library``
of https://github.com/aws-neuron/nki-library. What AWS has compiled should break no rule.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from conformance import aws_documentation, nki_library
from conformance.aws_documentation import EXAMPLES, FRAMEWORKS, MACHINES, SOURCES
from conformance.limits import limited
from conformance.outcomes import FAILED, PASSED, Outcome
from conformance.running import in_front_of_path
from conformance.stand_ins import TARGET
from conformance.table import commit_of, place
from difftest.simulator.launch_listeners import LaunchRecord, listening
from difftest.testing.host.installation import embedded_with_predictions
from difftest.tools.lint.check import Diagnostic, lint_trace
from difftest.tools.lint.files import LintRequest
from difftest.tools.lint.rule import SDKS, Release

PAGE = (
    Path(__file__).parents[1]
    / "docs"
    / "contributing"
    / "generated"
    / "lint-of-others.md"
)
RULES = "../../../difftest/tools/lint/pages"
FOLDERS = {
    "scripts": (EXAMPLES, SOURCES),
    "blocks": (),
    "classic": (*aws_documentation.CLASSIC, Path("general", "nki", "examples")),
    "library": (Path("src"), Path("test", "integration")),
}
"""Whose files are read, of what runs."""


@dataclass
class Reader:
    """Is told of launches, and counts how many of them break a rule at a line."""

    sdk: Release | None
    launches: int = 0
    broken: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    said: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def __call__(self, testimony: LaunchRecord) -> None:
        """Read one launch."""
        self.launches += 1
        for one in lint_trace(testimony.trace, self.sdk):
            self.count(one)

    def count(self, one: Diagnostic) -> None:
        """Keep a diagnostic."""
        key = one.id, one.path, one.line
        self.broken[key] += 1
        self.said.setdefault(key, one.happened)


def run(
    kind: str, checkout: Path, arguments: Sequence[str], seconds: float
) -> list[Outcome]:
    """Run the scripts, code blocks or tests of a checkout.

    Raises
    ------
    FileNotFoundError, RuntimeError : there is nothing to run.
    """
    if kind == "library":
        return nki_library.outcomes(checkout, arguments, seconds)
    if kind == "classic":
        return aws_documentation.classic_tests(checkout, arguments, seconds)
    if kind == "blocks":
        return aws_documentation.code_blocks(checkout, seconds)
    files = [*(checkout / EXAMPLES).rglob("*.py"), *(checkout / SOURCES).rglob("*.py")]
    if not files:
        raise FileNotFoundError(
            f"no script under {checkout / EXAMPLES}: is this v2.32.0?"
        )
    return [_script(checkout, file, seconds) for file in sorted(files)]


def _script(checkout: Path, file: Path, seconds: float) -> Outcome:
    """Run one script in this process and observe its launches."""
    name = file.relative_to(checkout).as_posix()
    known = set(sys.modules)
    argv = sys.argv
    sys.argv = [str(file)]
    os.environ.update({TARGET: MACHINES[name]} if name in MACHINES else {})
    try:
        with (
            embedded_with_predictions(),
            in_front_of_path(file.parent, FRAMEWORKS),
            redirect_stdout(StringIO()),
            limited(seconds, name),
        ):
            runpy.run_path(str(file), run_name="__main__")
    except (Exception, SystemExit) as error:
        return Outcome(file.parent.as_posix(), name, FAILED, str(error))
    finally:
        sys.argv = argv
        os.environ.pop(TARGET, None)
        for module in set(sys.modules) - known:  # two folders have modules of one name
            if str(file.parent) in str(getattr(sys.modules[module], "__file__", "")):
                del sys.modules[module]
    return Outcome(file.parent.as_posix(), name, PASSED)


def section(
    title: str, command: str, checkout: Path, counts: str, reader: Reader
) -> str:
    """Return the Markdown of a run: its origin, the files read, and each place that breaks a rule.

    Places of a file with equal messages share a row.
    """
    lines = [
        f"## {title}",
        "",
        f"From {commit_of(checkout)}, by",
        "",
        "```",
        command,
        "```",
        "",
    ]
    lines += [
        f"{counts}, {reader.launches:,} launches: {len(reader.broken)} places.",
        "",
    ]
    if reader.broken:
        lines += ["| rule | at | times | what |", "| --- | --- | ---: | --- |"]
    rows: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for (id, path, line), times in sorted(reader.broken.items()):
        said = (
            reader.said[id, path, line].partition(", called at ")[0].replace("|", "\\|")
        )
        rows.setdefault((id, path, said), []).append((line, times))
    for (id, path, said), places in rows.items():
        at = Path(path)
        own = at.relative_to(checkout) if at.is_relative_to(checkout) else at.name
        at_lines = ", ".join(str(line) for line, _ in places)
        total = sum(n for _, n in places)
        lines.append(
            f"| [{id}]({RULES}/{id}.md) | {own}:{at_lines} | {total} | {said} |"
        )
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or put it on its page; 1 where a rule is broken, 2 where nothing ran."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.linting", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("path", type=Path, help="a checkout")
    parser.add_argument("kind", choices=FOLDERS, help="what is run")
    parser.add_argument(
        "--sdk", choices=SDKS, help="else the newest of each file's dialect"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table on its page"
    )
    parser.add_argument(
        "--limit", type=float, default=60, help="seconds for each (%(default)s)"
    )
    known, rest = parser.parse_known_args(arguments)
    checkout = known.path.resolve()
    reader = Reader(SDKS.get(known.sdk))
    try:
        with listening(reader):
            outcomes = run(known.kind, checkout, rest, known.limit)
    except (FileNotFoundError, RuntimeError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    folders = [
        checkout / one for one in FOLDERS[known.kind] if (checkout / one).is_dir()
    ]
    diagnostics, unread = LintRequest(sdk=reader.sdk).of_files(folders)
    for one in diagnostics:
        reader.count(one)
    files = sum(1 for folder in folders for _ in folder.rglob("*.py"))
    passed = sum(one.result == PASSED for one in outcomes)
    counts = (
        f"{files:,} files read ({len(unread)} are no Python), {passed:,} runs passed"
    )
    own = ["--sdk", known.sdk] if known.sdk else []
    command = " ".join(["python -m conformance.linting PATH", known.kind, *own, *rest])
    text = section(command.partition("PATH ")[2], command, checkout, counts, reader)
    if known.write:
        place(text, PAGE)
    else:
        print(text)
    return int(bool(reader.broken))


if __name__ == "__main__":
    sys.exit(main())
