"""Run the examples and tests of AWS's NKI documentation on the embedded simulator (README.md).

``python -m conformance.aws_documentation PATH [--blocks | --classic] [--write] [pytest's
arguments]``: PATH is a checkout of https://github.com/aws-neuron/aws-neuron-sdk, at v2.32.0 for
today's dialect, at v2.26.0 or v2.32.0 for the classic one's tests.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from conformance.code_blocks import Block, Page, blocks_of
from conformance.documented_inputs import INPUTS
from conformance.outcomes import FAILED, PASSED, Outcome, denial
from conformance.running import Limit, in_front_of_path, run
from conformance.stand_ins import TARGET
from conformance.table import place, section
from difftest.testing.host.installation import embedded_with_predictions

EXAMPLES = Path("nki", "examples")
"""Scripts of today's dialect: each runs a kernel and compares or asserts; so does its exit code."""
_COMMAND = "from difftest.cli.main import main; main()"
"""The command ``difftest``, of the Python that runs."""
SOURCES = Path("nki", "deep-dives", "src")
"""Scripts that the deep dives include."""
REFUSED = {"nki/examples/layout-violation.py": "partitions"}
"""Scripts that show a misuse, and a word of the error that must end them."""
MACHINES = {"nki/deep-dives/src/mxfp-matmul/mx_toplevel.py": "trn3"}
"""Scripts that tell their compiler a machine, by its flags: for the simulator it is a variable."""
PAGES = Path("nki")
FRAMEWORKS = Path(__file__).parent / "frameworks"
"""Stand-ins of the frameworks that bring tensors to a device."""
OTHERS = ("library", "_templates", "_ext", "examples", "test", "scripts", "src")
"""Folders of the pages whose code blocks are not today's API: nki-library's, and what is run as
scripts or tests."""
_THREADS = {"OPENBLAS_NUM_THREADS": "1"}
"""Products of tiles are too small for threads, which wait for each other on a busy machine."""
CLASSIC = (Path("general", "nki", "test"), Path("nki", "test"))
"""Tests of the classic dialect, one file an instruction or function: where v2.26.0 and v2.32.0
have them."""


def examples(checkout: Path, seconds: float) -> list[Outcome]:
    """Run each script of the examples in a process of its own, at most ``seconds`` long.

    A script that ends with 0 passed, if it does not print that its result is wrong, and so did one
    of :data:`REFUSED` with its error. One that
    only defines kernels has nothing to run and passes as soon as it can be loaded.

    Raises
    ------
    FileNotFoundError
        If the checkout has no examples.
    """
    files = sorted((checkout / EXAMPLES).rglob("*.py"))
    files += sorted((checkout / SOURCES).rglob("*.py"))
    if not files:
        raise FileNotFoundError(
            f"no script under {checkout / EXAMPLES}: is this v2.32.0?"
        )
    return [_example(checkout, file, seconds) for file in files]


