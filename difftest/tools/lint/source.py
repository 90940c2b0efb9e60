"""A source file as rules read it: syntax tree, NKI names, and functions of kernels."""

from __future__ import annotations

import ast
import itertools
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from difftest.analysis.finding import group_by
from difftest.tools.lint.rule import LAST_CLASSIC, NEWEST, Release
from difftest.tools.lint.type_inference import TypeInference, ValueType
from difftest.tools.syntax import argument_of, calls_in, dotted_name, names_in

MODULES = {
    "nki": "nki",
    "nki.language": "nl",
    "nki.isa": "nisa",
    "nki.collectives": "ncc",
    "nki.typing": "nt",
    "nki.compiler": "nki.compiler",
}
"""NKI modules, and their short names in the documentation."""
_CLASSIC = "neuronxcc."
_TYPING = "neuronxcc.nki.typing"
"""The module of annotations. AWS's tables for NKI 0.4 also import it in kernels of ``nki``."""
_LAUNCHERS = frozenset(
    f"nki.{name}"
    for name in (
        "jit",
        "trace",
        "benchmark",
        "baremetal",
        "profile",
        "simulate",
        "simulate_kernel",
    )
) | {"nki_jit", "nki_call"}
"""Functions that turn a function into a kernel. The last two are PyTorch's and JAX's."""
_ON_THE_HOST = frozenset(
    {"nisa.get_nc_version", "nisa.get_nc_sub_version", "nl.nc", "nl.spmd_dim"}
)
"""Functions of NKI that are no instructions: they ask for the machine or describe a grid."""
_OWN = ("self", "cls")
_END = re.compile(r"\r\n|\n|\r")
UNREADABLE = (OSError, SyntaxError, ValueError, RecursionError)
"""Errors for a file that is missing, is not Python, or is nested too deeply for the parser."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class TextRange(NamedTuple):
    """A range in a file: lines and columns in characters from 1, with the end excluded."""

    line: int
    column: int
    end_line: int
    end_column: int


class Edit(NamedTuple):
    """A replacement of the characters from ``start`` up to ``end`` of a file with ``text``."""

    start: int
    end: int
    text: str
    region: TextRange
    """The range as lines and columns."""

    def overlaps(self, other: Edit) -> bool:
        """Return whether two edits replace a common character."""
        return self.start < other.end and other.start < self.end

    def in_text(self, text: str) -> str:
        """Return the text with this edit."""
        return text[: self.start] + self.text + text[self.end :]


class Fix(NamedTuple):
    """A set of edits that are applied together.

    ``is_safe`` means that the kernel's results do not change. An unsafe fix needs a review.
    """

    title: str
    edits: tuple[Edit, ...]
    is_safe: bool = True


def applied(text: str, fixes: Iterable[Fix]) -> tuple[str, int]:
    """Return the text with fixes, and their count. Skip a fix that overlaps an earlier fix."""
    taken: list[Edit] = []
    count = 0
    for fix in fixes:
        pairs = itertools.product(fix.edits, taken)
        if not any(edit.overlaps(other) for edit, other in pairs):
            taken += fix.edits
            count += 1
    for edit in sorted(taken, reverse=True):
        text = edit.in_text(text)
    return text, count


class RuleContext(NamedTuple):
    """The context of a node: its file, the selected SDK, and the enclosing kernel function."""

    source: Source
    sdk: Release
    function: Function | None
    is_module_level: bool = False

    def name(self, node: ast.AST) -> str:
        """Return the documented name of a node, such as ``nl.load``; "" if it is not NKI's."""
        return self.source.names.of(node)

    def called(self, node: ast.AST) -> str:
        """Return the documented name of the function that a node calls; "" for other nodes."""
        return self.name(node.func) if isinstance(node, ast.Call) else ""

    def type_of(self, node: ast.AST) -> ValueType | None:
        """Return the type of an expression of the kernel, or None if it is unknown."""
        if self.function is None:
            return None
        return self.source.types_in(self.function).of(node)

    def value(self, node: ast.AST) -> ast.AST:
        """Return the expression that is the value of a name, or else the node itself."""
        if self.function is None:
            return node
        return self.source.types_in(self.function).value(node)

    def argument(
        self, call: ast.Call, name: str, place: int | None = None
    ) -> ast.AST | None:
        """Return an argument of a call, with a name resolved to its value; None if absent."""
        value = argument_of(call, name, place)
        return None if value is None else self.value(value)

    def buffer(self, tensor: ast.AST) -> str:
        """Return the buffer of a tensor's allocation, such as ``nl.psum``; "" if unknown."""
        call = self.value(tensor)
        if not isinstance(call, ast.Call):
            return ""
        buffer = self.argument(call, "buffer", 2)
        return "" if buffer is None else self.name(buffer)


