"""Loops and the SPMD grid: ``nl.affine_range`` and others, ``nl.program_id``.

Loop variables are Python integers, so they work in ``if``, ``%``, ``//`` and anywhere else. The
launch records every loop, so that each instruction in the trace has its iterations.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np

from difftest.simulator.core import Core, current
from difftest.simulator.errors import (
    BufferError,
    ShapeError,
    call_error,
    frame_at,
    is_inside,
    kernel_location,
)
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.index import Shape, as_integer, is_index_integer
from difftest.simulator.misuses import NUMBER_OF_TURN_BEFORE
from difftest.simulator.strictness import report_violation
from difftest.simulator.trace import Iteration, Loop, LoopKind

T = TypeVar("T")
_FILLERS = ("EXTENDED_ARG", "NOP", "CACHE", "NOT_TAKEN")


def kernel_frame() -> FrameType:
    """Return the innermost frame outside the simulator."""
    frame = frame_at(1)
    while is_inside(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame


@lru_cache(maxsize=64)
def instructions_of(code: CodeType) -> tuple[dis.Instruction, ...]:
    """Return the instructions of a code object, without fillers."""
    return tuple(
        step for step in dis.get_instructions(code) if step.opname not in _FILLERS
    )


def _behind(frame: FrameType) -> list[dis.Instruction]:
    """Return the instructions after a frame's current one, in the order of the code."""
    return [
        step for step in instructions_of(frame.f_code) if step.offset > frame.f_lasti
    ]


# AWS's examples write this (test_nki_isa_nc_match_replace8.py at tag v2.26.0). Python evaluates the
# truth of the first comparison, and returns the second one. The bytecode after the test shows where
# the second comparison is complete. There both are joined, as ``&`` would join them.

_ASKS = (
    "TO_BOOL",
    "POP_JUMP_IF_FALSE",
    "POP_JUMP_FORWARD_IF_FALSE",
    "JUMP_IF_FALSE_OR_POP",
)
_waiting: dict[int, tuple[Any, int]] = {}
"""By the id of a live kernel frame: the comparison on the left of an ``and``, and the offset of the
instruction that runs once the right side is complete.
"""


def awaits_other(mask: Any) -> bool:
    """Return whether a comparison whose truth is tested is the left side of an ``and``.

    If so, :func:`joined` combines it with the right side.
    """
    frame = kernel_frame()
    code = instructions_of(frame.f_code)
    places = {step.offset: place for place, step in enumerate(code)}
    at = places.get(frame.f_lasti)
    if at is None:
        return False
    copied = code[at - 1].opname == "COPY" or code[at].opname == "JUMP_IF_FALSE_OR_POP"
    at += code[at].opname == "TO_BOOL"
    if not copied or code[at].opname not in _ASKS:
        return False
    ready = code[at].argval
    if ready not in places or code[places[ready] - 1].opname != "COMPARE_OP":
        return False  # the right side is not a comparison, or this is ``a < b < c``
    before, its_ready = _waiting.get(id(frame), (None, None))
    # In ``a and b and c``, the previous comparison is complete at the same place.
    _waiting[id(frame)] = (before & mask if its_ready == ready else mask), ready
    return True


def joined(mask: T) -> T:
    """Return a new comparison, joined with the waiting one, if there is one."""
    if not _waiting:
        return mask
    frame = kernel_frame()
    before, ready = _waiting.get(id(frame), (None, -1))
    behind = next(iter(_behind(frame)), None)
    if before is None or behind is None or behind.offset < ready:
        return mask
    del _waiting[id(frame)]  # also if the kernel took another path
    return before & mask if behind.offset == ready else mask


# NKI's compiler parses the statement and reads the tile on its left. Here, Python assigns the
# result to a part of a tile. A name, or an item of a list or a dictionary, is evaluated before
# Python does it. Code of the kernel must therefore not run.

_TO_A_NAME = (
    "STORE_FAST",
    "STORE_FAST_LOAD_FAST",
    "STORE_NAME",
    "STORE_GLOBAL",
    "STORE_DEREF",
)
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    **dict.fromkeys(("+", "BINARY_ADD"), operator.add),
    **dict.fromkeys(("-", "BINARY_SUBTRACT"), operator.sub),
    **dict.fromkeys(("*", "BINARY_MULTIPLY"), operator.mul),
    **dict.fromkeys(("//", "BINARY_FLOOR_DIVIDE"), operator.floordiv),
    **dict.fromkeys(("%", "BINARY_MODULO"), operator.mod),
}
"""Python 3.10 has an instruction for each operator, later versions use BINARY_OP."""


