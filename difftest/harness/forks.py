"""The branches and loops of a source file, read off its syntax tree.

A fork is an ``if`` or a loop whose body stands on lines of its own, so that the lines that run tell
what happened there. Conditional expressions and comprehensions are none.
"""

from __future__ import annotations

import ast
import functools
import linecache
from dataclasses import dataclass
from types import CodeType

TURNS = ("it never ran", "never a second turn", "never a third turn")
"""What is said of a loop that made no turn, or one, or two."""
BRANCHES = ("never true", "never false")
"""What is said of a branch that was always passed over, or always taken."""


@dataclass(frozen=True)
class Fork:
    """An ``if`` or a loop: the lines of its head and of its body, first and last."""

    head: tuple[int, int]
    body: tuple[int, int]
    loops: bool

    @property
    def line(self) -> int:
        """Where it begins."""
        return self.head[0]

    def holds(self, line: int) -> bool:
        """Whether a line is one of the head or of the body."""
        return self.head[0] <= line <= self.body[1]

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
                fork = Fork((node.lineno, last), body, not isinstance(node, ast.If))
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
