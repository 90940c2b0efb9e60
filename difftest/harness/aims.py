"""Values that aim at the conditions in the kernel's source: where each of them changes.

A condition is asked of the values of one name after another, while the others stay: ``n % 64 ==
33`` holds at 33 and each 64th after it, ``rows + columns == 777`` at what is left to 777. What a
name was assigned stands in its place. A loop's third turn is one too, and what a function gives.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import itertools
import math
import random
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

from difftest.backends.sdk import function_of
from difftest.harness.repeats import RANGE
from difftest.harness.spec import KernelSpec

_SHARE, _NAMES, _LEAST = 0.6, 0.8, 3
"""Of the cases, and of their names, how many aim at something; smaller numbers are drawn anyhow."""
_ASIDE = (*6 * (0,), -1, 1)  # how far beside a place is aimed
_ASKED, _BASES, _KEPT, _LONG, _WORK = 1024, 16, 64, 100, 60_000
"""Of how many values of a name a condition is asked, beside how many of another one at most; places
kept; nodes of what stands in a name's place at most, and those that are evaluated in all."""
_TURNS = ("range", "affine_range", "sequential_range", "static_range")
_CALLED = ("abs", "bin", "bool", "divmod", "int", "len", "max", "min", "range", "sum")
_NUMBERS = {*_CALLED, *dir(int), *dir(math), "get"}
_LASTING = (ast.Global, ast.Nonlocal, ast.Yield, ast.While, ast.With, ast.Delete)
_FLOATS, _LARGE = 8, 2.0**18  # so many, and smaller: a large one hides something, and is no data

Place = dict[str, int]  # values of names of the domain, at which a condition changes
Condition = tuple[str, int, list[list[Place]], list[list[Place]]]
"""Its file and line, the places of those around it, and of each that it joins itself."""


def aimed(groups: Sequence[Sequence[list[Place]]], seed: int) -> Place:
    """Values for names of the domain in a case; empty for one that aims at nothing."""
    chance = random.Random(seed)
    if chance.random() > _SHARE:
        return {}
    values: Place = {}
    for group in [chance.choice(groups) for _ in range(chance.choice((1, 2)))]:
        for places in chance.sample(group, len(group)):
            values |= chance.choice(places)
    return {n: at + chance.choice(_ASIDE) for n, at in values.items() if chance.random() < _NAMES}