class ImportedNames:
    """The NKI names that a file imports, under its local names."""

    def __init__(self, tree: ast.Module) -> None:
        self.is_classic = False
        self.is_todays = False
        self._full: dict[str, str] = {}
        self._classic: set[str] = set()
        self.first_classic: ast.AST | None = None
        """The first import of the classic dialect."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._enter_modules(node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for member in node.names:
                    full = f"{node.module}.{member.name}"
                    self._enter(node, member.asname or member.name, full, full)

    def _enter_modules(self, node: ast.Import) -> None:
        """Record an import of modules. Without ``as`` it binds the outermost package."""
        for alias in node.names:
            package = alias.name.partition(".")[0]
            if alias.asname:
                self._enter(node, alias.asname, alias.name, alias.name)
            else:
                self._enter(node, package, package, alias.name)

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
        """Return whether a name is of the classic dialect. A file may import both dialects."""
        return dotted_name(node).partition(".")[0] in self._classic

    def spelled(self, name: str) -> str | None:
        """Return the file's spelling of ``nl.load``; None if it does not import the module."""
        short, _, rest = name.partition(".")
        for local, full in self._full.items():
            if MODULES.get(full) == short:
                return f"{local}.{rest}"
        return None

    def of(self, node: ast.AST) -> str:
        """Return the documented name of a name or an attribute, or "" if it is not NKI's."""
        local, dot, rest = dotted_name(node).partition(".")
        if local not in self._full:
            return ""
        full = f"{self._full[local]}{dot}{rest}".removeprefix(_CLASSIC)
        for module in sorted(MODULES, key=len, reverse=True):
            if full == module or full.startswith(f"{module}."):
                return MODULES[module] + full[len(module) :]
        return ""


