"""Which branches and loops of the kernels' own code no case took: a bug there would not be seen.

A fork is an ``if`` or a loop whose body stands on lines of its own, so that the lines that run tell
what happened there. Conditional expressions and comprehensions are none.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

TURNS = ("it never ran", "never a second turn", "never a third turn")
"""What is said of a loop that made no turn, or one, or two."""
BRANCHES = ("never true", "never false")
"""What is said of a branch that was always passed over, or always taken."""
SAYINGS = {True: TURNS, False: BRANCHES}
"""Of what loops, and of what does not."""


@dataclass(frozen=True)
class Fork:
    """An ``if`` or a loop: the line where it begins, the first and last of its body."""

    line: int
    body: tuple[int, int]
    loops: bool

    def holds(self, line: int) -> bool:
        """Whether a line is one of the head or of the body."""
        return self.line <= line <= self.body[1]

    def enters(self, line: int) -> bool:
        """Whether a line is one of the body."""
        return self.body[0] <= line <= self.body[1]


def forks_of(code: CodeType) -> dict[int, Fork]:
    """The forks of a function, by each line of their heads."""
    return _forks_at(code.co_filename, code)


@functools.cache
def _forks_at(file: str, code: CodeType) -> dict[int, Fork]:
    """With the file, for code that is equal in two files."""
    lines = {line for *_, line in code.co_lines() if line is not None}
    return {line: fork for line, fork in _forks_in(file).items() if line in lines}


@functools.cache
def _forks_in(file: str) -> dict[int, Fork]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    forks: dict[int, Fork] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.For)) and not _is_settled(node):
            head = node.iter if isinstance(node, ast.For) else node.test
            last = head.end_lineno or head.lineno
            body = (node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)
            if body[0] > last:
                fork = Fork(node.lineno, body, not isinstance(node, ast.If))
                forks.update(dict.fromkeys(range(node.lineno, last + 1), fork))
    return forks


def _is_settled(node: ast.If | ast.While | ast.For) -> bool:
    """Whether no case has a say: a loop over constants, or a refusal, which rejections demand."""
    if isinstance(node, ast.For):
        parts = node.iter.args if isinstance(node.iter, ast.Call) else [node.iter]
        if isinstance(node.iter, (ast.Tuple, ast.List)):
            return True
        return bool(parts) and all(isinstance(part, ast.Constant) for part in parts)
    return isinstance(node.test, ast.Constant) or isinstance(node.body[-1], ast.Raise)


Place = tuple[str, int]
"""A file, and the line on which a fork begins."""


@dataclass
class Coverage:
    """What cases did at the forks of the code that they ran: facts, each a row of a table.

    ``forks`` are (file, line, whether it loops); ``kernels`` (file, line, kernel that ran its
    function); what is ``done`` is (file, line, index of ``BRANCHES`` or ``TURNS``) and not to be
    said of it; ``unknown`` says why nothing is known of some cases.
    """

    forks: set[tuple[str, int, bool]] = field(default_factory=set)
    kernels: set[tuple[str, int, str]] = field(default_factory=set)
    done: set[tuple[str, int, int]] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def saw(self, kernel: str, forks: Collection[tuple[str, int, bool]]) -> None:
        """A kernel ran functions with these forks."""
        self.forks.update(forks)
        self.kernels.update((file, line, kernel) for file, line, _ in forks)

    def merge(self, other: Coverage) -> None:
        """Add what other cases did."""
        for name, facts in vars(self).items():
            facts.update(getattr(other, name))

    def renamed(self, names: Mapping[str, str]) -> Coverage:
        """The same with other names for some kernels."""
        kernels = {(file, line, names.get(name, name)) for file, line, name in self.kernels}
        return replace(self, kernels=kernels)

    def to_list(self) -> list[Any]:
        """What travels as JSON; :func:`coverage_from_list` takes it."""
        return [sorted(facts) for facts in vars(self).values()]


def coverage_from_list(document: list[Any]) -> Coverage:
    """What :meth:`Coverage.to_list` wrote."""
    tables: list[Any] = [{(*row,) for row in rows} for rows in document[:-1]]
    return Coverage(*[*tables, set(document[-1])])


@dataclass(frozen=True)
class Missed:
    """What no case did at a fork: the first thing that never happened there.

    ``kernels`` ran its function; ``file`` is from the working directory, ``source`` the line.
    """

    file: str
    line: int
    kernels: tuple[str, ...]
    what: str
    source: str


def missed(coverage: Coverage) -> list[Missed]:
    """What no case did, by file and line. Of a loop without a second turn a third is not said."""
    from difftest.simulator.errors import near  # a run without a backend is spared NumPy

    ran, found = defaultdict(list), []
    for *place, kernel in sorted(coverage.kernels):
        ran[(*place,)].append(kernel)
    for file, line, loops in sorted(coverage.forks):
        kernels = (*ran[file, line],)
        left = [
            text
            for what, text in enumerate(SAYINGS[loops])
            if (file, line, what) not in coverage.done
        ]
        source = linecache.getline(file, line).strip()
        for what in left[: 1 if loops else None] if kernels else ():
            found.append(Missed(near(file), line, kernels, what, source))
    return found
