"""Carry the classic kernels of AWS's documentation over by `difftest migrate`, and run their tests.

``python -m conformance.migration PATH [--write]``: PATH is a checkout of
https://github.com/aws-neuron/aws-neuron-sdk at v2.26.0. Its tests call each kernel and compare what
comes back, its example scripts do so or print it; both run as they are, on the new kernels.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from conformance.aws_documentation import FRAMEWORKS, error_of
from conformance.outcomes import FAILED, PASSED, Outcome, cause, denial
from conformance.running import Limit, run
from conformance.table import commit_of, place
from difftest.testing.host.installation import embedded_with_predictions
from difftest.tools.migration.rewriting import Package
from difftest.tools.migration.unmigrated import COMMENT

FOLDERS = (Path("general", "nki", "test"), Path("general", "nki", "examples"))
"""Tests, a file an instruction or function; scripts, which import kernels from one another."""
TITLE = "AWS's documentation: its classic kernels, migrated"
COMMAND = "python -m conformance.migration PATH"
WRONG = ("AssertionError", "assert ", "False is not true")
"""The texts with which the documentation's tests report a wrong result."""


@dataclass
class Carried:
    """The result of migrating one file.

    Attributes
    ----------
    name : path from the root of the checkout.
    kernels : the comments in each of its kernels.
    comments : number of comments in the file.
    outcomes : outcomes of its tests, or of the script.
    """

    name: str
    kernels: dict[str, int]
    comments: int
    outcomes: list[Outcome] = field(default_factory=list)
    failed_before: set[str] = field(default_factory=set)
    """Of these, by name, those that fail on the classic kernels too."""

    @property
    def whole(self) -> int:
        """Kernels without a comment."""
        return sum(count == 0 for count in self.kernels.values())

    def verdict(self) -> str:
        """Return the result of its tests in a word or two."""
        failures = [one for one in self.outcomes if one.result == FAILED]
        new = [one for one in failures if one.name not in self.failed_before]
        if any(is_wrong(one) for one in new):
            return "wrong"
        if new:
            return "refused"
        if failures:
            return "fails before, too"
        return "agree" if self.outcomes else "nothing"


def is_wrong(outcome: Outcome) -> bool:
    """Return whether a failure is a wrong result, not an error of the simulator or of Python."""
    first = outcome.why.strip().partition("\n")[0]
    return any(mark in first for mark in WRONG) and "rule:" not in outcome.why


def carried(checkout: Path, seconds: float) -> list[Carried]:
    """Migrate the files of both folders, and run their tests and scripts.

    Raises
    ------
    FileNotFoundError : the checkout has no such file.
    """
    if not all((checkout / folder).is_dir() for folder in FOLDERS):
        raise FileNotFoundError(f"no {FOLDERS[0]} in {checkout}: is this v2.26.0?")
    found: list[Carried] = []
    for folder in FOLDERS:
        with TemporaryDirectory() as temporary:
            output = Path(temporary) / folder.name
            files = _migrated(checkout / folder, output, folder)
            if folder.name == "test":
                _run_tests(checkout / folder, output, files, seconds)
            else:
                _run_scripts(checkout / folder, output, files, seconds)
            found += files.values()
    return found


def _migrated(folder: Path, output: Path, name: Path) -> dict[str, Carried]:
    """Write the new files; return the files with kernels, by their places in the folder."""
    files: dict[str, Carried] = {}
    for file, result in (
        Package(folder, output, folder.rglob("*.py")).migrated().items()
    ):
        (output / file).parent.mkdir(parents=True, exist_ok=True)
        (output / file).write_text(result.text, encoding="utf-8")
        if result.kernels:
            full = (name / file).as_posix()
            comments = _comments(result.text, result.kernels)
            files[file.as_posix()] = Carried(full, comments, len(result.left))
    return files


def _comments(code: str, kernels: Collection[str]) -> dict[str, int]:
    """Return the number of comments in each kernel of a file and the functions it calls there."""
    tree = ast.parse(code)
    lines = code.split("\n")
    functions = {
        node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    }
    mark = COMMENT.partition(":")[0]
    counts = {}
    for name, function in functions.items():
        first = min(
            [
                function.lineno,
                *(decorator.lineno for decorator in function.decorator_list),
            ]
        )
        own = sum(mark in line for line in lines[first - 1 : function.end_lineno])
        above = first - 2
        while above >= 0 and lines[above].lstrip().startswith("#"):
            own += mark in lines[above]
            above -= 1
        counts[name] = own
    top = sum(mark in line for line in lines) - sum(counts.values())
    return {
        name: top + sum(counts[other] for other in _reached(name, functions))
        for name in kernels
    }