class _CallsSomethingError(Exception):
    """Finding the target might run code of the kernel."""


class AwaitsTarget:
    """The result of ``nl.loop_reduce`` if it is assigned to a part of a tile.

    Python finds the part, and assigns this object to it. Then the function continues.
    """

    def __init__(self, where: str, go_on: Callable[[Any], object]) -> None:
        self.where = where
        self.go_on = go_on

    def __repr__(self) -> str:
        return f"the result of {self.where}, which was not assigned to a part of a tile"


def assignment_target(where: str, kind: type[T]) -> T | None:
    """Return the tensor, of class ``kind``, that the kernel's current call is assigned to.

    None for a part of a tensor: then the call must return an :class:`AwaitsTarget`.

    Raises
    ------
    KernelError : the call's result is not assigned to one tensor that exists, or the left side
        has more than names, constants, integer arithmetic and indices.
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
    raise call_error(
        where,
        "reduces into the tile on the left of its assignment",
        "is not assigned to one",
        received,
        remedy=remedy,
    )


def _place(behind: list[dis.Instruction], frame: FrameType, kind: type) -> Any:
    """Return the target of a call's result by the following instructions; None without a target."""
    if behind[0].opname in _TO_A_NAME:
        return _named(_names(behind[0])[0], frame)
    if not behind[0].opname.startswith("LOAD_"):
        return None
    stack: list[Any] = []
    for step in behind:
        if step.opname == "STORE_SUBSCR":
            key = stack.pop()
            container = stack.pop()
            if stack:
                return None
            return _item(container, key)
        _step(step, stack, frame)
        if isinstance(stack[0], kind):
            return AwaitsTarget
    return None


def _step(step: dis.Instruction, stack: list[Any], frame: FrameType) -> None:
    """Evaluate one instruction that calls nothing."""
    name = step.opname
    if name in ("LOAD_CONST", "LOAD_SMALL_INT"):
        stack.append(step.argval)
    elif name.startswith(_LOADS):
        stack.extend(_named(each, frame) for each in _names(step))
    elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and step.argrepr == "[]"):
        key = stack.pop()
        container = stack.pop()
        stack.append(_item(container, key))
    else:
        compute = _arithmetic_of(step)
        right = stack.pop()
        left = stack.pop()
        if not type(left) is type(right) is int:
            raise _CallsSomethingError
        stack.append(compute(left, right))


def _arithmetic_of(step: dis.Instruction) -> Callable[[int, int], int]:
    """Return the function of an instruction that computes with integers."""
    compute = _ARITHMETIC.get(step.opname) or _ARITHMETIC.get(step.argrepr)
    if compute is None:
        raise _CallsSomethingError
    return compute


def _item(container: Any, key: Any) -> Any:
    """Return ``container[key]`` if no code of the kernel can run; None for a missing item."""
    if type(container) not in (list, tuple, dict) or type(key) not in (int, str):
        raise _CallsSomethingError
    try:
        return container[key]
    except LookupError:
        return None


def _named(name: str, frame: FrameType) -> Any:
    """Return the value of a name in a frame; None for an unbound name."""
    code = frame.f_code
    if (
        name in frame.f_locals
        or name in code.co_varnames + code.co_cellvars + code.co_freevars
    ):
        return frame.f_locals.get(name)
    return frame.f_globals.get(name)


# -- names that a loop's body rebinds ------------------------------------------------------------

_LOADS = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")


