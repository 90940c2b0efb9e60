"""The tile on the left of an assignment, for the one function that needs it: nl.loop_reduce.

NKI's compiler sees ``b = nl.loop_reduce(...)`` as a statement and reads ``b``. A Python function
does not see where its result goes, so the statement is found in the kernel's source by its line.
"""

from __future__ import annotations

import ast
import linecache
import sys
from functools import lru_cache
from types import FrameType
from typing import TypeVar

from difftest.simulator.errors import KernelError, is_inside

T = TypeVar("T")


@lru_cache(maxsize=64)
def _assignments(source: str) -> tuple[ast.Assign | ast.AnnAssign, ...]:
    return tuple(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Assign, ast.AnnAssign))
    )


def _caller() -> FrameType:
    frame = sys._getframe(1)
    while is_inside(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def assignment_target(where: str, kind: type[T]) -> T:
    """The tensor, of class ``kind``, that the kernel's current statement assigns to.

    Raises
    ------
    KernelError : the statement is not an assignment to one tensor that exists.
    """
    frame = _caller()
    source = "".join(linecache.getlines(frame.f_code.co_filename))
    around = [
        node
        for node in _assignments(source)
        if node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno)
    ]
    if around:
        node = max(around, key=lambda found: found.lineno)
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        expression = ast.Expression(body=_as_load(target))
        try:
            code = compile(ast.fix_missing_locations(expression), "<assignment>", "eval")
            value = eval(code, frame.f_globals, frame.f_locals)
        except NameError:
            value = None
        if isinstance(value, kind):
            return value
    raise KernelError(
        f"{where} reduces into the tile on the left of its assignment",
        received="a call whose result is not assigned to a tile that exists",
        remedy="create the tile before the loop and write tile = nl.loop_reduce(...)",
    )


def _as_load(target: ast.expr) -> ast.expr:
    text = ast.unparse(target)
    return ast.parse(text, mode="eval").body
