"""A file of kernels as rules see it: its syntax tree, names of NKI, functions of kernels."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from difftest.lint.fix import Edit, TextRange
from difftest.lint.sdk import LAST_CLASSIC, NEWEST, Release

MODULES = {
    "nki": "nki",
    "nki.language": "nl",
    "nki.isa": "nisa",
    "nki.collectives": "ncc",
    "nki.typing": "nt",
    "nki.compiler": "nki.compiler",
}
"""NKI's modules, and the short names that the documentation gives them."""
_CLASSIC = "neuronxcc."
_DECORATORS = frozenset({"nki.jit", "nki.trace", "nki.benchmark", "nki.baremetal", "nki.profile"})
_ON_THE_HOST = frozenset({"nisa.get_nc_version", "nisa.get_nc_sub_version"})
_END = re.compile(r"\r\n|\n|\r")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Spot:
    """Where a node stands: its file, the SDK that is asked for, the kernel's function if any."""

    source: Source
    sdk: Release
    function: Function | None
    is_module_level: bool = False

    def name(self, node: ast.AST) -> str | None:
        """``nl.load`` for what the file calls it; None for what is not of NKI."""
        return self.source.names.of(node)


class ImportedNames:
    """What the names of a file mean where they are NKI's."""

    def __init__(self, tree: ast.Module) -> None:
        self.is_classic = False
        self.is_todays = False
        self._full: dict[str, str] = {}
        self._classic: set[str] = set()
        self.first_classic: ast.AST | None = None
        """The first import of the classic dialect."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    local = one.asname or one.name.partition(".")[0]
                    self._enter(node, local, one.name if one.asname else local, one.name)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for one in node.names:
                    full = f"{node.module}.{one.name}"
                    self._enter(node, one.asname or one.name, full, full)

    def _enter(self, node: ast.AST, local: str, full: str, imported: str) -> None:
        if imported.startswith(f"{_CLASSIC}nki"):
            self.is_classic = True
            self._classic.add(local)
            self.first_classic = self.first_classic or node
        elif imported.partition(".")[0] == "nki":
            self.is_todays = True
        else:
            return
        self._full[local] = full.removeprefix(_CLASSIC)

    def has_classic(self, node: ast.AST) -> bool:
        """Whether a name or an attribute is of the classic dialect: a file may import both."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._classic

    def spelled(self, name: str) -> str | None:
        """What the file writes for ``nl.load``; None if it does not import the module."""
        short, _, rest = name.partition(".")
        full = next(full for full, known in MODULES.items() if known == short)
        return next((f"{own}.{rest}" for own, of in self._full.items() if of == full), None)

    def of(self, node: ast.AST) -> str | None:
        """The documentation's name for what a name or an attribute stands for, if it is NKI's."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._full:
            return None
        full = ".".join([self._full[node.id], *parts]).removeprefix(_CLASSIC)
        for module in sorted(MODULES, key=len, reverse=True):
            if full == module or full.startswith(f"{module}."):
                return MODULES[module] + full[len(module) :]
        return None


class Source:
    """A file of Python; ``launched`` names functions that are kernels without a decorator.

    Raises
    ------
    SyntaxError : it is none.
    """

    def __init__(self, path: Path, text: str, launched: Collection[str] = ()) -> None:
        self.path = path
        self.launched = launched
        self.text = text
        self.tree = ast.parse(text, str(path))
        self.names = ImportedNames(self.tree)

    @property
    def sdk(self) -> Release:
        """The newest SDK that its dialect was written for."""
        return LAST_CLASSIC if self.names.is_classic and not self.names.is_todays else NEWEST

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Its functions of the top level, by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, Function)}

    @cached_property
    def kernels(self) -> frozenset[str]:
        """The names of its kernels: functions with a decorator of NKI, or launched without one."""
        return frozenset(name for name, one in self.functions.items() if self._is_kernel(one))

    @cached_property
    def kernel_code(self) -> frozenset[str]:
        """The names of functions that run in kernels: those of NKI's names, and what they call."""
        return called_by(self, *(n for n, one in self.functions.items() if self._uses_nki(one)))

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node that each node is a part of."""
        return {part: node for node in ast.walk(self.tree) for part in ast.iter_child_nodes(node)}

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends, in characters of the file."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None)
        end = self._place(end_line, column if end_column is None else end_column)
        return self._place(line, column), end

    def segment(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def region(self, start: int, end: int) -> TextRange:
        """The same place as lines and columns."""
        places = []
        for at in (start, end):
            line = bisect_right(self._starts, at)
            places += [line, at - self._starts[line - 1] + 1]
        return TextRange(*places)

    def offset(self, line: int, column: int) -> int:
        """Where a line and column are, in characters of the file."""
        return self._starts[line - 1] + column - 1

    def edit(self, start: int, end: int, text: str) -> Edit:
        """What puts a text in the place of another."""
        return Edit(start, end, text, self.region(start, end))

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins."""
        return [0, *(one.end() for one in _END.finditer(self.text))]

    def _place(self, line: int, byte: int) -> int:
        """The character at a byte of a line, as syntax trees count."""
        start = self._starts[line - 1]
        return start + len(self.text[start : start + byte].encode()[:byte].decode(errors="ignore"))

    def nodes(self, sdk: Release) -> Iterator[tuple[ast.AST, Spot]]:
        """Each node with its place, in the file's order."""
        for statement in self.tree.body:
            name = statement.name if isinstance(statement, Function) else None
            function = self.functions[name] if name in self.kernel_code and name else None
            place = Spot(self, sdk, function, not isinstance(statement, (Function, ast.ClassDef)))
            for node in ast.walk(statement):
                yield node, place

    def _is_kernel(self, function: Function) -> bool:
        decorators = (
            one.func if isinstance(one, ast.Call) else one for one in function.decorator_list
        )
        decorated = any(self.names.of(one) in _DECORATORS for one in decorators)
        return decorated or function.name in self.launched

    def _uses_nki(self, function: Function) -> bool:
        """Whether a function issues instructions; host code names dtypes and asks for versions."""
        calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
        called = {self.names.of(call.func) for call in calls} - {None, *_ON_THE_HOST}
        issues = any(name.startswith(("nl.", "nisa.")) for name in called if name)
        return self._is_kernel(function) or issues


def called_by(source: Source, *names: str) -> frozenset[str]:
    """Functions of a file, and those of it that they call, directly or not."""
    reached: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in source.functions and name not in reached:
            reached.add(name)
            calls = (one for one in ast.walk(source.functions[name]) if isinstance(one, ast.Call))
            waiting += [one.func.id for one in calls if isinstance(one.func, ast.Name)]
    return frozenset(reached)
