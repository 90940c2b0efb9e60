"""Rules of the language: the Python that current frontends compile, and performance.

`difftest profile` gives more advice about the performance of a run: docs/reference/advice.md.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from difftest.tools.lint.rule import PARSER, TODAYS, Group, Refusal, rule
from difftest.tools.lint.source import RuleContext
from difftest.tools.lint.type_inference import targets_of
from difftest.tools.syntax import (
    argument_of,
    arguments_of,
    base_of,
    calls_in,
    is_none,
    names_in,
)

_DEVICE_LOOPS = ("nl.fori_loop", "nl.while_loop")
_COMPREHENSIONS = {
    ast.ListComp: "a list comprehension",
    ast.SetComp: "a set comprehension",
    ast.DictComp: "a dict comprehension",
    ast.GeneratorExp: "a generator expression",
}
_STATEMENTS = (
    ast.Try,
    ast.Yield,
    ast.YieldFrom,
    ast.Lambda,
    ast.ClassDef,
    ast.Global,
    ast.Nonlocal,
    ast.Delete,
    ast.Import,
    ast.ImportFrom,
    ast.NamedExpr,
    ast.AsyncFor,
    ast.AsyncWith,
    ast.Await,
    ast.Match,
    ast.Raise,
)
ENUMERATIONS = (
    "dge_mode",
    "oob_mode",
    "reduce_cmd",
    "engine",
    "perf_mode",
    "dma_engine",
)
"""Keywords whose values are members of an enumeration of ``nki.isa``."""

_MOVES = {"nl.load": ("src", 0), "nl.store": ("dst", 0), "nisa.dma_copy": ("src", 1)}
"""The HBM operand of functions that move data: its keyword and its position."""
_BLOCKS = (
    ast.For,
    ast.If,
    ast.While,
    ast.IfExp,
    ast.comprehension,
    ast.Lambda,
    ast.FunctionDef,
)
"""Loops, and nodes that may run their parts less often than the loop around them."""
_LOADS = ("nl.load", "nisa.dma_copy")


@rule("NKL101", group=Group.CORRECTNESS, nodes=tuple(_COMPREHENSIONS), frontends=PARSER)
def _comprehension(node: ast.expr, at: RuleContext) -> Iterator[Refusal]:
    if at.function is not None:
        yield node, f"{_COMPREHENSIONS[type(node)]} in {at.function.name}"


@rule(
    "NKL102",
    group=Group.CORRECTNESS,
    nodes=(ast.FunctionDef,),
    frontends=PARSER,
    since="2.29",
)
def _keyword_only(node: ast.FunctionDef, at: RuleContext) -> Iterator[Refusal]:
    if at.function is node and node.args.kwonlyargs:
        first = node.args.kwonlyargs[0]
        yield (
            first,
            f"parameter {first.arg!r} of {node.name} can be passed by keyword only",
        )


@rule("NKL103", group=Group.CORRECTNESS, nodes=(ast.For,), frontends=PARSER)
def _targets(node: ast.For, at: RuleContext) -> Iterator[Refusal]:
    if at.function is not None and isinstance(node.target, (ast.Tuple, ast.List)):
        yield node.target, f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"


@rule("NKL104", group=Group.CORRECTNESS, nodes=(ast.FunctionDef,), frontends=PARSER)
def _inner_function(node: ast.FunctionDef, at: RuleContext) -> Iterator[Refusal]:
    if at.function is None or node is at.function:
        return
    if node.name not in {getattr(body, "id", "") for body in _loop_bodies(at)}:
        yield node, f"{node.name} is defined inside {at.function.name}"
        return
    for call in calls_in(at.function):
        if getattr(call.func, "id", None) == node.name:
            yield call, f"{node.name}, the body of a device loop, is called"


@rule(
    "NKL105",
    group=Group.CORRECTNESS,
    nodes=(*_STATEMENTS, ast.With, ast.Assign),
    frontends=PARSER,
)
def _statement(node: ast.AST, at: RuleContext) -> Iterator[Refusal]:
    if at.function is None:
        return
    if isinstance(node, ast.Assign):
        if any(map(_unpacks_into_item, node.targets)):
            yield node, f"`{ast.unparse(node)}` in {at.function.name}"
    elif isinstance(node, ast.With):
        opened = [getattr(item.context_expr, "func", item) for item in node.items]
        if any(at.name(called) != "nl.no_reorder" for called in opened):
            yield node, f"with in {at.function.name}"
    elif node not in _loop_bodies(at):
        head = ast.unparse(node).partition("\n")[0]
        yield node, f"`{head}` in {at.function.name}"


def _unpacks_into_item(target: ast.expr) -> bool:
    """Return whether a target is a tuple that contains a subscript or an attribute."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        return False
    return any(
        isinstance(part, (ast.Subscript, ast.Attribute))
        for part in targets_of(ast.Assign([target], target))
    )


