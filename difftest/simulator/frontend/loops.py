"""Loops and the SPMD grid: ``nl.affine_range`` and kin, ``nl.program_id``.

Loop variables are Python integers, so they work in ``if``, ``%``, ``//`` and anywhere else. Every
loop is noted in the launch, so that each instruction in the trace knows its iterations.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from difftest.simulator.core import Core, current
from difftest.simulator.errors import BufferError, ShapeError, kernel_location
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.bytecode import carried_by, kernel_frame, numbers_of
from difftest.simulator.index import Shape, as_integer, is_integer
from difftest.simulator.misuses import NUMBER_OF_TURN_BEFORE
from difftest.simulator.strictness import note
from difftest.simulator.trace import Iteration, Loop, LoopKind

T = TypeVar("T")

_make = tuple.__new__  # a NamedTuple's own __new__ takes twice the time, for each turn


class LoopRange:
    """A loop before it runs, as Python's ``range`` is one; each ``for`` over it is a new loop."""

    __slots__ = ("kind", "numbers")

    def __init__(self, kind: LoopKind, args: tuple[Any, ...]) -> None:
        self.kind = kind
        self.numbers = _numbers(kind, args)

    def __iter__(self) -> Iterator[int]:
        return iterate(self.kind, self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: Any) -> Any:
        return self.numbers[at]

    def __repr__(self) -> str:
        return f"{self.kind.value}_{self.numbers}"


def iterate(kind: LoopKind, values: Iterable[int]) -> Iterator[int]:
    """The values of a loop's variable; while they last the launch knows of the loop."""
    core = current()
    loops = core.loops
    loop = Loop(loops.count, kind, kernel_location())
    loops.count += 1
    outer, carried = loops.turns, loops.carried
    try:
        turns: Iterable[tuple[int, int]] = enumerate(values)
        claims_none = kind is LoopKind.AFFINE and core.trace.dialect == "classic"
        if claims_none and loops.order.loop == loop.location:  # in today's it is an alias of range
            turns = loops.order.arranged(list(turns))
        once, names = is_traced_once(kind, core), carried_by(kernel_frame())
        anew, made = carried + names, loops.made_by_lines.copy()
        first = numbers_of(names, kernel_frame()) if once else {}
        for number, value in turns:
            loops.turns = (*outer, _make(Iteration, (loop, number, value)))
            if once:
                loops.made_by_lines = made.copy()
            if first and (moved := numbers_of(first, kernel_frame()).items() - first.items()):
                said = (f"{name} = {now}" for name, now in sorted(moved))
                note(NUMBER_OF_TURN_BEFORE(", ".join(said)))
            yield value
            loops.carried = anew
        loops.carried = carried  # not where an error ends the loop: explained() asks for it
    finally:
        loops.turns = outer


def is_traced_once(kind: LoopKind, core: Core) -> bool:
    """Whether the compiler reads a loop's body once for all turns, and does not unroll it.

    Sources: the stub ``nl.static_range`` at tag v2.26.0, nki-dynamic-loops.rst at v2.32.0.
    """
    if core.trace.dialect == "classic":
        return kind is not LoopKind.STATIC
    return kind is LoopKind.DYNAMIC


def of_first_turn(make: Callable[[], T]) -> T:
    """What a line makes: in a loop that is traced once, what it made there in the first turn."""
    core = current()
    loops, line = core.loops, core.lines.stack()
    at = line, loops.made_by_lines[line]
    loops.made_by_lines[line] += 1
    again = any(one.number for one in loops.turns if is_traced_once(one.loop.kind, core))
    if not again or at not in loops.made_first:
        loops.made_first[at] = make()
    return loops.made_first[at]  # type: ignore[no-any-return]


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Name in an error of memories or shapes the name that the turn before has bound, if any.

    Where a body is traced once that name is what it was before the loop. Which of both a kernel
    means cannot be told, so it runs as Python has it.
    """
    try:
        yield
    except (BufferError, ShapeError) as error:
        words = re.findall(r"\w+", error.location.text if error.location else "")
        for name in [word for word in words if word in current().loops.carried][:1]:
            bound = f"{name}, which the loop's body binds anew, is what the iteration before made"
            error.happened = f"{bound}, and {error.happened}"
            tile = f"a tile that was made before the loop: {name}[...] = ..."
            error.remedy = f"give the new value another name than {name}, or write it into {tile}"
        raise


def _numbers(kind: LoopKind, args: tuple[Any, ...]) -> range:
    known = 1 <= len(args) <= 3 and all(map(is_integer, args))
    numbers = tuple([as_integer(a, f"nl.{kind._value_}_range of") for a in args]) if known else ()
    if not known or numbers[2:] == (0,):
        takes, got = "integers: ([start,] stop[, step])", "a step of 0, or what is not an integer"
        given = ", ".join(f"{a!r} ({type(a).__name__})" for a in args) or "no argument"
        remedy = "use // instead of / for a trip count"
        raise not_taken(f"nl.{kind.value}_range", takes, got, given, remedy=remedy)
    return range(*numbers)


def affine_range(*args: int) -> Iterator[int]:
    """A loop whose iterations do not depend on each other; run in order here."""
    return iter(LoopRange(LoopKind.AFFINE, args))


def sequential_range(*args: int) -> Iterator[int]:
    """A loop whose iterations run in order."""
    return iter(LoopRange(LoopKind.SEQUENTIAL, args))


def static_range(*args: int) -> Iterator[int]:
    """A loop that is unrolled when the kernel is traced."""
    return iter(LoopRange(LoopKind.STATIC, args))


def program_along(axis: Any, grid: Shape) -> int:
    """The number of this program along an axis of a launch grid; 0 of a launch without one."""
    core = current()
    check_axis(axis, grid, "nl.program_id")
    core.trace.divided = True
    return core.seat.program[axis] if core.grid else 0


def programs_along(axes: Any, grid: Shape) -> int:
    """How many programs run along axes of a launch grid, one or several; None for all."""
    given: Iterable[Any] = axes if isinstance(axes, (tuple, list)) else (axes,)
    total = 1
    for axis in range(len(grid)) if axes is None else given:
        check_axis(axis, grid, "nl.num_programs")
        total *= grid[axis]
    return total


def program_id(axis: int) -> int:
    """The index of this kernel instance along an axis of the launch grid."""
    return program_along(axis, current().grid)


def num_programs(axes: Any = None) -> int:
    """The number of kernel instances along the given axes, or in all."""
    return programs_along(axes, current().grid)


def program_ndim() -> int:
    """The number of dimensions of the launch grid."""
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
