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
        for name in _names(node, relative):
            yield Import(name, relative, node.lineno, deferred, typing_only)
        deferred = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        typing_body = node.body if _is_for_types(node) else []
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                continue  # most of a file, and without statements
            yield from visit(child, deferred, typing_only or child in typing_body)

    return tuple(visit(ast.parse(source), False, False))


def _names(node: ast.AST, file: Path) -> list[str]:
    """Return the names that a statement imports; empty for other statements."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = list(file.parts[: -node.level]) if node.level else []
    if node.module:
        base.append(node.module)
    return [".".join([*base, alias.name]) for alias in node.names]


def _is_for_types(node: ast.AST) -> bool:
    """Return whether a statement is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def planted(root: Path, file: str, source: str) -> Path:
    """Return a tree with one file: each rule must be able to fail."""
    path = root / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    return root
