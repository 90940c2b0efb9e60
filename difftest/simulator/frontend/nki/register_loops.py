"""``while register:``, the loop on the device of NKI until 0.6: which tests are one, and its turns.

The older parser saw the statement. Here Python asks a register for its truth value, and the
kernel's source says whether it does so for such a loop.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import FrameType

from difftest.simulator.core import current, is_running
from difftest.simulator.errors import kernel_location
from difftest.simulator.trace import Iteration, Loop, LoopKind


def is_test_of_a_loop(frame: FrameType) -> bool:
    """Whether the line that a frame is at tests one name for a ``while``."""
    return frame.f_lineno in _loops(_source(frame))


def note_turn(frame: FrameType, value: int) -> None:
    """Note in the launch that a loop's turn begins, or with ``value`` 0 that the loop has ended.

    A loop that is left by ``break`` or ``return`` would not be seen to end, so it is not noted.
    """
    if not is_running() or not _loops(_source(frame))[frame.f_lineno]:
        return
    core, at = current(), (id(frame), frame.f_lineno)
    if at not in core.tested:
        core.tested[at] = Loop(core.loop_count, LoopKind.DYNAMIC, kernel_location()), core.loops, 0
        core.loop_count += 1
    loop, outer, turns = core.tested[at]
    if value == 0:
        del core.tested[at]
        core.loops = outer
        return
    core.tested[at] = loop, outer, turns + 1
    core.loops = (*outer, Iteration(loop, turns, value))


def _source(frame: FrameType) -> str:
    return "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


@lru_cache(maxsize=64)
def _loops(source: str) -> dict[int, bool]:
    """The lines that test one name for a ``while``, and whether that test alone ends the loop."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}
    return {
        node.test.lineno: not any(_exits(node.body))
        for node in ast.walk(tree)
        if isinstance(node, ast.While) and isinstance(node.test, (ast.Name, ast.Attribute))
    }


def _exits(body: list[ast.stmt], *, inner: bool = False) -> Iterator[ast.stmt]:
    """The statements that leave a loop: ``return`` anywhere, ``break`` outside of inner loops."""
    for statement in body:
        if isinstance(statement, ast.Return) or (isinstance(statement, ast.Break) and not inner):
            yield statement
        elif not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            loops = isinstance(statement, (ast.For, ast.While))
            for name in ("body", "orelse", "handlers", "finalbody", "cases"):
                parts = getattr(statement, name, [])
                inside = inner or (loops and name == "body")
                yield from _exits(parts, inner=inside)
