"""``nki.language``: loops, and the programs of a logical NeuronCore.

Loops of this dialect are unrolled and run in order: their variables are Python integers (NKI
Language Guide, v2.32.0). Each is noted in the launch, so that the trace knows its iterations.
"""

from __future__ import annotations

from typing import Any

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.loops import LoopRange
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.trace import LoopKind


def _loop(kind: LoopKind, start: Any, stop: Any, step: Any) -> LoopRange:
    """The integers of ``range``: one argument is the stop."""
    return LoopRange(kind, (0, start, step) if stop is None else (start, stop, step))


@public
def affine_range(start, stop=None, step=1):
    """A loop whose iterations do not depend on each other; unrolled, in order."""
    return _loop(LoopKind.AFFINE, start, stop, step)


@public
def sequential_range(start, stop=None, step=1):
    """A loop whose iterations run in order."""
    return _loop(LoopKind.SEQUENTIAL, start, stop, step)


@public
def static_range(start, stop=None, step=1):
    """A loop that is unrolled."""
    return _loop(LoopKind.STATIC, start, stop, step)


@public
def program_id(axis=0):
    """The number of this program along an axis of the launch grid; 0 without one."""
    core = current()
    _check_axis(axis, "nl.program_id")
    core.trace.divided = True
    return core.program[axis] if core.grid else 0


@public
def num_programs(axes=0):
    """How many programs run along the given axes; 1 without a launch grid."""
    grid = current().grid
    given = range(len(grid)) if axes is None else as_integers(axes, "nl.num_programs of axes")
    total = 1
    for axis in given:
        _check_axis(axis, "nl.num_programs")
        total *= grid[axis] if grid else 1
    return total


@public
def program_ndim():
    """How many dimensions the launch grid has; 0 without one."""
    return len(current().grid)


def _check_axis(axis: Any, where: str) -> None:
    ndim = max(len(current().grid), 1)
    if not 0 <= as_integer(axis, f"{where} of axis") < ndim:
        raise KernelError(
            f"{where} names an axis of the launch grid",
            happened=f"{where} was asked of axis {axis!r} of a grid of {ndim} dimensions",
            received=f"axis {axis!r}",
            limit=f"0 to {ndim - 1}: kernel[n] has one",
        )
