"""Loops and the SPMD grid: ``nl.affine_range`` and kin, ``nl.program_id``.

Loop variables are Python integers, so they work in ``if``, ``%``, ``//`` and anywhere else. Every
loop is noted in the launch, so that each instruction in the trace knows its iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError, kernel_location
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.index import Shape, as_integer, is_integer
from difftest.simulator.trace import Iteration, Loop, LoopKind

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
    loop = Loop(core.loop_count, kind, kernel_location())
    core.loop_count += 1
    outer = core.loops
    try:
        turns: Iterable[tuple[int, int]] = enumerate(values)
        claims_none = kind is LoopKind.AFFINE and core.trace.dialect == "classic"
        if claims_none and core.order.loop == loop.location:  # in today's it is an alias of range
            turns = core.order.arranged(list(turns))
        for number, value in turns:
            core.loops = (*outer, _make(Iteration, (loop, number, value)))
            yield value
    finally:
        core.loops = outer


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
    return core.program[axis] if core.grid else 0


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
        raise KernelError(
            f"{where} names an axis of the launch grid",
            happened=f"{where} was asked of axis {axis!r} of a grid of {ndim} dimensions",
            received=f"axis {axis!r} of a grid of {ndim} dimensions",
            remedy="launch with kernel[n, m](...) for two dimensions, and so on"
            if current().trace.dialect == "classic"
            else "kernel[n] has one axis, 0",
        )
