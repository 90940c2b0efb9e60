"""Count the published kernels inside the language of ``difftest verdict`` (README.md).

``python -m conformance.language PATH...``: each PATH is a folder of Python files with kernels, such
as checkouts of aws-neuron/nki-library and aws-neuron/aws-neuron-sdk, and ``kernels`` of this
project. Nothing runs. A kernel is a function that NKI decorates. It is judged with the definitions
that it uses, as if in a file of its own, because scripts and tests also contain drivers.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.code_blocks import blocks_of
from difftest.tools.verdict.language import Language, OutsideLanguage

WANTED = 0.95
"""The share that the language has to hold."""
_HEADS = {
    "nki": "import nki",
    "nl": "import nki.language as nl",
    "nisa": "import nki.isa as nisa",
    "ncc": "import nki.collectives as ncc",
    "nt": "import nki.typing as nt",
    "np": "import numpy as np",
    "math": "import math",
    "dataclass": "from dataclasses import dataclass",
    "Enum": "from enum import Enum",
    "NKIObject": "from nki.language import NKIObject",
}
"""Imports that the pages assume, by the name that they bind."""


def is_kernel(node: ast.stmt) -> bool:
    """Return whether NKI decorates a function."""
    marks = (".jit", "nki_jit", ".baremetal", ".benchmark", ".profile", ".trace")
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(one).partition("(")[0].endswith(marks) and "nki" in ast.unparse(one)
        for one in node.decorator_list
    )


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module binds."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    imports = [
        one for one in ast.walk(node) if isinstance(one, (ast.Import, ast.ImportFrom))
    ]
    found = {a.asname or a.name.partition(".")[0] for one in imports for a in one.names}
    stored = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
    return found | {one.id for one in stored if isinstance(one.ctx, ast.Store)}


def alone(tree: ast.Module, kernel: ast.FunctionDef) -> str:
    """Return the source of a kernel and of the definitions that it uses."""
    needed = _names(kernel)
    kept = {kernel}
    body = [
        one
        for one in tree.body
        if "__main__" not in ast.unparse(one).partition("\n")[0]
    ]
    while more := [one for one in body if one not in kept and _bound(one) & needed]:
        kept |= set(more)
        needed |= {name for one in more for name in _names(one)}
    own = {name for one in kept for name in _bound(one)}
    head = [text for name, text in _HEADS.items() if name in needed - own]
    return (
        "\n\n".join([*head, *(ast.unparse(one) for one in tree.body if one in kept)])
        + "\n"
    )


def kernels(path: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the kernels below a folder: place, source, and the folder for its imports."""
    files = (
        [path]
        if path.is_file()
        else sorted(path.rglob("*.py")) + sorted(path.rglob("*.rst"))
    )
    for file in files:
        text = file.read_text(encoding="utf-8")
        texts = (
            [text]
            if file.suffix == ".py"
            else [b.text for b in blocks_of(file.name, text)]
        )
        for part in texts:
            try:
                tree = ast.parse(part)
            except SyntaxError:
                continue  # a fragment, or Python 2
            for node in tree.body:
                if isinstance(node, ast.FunctionDef) and is_kernel(node):
                    yield (
                        f"{file.relative_to(path.parent)}:{node.name}",
                        alone(tree, node),
                        file,
                    )


def breach_of(source: str, file: Path) -> str:
    """Return why a kernel's source is outside the language, if in ``file``; empty if inside."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", dir=file.parent) as made:
        made.write(source)
        made.flush()
        try:
            Language(Path(made.name))
        except OutsideLanguage as outside:
            return str(outside.breaches[0])
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the share of each folder and the reasons; 1 if the share of all is too small."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.language", description=__doc__
    )
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    seen: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for path in parser.parse_args(arguments).paths:
        for place, source, file in kernels(path.resolve()):
            breach = breach_of(source, file)
            seen[str(path)] += 1
            inside[str(path)] += not breach
            if breach:
                print(f"{place}\n    {breach}")
    for path, count in seen.items():
        print(f"{path}: {inside[path]} of {count} kernels are inside the language")
    if not seen:
        print("conformance: no kernels there", file=sys.stderr)
        return 2
    share = inside.total() / seen.total()
    print(f"all: {inside.total()} of {seen.total()}, {share:.1%}; wanted: {WANTED:.0%}")
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
