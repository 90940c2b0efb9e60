"""Count the public files of kernels that are inside the language of ``difftest verdict``.

``python -m conformance.language PATH...``: each PATH is a folder of Python files with kernels, such
as checkouts of aws-neuron/nki-library and aws-neuron/aws-neuron-sdk, and ``kernels`` of this
project. Each whole file is loaded in the world of a candidate, as ``difftest verdict`` loads it. No
kernel runs. A file is inside if it loads, and if no function that a kernel uses needs something
absent.
"""

from __future__ import annotations

import argparse
import ast
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from conformance.code_blocks import blocks_of
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.launchable import function_in
from difftest.tools.verdict.sources import CandidateFiles
from difftest.tools.verdict.world.held import Module
from difftest.tools.verdict.world.loader import CandidateModules
from difftest.tools.verdict.world.refusal import STATE, Absent, OutsideLanguageError
from difftest.tools.verdict.world.texts import is_own_function

WANTED = 0.97
"""The share that the language has to hold."""
_COMMON = (
    "import math\nfrom dataclasses import dataclass\nfrom enum import Enum\n"
    "import numpy as np\n"
)
_HEADS = tuple(
    f"{_COMMON}import {package} as nki\nimport {package}.isa as nisa\n"
    f"import {package}.language as nl\nimport {package}.typing as nt\n{more}"
    for package, more in (
        ("nki", "import nki.collectives as ncc\nfrom nki.language import NKIObject\n"),
        ("neuronxcc.nki", "import neuronxcc.nki.compiler as ncc\n"),
    )
)
"""The imports that AWS's pages assume, by dialect."""


def is_kernel(node: ast.stmt) -> bool:
    """Return whether NKI decorates a function."""
    marks = (".jit", "nki_jit", ".baremetal", ".benchmark", ".profile", ".trace")
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(one).partition("(")[0].endswith(marks) and "nki" in ast.unparse(one)
        for one in node.decorator_list
    )


def kernels_of(text: str) -> list[str]:
    """Return the names of the kernels in a source; empty for a fragment."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    return [node.name for node in tree.body if is_kernel(node)]  # type: ignore[attr-defined]


def sources(path: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """Yield the sources with kernels below a folder: file, text, and names of the kernels."""
    below = sorted(path.rglob("*.py")) + sorted(path.rglob("*.rst"))
    for file in [path] if path.is_file() else below:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".py":
            if names := kernels_of(text):
                yield file, text, names
            continue
        for block in blocks_of(file.name, text):
            if names := kernels_of(block.text):
                yield file, block.text, names


def reason_outside(file: Path, names: Sequence[str]) -> str:
    """Return why a file is outside the language; empty if it is inside."""
    files = CandidateFiles(file)
    for fault in files.faults.values():
        if fault.file == str(file):
            return fault.what
    faults = {name: fault.what for name, fault in files.faults.items()}
    given = list(files.sources.values())
    world = CandidateModules(
        given, (), lambda text: None, lambda tree, _: tree, {}, faults
    )
    try:
        space = vars(world.first())
    except (Exception, OutsideLanguageError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        STATE.loading = False
    for name in names:
        if reason := _absent_in(space.get(name, Absent(name)), set()):
            return f"{name}: {reason}"
    return ""


def _absent_in(value: Any, seen: set[int]) -> str:
    """Return an absent name that a function uses, in itself or in the functions that it calls."""
    if type(value) is Absent:
        return repr(value)
    function = function_in(value)
    if not is_own_function(function) or id(function) in seen:
        return ""
    assert isinstance(function, FunctionType)
    seen.add(id(function))
    for name in _names(function.__code__):
        found = function.__globals__.get(name)
        if type(found) is not Module and (reason := _absent_in(found, seen)):
            return reason
    return ""


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def reason_of(file: Path, text: str, names: Sequence[str], folder: Path) -> str:
    """Return why a source is outside; a source of a page is written to a file in a folder.

    A page does not say its dialect: it is inside if it is in one of both.
    """
    if file.suffix == ".py":
        return reason_outside(file, names)
    own = folder / "page.py"
    reasons = []
    for head in _HEADS:
        own.write_text(f"{head}\n{text}", encoding="utf-8")
        reasons.append(reason_outside(own, names))
    return "" if "" in reasons else reasons[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the share of each folder and the reasons; 1 if the share of all is too small."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.language", description=__doc__
    )
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    seen: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    parser.add_argument(
        "--beside",
        type=Path,
        help="a package that pages import, such as nki-library's src/nkilib_src/nkilib",
    )
    parsed = parser.parse_args(arguments)
    with embedded(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if parsed.beside is not None:
            shutil.copytree(parsed.beside, folder / parsed.beside.name)
        for path in parsed.paths:
            for file, text, names in sources(path.resolve()):
                reason = reason_of(file, text, names, folder)
                if reason.startswith("NameError") and file.suffix != ".py":
                    continue  # a fragment of a page
                seen[str(path)] += 1
                inside[str(path)] += not reason
                if reason:
                    print(f"{file}\n    {reason}")
    for path, count in seen.items():
        print(f"{path}: {inside[path]} of {count} files are inside the language")
    if not seen:
        print("conformance: no kernels there", file=sys.stderr)
        return 2
    share = inside.total() / seen.total()
    print(f"all: {inside.total()} of {seen.total()}, {share:.1%}; wanted: {WANTED:.0%}")
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
