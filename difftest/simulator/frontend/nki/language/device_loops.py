"""``nki.language``: loops that run on the device, whose bounds may be registers.

Source: the stubs ``nl.fori_loop``, ``nl.while_loop`` and ``nl.dynamic_range`` at v2.32.0. Here
they run as the kernel runs; their variable is a register, which Python's control flow refuses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from difftest.simulator.core import Core, current
from difftest.simulator.errors import KernelError, Location, kernel_location
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.virtual_registers import (
    DeviceValue,
    NkiScalar,
    VirtualRegister,
)
from difftest.simulator.index import as_integer
from difftest.simulator.instructions.operands import wrong_kind
from difftest.simulator.trace import Iteration, Loop, LoopKind


@public
def fori_loop(lower, upper, body_fun, step=1):
    """``body_fun(i)`` for ``i`` from ``lower`` to ``upper``, exclusive; bounds may be registers.

    Raises
    ------
    KernelError : a bound is neither integer nor register, ``step`` is not a positive integer, or
        the body returns a value.
    """
    values = _range(lower, upper, step, "nl.fori_loop")
    if not callable(body_fun):
        raise KernelError(
            "nl.fori_loop takes a function as body_fun",
            happened=f"nl.fori_loop got a {type(body_fun).__name__} as body_fun",
            received=f"{body_fun!r:.60}",
        )
    scalar = isinstance(lower, NkiScalar) or isinstance(upper, NkiScalar)
    _check_order()
    with _body(kernel_location()) as turn:
        for value in values:
            turn(value)
            _check_nothing(body_fun(_variable(value, scalar=scalar)))


@public
def while_loop(init, body_fun):
    """``r = init``, then ``r = body_fun(r)`` while ``r`` is not 0.

    Raises
    ------
    KernelError : ``init``, or what the body returns, is no register.
    """
    register = _condition(init, "init")
    _check_order()
    with _body(kernel_location()) as turn:
        while (value := register.device_value()) != 0:
            turn(value)
            variable = VirtualRegister(value).of_loop(_loop())
            register = _condition(body_fun(variable), "what body_fun returns")


@public
def dynamic_range(start, stop=None, step=1):
    """A loop on the device over registers; deprecated in NKI 0.6, and ended with 0.7."""
    first, last = (0, start) if stop is None else (start, stop)
    return _walk(_range(first, last, step, "nl.dynamic_range"))


def _walk(values: range) -> Iterator[VirtualRegister]:
    _check_order()
    with _turns(kernel_location()) as turn:
        for value in values:
            turn(value)
            yield VirtualRegister(value, frozen=True).of_loop(_loop())


def _variable(value: int, *, scalar: bool) -> DeviceValue:
    if scalar:
        return NkiScalar(value, np.dtype(np.int32)).of_loop(_loop())
    return VirtualRegister(value, frozen=True).of_loop(_loop())


def _loop() -> int:
    """The innermost loop that runs."""
    return current().loops[-1].loop.id


def _range(lower: Any, upper: Any, step: Any, where: str) -> range:
    if isinstance(step, DeviceValue) or as_integer(step, f"{where} with step") < 1:
        raise KernelError(
            f"{where} takes step as a positive integer that is known when the kernel is built",
            happened=f"{where} got step={step!r:.40}",
            received=f"step={step!r}",
        )
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
        raise KernelError(
            "the body of nl.fori_loop returns nothing",
            happened=f"the body of nl.fori_loop returned a {type(returned).__name__}",
            received=f"{type(returned).__name__} {returned!r:.60}",
            remedy="keep what goes from turn to turn in SBUF or HBM",
        )


def _check_order() -> None:
    """Raise inside ``nl.no_reorder``."""
    if current().keeps_order:
        raise KernelError(
            "a loop on the device does not run inside nl.no_reorder",
            happened="a loop on the device was to run inside nl.no_reorder",
            received="the loop, in a with block of nl.no_reorder()",
            remedy="write nl.no_reorder() inside the loop's body, or a loop over Python integers",
        )


@contextlib.contextmanager
def _body(location: Location | None) -> Iterator[Callable[[int], None]]:
    """:func:`_turns` of a body function: what it makes is not used after the loop.

    So the migration guide has it ("Tensors declared inside a body function cannot be referenced
    outside of the loop"); of the bodies of ``nl.dynamic_range`` no page says it.
    """
    with _turns(location) as turn, current().body(location):
        yield turn


@contextlib.contextmanager
def _turns(location: Location | None) -> Iterator[Callable[[int], None]]:
    """Note a loop in the launch while it lasts; the function that is given notes each turn."""
    core = current()
    loop = Loop(core.loop_count, LoopKind.DYNAMIC, location)
    core.loop_count += 1
    outer = core.loops
    try:
        yield _noting(core, loop)
    finally:
        core.loops = outer


def _noting(core: Core, loop: Loop) -> Callable[[int], None]:
    outer, number = core.loops, -1

    def turn(value: int) -> None:
        nonlocal number
        number += 1
        core.caller = None  # what the kernel calls next is called from the loop's body
        core.loops = (*outer, Iteration(loop, number, value))

    return turn