@rule(
    "NKL106",
    group=Group.CORRECTNESS,
    nodes=(ast.Compare,),
    frontends=PARSER,
    since="2.29",
)
def _identity(node: ast.Compare, at: RuleContext) -> Iterator[Refusal]:
    has_identity = any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
    has_none = is_none(node.left) or any(map(is_none, node.comparators))
    if at.function is not None and has_identity and not has_none:
        yield node, ast.unparse(node)


@rule("NKL107", group=Group.CORRECTNESS, nodes=(ast.Call, ast.Dict), frontends=PARSER)
def _expansion(node: ast.Call | ast.Dict, at: RuleContext) -> Iterator[Refusal]:
    if at.function is None:
        return
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            if keyword.arg is None:
                yield keyword.value, f"** in a call of {ast.unparse(node.func)}"
                break
    else:
        for key in node.keys:
            if isinstance(key, ast.Constant) and not isinstance(key.value, str):
                yield key, f"a dict has the key {ast.unparse(key)}"


@rule(
    "NKL108",
    group=Group.CORRECTNESS,
    nodes=(ast.FunctionDef,),
    frontends=PARSER,
    since="2.29",
)
def _list_default(node: ast.FunctionDef, at: RuleContext) -> Iterator[Refusal]:
    if node in at.source.kernels:
        for default in node.args.defaults + node.args.kw_defaults:
            if isinstance(default, (ast.List, ast.Set)):
                yield default, f"{node.name} has the default {ast.unparse(default)}"


@rule("NKL109", group=Group.CORRECTNESS, nodes=(ast.Call,), frontends=TODAYS)
def _numpy(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func)
    if at.source.names.is_classic or not name.startswith(("nisa.", "nl.")):
        return
    for arg in arguments_of(node):
        module = arg.value if isinstance(arg, ast.Attribute) else None
        if isinstance(module, ast.Name) and module.id in ("np", "numpy"):
            yield arg, f"{name} got {ast.unparse(arg)}"


@rule(
    "NKL110", group=Group.UPGRADE, nodes=(ast.keyword,), frontends=TODAYS, since="2.29"
)
def _string_buffer(node: ast.keyword, at: RuleContext) -> Iterator[Refusal]:
    is_string = isinstance(node.value, ast.Constant) and isinstance(
        node.value.value, str
    )
    if at.function is not None and node.arg == "buffer" and is_string:
        yield node, f"buffer={ast.unparse(node.value)}"


@rule(
    "NKL111", group=Group.UPGRADE, nodes=(ast.keyword,), frontends=TODAYS, since="2.29"
)
def _number(node: ast.keyword, at: RuleContext) -> Iterator[Refusal]:
    is_integer = isinstance(node.value, ast.Constant) and type(node.value.value) is int
    if at.function is not None and node.arg in ENUMERATIONS and is_integer:
        yield node, f"{node.arg}={ast.unparse(node.value)}"


@rule(
    "NKL112", group=Group.UPGRADE, nodes=(ast.Return,), frontends=TODAYS, since="2.29"
)
def _output(node: ast.Return, at: RuleContext) -> Iterator[Refusal]:
    function = at.function
    if function is None or function not in at.source.kernels or node.value is None:
        return
    for value in node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]:
        if isinstance(value, ast.Name) and at.buffer(value) == "nl.hbm":
            yield value, f"{function.name} returns {value.id}, which is in nl.hbm"


