"""The digits that each instruction of a kernel loses, computed when a case has failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from difftest.simulator.dtypes import Array, dtype_name
from difftest.simulator.errors import Location, kernel_location
from difftest.simulator.exact.bounded import ROUNDINGS, Bounded
from difftest.simulator.trace import Space

if TYPE_CHECKING:
    from difftest.simulator.tile import Tile


class Overflow(NamedTuple):
    """A number that a tensor cannot hold: the machine has an infinity or NaN instead.

    Attributes
    ----------
    value : the number.
    argument : the element that it was computed from; None if there are several.
    tensor : the tensor's dtype, and its memory if that is PSUM.
    largest : the largest number that the tensor can hold.
    """

    value: float
    argument: float | None
    tensor: str
    largest: float


@dataclass
class Loss:
    """The loss at one instruction on one line of a kernel.

    Errors are relative to the largest number of the tensor that it wrote.

    Attributes
    ----------
    name, location : the instruction and the kernel's line.
    times : the number of its runs.
    allowed : the largest increase of the bound.
    happened : the largest increase of the difference between the machine and the exact run.
    terms : the length of its longest sum or product; 0 if it computed none.
    size : the largest number that it wrote.
    overflow : the first number that its destination could not hold, or None.
    """

    name: str
    location: Location | None
    times: int = 0
    allowed: float = 0.0
    happened: float = 0.0
    terms: int = 0
    size: float = 0.0
    overflow: Overflow | None = None


class Losses:
    """The losses of a launch, by instruction and line."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, Location | None], Loss] = {}
        self.terms = 0
        """The largest number of terms in the instruction's sums and products so far."""
        self._bound = self._error = 0.0
        self._name = ""
        self._arguments: list[Array] = []
        self._over = False

    def begin(self, name: str) -> None:
        """Begin an instruction: forget the operands of the one before."""
        self._name = name
        self.terms = 0
        self._bound = self._error = 0.0
        self._arguments = []

    def take(self, operands: Sequence[Bounded]) -> None:
        """Note the values of all its tiles, rounded or not."""
        self._arguments = [
            operand.value for operand in operands if operand.value.size > 1
        ]

    def read(self, machine: Array, exact: Bounded, where: Array | None = None) -> None:
        """Note the errors of an operand, or of the elements that ``where`` chooses."""
        bound, error, _ = _relative(machine, exact, where)
        self._bound = max(self._bound, bound)
        self._error = max(self._error, error)

    def wrote(
        self, tile: Tile, machine: Array, exact: Bounded, where: Array | None
    ) -> None:
        """Note the errors of a result."""
        bound, error, size = _relative(machine, exact, where)
        location = kernel_location()
        loss = self.found.setdefault((self._name, location), Loss(self._name, location))
        loss.times += 1
        loss.allowed = max(loss.allowed, bound - self._bound)
        loss.happened = max(loss.happened, error - self._error)
        loss.terms = max(loss.terms, self.terms)
        loss.size = max(loss.size, size)
        if not self._over:
            loss.overflow = self._overflow(tile, machine, exact, where)
            self._over = loss.overflow is not None

    def _overflow(
        self, tile: Tile, machine: Array, exact: Bounded, where: Array | None
    ) -> Overflow | None:
        """Return the first overflow of the launch; later ones follow from it."""
        value = np.ravel(exact.value)
        machine = np.ravel(machine).astype(np.float64)
        if value.size != machine.size:
            return None
        over = np.isfinite(value) & ~np.isfinite(machine)
        if where is not None and where.size == over.size:
            over &= np.ravel(where)
        if not over.any():
            return None
        place = int(np.argmax(over))
        argument = None
        if len(self._arguments) == 1 and self._arguments[0].size == value.size:
            argument = float(np.ravel(self._arguments[0])[place])
        tensor = dtype_name(tile.dtype) + (
            " in PSUM" if tile._space is Space.PSUM else ""
        )
        return Overflow(
            float(value[place]), argument, tensor, ROUNDINGS[tile.dtype].largest
        )


def _relative(
    machine: Array, exact: Bounded, where: Array | None
) -> tuple[float, float, float]:
    """Return the largest bound and error, relative to the largest value, and that value."""
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
    return (
        float(largest) / size,
        float(np.max(error, initial=0.0, where=met)) / size,
        size,
    )
