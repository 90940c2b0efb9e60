"""Rules of the language: which Python the frontends of today's dialect compile."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from difftest.lint.rule import Group, Refusal, rule
from difftest.lint.sdk import Frontend
from difftest.lint.source import Function, Spot

_PARSER = frozenset({Frontend.PARSER})
_TODAYS = frozenset({Frontend.PARSER, Frontend.TRACER})
_LOOPS = ("nl.fori_loop", "nl.while_loop")
_COMPREHENSIONS = {
    ast.ListComp: "a list comprehension",
    ast.SetComp: "a set comprehension",
    ast.DictComp: "a dict comprehension",
    ast.GeneratorExp: "a generator expression",
}
_STATEMENTS = {
    ast.Try: "try",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Lambda: "lambda",
    ast.ClassDef: "class",
    ast.Global: "global",
    ast.Nonlocal: "nonlocal",
    ast.Delete: "del",
    ast.Import: "import",
    ast.ImportFrom: "import",
    ast.NamedExpr: ":=",
    ast.AsyncFor: "async",
    ast.AsyncWith: "async",
    ast.Await: "await",
    ast.Match: "match",
}
ENUMERATIONS = ("dge_mode", "oob_mode", "reduce_cmd", "engine", "perf_mode", "dma_engine")
"""Keywords whose values are members of an enumeration of ``nki.isa``."""


@rule("NKL101", group=Group.CORRECTNESS, nodes=tuple(_COMPREHENSIONS), frontends=_PARSER)
def _comprehension(node: ast.expr, at: Spot) -> Iterator[Refusal]:
    if at.function is not None:
        yield node, f"{_COMPREHENSIONS[type(node)]} in {at.function.name}"


@rule("NKL102", group=Group.CORRECTNESS, nodes=(ast.FunctionDef,), frontends=_PARSER, since="2.29")
def _keyword_only(node: ast.FunctionDef, at: Spot) -> Iterator[Refusal]:
    if at.function is node and node.args.kwonlyargs:
        first = node.args.kwonlyargs[0]
        yield first, f"parameter {first.arg!r} of {node.name} can be passed by keyword only"


@rule("NKL103", group=Group.CORRECTNESS, nodes=(ast.For,), frontends=_PARSER)
def _targets(node: ast.For, at: Spot) -> Iterator[Refusal]:
    if at.function is not None and isinstance(node.target, (ast.Tuple, ast.List)):
        yield node.target, f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"


@rule("NKL104", group=Group.CORRECTNESS, nodes=(ast.FunctionDef,), frontends=_PARSER)
def _inner_function(node: ast.FunctionDef, at: Spot) -> Iterator[Refusal]:
    if at.function is None or node is at.function:
        return
    if any(isinstance(one, ast.Name) and one.id == node.name for one in _loop_bodies(at)):
        return
    yield node, f"{node.name} is defined inside {at.function.name}"


@rule("NKL105", group=Group.CORRECTNESS, nodes=(*_STATEMENTS, ast.With), frontends=_PARSER)
def _statement(node: ast.AST, at: Spot) -> Iterator[Refusal]:
    if at.function is None:
        return
    if isinstance(node, ast.With):
        if not all(_is_no_reorder(one, at) for one in node.items):
            yield node, f"with in {at.function.name}"
    elif not any(node is one for one in _loop_bodies(at)):
        yield node, f"{_STATEMENTS[type(node)]} in {at.function.name}"


@rule("NKL106", group=Group.CORRECTNESS, nodes=(ast.Compare,), frontends=_PARSER, since="2.29")
def _identity(node: ast.Compare, at: Spot) -> Iterator[Refusal]:
    sides = [node.left, *node.comparators]
    has_identity = any(isinstance(one, (ast.Is, ast.IsNot)) for one in node.ops)
    if at.function is not None and has_identity and not any(map(_is_none, sides)):
        yield node, ast.unparse(node)


@rule("NKL107", group=Group.CORRECTNESS, nodes=(ast.Call, ast.Dict), frontends=_PARSER)
def _expansion(node: ast.Call | ast.Dict, at: Spot) -> Iterator[Refusal]:
    values = node.keywords if isinstance(node, ast.Call) else []
    expanded = [one.value for one in values if one.arg is None]
    if at.function is not None and expanded:
        yield expanded[0], f"** in a call of {ast.unparse(node.func)}"  # type: ignore[union-attr]
    for key in node.keys if isinstance(node, ast.Dict) and at.function is not None else ():
        if isinstance(key, ast.Constant) and not isinstance(key.value, str):
            yield key, f"a dict has the key {ast.unparse(key)}"


@rule("NKL108", group=Group.CORRECTNESS, nodes=(ast.FunctionDef,), frontends=_PARSER, since="2.29")
def _list_default(node: ast.FunctionDef, at: Spot) -> Iterator[Refusal]:
    if node.name in at.source.kernels:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if isinstance(default, (ast.List, ast.Set)):
                yield default, f"{node.name} has the default {ast.unparse(default)}"


@rule("NKL109", group=Group.CORRECTNESS, nodes=(ast.Call,), frontends=_TODAYS)
def _numpy(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    name = at.name(node.func) or ""
    if at.source.names.is_classic or not name.startswith(("nisa.", "nl.")):
        return
    for one in (*node.args, *(keyword.value for keyword in node.keywords)):
        is_numpy = isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
        if is_numpy and one.value.id in ("np", "numpy"):  # type: ignore[attr-defined]
            yield one, f"{name} got {ast.unparse(one)}"


@rule("NKL110", group=Group.UPGRADE, nodes=(ast.keyword,), frontends=_TODAYS, since="2.29")
def _string_buffer(node: ast.keyword, at: Spot) -> Iterator[Refusal]:
    is_string = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if at.function is not None and node.arg == "buffer" and is_string:
        yield node, f"buffer={ast.unparse(node.value)}"


@rule("NKL111", group=Group.UPGRADE, nodes=(ast.keyword,), frontends=_TODAYS, since="2.29")
def _number(node: ast.keyword, at: Spot) -> Iterator[Refusal]:
    is_integer = isinstance(node.value, ast.Constant) and type(node.value.value) is int
    if at.function is not None and node.arg in ENUMERATIONS and is_integer:
        yield node, f"{node.arg}={ast.unparse(node.value)}"


@rule("NKL112", group=Group.UPGRADE, nodes=(ast.Return,), frontends=_TODAYS, since="2.29")
def _output(node: ast.Return, at: Spot) -> Iterator[Refusal]:
    function = at.function
    if function is None or function.name not in at.source.kernels or node.value is None:
        return
    returned = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    in_hbm = set(_names_in_hbm(function, at))
    for one in returned:
        if isinstance(one, ast.Name) and one.id in in_hbm:
            yield one, f"{function.name} returns {one.id}, which is in nl.hbm"


@rule("NKL113", group=Group.UPGRADE, nodes=(ast.FunctionDef,), frontends=_TODAYS, since="2.29")
def _jit(node: ast.FunctionDef, at: Spot) -> Iterator[Refusal]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and at.name(decorator.func) == "nki.jit":
            for keyword in decorator.keywords:
                if keyword.arg in ("platform_target", "mode"):
                    yield keyword, f"nki.jit got {keyword.arg}="


@rule("NKL114", group=Group.CORRECTNESS, nodes=(ast.Call,), frontends=_PARSER, since="2.32")
def _partial(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    for one in node.args if at.name(node.func) in _LOOPS else ():
        called = ast.unparse(one.func) if isinstance(one, ast.Call) else ""
        if called.rpartition(".")[2] == "partial":
            yield one, f"{ast.unparse(node.func)} got {ast.unparse(one)}"


def _loop_bodies(at: Spot) -> list[ast.expr]:
    """What a device loop of NKI 0.6 is given: its body is among it."""
    if at.sdk.minor < 32 or at.function is None:
        return []
    calls = (node for node in ast.walk(at.function) if isinstance(node, ast.Call))
    return [one for call in calls if at.name(call.func) in _LOOPS for one in call.args]


def _is_no_reorder(item: ast.withitem, at: Spot) -> bool:
    called = item.context_expr
    return isinstance(called, ast.Call) and at.name(called.func) == "nl.no_reorder"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _names_in_hbm(function: Function, at: Spot) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            buffers = [one.value for one in node.value.keywords if one.arg == "buffer"]
            if any(at.name(one) == "nl.hbm" for one in buffers):
                yield from (one.id for one in node.targets if isinstance(one, ast.Name))
