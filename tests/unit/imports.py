"""The imports of a file, read from its syntax tree."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """One imported name: `from a import b` is a.b, whether b is a module or not."""

    name: str
    file: Path
    line: int
    deferred: bool  # inside a function, which imports when it is called
    typing_only: bool  # under `if TYPE_CHECKING:`: never imported

    @property
    def importer(self) -> str:
        """Return the dotted name of the importing module."""
        parts = self.file.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def within(self, *packages: str) -> bool:
        """Return whether the name is a package of `packages` or inside such a package."""
        return any(f"{self.name}.".startswith(f"{package}.") for package in packages)

    def of_standard_library(self) -> bool:
        later = {"tomllib", "annotationlib"}  # since 3.11 and 3.14
        return self.name.split(".")[0] in sys.stdlib_module_names | later

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}"


def imports(root: Path, file: Path) -> tuple[Import, ...]:
    """Return every import of a file, also inside functions."""
    return _imports(file.relative_to(root), file.read_text(encoding="utf-8"))


@functools.cache
def _imports(relative: Path, source: str) -> tuple[Import, ...]:

    def visit(node: ast.AST, deferred: bool, typing_only: bool) -> Iterator[Import]:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(relative.parts[: -node.level]) if node.level else []
            base += [node.module] if node.module else []
            names = [".".join([*base, alias.name]) for alias in node.names]
        for name in names:
            yield Import(name, relative, node.lineno, deferred, typing_only)
        in_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(
            node.test
        )
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):  # most of a file, and it holds no statement
                continue
            yield from visit(
                child,
                deferred or in_function,
                typing_only or (for_types and child in node.body),
            )

    return tuple(visit(ast.parse(source), False, False))


def planted(root: Path, file: str, source: str) -> Path:
    """A tree with one file: each rule must be able to fail."""
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    return root
