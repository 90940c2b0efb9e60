"""Rules of the classic tracer: scopes of tensors, masks, outputs, and what it returns.

Source: the page of errors, ``general/nki/api/nki.errors.rst`` at v2.26.0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from difftest.lint.rule import Group, Refusal, rule
from difftest.lint.sdk import Frontend
from difftest.lint.source import Function, Spot

_CLASSIC: dict[str, Any] = {"group": Group.CORRECTNESS, "frontends": frozenset({Frontend.CLASSIC})}
_INDICES = ("nl.arange", "nl.mgrid")
_MAKERS = ("nl.ndarray", "nl.zeros", "nl.ones", "nl.full", "nl.empty", "nl.load", "nl.zeros_like")
_IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_BLOCKS = (ast.If, ast.For, ast.While)


@rule("NKT201", nodes=(ast.keyword,), **{**_CLASSIC, "group": Group.PORTABILITY})
def _mask(node: ast.keyword, at: Spot) -> Iterator[Refusal]:
    if at.function is None or node.arg != "mask":
        return
    for part in ast.walk(node.value):
        is_not = isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)
        if is_not or isinstance(part, ast.BoolOp):
            yield part, f"mask={ast.unparse(part)}"


@rule("NKT202", nodes=(ast.FunctionDef,), **_CLASSIC)
def _scope(node: ast.FunctionDef, at: Spot) -> Iterator[Refusal]:
    if at.function is node:
        yield from _uses_after(node.body, at, set())


@rule("NKT203", nodes=(ast.FunctionDef,), **_CLASSIC)
def _shared(node: ast.FunctionDef, at: Spot) -> Iterator[Refusal]:
    if at.function is not node:
        return
    is_kernel = node.name in at.source.kernels
    calls_itself = bool(at.source.kernels)
    for block in ast.walk(node):
        inside = isinstance(block, _BLOCKS) if is_kernel else block is node and calls_itself
        for call in ast.walk(block) if inside else ():
            if isinstance(call, ast.Call) and _is_shared(call, at):
                where = "a helper" if not is_kernel else "a block"
                yield call, f"{ast.unparse(call.func)} makes shared HBM in {where}"


@rule("NKT204", nodes=(ast.FunctionDef,), **_CLASSIC)
def _mutable(node: ast.FunctionDef, at: Spot) -> Iterator[Refusal]:
    returned = {
        name.id
        for one in ast.walk(node)
        if isinstance(one, ast.Return) and one.value is not None
        for name in ast.walk(one.value)
        if isinstance(name, ast.Name)
    }
    for one in node.args.args if node.name in at.source.kernels else ():
        is_mutable = one.annotation and at.name(one.annotation) == "nt.mutable_tensor"
        if is_mutable and one.arg not in returned:
            yield one, f"{node.name} does not return {one.arg}"


@rule("NKT205", nodes=(ast.Call,), since="2.27", **{**_CLASSIC, "group": Group.PORTABILITY})
def _block(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    if at.name(node.func) not in _MAKERS or not node.args:
        return
    shape = node.args[0]
    sizes = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else []
    for size in sizes[1:]:
        if isinstance(size, ast.Call) and at.name(size.func) == "nl.par_dim":
            yield size, f"{ast.unparse(size)} is not the first of {ast.unparse(shape)}"


@rule("NKT206", nodes=(ast.AnnAssign,), **_CLASSIC)
def _annotation(node: ast.AnnAssign, at: Spot) -> Iterator[Refusal]:
    annotated, call = node.annotation, node.value
    if not isinstance(annotated, ast.Subscript) or at.name(annotated.value) != "nt.tensor":
        return
    if isinstance(call, ast.Call) and at.name(call.func) in _MAKERS and call.args:
        said, made = _sizes(annotated.slice, at), _sizes(call.args[0], at)
        if said and made and None not in (*said, *made) and said != made:
            yield node.annotation, f"{ast.unparse(annotated)} annotates a tensor {list(made)}"


@rule("NKT207", nodes=(ast.If, ast.While, ast.IfExp), **_CLASSIC)
def _condition(node: ast.If | ast.While | ast.IfExp, at: Spot) -> Iterator[Refusal]:
    if at.function is None:
        return
    tiles = _tile_names(at.function, at)
    for name in _asked(node.test):
        if name.id in tiles:
            yield name, f"{ast.unparse(node.test)} depends on {name.id}, {tiles[name.id]}"


@rule("NKT208", nodes=(ast.Call,), **_CLASSIC)
def _outside(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    name = at.name(node.func) or ""
    if at.is_module_level and name in _MAKERS:
        yield node, f"{name} is called outside of a function"


@rule("NKT209", nodes=(ast.Call,), **_CLASSIC)
def _inner_grid(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    called = node.func.value if isinstance(node.func, ast.Subscript) else None
    is_kernel = isinstance(called, ast.Name) and called.id in at.source.kernels
    if at.function is not None and is_kernel:
        yield node, f"{at.function.name} calls {ast.unparse(node.func)}"


def _uses_after(body: list[ast.stmt], at: Spot, outer: set[str]) -> Iterator[Refusal]:
    """Uses of tensors after the block of ``body`` that made them; ``outer`` were made before."""
    known = set(outer)
    inner: set[str] = set()
    for statement in body:
        if isinstance(statement, _BLOCKS):
            parts = [statement.body, statement.orelse]
            for part in parts:
                yield from _uses_after(part, at, known)
            inner |= {name for part in parts for name in _made(part, at)} - known
            header = statement.iter if isinstance(statement, ast.For) else statement.test
            yield from _read(header, inner - _made_before(header))
        else:
            yield from _read(statement, inner)
            for name in _assigned(statement):
                known.add(name)
                inner.discard(name)


def _made_before(header: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(header) if isinstance(node, ast.Name)}


def _read(node: ast.AST, names: set[str]) -> Iterator[Refusal]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and one.id in names:
            yield one, f"{one.id} is used after the block that makes it"


def _made(body: list[ast.stmt], at: Spot) -> set[str]:
    """The names that statements give to new tensors."""
    return {
        target.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Assign) and _is_tensor(node.value, at)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _assigned(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _is_tensor(node: ast.expr, at: Spot) -> bool:
    return isinstance(node, ast.Call) and at.name(node.func) in _MAKERS


def _is_shared(call: ast.Call, at: Spot) -> bool:
    buffers = [one.value for one in call.keywords if one.arg == "buffer"]
    return any(at.name(one) in ("nl.shared_hbm", "nl.hbm") for one in buffers)


def _tile_names(function: Function, at: Spot) -> dict[str, str]:
    """The names that are tiles or indices wherever they are assigned, and which of the two."""
    kinds: dict[str, set[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                        kinds.setdefault(name.id, set()).add(_kind(node.value, at))
    return {name: min(kind) for name, kind in kinds.items() if len(kind) == 1 and min(kind)}


def _kind(value: ast.expr, at: Spot) -> str:
    if isinstance(value, ast.Call) and at.name(value.func) == "nl.load":
        return "a tile"
    base = value.value if isinstance(value, ast.Subscript) else value
    called = base.func if isinstance(base, ast.Call) else base
    return "an index" if at.name(called) in _INDICES else ""


def _asked(test: ast.expr) -> Iterator[ast.Name]:
    """The names whose values a condition asks; ``x is None`` and ``x.shape`` ask none."""
    if isinstance(test, ast.Name):
        yield test
    elif isinstance(test, ast.BoolOp):
        for one in test.values:
            yield from _asked(one)
    elif isinstance(test, ast.UnaryOp):
        yield from _asked(test.operand)
    elif isinstance(test, ast.BinOp):
        yield from (*_asked(test.left), *_asked(test.right))
    elif isinstance(test, ast.Compare) and not any(isinstance(one, _IDENTITY) for one in test.ops):
        for side in (test.left, *test.comparators):
            yield from _asked(side)


def _sizes(node: ast.expr, at: Spot) -> list[int | None]:
    """The sizes of a shape, None for what is not written out."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [_size(one, at) for one in parts]


def _size(node: ast.expr, at: Spot) -> int | None:
    if isinstance(node, ast.Call) and at.name(node.func) == "nl.par_dim" and node.args:
        node = node.args[0]
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) else None