def nearest(joined: Sequence[list[Place]], cases: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """How far the nearest of some cases' values are from conditions, and which, in words."""

    def far(case: Mapping[str, Any]) -> int:
        return sum(min(sum(abs(case[n] - at[n]) for n in at) for at in places) for places in joined)

    case = min(cases, key=far)
    shown = ", ".join(f"{name}={value}" for name, value in case.items())
    return far(case), f"nearest of the last {len(cases)} cases: {shown}"


@functools.lru_cache(maxsize=8)  # to find the source of a function takes long
def conditions_of(spec: KernelSpec) -> tuple[list[Condition], tuple[float, ...]]:
    """Each condition of the kernels, and of functions of theirs, that changes with a number.

    And the floats that their code names, which values may be compared with.
    """
    sources = ((name, getattr(source, RANGE, source)) for name, source in spec.domain.items())
    lists = ((n, own if isinstance(own, Sequence) else range(1, _ASKED)) for n, own in sources)
    ranges = {name: own for name, own in lists if {*map(type, own[:_ASKED])} == {int}}
    arrays = ((name, spec.dimensions(name)) for name in (*spec.inputs, *spec.outputs))
    ends = ((f"{name}.shape", own, end) for name, own in arrays for end in (0, len(own)))
    axes = {f"{x}[{n - end}]": of for x, own, end in ends for n, of in enumerate(own)}
    functions = [f for k in (spec.kernel, *spec.others) if ranges and (f := function_of(k))]
    conditions: list[Condition] = []
    floats: list[float] = []
    for function in functions:  # they become more
        values, named = [function.__code__, *(function.__defaults__ or ())], list[Any]()
        for code in (v for v in values if isinstance(v, CodeType)):  # they become more
            named += [function.__globals__.get(name) for name in code.co_names]
            inner = [getattr(v, "__dict__", {}).get(n) for v in named for n in code.co_names]
            values += [*code.co_consts, *named, *inner]
        floats += [value for value in values if type(value) is float]
        own = [v for v in named if getattr(v, "__module__", "") == function.__module__]
        functions += [f for v in own if (f := function_of(v)) and f not in functions]
        with contextlib.suppress(OSError, TypeError, SyntaxError):  # it has no source
            lines, first = inspect.getsourcelines(function)
            tree = ast.increment_lineno(ast.parse(textwrap.dedent("".join(lines))), first - 1)
            conditions += _Source(function, tree, ranges, axes).conditions(tree, [])
    return conditions, (*dict.fromkeys(n for n in floats if 0 < abs(n) < _LARGE),)[:_FLOATS]


class _Source(ast.NodeTransformer):
    """A function's source: a name becomes what it was assigned, and what cannot be told a name."""

    def __init__(self, function: FunctionType, tree: ast.AST, ranges: Any, axes: Any) -> None:
        self._file, self._ranges, self._axes = function.__code__.co_filename, ranges, axes
        own = {p.name: p.default for p in inspect.signature(function).parameters.values()}
        world = function.__globals__ | {n: v for n, v in own.items() if type(v) is int}
        self._known = {n: v for n, v in world.items() if n not in ranges}
        self._assigned, self._own = dict[str, ast.expr](), dict[str, bool]()
        nodes = [*ast.walk(tree)]
        self._turning = [ast.unparse(node.target) for node in nodes if isinstance(node, ast.For)]
        for node in nodes:
            if isinstance(node, ast.Assign):
                names, values = (getattr(s, "elts", [s]) for s in (node.targets[0], node.value))
                if len(names) > len(values):  # of a shape
                    parts = (ast.Constant(axis) for axis, _ in enumerate(names))
                    values = [ast.Subscript(node.value, part, ast.Load()) for part in parts]
                for name, value in zip(names, values, strict=False):
                    told = self.visit(value)
                    if len([*ast.walk(told)]) < _LONG:
                        self._assigned[ast.unparse(name)] = told

    def conditions(self, node: Any, around: list[list[Place]]) -> Iterator[Condition]:
        """The conditions below a node; what is refused counts for nothing."""
        refuses = isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)
        if refuses or isinstance(node, ast.Assert):
            return
        is_call = isinstance(node, ast.Call) and self._is_own(ast.unparse(node.func))
        asks = is_call or isinstance(node, (ast.Compare, ast.BoolOp))
        test = node if asks else getattr(node, "test", None)
        if own := [places for part in self._parts(node, test) if (places := self._places(part))]:
            yield self._file, node.lineno, around, own
        for inner in ast.iter_child_nodes(node) if is_call or not asks else ():
            if inner is not test:
                yield from self.conditions(inner, [*around, *own])

    def _parts(self, node: Any, test: Any) -> list[ast.expr]:
        """What all has to hold of what a node asks: of a loop, that it turns thrice."""
        turns = ast.unparse(node.iter) if isinstance(node, ast.For) else ""
        if turns.partition("(")[0].rpartition(".")[2] in _TURNS:
            return [ast.parse(f"len({turns}) > 2", mode="eval").body]
        is_and = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
        parts = test.values if is_and else [test] if test else []
        return parts if test is node else [ast.UnaryOp(ast.Not(), part) for part in parts]

    def _places(self, test: ast.expr) -> list[Place]:
        """Where a condition changes with one of its names."""
        whole = ast.fix_missing_locations(ast.Expression(self.visit(copy.deepcopy(test))))
        code, chance = compile(whole, "<condition>", "eval"), random.Random(0)
        open_names = dict.fromkeys(n.id for n in ast.walk(whole) if isinstance(n, ast.Name))
        names = [name for name in open_names if name not in self._known and name not in _CALLED]
        outer = [name for name in names if name not in self._turning]
        is_told = not isinstance(test, ast.Call) or {*names} <= self._ranges.keys()
        numbers: list[Any] = [getattr(node, "value", None) for node in ast.walk(whole)]
        near = {n + step for n in numbers if type(n) is int for step in (-1, 0, 1, 2)}
        places: list[Place] = []
        work = len(numbers) * sum(len(self._ranges.get(n, range(_ASKED))[:_ASKED]) for n in names)
        often = min(_BASES, _WORK // max(1, work)) if is_told and len(names) < 3 else 0
        for _ in range(1 if len(names) == 1 and names[0] in self._ranges else often):
            to = {n: n if n in self._ranges else chance.choice([*self._ranges]) for n in outer}
            own = {n: self._ranges[to[n]] if n in to else range(4) for n in names}
            base = {n: chance.choice(values) for n, values in own.items()}
            for name in outer:
                for at in self._changes(code, base, name, sorted({*own[name][:_ASKED], *near})):
                    places.append({to[n]: at if n == name else base[n] for n in outer})
        return chance.sample(places, min(_KEPT, len(places)))

    def _changes(self, code: Any, base: Place, name: str, asked: Sequence[int]) -> list[int]:
        """The ends of those of a name's values for which it is what it is for few."""
        held = []
        for value in asked:
            try:
                told = eval(code, self._known, {**base, name: value})
                held.append(told if isinstance(told, (int, float)) else bool(told))
            except Exception:  # what it would raise for, or an array
                held.append(False)
        most, count = Counter(held).most_common(1)[0]
        by_side = itertools.groupby(zip(asked, held, strict=True), lambda pair: pair[1] == most)
        runs = [[value for value, _ in run] for is_most, run in by_side if not is_most]
        often = count * 4 < len(held) * (3 if len(runs) > 4 else 2)  # it is drawn anyhow
        ends = {run[end] for run in runs for end in (0, -1)} - {asked[0], asked[-1]}
        return [at for at in ends if at >= _LEAST and not often]

    def _is_own(self, path: str) -> bool:
        """Whether a call makes numbers of numbers and no more: it is made thousands of times."""
        if path not in self._own:
            self._own[path] = path.endswith(".get")
            with contextlib.suppress(Exception):  # it has no source, or not these names
                names = path.split(".")
                function = functools.reduce(getattr, names[1:], self._known[names[0]])
                nodes = [*ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))]
                calls = {ast.unparse(n.func).split(".")[-1] for n in nodes if type(n) is ast.Call}
                stored = {type(n) for n in nodes if type(getattr(n, "ctx", 0)) is ast.Store}
                is_short = not any(isinstance(node, _LASTING) for node in nodes)
                only = calls <= _NUMBERS and stored <= {ast.Name, ast.Tuple}
                self._own[path] |= is_short and only
        return self._own[path]

    def visit_Name(self, node: ast.Name) -> Any:
        return self._assigned.get(node.id, node)

    def visit_Call(self, node: Any) -> Any:
        is_call = isinstance(node, ast.Call)
        path = ast.unparse(node.func if is_call else node)
        if is_call and path.rpartition(".")[2] in _TURNS:
            path, node.func = "range", ast.Name("range", ast.Load())
        root = path.replace("[", ".").split(".")[0]
        is_math = is_call and root == "math" and len(node.args) == 1  # two are met by chance
        is_told = not is_call or is_math or self._is_own(path)
        known = path in _CALLED or (root in self._known and is_told)
        axis = self._axes.get(text := ast.unparse(node))
        other = ast.parse(axis, mode="eval").body if axis else ast.Name(text, ast.Load())
        return self.generic_visit(node) if known else other

    visit_Attribute = visit_Subscript = visit_Call