def _example(checkout: Path, file: Path, seconds: float) -> Outcome:
    name = file.relative_to(checkout).as_posix()
    group = file.parent.relative_to(checkout).as_posix()
    command = [sys.executable, "-c", _COMMAND, "run", str(file)]
    machine = {TARGET: MACHINES[name]} if name in MACHINES else {}
    path = os.pathsep.join(
        filter(None, (str(FRAMEWORKS), os.environ.get("PYTHONPATH")))
    )
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=file.parent,
            env={**os.environ, **_THREADS, **machine, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return Outcome(
            group, name, FAILED, f"TimeoutError: it took longer than {seconds:g} s"
        )
    error = error_of(done.stderr) if done.returncode else denial(done.stdout)
    wanted = REFUSED.get(name)
    if wanted is None:
        return Outcome(group, name, FAILED if error else PASSED, error)
    if wanted in error:
        return Outcome(group, name, PASSED)
    return Outcome(group, name, FAILED, error or f"it did not raise {wanted!r}")


def error_of(stderr: str) -> str:
    """Return the line of ``stderr`` that names the error.

    It is the first unindented line after a traceback, or the first line without one.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    starts = [i for i, line in enumerate(lines) if line.startswith("Traceback ")]
    after = lines[starts[-1] + 1 :] if starts else lines
    return next((line for line in after if not line[0].isspace()), "no message")


def code_blocks(checkout: Path, seconds: float) -> list[Outcome]:
    """Run the code blocks of the pages and of the docstrings of the API's stubs.

    Raises
    ------
    FileNotFoundError
        If the checkout has none.
    """
    folder = checkout / PAGES
    files = sorted([*folder.rglob("*.rst"), *(folder / "api").rglob("*.py")])
    outcomes: list[Outcome] = []
    with embedded_with_predictions(), in_front_of_path(FRAMEWORKS):
        for file in files:
            if set(file.relative_to(folder).parts) & set(OTHERS):
                continue
            name = file.relative_to(checkout).as_posix()
            blocks: list[Block] = list(
                blocks_of(name, file.read_text(encoding="utf-8"))
            )
            outcomes += Page(blocks, INPUTS.get(name, {}), prelude).outcomes(seconds)
    if not outcomes:
        raise FileNotFoundError(
            f"no page with a code block in {folder}: is this v2.32.0?"
        )
    return outcomes


def prelude() -> dict[str, Any]:
    """Names that the pages assume: modules by their usual names, and some of their members."""
    nl = importlib.import_module("nki.language")
    modules = {
        "nki": "nki",
        "nisa": "nki.isa",
        "ncc": "nki.collectives",
        "nt": "nki.typing",
    }
    names = {short: importlib.import_module(name) for short, name in modules.items()}
    others = {"np": np, "NKIObject": nl.NKIObject, "dataclass": dataclass, "Enum": Enum}
    return {**names, "nl": nl, **others}


def classic_tests(
    checkout: Path, arguments: Sequence[str], seconds: float
) -> list[Outcome]:
    """Run the documentation's classic tests with pytest's ``arguments``.

    Raises
    ------
    FileNotFoundError
        If the checkout has none.
    RuntimeError
        If pytest refused the arguments, or found no test.
    """
    folder = classic_folder(checkout)
    options = [
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
        "-q",
        "--tb=line",
    ]
    options += [f"--rootdir={checkout}", *(arguments or [str(folder)])]
    with embedded_with_predictions():
        return run(checkout, options, [checkout / folder], [Limit(seconds)])


def classic_folder(checkout: Path) -> Path:
    """Return the folder of the classic tests in the checkout.

    Raises
    ------
    FileNotFoundError : the checkout has no such folder.
    """
    found = [folder for folder in CLASSIC if (checkout / folder).is_dir()]
    if not found:
        raise FileNotFoundError(f"no {CLASSIC[0]} in {checkout}: is this v2.26.0?")
    return found[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, or put it on its page; 1 where something failed, 2 where nothing ran."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.aws_documentation",
        description=__doc__,
        allow_abbrev=False,
    )
    parser.add_argument(
        "path", type=Path, help="a checkout of aws-neuron/aws-neuron-sdk"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--blocks", action="store_true", help="run the code blocks of the pages"
    )
    kind.add_argument(
        "--classic", action="store_true", help="run the tests of the classic dialect"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table on its page"
    )
    parser.add_argument(
        "--limit", type=float, default=60, help="seconds for each (%(default)s)"
    )
    known, rest = parser.parse_known_args(arguments)
    if rest and not known.classic:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    checkout = known.path.resolve()
    title = "scripts"
    option = ""
    try:
        if known.classic:
            title = classic_folder(checkout).as_posix()
            option = " --classic"
            results = classic_tests(checkout, rest, known.limit)
        elif known.blocks:
            title = "code blocks"
            option = " --blocks"
            results = code_blocks(checkout, known.limit)
        else:
            results = examples(checkout, known.limit)
    except (FileNotFoundError, RuntimeError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    command = f"python -m conformance.aws_documentation PATH{option}"
    title = f"AWS's documentation: {title}"
    text = section(
        title, " ".join([command, *rest]), checkout, results, each=not known.classic
    )
    if known.write:
        place(text)
    else:
        print(text)
    return int(any(outcome.result == FAILED for outcome in results))


if __name__ == "__main__":
    sys.exit(main())
