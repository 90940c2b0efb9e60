"""Hazards that the source alone shows; the detectors of ``difftest check`` find more in a trace."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from difftest.lint.rule import Group, Refusal, rule
from difftest.lint.sdk import Frontend
from difftest.lint.source import Spot

HAZARDS = ("NKH401",)
"""The rules of this module: who reads a trace knows better."""


@rule("NKH401", group=Group.CORRECTNESS, nodes=(ast.For,), frontends=frozenset({Frontend.CLASSIC}))
def _one_place(node: ast.For, at: Spot) -> Iterator[Refusal]:
    is_affine = isinstance(node.iter, ast.Call) and at.name(node.iter.func) == "nl.affine_range"
    if at.function is None or not is_affine or not isinstance(node.target, ast.Name):
        return
    depends = _depending(node)
    own = made_inside(node)
    for written in _written(node, at):
        base = written.value
        used = {one.id for one in ast.walk(written.slice) if isinstance(one, ast.Name)}
        if isinstance(base, ast.Name) and base.id not in own and not used & depends:
            yield written, f"each iteration over {node.target.id} writes {ast.unparse(written)}"


def _written(loop: ast.For, at: Spot) -> Iterator[ast.Subscript]:
    """What the loop's own statements, in no inner loop, assign or store to."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.Call) and at.name(node.func) == "nl.store" and node.args:
            targets = node.args[:1]
        else:
            continue
        yield from (one for one in targets if isinstance(one, ast.Subscript))


def _depending(loop: ast.For) -> set[str]:
    """The loop's variable, and the names that are computed from it or from inner loops."""
    names = {one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
    before = -1
    while len(names) != before:
        before = len(names)
        for node in ast.walk(loop):
            source = node.value if isinstance(node, (ast.Assign, ast.AugAssign)) else None
            if isinstance(node, ast.For) and node is not loop:
                source = node.iter
            read = {one.id for one in ast.walk(source or ast.Pass()) if isinstance(one, ast.Name)}
            if read & names:
                names |= _bound(node)
    return names


def _bound(node: ast.AST) -> set[str]:
    """The names that a statement binds; an element that is assigned is none."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    leaves = (leaf for target in targets for leaf in _leaves(target))
    return {leaf.id for leaf in leaves if isinstance(leaf, ast.Name)}


def _leaves(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for one in target.elts:
            yield from _leaves(one)
    else:
        yield target


def made_inside(loop: ast.For) -> set[str]:
    """The names that the loop's statements bind: a tensor of an iteration is its own."""
    bound: set[str] = set()
    for node in ast.walk(loop):
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.For)):
            bound |= _bound(node)
    return bound
