"""``nki.language``: loops, unrolled or on the device, and the programs of a logical NeuronCore.

Loops over Python integers are unrolled and run in order (NKI Language Guide, v2.32.0). Those on the
device (stubs ``nl.fori_loop``, ``nl.while_loop`` and ``nl.dynamic_range``) run as the kernel runs;
their bounds may be registers, and their variable is one, which Python's control flow refuses. Each
loop is noted in the launch, so that the trace knows its iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.errors import kernel_location
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.loops import LoopRange, iterate, program_along, programs_along
from difftest.simulator.frontend.nki.binding import named, public
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.virtual_registers import (
    DeviceValue,
    NkiScalar,
    VirtualRegister,
)
from difftest.simulator.index import as_integer
from difftest.simulator.instructions.operands import wrong_kind
from difftest.simulator.misuses import LOOP_IN_ORDER
from difftest.simulator.trace import LoopKind


def _unrolled(kind: LoopKind, summary: str) -> None:
    """A loop over the integers of ``range``: one argument is the stop."""

    def function(start: Any, stop: Any = None, step: Any = 1) -> LoopRange:
        return LoopRange(kind, (0, start, step) if stop is None else (start, stop, step))

    named(function, f"{kind.value}_range", summary)


for _kind, _summary in (
    (LoopKind.AFFINE, "A loop whose iterations do not depend on each other; unrolled, in order."),
    (LoopKind.SEQUENTIAL, "A loop whose iterations run in order."),
    (LoopKind.STATIC, "A loop that is unrolled."),
):
    _unrolled(_kind, _summary)


@public
def fori_loop(lower, upper, body_fun, step=1):
    """``body_fun(i)`` for ``i`` from ``lower`` to ``upper``, exclusive; bounds may be registers."""
    values = _range(lower, upper, step, "nl.fori_loop")
    if not callable(body_fun):
        raise wrong_kind(body_fun, "a function", "nl.fori_loop", "body_fun")
    scalar = isinstance(lower, NkiScalar) or isinstance(upper, NkiScalar)
    for variable in _turns(values, scalar=scalar):
        _check_nothing(body_fun(variable))


@public
def while_loop(init, body_fun):
    """``r = init``, then ``r = body_fun(r)`` while ``r`` is not 0."""
    register = _condition(init, "init")

    def values() -> Iterator[int]:
        while (value := register.device_value()) != 0:
            yield value

    for variable in _turns(values(), frozen=False):
        register = _condition(body_fun(variable), "what body_fun returns")


@public
def dynamic_range(start, stop=None, step=1):
    """A loop on the device over registers; deprecated in NKI 0.6, and ended with 0.7."""
    first, last = (0, start) if stop is None else (start, stop)
    return _on_device(_range(first, last, step, "nl.dynamic_range"))


@public
def program_id(axis=0):
    """The number of this program along an axis of the launch grid; 0 without one."""
    return program_along(axis, current().grid or (1,))


@public
def num_programs(axes=0):
    """How many programs run along the given axes; 1 without a launch grid."""
    return programs_along(axes, current().grid or (1,))


@public
def program_ndim():
    """How many dimensions the launch grid has; 0 without one."""
    return len(current().grid)


def _turns(values: Any, *, scalar: bool = False, frozen: bool = True) -> Iterator[DeviceValue]:
    """:func:`_on_device` of a body function: what it makes is not used after the loop.

    So the migration guide has it ("Tensors declared inside a body function cannot be referenced
    outside of the loop"); of the bodies of ``nl.dynamic_range`` no page says it.
    """
    core = current()
    with core.body(kernel_location()):
        for variable in _on_device(values, scalar=scalar, frozen=frozen):
            core.caller = None  # what the kernel calls next is called from the loop's body
            yield variable


def _on_device(values: Any, *, scalar: bool = False, frozen: bool = True) -> Iterator[DeviceValue]:
    """The variable of a loop on the device, turn by turn: a register, or a scalar."""
    core = current()
    if core.keeps_order:
        raise LOOP_IN_ORDER("the loop, in a with block of nl.no_reorder()")
    for value in iterate(LoopKind.DYNAMIC, values):
        variable = (
            NkiScalar(value, np.dtype(np.int32))
            if scalar
            else VirtualRegister(value, frozen=frozen)
        )
        yield variable.of_loop(core.loops[-1].loop.id)


def _range(lower: Any, upper: Any, step: Any, where: str) -> range:
    if isinstance(step, DeviceValue) or as_integer(step, f"{where} with step") < 1:
        takes = "step as a positive integer that is known when the kernel is built"
        raise not_taken(where, takes, f"step={step!r:.40}", f"step={step!r}")
    return range(_bound(lower, where), _bound(upper, where), step)


def _bound(value: Any, where: str) -> int:
    return value.device_value() if isinstance(value, DeviceValue) else as_integer(value, where)


def _condition(value: Any, what: str) -> VirtualRegister:
    if not isinstance(value, VirtualRegister):
        remedy = "make one with nisa.register_alloc(), and return it from the body"
        raise wrong_kind(value, "a register", "nl.while_loop", what, remedy)
    return value


def _check_nothing(returned: object) -> None:
    if returned is not None and not isinstance(returned, NkiInstruction):
        remedy = "keep what goes from turn to turn in SBUF or HBM"
        takes = "a body_fun that returns nothing"
        raise wrong_kind(returned, takes, "nl.fori_loop", remedy=remedy)
