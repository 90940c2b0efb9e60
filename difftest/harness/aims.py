"""Values that aim at the conditions in the kernel's source: where each of them changes.

They are read off the source. What a condition compares with a number says of the name at its left
which values make both sides equal: 217 of ``n == 217``, 33 and each 64th after it of
``n % 64 == 33``. Of a loop over a range the third turn is such a place.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import random
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from difftest.backends.sdk import function_of

_SHARE, _NAMES, _STEPS, _LEAST = 0.6, 0.8, 5, 3
"""Of the cases and of a case's names how many aim at something; how many steps are tried; and what
numbers are aimed at: smaller ones are drawn anyhow."""
_ASIDE = (*6 * (0,), -1, 1)
"""How far beside a place is aimed."""
_ENDLESS = 2**62
"""The step of a term that has one value alone."""
_TURNS = ("range", "affine_range", "sequential_range", "static_range")

Term = tuple[int, int]
"""A step, and the first of the values that are so far apart."""
Condition = tuple[str, int, list[Term], list[Term]]
"""Its file and line, what those around it ask, and what it asks itself."""


def aimed(groups: Sequence[Sequence[Term]], names: Sequence[str], seed: int) -> dict[str, int]:
    """Values for names of the domain in a case; empty for one that aims at nothing."""
    chance = random.Random(seed)
    if chance.random() > _SHARE:
        return {}
    mine = [chance.choice(groups) for _ in range(2)]
    group = chance.choice((mine[:1], mine))
    terms: dict[str, Term] = {}
    for name in names:
        if chance.random() < _NAMES:
            several = chance.choice(group)  # the last are of the condition itself
            terms[name] = several[max(chance.randrange(len(several)) for _ in range(2))]
    return {
        name: first + step * chance.randrange(_STEPS) + chance.choice(_ASIDE)
        for name, (step, first) in terms.items()
    }


def nearest(terms: Sequence[Term], cases: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """How far the nearest of some cases' values are from terms, and which they are, in words."""
    places = [(step or _ENDLESS, first) for step, first in terms]

    def apart(values: Mapping[str, Any]) -> int:
        sizes = [size for size in values.values() if type(size) is int] or [0]
        far = ([min((n - at) % step, (at - n) % step) for n in sizes] for step, at in places)
        return sum(map(min, far))

    values = min(cases, key=apart)
    shown = ", ".join(f"{name}={value}" for name, value in values.items())
    return apart(values), f"nearest of the last {len(cases)} cases: {shown}"


@functools.lru_cache(maxsize=64)  # to find the source of a function takes long
def conditions_of(kernels: tuple[Callable[..., Any], ...]) -> list[Condition]:
    """Each condition of kernels, and of functions of theirs, that asks for a number."""
    left: list[Any] = [function_of(kernel) for kernel in kernels]
    done: list[FunctionType] = []
    conditions: list[Condition] = []
    while left:
        function = left.pop()
        if not isinstance(function, FunctionType) or function in done:
            continue
        done.append(function)
        named: list[Any] = [function.__globals__.get(name) for name in function.__code__.co_names]
        home = function.__module__
        left += [function_of(value) for value in named if getattr(value, "__module__", "") == home]
        with contextlib.suppress(OSError, TypeError, SyntaxError):  # it has no source
            lines, first = inspect.getsourcelines(function)
            tree = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
            source = _Source(function.__code__.co_filename, tree, function.__globals__)
            conditions += source.conditions(tree, [])
    return conditions


class _Source:
    """A function's source, the numbers of its module, and what its names are."""

    def __init__(self, file: str, tree: ast.AST, numbers: Mapping[str, Any]) -> None:
        self._file = file
        self._known = {n: v for n, v in numbers.items() if isinstance(v, (int, ModuleType))}
        self._assigned = {
            node.targets[0].id: node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

    def conditions(self, node: Any, around: list[Term]) -> Iterator[Condition]:
        """The conditions below a node; what is refused counts for nothing."""
        refuses = isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)
        if refuses or isinstance(node, ast.Assert):
            return
        test: Any = node if isinstance(node, (ast.Compare, ast.BoolOp)) else None
        test = getattr(node, "test", test)
        if own := [*self._terms(test)] if test is not None else [*self._turns(node)]:
            yield self._file, node.lineno, around, own
        for inner in ast.iter_child_nodes(node) if test is not node else ():
            if inner is not test:
                yield from self.conditions(inner, [*around, *own])

    def _terms(self, test: ast.AST) -> Iterator[Term]:
        nodes = [*ast.walk(test)]
        compared = [node for node in nodes if isinstance(node, ast.Compare)]
        sides = [(node.left, node.comparators[0]) for node in compared]
        binary = [node for node in nodes if isinstance(node, ast.BinOp)]
        alone = [(node, ast.Constant(0)) for node in binary if isinstance(node.op, ast.Mod)]
        for side, other in sides or alone:
            for left, right in ((side, other), (other, side)):
                value = self._number(right)
                step, first = (0, 0) if value is None else self._solved(left, value)
                if max(step, first) >= _LEAST:
                    yield step, first

    def _turns(self, node: ast.AST) -> Iterator[Term]:
        turns = node.iter if isinstance(node, ast.For) else None
        if isinstance(turns, ast.Call) and ast.unparse(turns.func).rpartition(".")[2] in _TURNS:
            size = (self._number(turns.args[2]) or 1) if len(turns.args) > 2 else 1
            term = self._solved(turns.args[min(1, len(turns.args) - 1)], 2 * size + 1)
            yield from [term] if term[1] > _LEAST else []

    def _solved(self, side: ast.expr, value: int, step: int = 0, depth: int = 8) -> Term:
        """What makes a side this value, as far as numbers alone are added, multiplied, divided."""
        if isinstance(side, ast.Name) and side.id in self._assigned and depth:
            return self._solved(self._assigned[side.id], value, step, depth - 1)
        number = self._number(side.right) if isinstance(side, ast.BinOp) else None
        if not isinstance(side, ast.BinOp) or not number:
            return step, value
        if isinstance(side.op, ast.Mod):
            return self._solved(side.left, value, number, depth)
        if isinstance(side.op, (ast.Add, ast.Sub)):
            value += number if isinstance(side.op, ast.Sub) else -number
        elif isinstance(side.op, ast.FloorDiv):
            value, step = value * number, step * number
        else:
            return step, value
        return self._solved(side.left, value, step, depth)

    def _number(self, node: ast.expr) -> int | None:
        """The number that an expression is, if it is one for which nothing runs."""
        if any(isinstance(part, ast.Call) for part in ast.walk(node)):
            return None
        whole = ast.fix_missing_locations(ast.Expression(node))
        with contextlib.suppress(Exception):  # a name of the function's own
            value = eval(compile(whole, "<number>", "eval"), {"__builtins__": {}}, self._known)
            return value if type(value) is int else None
        return None
