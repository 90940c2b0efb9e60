"""A file of kernels as rules see it: its syntax tree, names of NKI, functions of kernels."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from difftest.analysis.finding import group_by
from difftest.tools.lint.rule import LAST_CLASSIC, NEWEST, Release
from difftest.tools.lint.type_inference import TypeInference, ValueType

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
_TYPING = "neuronxcc.nki.typing"
"""The module of annotations, which AWS's tables for NKI 0.4 tell kernels of ``nki`` to import."""
_LAUNCHERS = frozenset(
    f"nki.{name}"
    for name in ("jit", "trace", "benchmark", "baremetal", "profile", "simulate", "simulate_kernel")
) | {"nki_jit", "nki_call"}  # which frameworks have
_ON_THE_HOST = frozenset({"nisa.get_nc_version", "nisa.get_nc_sub_version", "nl.nc", "nl.spmd_dim"})
_END = re.compile(r"\r\n|\n|\r")
UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError)
"""What ``Source`` raises of a file that is no Python, or is too deep for Python's parser."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class TextRange(NamedTuple):
    """A place in a file, as editors count: lines and columns of characters from 1, end excluded."""

    line: int
    column: int
    end_line: int
    end_column: int


class Edit(NamedTuple):
    """The characters from ``start`` up to ``end`` of a file become ``text``."""

    start: int
    end: int
    text: str
    region: TextRange
    """The same place as lines and columns."""

    def in_text(self, text: str) -> str:
        """The text with it."""
        return text[: self.start] + self.text + text[self.end :]


class Fix(NamedTuple):
    """Edits that belong together.

    ``is_safe`` says that the kernel computes what it did: an unsafe fix needs a reader.
    """

    title: str
    edits: tuple[Edit, ...]
    is_safe: bool = True


def applied(text: str, fixes: Iterable[Fix]) -> tuple[str, int]:
    """The text with the fixes, and how many of them: one that meets an earlier one waits."""
    taken: list[Edit] = []
    count = 0
    for fix in fixes:
        pairs = ((edit, other) for edit in fix.edits for other in taken)
        if not any(edit.start < other.end and other.start < edit.end for edit, other in pairs):
            taken += fix.edits
            count += 1
    for edit in sorted(taken, reverse=True):
        text = edit.in_text(text)
    return text, count


class RuleContext(NamedTuple):
    """Where a node stands: its file, the SDK that is asked for, the kernel's function if any."""

    source: Source
    sdk: Release
    function: Function | None
    is_module_level: bool = False

    def name(self, node: ast.AST) -> str | None:
        """``nl.load`` for what the file calls it; None for what is not of NKI."""
        return self.source.names.of(node)

    def kind(self, node: ast.AST) -> ValueType | None:
        """What an expression of the kernel is; None where that is not to be seen."""
        return self.source.kinds(self.function).of(node) if self.function else None

    def value(self, node: ast.AST) -> ast.AST:
        """The expression that a name of the kernel stands for; else the node itself."""
        return self.source.kinds(self.function).value(node) if self.function else node

    def given(self, call: ast.Call, name: str, place: int | None = None) -> ast.expr | None:
        """What a call passes by a keyword, or else at a place."""
        values = [keyword.value for keyword in call.keywords if keyword.arg == name]
        values += call.args[place : place + 1] if place is not None else []
        return values[0] if values else None

    def argument(self, call: ast.Call, name: str, place: int | None = None) -> ast.AST | None:
        """The same, or the expression that the name passed stands for."""
        values = self.given(call, name, place)
        return self.value(values) if values is not None else None


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
                for alias in node.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    self._enter(node, local, alias.name if alias.asname else local, alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for member in node.names:
                    full = f"{node.module}.{member.name}"
                    self._enter(node, member.asname or member.name, full, full)

    def _enter(self, node: ast.AST, local: str, full: str, imported: str) -> None:
        if imported.startswith(f"{_CLASSIC}nki"):
            self._classic.add(local)
            if not f"{imported}.".startswith(f"{_TYPING}."):
                self.is_classic = True
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
        full = next(full for full, place in MODULES.items() if place == short)
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


class SourceText:
    """A text of Python, and where the nodes of its syntax tree are in it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends, in characters of the file."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
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

    def edit(self, start: int, end: int, text: str) -> Edit:
        """What puts a text in the place of another."""
        return Edit(start, end, text, self.region(start, end))

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins."""
        return [0, *(match.end() for match in _END.finditer(self.text))]

    def _place(self, line: int, byte: int) -> int:
        """The character at a byte of a line, as syntax trees count."""
        start = self._starts[line - 1]
        return start + len(self.text[start : start + byte].encode()[:byte].decode(errors="ignore"))


class Source(SourceText):
    """A file of Python; ``launched`` names functions that are kernels without a decorator.

    Raises
    ------
    SyntaxError : it is none.
    """

    def __init__(self, path: Path, text: str, launched: Collection[str] = ()) -> None:
        super().__init__(text)
        self.path = path
        self.launched = launched
        self.tree = ast.parse(text, str(path))
        self.names = ImportedNames(self.tree)
        self._kinds: dict[Function, TypeInference] = {}

    @property
    def sdk(self) -> Release:
        """The newest SDK that its dialect was written for."""
        return LAST_CLASSIC if self.names.is_classic and not self.names.is_todays else NEWEST

    @cached_property
    def constants(self) -> Mapping[str, ast.expr]:
        """What the names that its top level assigns stand for."""
        assigned = (node for node in self.tree.body if isinstance(node, ast.Assign))
        return {getattr(to, "id", ""): node.value for node in assigned for to in node.targets}

    def kinds(self, function: Function) -> TypeInference:
        """What the expressions of a function are."""
        if function not in self._kinds:
            self._kinds[function] = TypeInference(self, function)
        return self._kinds[function]

    @cached_property
    def functions(self) -> Mapping[str, Sequence[Function]]:
        """Its functions by name, wherever they stand."""
        every = (node for node in ast.walk(self.tree) if isinstance(node, Function))
        return group_by(every, lambda function: function.name)

    @cached_property
    def kernels(self) -> frozenset[Function]:
        """Its kernels: functions that NKI decorates, or that something launches."""
        every = {function for named in self.functions.values() for function in named}
        launched = {*self.launched, *self._launched_here()}
        return frozenset(
            function
            for function in every
            if function.name in launched or any(map(self._is_launcher, function.decorator_list))
        )

    @cached_property
    def in_kernels(self) -> frozenset[Function]:
        """Its kernels, and the functions that they name, directly or not."""
        return self.reached(*self.kernels)

    @cached_property
    def kernel_code(self) -> frozenset[Function]:
        """Functions that run in kernels: those that issue instructions, and what they name."""
        every = (function for named in self.functions.values() for function in named)
        return self.reached(*self.kernels, *filter(self._issues, every))

    def reached(self, *functions: Function) -> frozenset[Function]:
        """These functions, and those of the file that they name, directly or not."""
        reached: set[Function] = set()
        waiting = list(functions)
        while waiting:
            function = waiting.pop()
            if function not in reached:
                reached.add(function)
                names = {getattr(node, "id", None) or _own(node) for node in ast.walk(function)}
                waiting += (inner for name in names for inner in self.functions.get(name or "", ()))
        return frozenset(reached)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands inside of, from within."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node that each node is a part of."""
        return {part: node for node in ast.walk(self.tree) for part in ast.iter_child_nodes(node)}

    def offset(self, line: int, column: int) -> int:
        """Where a line and column are, in characters of the file."""
        return self._starts[line - 1] + column - 1

    def nodes(self, sdk: Release) -> Iterator[tuple[ast.AST, RuleContext]]:
        """Each node with its place."""
        waiting: list[tuple[ast.AST, RuleContext]] = [
            (self.tree, RuleContext(self, sdk, None, True))
        ]
        while waiting:
            node, place = waiting.pop()
            if place.function is None and node in self.kernel_code:
                place = RuleContext(self, sdk, node)
            elif place.is_module_level and isinstance(node, (Function, ast.Lambda)):
                place = RuleContext(self, sdk, None)
            yield node, place
            waiting += reversed([(part, place) for part in ast.iter_child_nodes(node)])

    def _is_launcher(self, node: ast.expr) -> bool:
        """Whether an expression makes a kernel of a function, as ``nki.jit`` does."""
        if isinstance(node, ast.Call):
            return any(map(self._is_launcher, (node.func, *node.args[:1])))
        return (self.names.of(node) or ast.unparse(node).rpartition(".")[2]) in _LAUNCHERS

    def _launched_here(self) -> Iterator[str]:
        """The names of what calls launch: ``name[grid](...)``, ``nki.jit(name)``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                yield getattr(node.func.value, "id", "")
            elif isinstance(node, ast.Call) and node.args and self._is_launcher(node.func):
                yield from (getattr(part, "id", "") for part in ast.walk(node.args[0]))

    def _issues(self, function: Function) -> bool:
        """Return whether a function issues instructions itself, and is not the host's.

        The host launches kernels, or holds functions that are or launch kernels: a factory may ask
        ``nl`` for constants, and stays the host's.
        """
        inside = list(ast.walk(function))
        if any(node in self.kernels for node in inside if node is not function):
            return False
        calls = [node for node in inside if isinstance(node, ast.Call)]
        if any(
            isinstance(call.func, ast.Subscript) or self._is_launcher(call.func) for call in calls
        ):
            return False
        return any(self.is_instruction(call) for call in self._own_calls(function))

    def _own_calls(self, function: Function) -> Iterator[ast.Call]:
        """Yield the calls of a function, without those of functions and classes in it."""
        waiting: list[ast.AST] = list(function.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Call):
                yield node
            if not isinstance(node, (Function, ast.ClassDef)):
                waiting += ast.iter_child_nodes(node)

    def is_instruction(self, call: ast.Call) -> bool:
        """Return whether a call is of ``nl`` or ``nisa``, and nothing that the host asks, too.

        A function of a module inside of them, ``nl.constants.sizeinbytes``, issues nothing.
        """
        module, _, function = (self.names.of(call.func) or "").partition(".")
        is_own = module in ("nl", "nisa") and "." not in function
        return is_own and f"{module}.{function}" not in _ON_THE_HOST


def _own(node: ast.AST) -> str | None:
    """The name of a method that an object's own code names."""
    is_own = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("self", "cls")
    return node.attr if is_own else None  # type: ignore[attr-defined]
