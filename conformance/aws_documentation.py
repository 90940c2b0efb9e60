"""Run the examples and tests of AWS's NKI documentation on the embedded simulator (README.md).

``python -m conformance.aws_documentation PATH [--classic] [--write] [pytest's arguments]``: PATH is
a checkout of https://github.com/aws-neuron/aws-neuron-sdk, at v2.32.0 for today's dialect, at
v2.26.0 for the classic one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.outcomes import FAILED, PASSED, Outcome
from conformance.running import Limit, run
from conformance.table import place, section
from difftest.host.installation import embedded_with_predictions

EXAMPLES = Path("nki", "examples")
"""Scripts of today's dialect: each runs a kernel and compares or asserts; so does its exit code."""
_COMMAND = "from difftest.cli.main import main; main()"
"""The command ``difftest``, of the Python that runs."""
CLASSIC = Path("general", "nki", "test")
"""Tests of the classic dialect, one file an instruction or function, for pytest."""


def examples(checkout: Path, seconds: float) -> list[Outcome]:
    """Run each script of the examples in a process of its own, at most ``seconds`` long.

    A script that ends with 0 passed. One that only defines kernels has nothing to run and passes
    as soon as it can be loaded.

    Raises
    ------
    FileNotFoundError
        If the checkout has no examples.
    """
    files = sorted((checkout / EXAMPLES).rglob("*.py"))
    if not files:
        raise FileNotFoundError(f"no script under {checkout / EXAMPLES}: is this v2.32.0?")
    return [_example(checkout, file, seconds) for file in files]


def _example(checkout: Path, file: Path, seconds: float) -> Outcome:
    name = file.relative_to(checkout).as_posix()
    group = file.parent.relative_to(checkout).as_posix()
    command = [sys.executable, "-c", _COMMAND, "run", str(file)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, cwd=file.parent
        )
    except subprocess.TimeoutExpired:
        return Outcome(group, name, FAILED, f"TimeoutError: it took longer than {seconds:g} s")
    if done.returncode == 0:
        return Outcome(group, name, PASSED)
    return Outcome(group, name, FAILED, error_of(done.stderr))


def error_of(stderr: str) -> str:
    """The line of ``stderr`` that names the error: of a traceback its first unindented line after.

    Without a traceback the first line is it, as an error of the simulator prints itself.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.startswith("Traceback ")]
    after = lines[starts[-1] + 1 :] if starts else lines
    return next((line for line in after if not line[0].isspace()), "no message")


def classic_tests(checkout: Path, arguments: Sequence[str], seconds: float) -> list[Outcome]:
    """Run the documentation's classic tests with pytest's ``arguments``.

    Raises
    ------
    FileNotFoundError
        If the checkout has none.
    RuntimeError
        If pytest refused the arguments, or found no test.
    """
    if not (checkout / CLASSIC).is_dir():
        raise FileNotFoundError(f"no {CLASSIC} in {checkout}: is this v2.26.0?")
    options = ["-p", "no:cacheprovider", "--continue-on-collection-errors", "-q", "--tb=line"]
    options += [f"--rootdir={checkout}", *(arguments or [str(CLASSIC)])]
    with embedded_with_predictions():
        return run(checkout, options, [checkout / CLASSIC], [Limit(seconds)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or put it on its page; 1 where something failed, 2 where nothing ran."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.aws_documentation", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("path", type=Path, help="a checkout of aws-neuron/aws-neuron-sdk")
    parser.add_argument("--classic", action="store_true", help="run the tests of v2.26.0")
    parser.add_argument("--write", action="store_true", help="put the table in docs/conformance.md")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each (%(default)s)")
    known, rest = parser.parse_known_args(arguments)
    if rest and not known.classic:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    checkout = known.path.resolve()
    try:
        if known.classic:
            results = classic_tests(checkout, rest, known.limit)
        else:
            results = examples(checkout, known.limit)
    except (FileNotFoundError, RuntimeError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    command = "python -m conformance.aws_documentation PATH" + " --classic" * known.classic
    title = "AWS's documentation: " + ("classic tests" if known.classic else "examples")
    text = section(title, " ".join([command, *rest]), checkout, results)
    if known.write:
        place(text)
    else:
        print(text)
    return int(any(outcome.result == FAILED for outcome in results))


if __name__ == "__main__":
    sys.exit(main())
