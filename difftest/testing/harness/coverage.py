"""Coverage of the branches and loops in the kernels' own code, where bugs would stay hidden.

A branch is an ``if`` or a loop with a body on its own lines. So the lines that run show which way
was taken. Conditional expressions and comprehensions do not count. The kernel's own code is traced:
its file, its package, and all other code outside libraries.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from difftest.support.source_lines import parsed_file

ITERATIONS = ("it never ran", "never a second iteration", "never a third iteration")
BRANCHES = ("never true", "never false")
EXPRESSION = "its condition never changes"
"""The text for a conditional expression whose condition had one value in all cases."""
OUTCOMES = {True: ITERATIONS, False: BRANCHES}
"""The texts for a missed outcome, by whether it is a loop: iterations, or the sides of a branch."""


class Branch(NamedTuple):
    """An ``if`` or a loop: its first line, and the lines of its body."""

    line: int
    body: range
    loops: bool


def branches_of(code: CodeType) -> dict[int, Branch]:
    """Return the branches of a function, by each line of their heads."""
    return _branches_at(code.co_filename, code)


@functools.cache
def _branches_at(file: str, code: CodeType) -> dict[int, Branch]:
    """Return the branches of a function in a file: equal code may be in two files."""
    lines = {line for *_, line in code.co_lines() if line is not None}
    return {
        line: branch for line, branch in _branches_in(file).items() if line in lines
    }


@functools.cache
def _branches_in(file: str) -> dict[int, Branch]:
    """Return all branches in a file, by each line of their heads."""
    branches: dict[int, Branch] = {}
    for node in ast.walk(parsed_file(file)):
        if isinstance(node, (ast.If, ast.While, ast.For)) and not _is_constant(node):
            head = node.iter if isinstance(node, ast.For) else node.test
            last = head.end_lineno or head.lineno
            body = range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
            if body.start > last:
                branch = Branch(node.lineno, body, not isinstance(node, ast.If))
                branches.update(dict.fromkeys(range(node.lineno, last + 1), branch))
    return branches


def _is_constant(node: ast.If | ast.While | ast.For) -> bool:
    """Return whether a branch does not depend on the case.

    It is a loop over constants, a constant condition, or a check that raises. Rejections test
    checks.
    """
    if isinstance(node, ast.For):
        return _is_constant_iterable(node.iter)
    return isinstance(node.test, ast.Constant) or isinstance(node.body[-1], ast.Raise)


def _is_constant_iterable(iterable: ast.expr) -> bool:
    """Return whether a loop's iterable is a tuple, a list, or a call with constant arguments."""
    if isinstance(iterable, (ast.Tuple, ast.List)):
        return True
    parts = iterable.args if isinstance(iterable, ast.Call) else [iterable]
    return bool(parts) and all(isinstance(part, ast.Constant) for part in parts)


@dataclass
class Coverage:
    """The branches in the code that cases ran, and the outcomes that they covered.

    Attributes
    ----------
    branches : (file, line, whether it loops, kernel that ran its function).
    covered : outcomes that a case took: (file, line, index into ``BRANCHES`` or ``ITERATIONS``).
    unknown : reasons why some cases were not traced.
    tried : the nearest values at a branch: (file, line, distance from the condition, text).
    expressions : lines with a conditional expression that few sizes decide otherwise: (file, line,
        kernel, the nearest values, or an empty text if a case had such sizes).
    """

    branches: set[tuple[str, int, bool, str]] = field(default_factory=set)
    covered: set[tuple[str, int, int]] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    tried: set[tuple[str, int, int, str]] = field(default_factory=set)
    expressions: set[tuple[str, int, str, str]] = field(default_factory=set)

    def add_function(
        self, kernel: str, branches: Collection[tuple[str, int, bool]]
    ) -> None:
        """Add the branches of functions that a kernel ran."""
        self.branches.update((*branch, kernel) for branch in branches)

    def merge(self, other: Coverage, names: Mapping[str, str] | None = None) -> None:
        """Add the coverage of other cases, with other names for some kernels."""
        names = names or {}
        for file, line, loops, kernel in other.branches:
            self.branches.add((file, line, loops, names.get(kernel, kernel)))
        self.covered |= other.covered
        self.unknown |= other.unknown
        self.tried |= other.tried
        self.expressions |= other.expressions

    def to_list(self) -> list[Any]:
        """Return the coverage as lists for JSON; :func:`coverage_from_list` reads them."""
        return [sorted(facts) for facts in vars(self).values()]