class SourceText:
    """The text of a Python file, with the positions of syntax nodes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the start and end of a node as character offsets in the file."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None)
        end = self._place(end_line, column if end_column is None else end_column)
        return self._place(line, column), end

    def segment(self, node: ast.AST) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def region(self, start: int, end: int) -> TextRange:
        """Return character offsets as lines and columns."""
        places = []
        for at in (start, end):
            line = bisect_right(self._starts, at)
            places += [line, at - self._starts[line - 1] + 1]
        return TextRange(*places)

    def edit(self, start: int, end: int, text: str) -> Edit:
        """Return the edit that replaces a range of characters with a text."""
        return Edit(start, end, text, self.region(start, end))

    @cached_property
    def _starts(self) -> list[int]:
        """The offset of the first character of each line."""
        return [0, *(match.end() for match in _END.finditer(self.text))]

    def _place(self, line: int, byte: int) -> int:
        """Return the character offset for a line and a UTF-8 byte offset, as in syntax trees."""
        start = self._starts[line - 1]
        return start + len(
            self.text[start : start + byte].encode()[:byte].decode(errors="ignore")
        )


class Source(SourceText):
    """A Python file. ``launched`` names functions that are kernels without a decorator.

    Raises
    ------
    SyntaxError : the file is not valid Python.
    """

    def __init__(self, path: Path, text: str, launched: Collection[str] = ()) -> None:
        super().__init__(text)
        self.path = path
        self.launched = launched
        self.tree = ast.parse(text, str(path))
        self.names = ImportedNames(self.tree)
        self._types: dict[Function, TypeInference] = {}

    @property
    def sdk(self) -> Release:
        """The newest SDK of the file's dialect."""
        if self.names.is_classic and not self.names.is_todays:
            return LAST_CLASSIC
        return NEWEST

    @cached_property
    def constants(self) -> Mapping[str, ast.expr]:
        """The values of names that are assigned at the top level."""
        constants: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    constants[getattr(target, "id", "")] = node.value
        return constants

    def types_in(self, function: Function) -> TypeInference:
        """Return the inferred types of a function's expressions."""
        if function not in self._types:
            self._types[function] = TypeInference(self, function)
        return self._types[function]

    @cached_property
    def functions(self) -> Mapping[str, Sequence[Function]]:
        """All functions of the file by name, including nested functions."""
        return group_by(self._all_functions, lambda function: function.name)

    @cached_property
    def calls_by_name(self) -> Mapping[str, Sequence[ast.Call]]:
        """All calls of the file by the plain name that they call; "" for other callees."""
        return group_by(calls_in(self.tree), lambda call: getattr(call.func, "id", ""))

    @cached_property
    def kernels(self) -> frozenset[Function]:
        """The kernels of the file: functions with an NKI decorator, or that are launched."""
        launched = set(self.launched).union(self._launched_here())
        return frozenset(
            function
            for function in self._all_functions
            if function.name in launched
            or any(map(self._is_launcher, function.decorator_list))
        )

    @cached_property
    def _all_functions(self) -> Sequence[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def in_kernels(self) -> frozenset[Function]:
        """The kernels, and the functions that they use directly or indirectly."""
        return self.reached(self.kernels)

    @cached_property
    def kernel_code(self) -> frozenset[Function]:
        """Functions that run in kernels: functions that issue instructions, and their callees."""
        return self.reached(
            self.kernels.union(filter(self._issues, self._all_functions))
        )

    def reached(self, functions: Iterable[Function]) -> frozenset[Function]:
        """Return these functions, and functions of the file that they use, even indirectly."""
        reached: set[Function] = set()
        waiting = list(functions)
        while waiting:
            function = waiting.pop()
            if function not in reached:
                reached.add(function)
                for name in {_used_name(node) for node in ast.walk(function)}:
                    waiting += self.functions.get(name, ())
        return frozenset(reached)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that enclose a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of each node."""
        parents: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            parents.update(dict.fromkeys(ast.iter_child_nodes(node), node))
        return parents

    def offset(self, line: int, column: int) -> int:
        """Return the character offset of a line and a column."""
        return self._starts[line - 1] + column - 1

    def nodes(self, sdk: Release) -> Iterator[tuple[ast.AST, RuleContext]]:
        """Yield each node with its context, in source order."""
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
        """Return whether an expression turns a function into a kernel, as ``nki.jit`` does."""
        if isinstance(node, ast.Call):
            return any(map(self._is_launcher, [node.func, *node.args[:1]]))
        name = self.names.of(node) or ast.unparse(node).rpartition(".")[2]
        return name in _LAUNCHERS

    def _launched_here(self) -> Iterator[str]:
        """Yield the names of launched functions: ``name[grid](...)``, ``nki.jit(name)``."""
        for call in calls_in(self.tree):
            if isinstance(call.func, ast.Subscript):
                yield getattr(call.func.value, "id", "")
            elif call.args and self._is_launcher(call.func):
                yield from names_in(call.args[0])

    def _issues(self, function: Function) -> bool:
        """Return whether a function issues instructions itself and does not run on the host.

        A host function launches kernels, or contains functions that are or launch kernels. A
        factory that only reads constants of ``nl`` is a host function, too.
        """
        if any(self._is_host_code(node, function) for node in ast.walk(function)):
            return False
        return any(map(self.is_instruction, self._own_calls(function)))

    def _is_host_code(self, node: ast.AST, function: Function) -> bool:
        """Return whether a node of a function is another kernel, or launches a kernel."""
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Subscript) or self._is_launcher(node.func)
        return node in self.kernels and node is not function

    def _own_calls(self, function: Function) -> Iterator[ast.Call]:
        """Yield the calls of a function, except calls in nested functions and classes."""
        waiting: list[ast.AST] = list(function.body)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Call):
                yield node
            if not isinstance(node, (Function, ast.ClassDef)):
                waiting += ast.iter_child_nodes(node)

    def is_instruction(self, call: ast.Call) -> bool:
        """Return whether a call is an instruction of ``nl`` or ``nisa``, and not a host query.

        Functions of their submodules, such as ``nl.constants.sizeinbytes``, issue no instruction.
        """
        module, _, function = self.names.of(call.func).partition(".")
        is_own = module in ("nl", "nisa") and "." not in function
        return is_own and f"{module}.{function}" not in _ON_THE_HOST


def _used_name(node: ast.AST) -> str:
    """Return the name that a node reads, or the method of ``self`` or ``cls``; else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in _OWN:
        return node.attr
    return ""