@rule("NKL113", group=Group.UPGRADE, nodes=(ast.Call,), frontends=TODAYS, since="2.29")
def _platform_target(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    yield from _argument_of_jit(node, "platform_target", at)


@rule("NKL115", group=Group.UPGRADE, nodes=(ast.Call,), frontends=TODAYS, since="2.29")
def _mode(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    yield from _argument_of_jit(node, "mode", at)


def _argument_of_jit(node: ast.Call, name: str, at: RuleContext) -> Iterator[Refusal]:
    """Yield the keyword of a name in a call of ``nki.jit``, a decorator or another."""
    if at.name(node.func) == "nki.jit":
        for keyword in node.keywords:
            if keyword.arg == name:
                yield keyword, f"nki.jit got {name}="


@rule(
    "NKL114", group=Group.CORRECTNESS, nodes=(ast.Call,), frontends=PARSER, since="2.32"
)
def _partial(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.name(node.func) not in _DEVICE_LOOPS:
        return
    for arg in node.args:
        called = ast.unparse(arg.func) if isinstance(arg, ast.Call) else ""
        if called.rpartition(".")[2] == "partial":
            yield arg, f"{ast.unparse(node.func)} got {ast.unparse(arg)}"


def _loop_bodies(at: RuleContext) -> list[ast.expr]:
    """Return the arguments of device loops (NKI 0.6), which include the loops' bodies."""
    bodies: list[ast.expr] = []
    if at.sdk.minor >= 32 and at.function is not None:
        for call in calls_in(at.function):
            if at.name(call.func) in _DEVICE_LOOPS:
                bodies += call.args
    return bodies


@rule("NKP601", group=Group.PERFORMANCE, nodes=(ast.Call,))
def _one_element(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    moved = _moved(node, at)
    loop = _loop(node, at)
    if not isinstance(moved, ast.Subscript) or not isinstance(moved.slice, ast.Tuple):
        return
    is_one = len(moved.slice.elts) > 1 and all(map(_is_one, moved.slice.elts))
    is_in_hbm = at.name(node.func) == "nl.store" or _is_argument(moved.value, at)
    if loop and is_one and is_in_hbm and names_in(moved.slice) & names_in(loop.target):
        yield node, f"each iteration moves the one element {ast.unparse(moved)}"


@rule("NKP602", group=Group.PERFORMANCE, nodes=(ast.Call,))
def _same_load(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.function is None or at.name(node.func) not in _LOADS:
        return
    moved = _moved(node, at)
    loop = _loop(node, at)
    tile = _tile(node, at)
    if moved is None or loop is None or tile is None:
        return
    varies = names_in(moved) & at.source.types_in(at.function).bound_in(loop).keys()
    if varies or _is_written(tile, loop, at, besides=node):
        return
    base = base_of(moved)
    if _is_argument(base, at) and not _is_written(base, at.function, at):
        target = ast.unparse(loop.target)
        yield node, f"each iteration over {target} loads {ast.unparse(moved)} again"


def _is_argument(node: ast.AST, at: RuleContext) -> bool:
    bound = at.source.types_in(at.function).bound if at.function else {}
    own = bound.get(node.id, []) if isinstance(node, ast.Name) else []
    return any(isinstance(binding.by, ast.arg) for binding in own)


def _moved(node: ast.Call, at: RuleContext) -> ast.expr | None:
    """Return the HBM operand of a call that moves data, or None for other calls."""
    role, place = _MOVES.get(at.name(node.func), ("", 0))
    return argument_of(node, role, place) if role else None


def _tile(node: ast.Call, at: RuleContext) -> ast.expr | None:
    """Return the tile that a load fills, or None if it has no name."""
    parent = at.source.parents[node]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        return parent.targets[0]
    dst = argument_of(node, "dst", 0)
    if dst is None or not isinstance(parent, ast.Expr):
        return None
    base = base_of(dst)
    return base if isinstance(base, ast.Name) else None


def _loop(node: ast.AST, at: RuleContext) -> ast.For | None:
    """Return the loop that runs a node in each iteration, or None below a condition."""
    if at.function is not None:
        for block in at.source.around(node):
            if isinstance(block, _BLOCKS):
                return block if isinstance(block, ast.For) else None
    return None


def _is_one(index: ast.expr) -> bool:
    """Return whether a slice is ``a : a + 1``."""
    if not isinstance(index, ast.Slice) or index.lower is None or index.upper is None:
        return False
    first = getattr(index.lower, "value", None)
    after = f"{ast.unparse(index.lower)} + 1"
    if isinstance(first, int):
        after = str(first + 1)
    return ast.unparse(index.upper) == after


def _is_written(
    base: ast.AST, block: ast.AST, at: RuleContext, besides: ast.AST | None = None
) -> bool:
    """Return whether a statement in a block writes to the tensor of a name."""
    name = base.id if isinstance(base, ast.Name) else ""
    for node in ast.walk(block):
        if node is not besides:
            for written in _destinations(node, at):
                if name in names_in(written) and not isinstance(written, ast.Attribute):
                    return True
    return False


def _destinations(node: ast.AST, at: RuleContext) -> list[ast.expr]:
    """Return the expressions that a call of NKI or an assignment to a subscript writes to."""
    if isinstance(node, ast.Call) and at.name(node.func):
        written = [
            key.value for key in node.keywords if (key.arg or "").startswith("dst")
        ]
        if at.name(node.func) != "nl.load":
            written += node.args[:1]
        return written
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        return [part for part in targets_of(node) if isinstance(part, ast.Subscript)]
    return []