def coverage_from_list(document: list[Any]) -> Coverage:
    """Return the coverage that :meth:`Coverage.to_list` wrote."""
    branches, covered, unknown, tried, expressions = document
    return Coverage(
        branches=set(map(tuple, branches)),
        covered=set(map(tuple, covered)),
        unknown=set(unknown),
        tried=set(map(tuple, tried)),
        expressions=set(map(tuple, expressions)),
    )


class UncoveredBranch(NamedTuple):
    """A branch that no case took.

    Attributes
    ----------
    file, line : its place; the file is relative to the working directory.
    kernels : the kernels that ran its function.
    what : the outcome that never happened.
    source : the text of its line.
    tried : the values that came nearest to its condition; empty if unknown.
    """

    file: str
    line: int
    kernels: tuple[str, ...]
    what: str
    source: str
    tried: str = ""


def uncovered_branches(coverage: Coverage) -> list[UncoveredBranch]:
    """Return the outcomes that no case took, by file and line; for a loop only the first."""
    # A run without a backend needs no NumPy.
    from difftest.simulator.errors import relative_path

    ran = defaultdict[Any, list[str]](list)
    places = list[UncoveredBranch]()
    tried = {tuple(at): text for *at, _, text in sorted(coverage.tried, reverse=True)}
    for *branch, kernel in sorted(coverage.branches):
        ran[tuple(branch)].append(kernel)
    for (file, line, loops), kernels in ran.items():
        for text in _uncovered_outcomes(coverage, file, line, loops):
            place = UncoveredBranch(
                file=relative_path(file),
                line=line,
                kernels=tuple(kernels),
                what=text,
                source=linecache.getline(file, line).strip(),
                tried=tried.get((file, line), ""),
            )
            places.append(place)
    return [*places, *_undecided_expressions(coverage)]


def _uncovered_outcomes(
    coverage: Coverage, file: str, line: int, loops: bool
) -> list[str]:
    """Return the texts of the outcomes of a branch that no case took; for a loop only the first."""
    missed = []
    for number, text in enumerate(OUTCOMES[loops]):
        if (file, line, number) not in coverage.covered:
            missed.append(text)
    return missed[:1] if loops else missed


def _undecided_expressions(coverage: Coverage) -> Iterator[UncoveredBranch]:
    """Yield the conditional expressions whose condition had one value in all cases."""
    from difftest.simulator.errors import relative_path

    by_line = defaultdict[tuple[str, int], dict[str, str]](dict)
    for file, line, kernel, nearest in sorted(coverage.expressions, reverse=True):
        by_line[file, line][kernel] = nearest  # an empty text comes last
    for (file, line), by_kernel in sorted(by_line.items()):
        if all(by_kernel.values()):
            source = linecache.getline(file, line).strip()
            nearest = next(iter(by_kernel.values()))
            yield UncoveredBranch(
                relative_path(file),
                line,
                tuple(by_kernel),
                EXPRESSION,
                source,
                nearest,
            )


@functools.cache
def expression_lines(file: str) -> frozenset[int]:
    """Return the lines of a file that hold the condition of a conditional expression."""
    nodes = ast.walk(parsed_file(file))
    tests = [node.test for node in nodes if isinstance(node, ast.IfExp)]
    lines = {
        line
        for test in tests
        for line in range(test.lineno, (test.end_lineno or test.lineno) + 1)
    }
    return frozenset(lines - _branches_in(file).keys())