def _reached(name: str, functions: dict[str, ast.FunctionDef]) -> set[str]:
    """Return a function and the functions of the file that it calls, recursively."""
    reached = {name}
    todo = [name]
    while todo:
        used = {
            n.id for n in ast.walk(functions[todo.pop()]) if isinstance(n, ast.Name)
        }
        new = (used & set(functions)) - reached
        reached |= new
        todo += new
    return reached


def _run_tests(old: Path, new: Path, files: dict[str, Carried], seconds: float) -> None:
    """Return the outcomes of the tests on the classic kernels, and on the new ones."""
    for one in _outcomes(old, seconds):
        if one.group in files and one.result == FAILED:
            files[one.group].failed_before.add(one.name)
    for one in _outcomes(new, seconds):
        if one.group in files:
            files[one.group].outcomes.append(one)


def _outcomes(folder: Path, seconds: float) -> list[Outcome]:
    options = [
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
        "-q",
        "--tb=line",
    ]
    # A kernel of theirs has a test's name.
    options += [
        f"--rootdir={folder}",
        "--import-mode=importlib",
        "-o",
        "python_functions=no_test",
    ]
    with embedded_with_predictions(), _modules_of_its_own():
        return run(folder, [*options, str(folder)], [folder], [Limit(seconds)])


@contextmanager
def _modules_of_its_own() -> Iterator[None]:
    """Forget the imports of the block: new files have the names of the old ones."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if Path(file).stem.startswith("test_"):
                del sys.modules[name]


def _run_scripts(
    old: Path, new: Path, files: dict[str, Carried], seconds: float
) -> None:
    """Return the outcomes of the scripts on the classic kernels, and on the new ones."""
    for name, file in files.items():
        if "__main__" in (new / name).read_text(encoding="utf-8"):
            if _script(old / name, name, seconds).result == FAILED:
                file.failed_before.add(name)
            file.outcomes.append(_script(new / name, name, seconds))


def _script(script: Path, name: str, seconds: float) -> Outcome:
    """One script, by `difftest run` in a process of its own."""
    code = "from difftest.cli.main import main; main()"
    path = os.pathsep.join(
        filter(None, (str(FRAMEWORKS), os.environ.get("PYTHONPATH")))
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, "run", str(script)],
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=script.parent,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return Outcome(
            name, name, FAILED, f"TimeoutError: it took longer than {seconds:g} s"
        )
    error = error_of(done.stderr) if done.returncode else denial(done.stdout)
    return Outcome(name, name, FAILED if error else PASSED, error)


def section(checkout: Path, found: Sequence[Carried]) -> str:
    """Return the Markdown of one run."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    kernels = sum(len(one.kernels) for one in found)
    whole = sum(one.whole for one in found)
    verdicts = Counter(one.verdict() for one in found if not one.comments)
    counted = ", ".join(
        f"{count} {verdict}" for verdict, count in verdicts.most_common()
    )
    lines = [
        f"## {TITLE}",
        "",
        f"Generated on {today} from {commit_of(checkout)} by",
        "",
        "```",
        COMMAND,
        "```",
        "",
        f"Of {kernels} kernels {whole} are carried over whole, {kernels - whole} have comments. "
        f"What the {sum(verdicts.values())} files without any comment run: {counted}.",
        "",
        "| file | kernels | whole | comments | what it runs |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for one in found:
        cells = (one.name, len(one.kernels), one.whole, one.comments, one.verdict())
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    refused = [
        (one.name, cause(outcome.why))
        for one in found
        if not one.comments
        for outcome in one.outcomes
        if outcome.result == FAILED
    ]
    if refused:
        lines += ["", "| file without a comment | what it says |", "| --- | --- |"]
        for name, why in refused:
            text = why.replace("|", "\\|").replace("`", "'")
            lines.append(f"| {name} | `{text}` |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or put it on its page; 1 where a kernel is wrong in silence."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.migration", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "path", type=Path, help="a checkout of aws-neuron/aws-neuron-sdk, v2.26.0"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table on its page"
    )
    parser.add_argument(
        "--limit", type=float, default=60, help="seconds for each (%(default)s)"
    )
    given = parser.parse_args(arguments)
    checkout = given.path.resolve()
    try:
        found = carried(checkout, given.limit)
    except (FileNotFoundError, RuntimeError) as error:
        parser.exit(2, f"{error}\n")
    text = section(checkout, found)
    if given.write:
        place(text)
    else:
        print(text)
    return int(any(one.verdict() == "wrong" and not one.comments for one in found))


if __name__ == "__main__":
    sys.exit(main())
