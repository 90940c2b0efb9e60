"""All mutants of a function: each bug of the tables wherever it fits."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from types import FunctionType

from difftest.report.mutants import instructions as instructions  # fills the table
from difftest.report.mutants.bugs import BUGS, Site
from difftest.report.mutants.mutant import KernelText, Mutant, functions_in, name_of, source_of

_LANGUAGES = ("nki.language", "neuronxcc.nki.language")


def mutants_of(functions: Iterable[FunctionType]) -> list[Mutant]:
    """The mutants of functions, in the order of their places; no two with the same text."""
    mutants: dict[tuple[str, int, int, str], Mutant] = {}
    for function in functions:
        source, file = source_of(function.__code__.co_filename), function.__code__.co_filename
        line = function.__code__.co_firstlineno
        node = next(node for at, node in functions_in(source.tree) if at == line)
        language = _language(source, node)
        for name, at, text in _ways(node, source, language):
            change = source.change(at, text)
            if source.text[change.start : change.end] != change.text:
                key = (file, change.start, change.end, change.text)
                mutants.setdefault(key, Mutant(file, name_of(function), name, change))
    return sorted(mutants.values(), key=lambda bug: (bug.file, bug.change.start, bug.change.end))


def _ways(
    function: ast.FunctionDef, source: KernelText, language: str
) -> Iterator[tuple[str, ast.AST, str]]:
    """The name of each bug that fits, the node that it is at, and the text there."""
    for parents, node in _walk(function):
        site = Site(node, parents, source, language)
        for name, kinds, ways in BUGS:
            if isinstance(node, kinds):
                yield from ((name, at, text) for at, text in ways(site))


def _walk(function: ast.FunctionDef) -> Iterator[tuple[tuple[ast.AST, ...], ast.AST]]:
    """The nodes of a function's body with those around them.

    Texts are left out: docstrings, messages of checks, and what is raised. A function inside is a
    part of this one.
    """
    left: list[tuple[tuple[ast.AST, ...], ast.AST]] = [((), line) for line in function.body]
    while left:
        parents, node = left.pop()
        if isinstance(node, (ast.JoinedStr, ast.Raise)):
            continue
        if parents and isinstance(parents[0], ast.Assert) and node is parents[0].msg:
            continue
        yield parents, node
        inner = node.body if isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node)
        left += [((node, *parents), child) for child in inner]


def _language(source: KernelText, function: ast.FunctionDef) -> str:
    """What a file calls the ``nki.language`` that a function uses."""
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    for node in ast.walk(source.tree):
        for alias in node.names if isinstance(node, ast.Import) else ():
            if alias.name in _LANGUAGES and alias.asname in used:
                return str(alias.asname)
    return ""
