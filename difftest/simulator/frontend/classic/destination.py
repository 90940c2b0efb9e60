"""The tile on the left of an assignment, for the one function that needs it: nl.loop_reduce.

NKI's compiler sees ``b = nl.loop_reduce(...)`` as a statement and reads ``b``. A Python function
does not see where its result goes, but the bytecode behind its call says so. What that evaluates
to find the place is evaluated here too, so it may call nothing: names, constants, integer
arithmetic, and indices of tiles, lists, tuples and dictionaries. Where the indices of a tile call
something, the function waits for the part to which Python assigns its result. All else is refused.
"""

from __future__ import annotations

import dis
import operator
from collections.abc import Callable
from itertools import dropwhile
from types import FrameType
from typing import Any, TypeVar

from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.classic.bytecode import instructions_of, kernel_frame

T = TypeVar("T")

_TO_A_NAME = ("STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_ARITHMETIC_3_10 = {
    "BINARY_ADD": "+",
    "BINARY_SUBTRACT": "-",
    "BINARY_MULTIPLY": "*",
    "BINARY_FLOOR_DIVIDE": "//",
    "BINARY_MODULO": "%",
}
"""Python 3.10 has an instruction for each operator, later ones BINARY_OP for all."""


class _CallsSomethingError(Exception):
    """The place is found by something that may run code of the kernel."""


class AwaitsTarget:
    """What such a function gives where the tile on the left is indexed by what it calls.

    Python finds the part, and assigns this to it; then the function goes on.
    """

    def __init__(self, where: str, go_on: Callable[[Any], object]) -> None:
        self.where = where
        self.go_on = go_on

    def __repr__(self) -> str:
        return f"the result of {self.where}, which was not assigned to a part of a tile"


def assignment_target(where: str, kind: type[T]) -> T | None:
    """The tensor, of class ``kind``, that the kernel's current call is assigned to.

    None where it is a part of one whose indices call something: then the call's result is to be an
    :class:`AwaitsTarget`.

    Raises
    ------
    KernelError : the call's result is not assigned to one tensor that exists, or the left side
        is not made of names, constants, integer arithmetic and indices.
    """
    frame = kernel_frame()
    behind = dropwhile(lambda one: one.offset <= frame.f_lasti, instructions_of(frame.f_code))
    try:
        value = _place(list(behind), frame, kind)
    except _CallsSomethingError:
        raise KernelError(
            f"{where} reduces into the tile on the left of its assignment",
            happened=f"{where} is assigned to more than a name with indices",
            received="a left side that is found by more than names, integers and indices",
            remedy="give the tile a name first: part = total[...], then part = nl.loop_reduce(...)",
        ) from None
    if value is AwaitsTarget:
        return None
    if isinstance(value, kind):
        return value
    raise KernelError(
        f"{where} reduces into the tile on the left of its assignment",
        happened=f"{where} is not assigned to a tile that exists",
        received="a call whose result is not assigned to a tile that exists",
        remedy="create the tile before the loop and write tile = nl.loop_reduce(...)",
    )


def _place(behind: list[dis.Instruction], frame: FrameType, kind: type) -> Any:
    """What the instructions behind a call assign its result to; None if they do not."""
    first = behind[0]
    if first.opname in _TO_A_NAME:
        name = first.argval[0] if isinstance(first.argval, tuple) else first.argval
        return _named(name, frame)
    if not first.opname.startswith("LOAD_"):
        return None
    stack: list[Any] = []
    for one in behind:
        if one.opname == "STORE_SUBSCR":
            key, container = stack.pop(), stack.pop()
            return None if stack else _part(container, key, kind)
        if one.opname == "STORE_SLICE":
            stop, start, container = stack.pop(), stack.pop(), stack.pop()
            return None if stack else _part(container, slice(start, stop), kind)
        try:
            _step(one, stack, frame, kind)
        except _CallsSomethingError:
            if stack and isinstance(stack[0], kind):
                return AwaitsTarget
            raise
    return None


def _step(one: dis.Instruction, stack: list[Any], frame: FrameType, kind: type) -> None:
    """Evaluate one instruction that calls nothing."""
    name = one.opname
    if name in ("LOAD_CONST", "LOAD_SMALL_INT"):
        stack.append(one.argval)
    elif name.startswith(("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")):
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        stack.extend(_named(each, frame) for each in names)
    elif name in ("BUILD_TUPLE", "BUILD_SLICE"):
        count = one.arg or 0
        parts = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        stack.append(tuple(parts) if name == "BUILD_TUPLE" else slice(*parts))
    elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and one.argrepr == "[]"):
        key, container = stack.pop(), stack.pop()
        stack.append(_part(container, key, kind))
    else:
        compute = _ARITHMETIC.get(_ARITHMETIC_3_10.get(name, one.argrepr))
        if compute is None or not all(type(number) is int for number in stack[-2:]):
            raise _CallsSomethingError
        right, left = stack.pop(), stack.pop()
        stack.append(compute(left, right))


def _part(container: Any, key: Any, kind: type) -> Any:
    """``container[key]`` where that runs no code of the kernel's own."""
    plain = type(container) in (list, tuple, dict) and type(key) in (int, str, slice)
    if not plain and not isinstance(container, kind):
        raise _CallsSomethingError
    try:
        return container[key]
    except LookupError:
        return None


def _named(name: str, frame: FrameType) -> Any:
    """What a name stands for in a frame; None if for nothing."""
    code = frame.f_code
    if name in frame.f_locals or name in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        return frame.f_locals.get(name)
    return frame.f_globals.get(name)
