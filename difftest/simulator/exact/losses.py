"""Which instruction of a kernel lost how many digits: asked for when a case has failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from difftest.simulator.dtypes import Array
from difftest.simulator.errors import Location, kernel_location

if TYPE_CHECKING:
    from difftest.simulator.exact.bounded import Bounded


@dataclass
class Loss:
    """What one instruction of a kernel's line has done to the numbers it took.

    Errors are relative to the largest number of the tensor that it wrote.

    Attributes
    ----------
    name, location : the instruction and the kernel's line.
    times : how often it ran.
    allowed : how much it added to the bound, at most.
    happened : how much it added to the difference between the machine and the exact run, at most.
    terms : of the longest sum or product that it computed; 0 if it computed none.
    size : the largest number that it wrote.
    """

    name: str
    location: Location | None
    times: int = 0
    allowed: float = 0.0
    happened: float = 0.0
    terms: int = 0
    size: float = 0.0


class Losses:
    """The losses of a launch, by instruction and line."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, Location | None], Loss] = {}
        self.terms = 0
        """Of the sums and products that the instruction computes, the most so far."""
        self._bound = self._error = 0.0

    def begin(self) -> None:
        """An instruction begins: nothing is known of its operands' errors."""
        self.terms = 0
        self._bound = self._error = 0.0

    def read(self, machine: Array, exact: Bounded) -> None:
        """One of its operands."""
        bound, error, _ = _relative(machine, exact, None)
        self._bound = max(self._bound, bound)
        self._error = max(self._error, error)

    def wrote(self, name: str, machine: Array, exact: Bounded, where: Array | None) -> None:
        """What it wrote."""
        bound, error, size = _relative(machine, exact, where)
        location = kernel_location()
        loss = self.found.setdefault((name, location), Loss(name, location))
        loss.times += 1
        loss.allowed = max(loss.allowed, bound - self._bound)
        loss.happened = max(loss.happened, error - self._error)
        loss.terms = max(loss.terms, self.terms)
        loss.size = max(loss.size, size)


def _relative(machine: Array, exact: Bounded, where: Array | None) -> tuple[float, float, float]:
    """The largest bound and the largest error, relative to the largest value; and that."""
    value = exact.value
    if value.size == machine.size:
        machine = machine.reshape(value.shape)
    value = np.broadcast_to(value, machine.shape)
    finite = np.isfinite(value)
    if where is not None:
        finite &= where.reshape(machine.shape) if where.size == machine.size else where
    size = float(np.max(np.abs(value), initial=0.0, where=finite))
    if not size:
        return 0.0, 0.0, 0.0
    error = np.abs(machine.astype(np.float64) - value)
    bound = np.zeros(()) if exact.error is None else exact.error
    largest = np.max(np.broadcast_to(bound, value.shape), initial=0.0, where=finite)
    met = finite & np.isfinite(error)
    return float(largest) / size, float(np.max(error, initial=0.0, where=met)) / size, size
