"""One instruction as the oracle sees it, and the table of what each literally means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.oracle.numbers import Array, DType, to_float32
from difftest.simulator.oracle.operators import ARITHMETIC, START
from difftest.simulator.oracle.places import Literal
from difftest.simulator.pattern import Shape


class Made(NamedTuple):
    """What an instruction means for one destination.

    Attributes
    ----------
    values : to be rounded into the destination's dtype.
    kept : where it writes; None for where its mask says.
    slack : how far the simulator may lie apart, where a sum has no order or a curve no last place.
    """

    values: Any
    kept: Array | None = None
    slack: Any = None


class Use:
    """An instruction that was issued: ``use["data"]`` is an operand's elements or an option.

    Attributes
    ----------
    kept : a mask's bools over what the instruction walks; None without one.
    dst : the first destination, for what reads it.
    registers : the engines' reduction registers, by engine.
    """

    def __init__(
        self,
        call: Any,
        operands: Mapping[str, Any],
        dst: Literal,
        kept: Array | None,
        registers: dict[str, Array],
    ) -> None:
        self.call, self.kept, self.dst, self.registers = call, kept, dst, registers
        self.literals = operands
        self.shape: Shape = call.result.shape
        self.dtype: DType = call.result.dtype
        self.machine = call.machine
        self.asked: bool | None = False
        """Whether a matrix product accumulates, as the kernel says it."""
        self.taken: Array = np.zeros(())
        """What the simulator wrote, for what chance decides."""

    def __getitem__(self, name: str) -> Any:
        """An operand's elements [partitions, ...], a number, None; or an option."""
        if name not in self.literals:
            return self.call.options[name]
        operand = self.literals[name]
        if not isinstance(operand, Literal):
            return operand
        described = self.call.operands[name]
        elements = operand.read()
        return elements.reshape(described.shape)

    def op(self, name: str) -> str | None:
        """An operator, by its name."""
        found = self[name]
        return found if found is None or isinstance(found, str) else str(found.name)

    def dtype_of(self, name: str) -> DType | None:
        """The dtype of an operand that is a tensor."""
        found = self.call.operands[name]
        return found.dtype if isinstance(found, Descriptor) else None

    def rows(self, name: str) -> Array:
        """An operand as [partitions, elements], bits as they are."""
        found = self[name]
        return np.reshape(found, (len(found), -1))

    def vector(self, name: str, ndim: int) -> Any:
        """A number, or one element in each partition, to be repeated over ``ndim`` dimensions."""
        found = self[name]
        if not isinstance(self.literals[name], Literal):
            return None if found is None else np.asarray(found, np.float32)
        return found.reshape(len(found), *(1,) * (ndim - 1))

    def over(self, shape: Shape) -> Array:
        """The mask's bools in a shape of as many elements, all true without a mask."""
        return np.ones(shape, np.bool_) if self.kept is None else self.kept.reshape(shape)


Meaning = Callable[[Use], Any]
MEANINGS: dict[str, Meaning] = {}
"""By record: a function that gives a :class:`Made`, or one for each destination."""
Function = TypeVar("Function", bound=Meaning)


def means(*records: str) -> Callable[[Function], Function]:
    """Make a function the literal meaning of records."""

    def register(meaning: Function) -> Function:
        MEANINGS.update(dict.fromkeys(records, meaning))
        return meaning

    return register


def accumulated(
    use: Use, engine: str, lanes: Array, op: str | None, start: Any = None, command: str = ""
) -> Any:
    """Reduce ``lanes`` [P, ...] into an engine's registers as ``reduce_cmd`` says; what they hold.

    The registers, one for each partition of the machine, live across instructions. Those of a
    partition of which a mask keeps nothing are left alone.
    """
    command, op = command or use["reduce_cmd"].name, op or "add"
    if command == "IDLE":
        return None
    kept = use.over((len(lanes), lanes[0].size))
    rows, first = kept.any(axis=1), np.float32(START[op])
    fresh = np.full(use.machine.partitions, first)
    registers = use.registers.setdefault(engine, fresh.copy())
    held = registers[: len(lanes)]
    if command in ("RESET", "RESET_REDUCE"):
        (registers if use.kept is None else held)[... if use.kept is None else rows] = first
    if command == "LOAD_REDUCE":
        registers[...] = fresh
        held[rows] = np.broadcast_to(to_float32(start).reshape(-1), held.shape)[rows]
    if command not in ("RESET", "READ"):
        for column, counts in zip(to_float32(lanes).reshape(kept.shape).T, kept.T, strict=True):
            held[...] = np.where(counts, ARITHMETIC[op](held, column), held)
    return Made(held[:, None].copy(), rows[:, None])
