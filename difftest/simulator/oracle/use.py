"""The oracle's memory, its view of an instruction, and the table of literal meanings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import BOOL
from difftest.simulator.oracle.operators import (
    ARITHMETIC,
    START,
    Array,
    DType,
    host_dtype,
    poison_element,
    to_float32,
)
from difftest.simulator.pattern import Shape

OUTSIDE = -1
"""The place of an element outside its tensor."""
_BYTE = np.dtype(np.uint8)


class LiteralMemory:
    """Bytes, with flags for written bytes and for products."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, _BYTE)
        self.touched = np.zeros(size, np.bool_)
        self.products = np.zeros(size, np.bool_)
        """True where the last write was a matrix product's."""

    def grow(self, size: int) -> None:
        """Extend the memory to at least ``size`` bytes."""
        planes = ("bytes", "touched", "products")
        for name in planes if size > self.bytes.size else ():
            plane: Array = getattr(self, name)
            setattr(self, name, np.pad(plane, (0, size - plane.size)))


class LiteralTensor:
    """A tensor: rows of bytes, ``pitch`` bytes apart, in a memory from ``base`` on."""

    def __init__(
        self, memory: LiteralMemory, base: int, row: int, pitch: int, allocation: Any
    ) -> None:
        self.memory = memory
        self.base = base
        self.row = row
        self.pitch = pitch
        self.shape = allocation.shape
        self.dtype = allocation.dtype
        self.on_chip = not allocation.space.is_hbm
        self.size = int(np.prod(self.shape)) * self.dtype.itemsize
        memory.grow(base + -(-self.size // max(row, 1)) * pitch)
        places = np.arange(0, self.size, self.dtype.itemsize).reshape(self.shape)
        self.whole = Literal(self, places, self.dtype)
        fresh = ~self.whole.touched()
        if fresh.any():
            self.whole.store(np.full(self.shape, poison_element(self.dtype)), fresh)
            self.whole.touch(fresh, written=False)

    def at(self, places: Array) -> Array:
        """Return the addresses in the memory of these bytes of the tensor."""
        if self.row == self.pitch:
            return places + self.base
        return np.asarray(
            self.base + places // self.row * self.pitch + places % self.row
        )


class Literal:
    """A view: for each element, the offset of its first byte in the tensor.

    ``places`` are offsets, or a function that returns them. A view moved by an index has a
    function, because its offsets are known only when an instruction is issued.
    """

    __slots__ = ("_places", "dtype", "held")

    def __init__(
        self, held: LiteralTensor, places: Array | Callable[[], Array], dtype: DType
    ) -> None:
        self.held = held
        self._places = places
        self.dtype = dtype

    @property
    def places(self) -> Array:
        """The elements' current places."""
        if callable(self._places):
            return self._places()
        return self._places

    @property
    def on_chip(self) -> bool:
        return self.held.on_chip

    def viewed(
        self, rule: Callable[[Array], Array], dtype: DType | None = None
    ) -> Literal:
        """Return another view of the tensor, whose places a rule computes from these."""
        places = self._places
        result = (lambda: rule(places())) if callable(places) else rule(places)
        return Literal(self.held, result, self.dtype if dtype is None else dtype)

    def settled(self) -> Literal:
        """Return the view with its current places."""
        return Literal(self.held, self.places, self.dtype)

    def _bytes(self, places: Array) -> Array:
        return self.held.at(places)[..., None] + np.arange(self.dtype.itemsize)

    def _elements(self, base: Array, places: Array, host: DType) -> tuple[Array, Array]:
        """Return the memory as elements if they are aligned, else as bytes; and their positions."""
        at = self.held.at(places)
        size = self.dtype.itemsize
        if base.size % size or (at % size).any():
            return base, self._bytes(places)
        return base.view(host), at // size

    def read(self) -> Array:
        """Return a copy of the elements in the host's form; outside elements are arbitrary."""
        host = host_dtype(self.dtype)
        base, at = self._elements(
            self.held.memory.bytes, np.maximum(self.places, 0), host
        )
        elements = base[at]
        if at.ndim > self.places.ndim:
            elements = elements.view(host)[..., 0]
        return elements != 0 if self.dtype == BOOL else elements

    def store(
        self, elements: Array, kept: Array | None = None, *, product: bool = False
    ) -> None:
        """Store elements one by one, where ``kept`` is true and the place is inside the tensor."""
        places = self.places
        host = host_dtype(self.dtype)
        chosen = places >= 0 if kept is None else kept & (places >= 0)
        spread = np.broadcast_to(np.asarray(elements, host), places.shape)
        values = np.ascontiguousarray(spread[chosen])
        base, at = self._elements(self.held.memory.bytes, places[chosen], host)
        base[at] = values if at.ndim == 1 else values.view(_BYTE).reshape(at.shape)
        self.touch(chosen, written=True, product=product)

    def touched(self) -> Array:
        """Return which elements are written in each of their bytes."""
        return self._flags(self.held.memory.touched)

    def products(self) -> Array:
        """Return which elements were last written by a matrix product."""
        return self._flags(self.held.memory.products)

    def _flags(self, flags: Array) -> Array:
        return np.asarray(flags[self._bytes(np.maximum(self.places, 0))].all(axis=-1))

    def touch(self, where: Array, *, written: bool, product: bool = False) -> None:
        """Record whether elements are written, and whether a product wrote them."""
        touched = self._bytes(self.places[where])
        self.held.memory.touched[touched] = written
        self.held.memory.products[touched] = product


class LiteralResult(NamedTuple):
    """The literal result of an instruction for one destination.

    Attributes
    ----------
    values : the values, to be rounded into the destination's dtype.
    kept : where the instruction writes; None for all that its mask keeps.
    slack : the accepted difference from the simulator, if a sum has no order or a curve no last
        place.
    is_cast : whether the values are rounded already: a DMA keeps bits that tfloat32 lacks.
    """

    values: Any
    kept: Array | None = None
    slack: Any = None
    is_cast: bool = False


class LiteralUse:
    """An issued instruction: ``use["data"]`` is an operand's elements or an option.

    Attributes
    ----------
    kept : a mask's bools over the iterations of the instruction; None without a mask.
    dst : the first destination, for meanings that read it.
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
        self.call = call
        self.kept = kept
        self.dst = dst
        self.registers = registers
        self.literals = operands
        self.shape: Shape = call.result.shape
        self.dtype: DType = call.result.dtype
        self.machine = call.machine
        self.asked: bool | None = False
        """True if a matrix product accumulates; None if the kernel leaves this open."""
        self.taken: Array = np.zeros(())
        """The simulator's result, for random choices."""

    def __getitem__(self, name: str) -> Any:
        """Return an operand's elements [partitions, ...], a number, None, or an option."""
        if name not in self.literals:
            return self.call.options[name]
        operand = self.literals[name]
        if not isinstance(operand, Literal):
            return operand
        described = self.call.operands[name]
        return operand.read().reshape(described.shape)

    def op(self, name: str) -> str | None:
        """Return the name of an operator."""
        operator = self[name]
        if operator is None or isinstance(operator, str):
            return operator
        return str(operator.name)

    def dtype_of(self, name: str) -> DType | None:
        """Return the dtype of an operand that is a tensor; None for other operands."""
        operand = self.call.operands[name]
        if isinstance(operand, Descriptor):
            return operand.dtype
        return None

    def rows(self, name: str) -> Array:
        """Return an operand as [partitions, elements], with unchanged bits."""
        operand = self[name]
        return np.reshape(operand, (len(operand), -1))

    def vector(self, name: str, ndim: int) -> Any:
        """Return a number, or one element a partition, broadcastable over ``ndim`` dimensions."""
        operand = self[name]
        if not isinstance(self.literals[name], Literal):
            if operand is None:
                return None
            return np.asarray(operand, np.float32)
        return operand.reshape(len(operand), *(1,) * (ndim - 1))

    def over(self, shape: Shape) -> Array:
        """Return the mask's bools, reshaped to ``shape``; all true without a mask."""
        if self.kept is None:
            return np.ones(shape, np.bool_)
        return self.kept.reshape(shape)


Meaning = Callable[[LiteralUse], Any]
MEANINGS: dict[str, Meaning] = {}
"""Meanings by record: functions that return a :class:`LiteralResult`, or one a destination."""
Function = TypeVar("Function", bound=Meaning)


def means(*records: str) -> Callable[[Function], Function]:
    """Make a function the literal meaning of records."""

    def register(meaning: Function) -> Function:
        MEANINGS.update(dict.fromkeys(records, meaning))
        return meaning

    return register


def accumulate_literal(
    use: LiteralUse,
    engine: str,
    lanes: Array,
    op: str | None,
    start: Any = None,
    command: str = "",
) -> Any:
    """Reduce ``lanes`` [P, ...] into an engine's registers and return their values.

    ``reduce_cmd`` selects the operation. The registers, one for each partition of the machine, live
    across instructions. A partition without unmasked elements keeps its register.
    """
    command = command or use["reduce_cmd"].name
    op = op or "add"
    if command == "IDLE":
        return None
    kept = use.over((len(lanes), lanes[0].size))
    rows = kept.any(axis=1)
    first = np.float32(START[op])
    fresh = np.full(use.machine.partitions, first)
    registers = use.registers.setdefault(engine, fresh.copy())
    held = registers[: len(lanes)]
    if command in ("RESET", "RESET_REDUCE"):
        (registers if use.kept is None else held)[... if use.kept is None else rows] = (
            first
        )
    if command == "LOAD_REDUCE":
        registers[...] = fresh
        held[rows] = np.broadcast_to(to_float32(start).reshape(-1), held.shape)[rows]
    if command not in ("RESET", "READ"):
        for column, counts in zip(
            to_float32(lanes).reshape(kept.shape).T, kept.T, strict=True
        ):
            held[...] = np.where(counts, ARITHMETIC[op](held, column), held)
    return LiteralResult(held[:, None].copy(), rows[:, None])