@lru_cache(maxsize=1024)
def carried_by(code: CodeType, at: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that a loop's body reads before it binds them, and those it only reads.

    Names of enclosing functions and modules are included.
    """
    # Python 3.12 stops after the FOR_ITER of a generator, in its cache.
    *_, loop = [earlier for earlier in instructions_of(code) if earlier.offset <= at]
    ends = [loop.argval] if loop.opname == "FOR_ITER" else []
    read: set[str] = set()
    bound: set[str] = set()
    for step in instructions_of(code):
        if ends and at < step.offset < ends[0]:
            binds, reads = _bound_and_read(step)
            bound.update(binds)
            read.update(set(reads) - bound)
    return tuple(sorted(read & bound)), tuple(sorted(read - bound))


def _bound_and_read(step: dis.Instruction) -> tuple[Iterable[str], Iterable[str]]:
    """Return the names that an instruction binds, and those that it then reads."""
    names = _names(step)
    if step.opname == "STORE_FAST_LOAD_FAST":
        return names[:1], names[1:]
    if step.opname.startswith(_STORES):
        return names, ()
    # A comprehension saves a name's value by clearing it.
    if step.opname.startswith(_LOADS) and step.opname != "LOAD_FAST_AND_CLEAR":
        return (), names
    return (), ()


def numbers_of(
    names: Sequence[str], others: Sequence[str], frame: FrameType, body: Any = None
) -> dict[str, Any]:
    """Return the numbers that names hold in a frame, directly or inside objects.

    Objects are searched two levels deep: items, attributes, and closures of functions, including
    the loop's ``body``. The position of an iterator is not visible.
    """
    own = frame.f_locals
    known = frame.f_globals
    parts = [(name, own.get(name, known.get(name))) for name in (*names, *others)]
    parts.append(("body_fun", body))
    numbers = parts[: len(names)]
    for _ in range(2):
        parts = [part for at, v in parts if _holds(type(v)) for part in _held(at, v)]  # type: ignore[arg-type]
        numbers += parts
    return {place: v for place, v in numbers if isinstance(v, (int, float, np.number))}


@lru_cache(maxsize=1024)
def _holds(kind: type) -> bool:
    """Return whether objects of a class may hold values of the kernel."""
    other = kind in (ModuleType, type) or kind.__module__.startswith("difftest.")
    return not other and (kind in (list, tuple, dict) or kind.__dictoffset__ != 0)


def _held(place: str, value: Any) -> Iterable[tuple[str, Any]]:
    """Return the values inside an object of the kernel, with their places."""
    kind = type(value)
    if kind in (list, tuple):
        return [
            (f"len({place})", len(value)),
            *((f"{place}[{n}]", v) for n, v in enumerate(value)),
        ]
    if kind is FunctionType:
        own = value.__closure__ and not is_inside(value.__code__)
        if own:
            return inspect.getclosurevars(value).nonlocals.items()
        return []
    return [
        (f"{k} of {place}", v)
        for k, v in (value if kind is dict else vars(value)).items()
    ]


def _names(step: dis.Instruction) -> tuple[str, ...]:
    """Return the names that an instruction loads or stores; since Python 3.13 there may be two."""
    if isinstance(step.argval, tuple):
        return step.argval
    return (step.argval,)


# a NamedTuple's own __new__ takes twice the time, for each iteration
_make = tuple.__new__


class LoopRange:
    """A loop before it runs, like Python's ``range``. Each ``for`` over it is a new loop."""

    __slots__ = ("kind", "numbers")

    def __init__(self, kind: LoopKind, args: tuple[Any, ...]) -> None:
        fits = 1 <= len(args) <= 3 and all(map(is_index_integer, args))
        where = f"nl.{kind.value}_range"
        numbers = [as_integer(a, f"{where} of") for a in args] if fits else []
        if not fits or numbers[2:] == [0]:
            received = (
                ", ".join(f"{a!r} ({type(a).__name__})" for a in args) or "no argument"
            )
            raise not_taken(
                where,
                "integers: ([start,] stop[, step])",
                "a step of 0, or a value that is not an integer",
                received,
                remedy="use // instead of / for a trip count",
            )
        self.kind = kind
        self.numbers = range(*numbers)

    def __iter__(self) -> Iterator[int]:
        return iterate(self.kind, self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: Any) -> Any:
        return self.numbers[at]

    def __repr__(self) -> str:
        return f"{self.kind.value}_{self.numbers}"


def iterate(kind: LoopKind, values: Iterable[int], body: Any = None) -> Iterator[int]:
    """Yield the values of a loop's variable; the launch records the loop meanwhile.

    ``body`` is the function that is called with each value, if the kernel's own frame does not
    loop.
    """
    core = current()
    loops = core.loops
    loop = Loop(loops.count, kind, kernel_location())
    loops.count += 1
    outer = loops.turns
    carried = loops.carried
    try:
        turns: Iterable[tuple[int, int]] = enumerate(values)
        claims_none = kind is LoopKind.AFFINE and core.trace.dialect == "classic"
        # in the current dialect it is an alias of range
        if claims_none and loops.order.loop == loop.location:
            turns = loops.order.arranged(list(turns))
        once = is_traced_once(kind, core)
        frame = kernel_frame()
        names, others = carried_by(frame.f_code, frame.f_lasti)
        anew = carried + names
        counts = loops.made_by_lines.copy()
        first = numbers_of(names, others, frame, body) if once else {}
        for number, value in turns:
            loops.turns = (*outer, _make(Iteration, (loop, number, value)))
            if once:
                loops.made_by_lines = counts.copy()
            if first:
                _check_numbers(first, numbers_of(names, others, frame, body))
            yield value
            loops.carried = anew
        loops.carried = carried  # skipped after an error: explained() reads it
    finally:
        loops.turns = outer


def _check_numbers(first: dict[str, Any], now: dict[str, Any]) -> None:
    """Report numbers that an iteration finds changed, in a loop that is traced once."""
    moved = [f"{at} = {n}" for at, n in now.items() if first.get(at, n) not in (n,)]
    if moved:
        report_violation(NUMBER_OF_TURN_BEFORE(", ".join(moved)))


def is_traced_once(kind: LoopKind, core: Core) -> bool:
    """Return whether the compiler traces a loop's body once for all iterations, without unrolling.

    Sources: the stub ``nl.static_range`` at tag v2.26.0, nki-dynamic-loops.rst at v2.32.0.
    """
    if core.trace.dialect == "classic":
        return kind is not LoopKind.STATIC
    return kind is LoopKind.DYNAMIC


def of_first_turn(make: Callable[[], T]) -> T:
    """Return the result of ``make``.

    In a loop that is traced once, its first iteration's result.
    """
    core = current()
    loops = core.loops
    line = core.lines.stack()
    at = line, loops.made_by_lines[line]
    loops.made_by_lines[line] += 1
    again = any(
        turn.number for turn in loops.turns if is_traced_once(turn.loop.kind, core)
    )
    if not again or at not in loops.made_first:
        loops.made_first[at] = make()
    return loops.made_first[at]  # type: ignore[no-any-return]


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Add to a memory or shape error the name that the previous iteration has bound, if any.

    If a body is traced once, the name keeps its value from before the loop. The kernel's intent is
    unknown, so it runs by Python's rules.
    """
    try:
        yield
    except (BufferError, ShapeError) as error:
        words = re.findall(r"\w+", error.location.text if error.location else "")
        for name in [word for word in words if word in current().loops.carried][:1]:
            bound = (
                f"{name}, which the loop's body rebinds, is of the previous iteration"
            )
            error.happened = f"{bound}, and {error.happened}"
            tile = f"a tile that was made before the loop: {name}[...] = ..."
            error.remedy = (
                f"give the new value another name than {name}, or write it into {tile}"
            )
        raise


def affine_range(*args: int) -> Iterator[int]:
    """Iterate over independent iterations; the simulator runs them in order."""
    return iter(LoopRange(LoopKind.AFFINE, args))


def sequential_range(*args: int) -> Iterator[int]:
    """Iterate over iterations that run in order."""
    return iter(LoopRange(LoopKind.SEQUENTIAL, args))


def static_range(*args: int) -> Iterator[int]:
    """Iterate over iterations that are unrolled when the kernel is traced."""
    return iter(LoopRange(LoopKind.STATIC, args))


def program_along(axis: Any, grid: Shape) -> int:
    """Return the number of this program along an axis of a launch grid; 0 without a grid."""
    core = current()
    check_axis(axis, grid, "nl.program_id")
    core.trace.divided = True
    return core.seat.program[axis] if core.grid else 0


def programs_along(axes: Any, grid: Shape) -> int:
    """Return the number of programs along one or several axes of a launch grid; None for all."""
    numbers: Iterable[Any] = axes if isinstance(axes, (tuple, list)) else (axes,)
    total = 1
    for axis in range(len(grid)) if axes is None else numbers:
        check_axis(axis, grid, "nl.num_programs")
        total *= grid[axis]
    return total


def program_id(axis: int) -> int:
    """Return the index of this program along an axis of the launch grid."""
    return program_along(axis, current().grid)


def num_programs(axes: Any = None) -> int:
    """Return the number of programs along the given axes, or in all."""
    return programs_along(axes, current().grid)


def program_ndim() -> int:
    """Return the number of dimensions of the launch grid."""
    return len(current().grid)


def check_axis(axis: object, grid: Shape, where: str) -> None:
    """Raise :class:`KernelError` unless a grid has the axis."""
    ndim = len(grid)
    if not 0 <= as_integer(axis, f"{where} of") < ndim:
        classic = current().trace.dialect == "classic"
        many = "launch with kernel[n, m](...) for two dimensions, and so on"
        remedy = many if classic else "kernel[n] has one axis, 0"
        got = f"axis {axis!r} of a grid of {ndim} dimensions"
        raise not_taken(where, "an axis of the launch grid", got, got, remedy=remedy)
