"""A mutant: one small change of a kernel's source text, and the code compiled from it.

A mutant may change the kernel's own function, and functions of the same author that it calls.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from difftest.simulator.frontend.launchable import function_in
from difftest.support.source_lines import lines_shown
from difftest.support.tracebacks import is_user_file
from difftest.tools.lint.source import Edit, SourceText


class KernelText(SourceText):
    """The text of a file. A change keeps the line numbers of the rest."""

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the file."""
        return ast.parse(self.text)

    def function_at(self, line: int) -> ast.FunctionDef:
        """Return the function whose first line, with its decorators, is this line."""
        return next(node for first, node in functions_in(self.tree) if first == line)

    def change(self, node: ast.AST, text: str) -> Edit:
        """Return the edit that replaces a node by a text and keeps the line numbers below."""
        start, end = self.span(node)
        missing = self.text.count("\n", start, end) - text.count("\n")
        if missing > 0 and isinstance(node, ast.expr):
            text = f"({text}" + "\n" * missing + ")"
        else:
            text += "\n" * max(missing, 0)
        return self.edit(start, end, text)


@lru_cache(maxsize=64)
def read_source(file: str) -> KernelText:
    """Return the source text of a file."""
    with tokenize.open(file) as opened:  # detects the encoding as Python does
        return KernelText(opened.read())


@dataclass(frozen=True)
class Mutant:
    """A small change of a function.

    Attributes
    ----------
    file : the file of the function.
    function : the qualified name of the function, and the line of its code: ``"load:9"``.
    operator : the name of the mutation operator.
    change : the edit of the file's text.
    """

    file: str
    function: str
    operator: str
    change: Edit

    @property
    def source(self) -> KernelText:
        """The source text of the file without the change."""
        return read_source(self.file)

    @property
    def text(self) -> str:
        """The source text of the file with the change."""
        return self.change.in_text(self.source.text)

    @property
    def first_line(self) -> int:
        """The first line of the function's code."""
        return int(self.function.rpartition(":")[2])

    @property
    def lines(self) -> range:
        """The lines that the mutant changes."""
        return range(self.change.region.line, self.change.region.end_line + 1)

    @property
    def key(self) -> str:
        """A digest of the function and the change, independent of other lines of the file."""
        name = self.function.rpartition(":")[0]
        node = self.source.function_at(self.first_line)
        begin, _ = self.source.span(node)
        start = self.change.start - begin
        end = self.change.end - begin
        parts = (
            name,
            self.source.segment(node),
            start,
            end,
            self.change.text,
            self.operator,
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    def is_of(self, function: FunctionType) -> bool:
        """Return whether the mutant changes this function."""
        is_there = function.__code__.co_filename == self.file
        return is_there and qualified_name(function) == self.function

    def diff(self) -> list[str]:
        """Return the lines without the change and with it, as ``diff`` prints them."""
        old = self.source.text.splitlines()
        new = self.text.splitlines()
        lines = list(difflib.unified_diff(old, new, n=0, lineterm=""))
        changes = (line for line in lines[2:] if not line.startswith("@@"))
        return [line for line in changes if line[1:].strip()]

    def code(self, function: FunctionType) -> CodeType:
        """Return the code of the function with the change.

        Raises
        ------
        SyntaxError : the text is not valid Python, or its function needs other closure variables.
        """
        module = compile(self.text, self.file, "exec", dont_inherit=True)
        for code in nested_codes(module):
            if code.co_name != function.__name__:
                continue
            if code.co_firstlineno == self.first_line:
                if code.co_freevars != function.__code__.co_freevars:
                    raise SyntaxError("the change takes a name of the closure away")
                return code
        raise SyntaxError(f"no function {self.function} is left")


def functions_in(tree: ast.AST) -> Iterator[tuple[int, ast.FunctionDef]]:
    """Yield the functions of a tree with their first lines, decorators included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first: ast.AST = node.decorator_list[0] if node.decorator_list else node
            yield getattr(first, "lineno", 0), node


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of functions and classes nested in other code."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from nested_codes(constant)


@contextlib.contextmanager
def apply_mutant(function: FunctionType, mutant: Mutant) -> Iterator[None]:
    """Run a function with the mutant's code within the block; tracebacks show the mutant's text.

    No module is imported again: every reference to the function runs the change.
    """
    original = function.__code__
    function.__code__ = mutant.code(function)
    try:
        with lines_shown({mutant.file: mutant.text.splitlines(keepends=True)}):
            yield
    finally:
        function.__code__ = original


def mutable_functions(kernel: Callable[..., Any]) -> tuple[FunctionType, ...]:
    """Return the functions whose source mutants may change, the kernel's own first.

    These are the functions that the kernel's code names, directly or through other functions.
    Functions of libraries are not included.
    """
    reached: dict[int, FunctionType] = {}
    left: list[Any] = [kernel]
    while left:
        value = left.pop(0)
        function = function_in(value) if callable(value) else None
        if function is None or id(function) in reached:
            continue
        if _has_user_source(function):
            reached[id(function)] = function
            left += _named_values(function)
    return tuple(reached.values())


def _has_user_source(function: FunctionType) -> bool:
    """Return whether a function is defined in a readable file outside of libraries."""
    file = function.__code__.co_filename
    if not is_user_file(file):
        return False
    try:
        lines = {line for line, _ in functions_in(read_source(file).tree)}
    except (OSError, SyntaxError, UnicodeDecodeError):
        return False
    return function.__code__.co_firstlineno in lines


def _named_values(function: FunctionType) -> Iterator[Any]:
    """Yield the values that a function's code names: closure cells, globals and module members."""
    names = list(code_names(function.__code__))
    yield from (
        cell.cell_contents for cell in function.__closure__ or () if cell != CellType()
    )
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from (vars(value).get(name) for name in names)
        elif isinstance(value, (tuple, list)):
            yield from value
        elif isinstance(value, dict):
            yield from value.values()
        else:
            yield value


def code_names(code: CodeType) -> Iterator[str]:
    """Yield the global names and attributes in a function's code, nested functions included."""
    for part in (code, *nested_codes(code)):
        yield from part.co_names


def qualified_name(function: FunctionType) -> str:
    """Return the name of a function in a mutant: its qualified name and its first line."""
    return f"{function.__qualname__}:{function.__code__.co_firstlineno}"
