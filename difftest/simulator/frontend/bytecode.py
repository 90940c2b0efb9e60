"""What a kernel's frame and bytecode say that a Python function is not told.

Three things need it: ``and`` between comparisons of indices, the tile on the left of
``nl.loop_reduce``, and names that the body of a loop binds anew.
"""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, TypeVar

import numpy as np

from difftest.simulator.errors import KernelError, is_inside

T = TypeVar("T")
_FILLERS = ("EXTENDED_ARG", "NOP", "CACHE", "NOT_TAKEN")


def kernel_frame() -> FrameType:
    """The innermost frame outside the simulator."""
    frame = sys._getframe(1)
    while is_inside(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame


@lru_cache(maxsize=64)
def instructions_of(code: CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object that do something."""
    return tuple(one for one in dis.get_instructions(code) if one.opname not in _FILLERS)


def _behind(frame: FrameType) -> list[dis.Instruction]:
    """What a frame runs after the instruction at which it stands, as the code is written."""
    return [one for one in instructions_of(frame.f_code) if one.offset > frame.f_lasti]


# -- mask=a < b and c < d --------------------------------------------------------------------------
# AWS's examples write it (test_nki_isa_nc_match_replace8.py at tag v2.26.0). Python asks the first
# comparison whether it is true, and gives the second one. The bytecode behind that question says
# where the second one is ready; there both are joined, as ``&`` would join them.

_ASKS = ("TO_BOOL", "POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE", "JUMP_IF_FALSE_OR_POP")
_waiting: dict[int, tuple[Any, int]] = {}
"""By the id of a kernel's frame, alive meanwhile: the comparison that waits for the one behind its
``and``, and the offset of the instruction that comes when that one is there."""


def awaits_other(mask: Any) -> bool:
    """Whether a comparison that is asked for its truth is the left side of an ``and``.

    Then :func:`joined` will meet the right side.
    """
    frame = kernel_frame()
    code = instructions_of(frame.f_code)
    places = {one.offset: place for place, one in enumerate(code)}
    at = places.get(frame.f_lasti)
    if at is None:
        return False
    copied = code[at - 1].opname == "COPY" or code[at].opname == "JUMP_IF_FALSE_OR_POP"
    at += code[at].opname == "TO_BOOL"
    if not copied or code[at].opname not in _ASKS:
        return False
    ready = code[at].argval
    if ready not in places or code[places[ready] - 1].opname != "COMPARE_OP":
        return False  # the right side is no comparison, or this is ``a < b < c``
    before, its_ready = _waiting.get(id(frame), (None, None))
    # The one before this in ``a and b and c`` is ready where this is.
    _waiting[id(frame)] = (before & mask if its_ready == ready else mask), ready
    return True


def joined(mask: T) -> T:
    """A comparison that was just made, joined with the one that waits for it, if one does."""
    if not _waiting:
        return mask
    frame = kernel_frame()
    before, ready = _waiting.get(id(frame), (None, -1))
    behind = next(iter(_behind(frame)), None)
    if before is None or behind is None or behind.offset < ready:
        return mask
    del _waiting[id(frame)]  # also where the kernel went another way
    return before & mask if behind.offset == ready else mask


# -- tile = nl.loop_reduce(...) --------------------------------------------------------------------
# NKI's compiler sees a statement and reads the tile on its left. A part of a tile is given by
# Python, which assigns to it. A name, and an item of a list or a dictionary, are evaluated here
# before Python does it, so nothing that may run code of the kernel is.

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
    """What such a function gives where its result is assigned to a part of a tile.

    Python finds the part, and assigns this to it; then the function goes on.
    """

    def __init__(self, where: str, go_on: Callable[[Any], object]) -> None:
        self.where = where
        self.go_on = go_on

    def __repr__(self) -> str:
        return f"the result of {self.where}, which was not assigned to a part of a tile"


def assignment_target(where: str, kind: type[T]) -> T | None:
    """The tensor, of class ``kind``, that the kernel's current call is assigned to.

    None where it is a part of one: then the call's result is to be an :class:`AwaitsTarget`.

    Raises
    ------
    KernelError : the call's result is not assigned to one tensor that exists, or the left side
        is not made of names, constants, integer arithmetic and indices.
    """
    frame = kernel_frame()
    received = "a call whose result is not assigned to a tile that exists"
    remedy = "create the tile before the loop and write tile = nl.loop_reduce(...)"
    try:
        value = _place(_behind(frame), frame, kind)
        if value is AwaitsTarget:
            return None
        if isinstance(value, kind):
            return value
    except _CallsSomethingError:
        received = "a left side that is found by more than names, integers and indices"
        remedy = "give the tile a name first: part = total[...], then part = nl.loop_reduce(...)"
    raise KernelError(
        f"{where} reduces into the tile on the left of its assignment",
        happened=f"{where} is not assigned to a tile that exists",
        received=received,
        remedy=remedy,
    )


def _place(behind: list[dis.Instruction], frame: FrameType, kind: type) -> Any:
    """What the instructions behind a call assign its result to; None if they do not."""
    if behind[0].opname in _TO_A_NAME:
        return _named(_names(behind[0])[0], frame)
    if not behind[0].opname.startswith("LOAD_"):
        return None
    stack: list[Any] = []
    for one in behind:
        if one.opname == "STORE_SUBSCR":
            key, container = stack.pop(), stack.pop()
            return None if stack else _item(container, key)
        _step(one, stack, frame)
        if isinstance(stack[0], kind):
            return AwaitsTarget
    return None


def _step(one: dis.Instruction, stack: list[Any], frame: FrameType) -> None:
    """Evaluate one instruction that calls nothing."""
    name = one.opname
    if name in ("LOAD_CONST", "LOAD_SMALL_INT"):
        stack.append(one.argval)
    elif name.startswith(_LOADS):
        stack.extend(_named(each, frame) for each in _names(one))
    elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and one.argrepr == "[]"):
        key, container = stack.pop(), stack.pop()
        stack.append(_item(container, key))
    else:
        compute = _ARITHMETIC.get(_ARITHMETIC_3_10.get(name, one.argrepr))
        if compute is None or not all(type(number) is int for number in stack[-2:]):
            raise _CallsSomethingError
        right, left = stack.pop(), stack.pop()
        stack.append(compute(left, right))


def _item(container: Any, key: Any) -> Any:
    """``container[key]`` where that runs no code of the kernel's own; None if nothing is there."""
    if type(container) not in (list, tuple, dict) or type(key) not in (int, str):
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


# -- names that a loop's body binds anew -----------------------------------------------------------

_LOADS = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
_CARRIED: dict[tuple[int, int], tuple[CodeType, tuple[str, ...]]] = {}
"""By the id of a code object, kept alive meanwhile, and the offset of a loop in it."""


def carried_by(frame: FrameType) -> tuple[str, ...]:
    """The names that the body of the loop that a frame begins reads before it binds them.

    Names of enclosing functions and modules are seen. Attributes, items, and what a function does
    that the body calls, are not.
    """
    code, at = frame.f_code, frame.f_lasti
    if (id(code), at) not in _CARRIED:
        # Python 3.12 stands behind the FOR_ITER of a generator, in its cache.
        *_, loop = [one for one in instructions_of(code) if one.offset <= at]
        ends = [loop.argval] if loop.opname == "FOR_ITER" else []
        read: set[str] = set()
        bound: set[str] = set()
        for one in instructions_of(code):
            if ends and at < one.offset < ends[0]:
                bound.update(_stored(one))
                read.update(name for name in _loaded(one) if name not in bound)
        _CARRIED[id(code), at] = code, tuple(sorted(read & bound))
    return _CARRIED[id(code), at][1]


def numbers_of(names: Iterable[str], frame: FrameType) -> dict[str, Any]:
    """Those of the names that are numbers in a frame just now."""
    values = {name: _named(name, frame) for name in names}
    return {name: one for name, one in values.items() if isinstance(one, (int, float, np.number))}


def _names(one: dis.Instruction) -> tuple[str, ...]:
    """The names that an instruction loads or stores; since Python 3.13 some have two."""
    return one.argval if isinstance(one.argval, tuple) else (one.argval,)


def _stored(one: dis.Instruction) -> tuple[str, ...]:
    if not one.opname.startswith(_STORES):
        return ()
    return _names(one)[:1] if one.opname == "STORE_FAST_LOAD_FAST" else _names(one)


def _loaded(one: dis.Instruction) -> tuple[str, ...]:
    if one.opname == "STORE_FAST_LOAD_FAST":
        return _names(one)[1:]
    of_body = one.opname != "LOAD_FAST_AND_CLEAR"  # a comprehension puts the name's value aside
    return _names(one) if of_body and one.opname.startswith(_LOADS) else ()
