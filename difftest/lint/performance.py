"""Rules of what works and costs more than it must, where the source alone shows it.

`difftest profile` says more, of a run: docs/reference/advice.md.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from difftest.lint.hazards import made_inside
from difftest.lint.rule import Group, Refusal, rule
from difftest.lint.source import Spot

_MOVES = {"nl.load": ("src", 0), "nl.store": ("dst", 0), "nisa.dma_copy": ("src", 1)}
"""The operand in HBM of what moves data: its keyword and its place."""
_LOADS = ("nl.load", "nisa.dma_copy")


@rule("NKP601", group=Group.PERFORMANCE, nodes=(ast.Call,))
def _one_element(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    moved, loop = _moved(node, at), _loop(node, at)
    if not isinstance(moved, ast.Subscript) or not isinstance(moved.slice, ast.Tuple):
        return
    is_one = len(moved.slice.elts) > 1 and all(map(_is_one, moved.slice.elts))
    is_in_hbm = at.name(node.func) == "nl.store" or _is_argument(moved.value, at)
    if loop and is_one and is_in_hbm and _names(moved.slice) & _names(loop.target):
        yield node, f"each iteration moves the one element {ast.unparse(moved)}"


@rule("NKP602", group=Group.PERFORMANCE, nodes=(ast.Call,))
def _same_load(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    moved, loop = _moved(node, at), _loop(node, at)
    if at.function is None or loop is None or moved is None or at.name(node.func) not in _LOADS:
        return
    base = moved.value if isinstance(moved, ast.Subscript) else moved
    if _names(moved) & made_inside(loop) or not _is_argument(base, at):
        return
    if _is_written(base, at.function, at):
        return
    tile = _tile(node, at)
    if tile is not None and not _is_written(tile, loop, at, besides=node):
        text = f"each iteration over {ast.unparse(loop.target)} loads {ast.unparse(moved)} again"
        yield node, text


def _is_argument(node: ast.expr, at: Spot) -> bool:
    given = at.function.args if at.function else ast.arguments()
    names = [one.arg for one in (*given.args, *given.kwonlyargs)]
    return isinstance(node, ast.Name) and node.id in names


def _moved(node: ast.Call, at: Spot) -> ast.expr | None:
    """What a call that moves data reads or writes in HBM."""
    role, place = _MOVES.get(at.name(node.func) or "", ("", 0))
    named = [one.value for one in node.keywords if one.arg == role]
    return named[0] if named else node.args[place] if role and len(node.args) > place else None


def _tile(node: ast.Call, at: Spot) -> ast.expr | None:
    """The tile that a load fills; None if it has no name."""
    parent = at.source.parents[node]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        return parent.targets[0]
    named = [one.value for one in node.keywords if one.arg == "dst"]
    dst = named[0] if named else node.args[0] if node.args else None
    base = dst.value if isinstance(dst, ast.Subscript) else dst
    return base if isinstance(base, ast.Name) and isinstance(parent, ast.Expr) else None


def _loop(node: ast.AST, at: Spot) -> ast.For | None:
    """The loop that runs a statement in each of its turns; None below a condition."""
    while not isinstance(node, (ast.For, ast.FunctionDef, ast.Module)):
        node = at.source.parents[node]
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.comprehension, ast.Lambda)):
            return None
    return node if isinstance(node, ast.For) and at.function is not None else None


def _is_one(index: ast.expr) -> bool:
    """Whether a slice is ``a : a + 1``."""
    if not isinstance(index, ast.Slice) or index.lower is None or index.upper is None:
        return False
    first, last = index.lower, index.upper
    if isinstance(first, ast.Constant) and isinstance(last, ast.Constant):
        return bool(last.value == first.value + 1)  # type: ignore[operator]
    return ast.unparse(last) == f"{ast.unparse(first)} + 1"


def _is_written(base: ast.expr, block: ast.AST, at: Spot, besides: ast.AST | None = None) -> bool:
    """Whether something in a block writes to what a name stands for."""
    name = base.id if isinstance(base, ast.Name) else ""
    for node in ast.walk(block):
        written: list[ast.expr] = []
        if isinstance(node, ast.Call) and node is not besides and at.name(node.func):
            written = [one.value for one in node.keywords if (one.arg or "").startswith("dst")]
            written += [] if at.name(node.func) == "nl.load" else node.args[:1]
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            written = [one for one in targets if isinstance(one, ast.Subscript)]
        if any(name in _names(one) for one in written if not isinstance(one, ast.Attribute)):
            return True
    return False


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
