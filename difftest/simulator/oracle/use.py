"""The oracle's memory, an instruction as it sees it, and the table of what each means."""

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
"""The place of an element that lies outside its tensor."""
_BYTE = np.dtype(np.uint8)


class LiteralMemory:
    """Bytes, and which of them an instruction ever wrote."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, _BYTE)
        self.touched = np.zeros(size, np.bool_)
        self.products = np.zeros(size, np.bool_)
        """Where the last write was a matrix product's."""

    def grow(self, size: int) -> None:
        """Have at least so many bytes."""
        planes = ("bytes", "touched", "products")
        for name in planes if size > self.bytes.size else ():
            plane: Array = getattr(self, name)
            setattr(self, name, np.pad(plane, (0, size - plane.size)))


class LiteralTensor:
    """A tensor: its rows of bytes, ``pitch`` bytes apart in a memory from ``base`` on."""

    def __init__(
        self, memory: LiteralMemory, base: int, row: int, pitch: int, like: Any, *, on_chip: bool
    ) -> None:
        self.memory = memory
        self.base = base
        self.row = row
        self.pitch = pitch
        self.shape = like.shape
        self.dtype = like.dtype
        self.on_chip = on_chip
        self.size = int(np.prod(self.shape)) * self.dtype.itemsize
        memory.grow(base + -(-self.size // max(row, 1)) * pitch)
        places = np.arange(0, self.size, self.dtype.itemsize).reshape(self.shape)
        self.whole = Literal(self, places, self.dtype)
        fresh = ~self.whole.touched()
        if fresh.any():
            self.whole.store(np.full(self.shape, poison_element(self.dtype)), fresh)
            self.whole.touch(fresh, written=False)

    def at(self, places: Array) -> Array:
        """Where in the memory these bytes of the tensor lie."""
        if self.row == self.pitch:
            return places + self.base
        return np.asarray(self.base + places // self.row * self.pitch + places % self.row)


class Literal:
    """A view: for each element the number of its first byte in the tensor.

    ``places`` are numbers, or a function that finds them: those of a view that an index moves,
    known when an instruction is issued.
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
        """The elements' places, now."""
        return self._places() if callable(self._places) else self._places

    @property
    def on_chip(self) -> bool:
        return self.held.on_chip

    def viewed(self, rule: Callable[[Array], Array], dtype: DType | None = None) -> Literal:
        """Another view of the tensor, of places that a rule makes of these."""
        places = self._places
        result = (lambda: rule(places())) if callable(places) else rule(places)
        return Literal(self.held, result, self.dtype if dtype is None else dtype)

    def settled(self) -> Literal:
        """The view as it lies now."""
        return Literal(self.held, self.places, self.dtype)

    def _bytes(self, places: Array) -> Array:
        return self.held.at(places)[..., None] + np.arange(self.dtype.itemsize)

    def _elements(self, base: Array, places: Array, host: DType) -> tuple[Array, Array]:
        """The memory as elements of this size, if they lie so, or as bytes; and where they lie."""
        at = self.held.at(places)
        size = self.dtype.itemsize
        if base.size % size or (at % size).any():
            return base, self._bytes(places)
        return base.view(host), at // size

    def read(self) -> Array:
        """A copy of the elements, as the host has them; of one that lies outside, anything."""
        host = host_dtype(self.dtype)
        base, at = self._elements(self.held.memory.bytes, np.maximum(self.places, 0), host)
        elements = base[at]
        if at.ndim > self.places.ndim:
            elements = elements.view(host)[..., 0]
        return elements != 0 if self.dtype == BOOL else elements

    def store(self, elements: Array, kept: Array | None = None, *, product: bool = False) -> None:
        """Put elements there, one after the other, where ``kept`` is true and they lie inside."""
        places = self.places
        host = host_dtype(self.dtype)
        chosen = places >= 0 if kept is None else kept & (places >= 0)
        spread = np.broadcast_to(np.asarray(elements, host), places.shape)
        values = np.ascontiguousarray(spread[chosen])
        base, at = self._elements(self.held.memory.bytes, places[chosen], host)
        base[at] = values if at.ndim == 1 else values.view(_BYTE).reshape(at.shape)
        self.touch(chosen, written=True, product=product)

    def touched(self) -> Array:
        """Which elements something wrote, each byte of them."""
        return self._flags(self.held.memory.touched)

    def products(self) -> Array:
        """Which elements a matrix product was the last to write."""
        return self._flags(self.held.memory.products)

    def _flags(self, flags: Array) -> Array:
        return np.asarray(flags[self._bytes(np.maximum(self.places, 0))].all(axis=-1))

    def touch(self, where: Array, *, written: bool, product: bool = False) -> None:
        """Note of elements whether something wrote them, and whether that was a product."""
        touched = self._bytes(self.places[where])
        self.held.memory.touched[touched] = written
        self.held.memory.products[touched] = product


class LiteralResult(NamedTuple):
    """What an instruction means for one destination.

    Attributes
    ----------
    values : to be rounded into the destination's dtype.
    kept : where it writes; None for where its mask says.
    slack : how far the simulator may lie apart, where a sum has no order or a curve no last place.
    is_cast : whether they are rounded already: a DMA leaves bits that tfloat32 has not.
    """

    values: Any
    kept: Array | None = None
    slack: Any = None
    is_cast: bool = False


class LiteralUse:
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
        self.call = call
        self.kept = kept
        self.dst = dst
        self.registers = registers
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
        return operand.read().reshape(described.shape)

    def op(self, name: str) -> str | None:
        """An operator, by its name."""
        operator = self[name]
        return operator if operator is None or isinstance(operator, str) else str(operator.name)

    def dtype_of(self, name: str) -> DType | None:
        """The dtype of an operand that is a tensor."""
        operand = self.call.operands[name]
        return operand.dtype if isinstance(operand, Descriptor) else None

    def rows(self, name: str) -> Array:
        """An operand as [partitions, elements], bits as they are."""
        operand = self[name]
        return np.reshape(operand, (len(operand), -1))

    def vector(self, name: str, ndim: int) -> Any:
        """A number, or one element in each partition, to be repeated over ``ndim`` dimensions."""
        operand = self[name]
        if not isinstance(self.literals[name], Literal):
            return None if operand is None else np.asarray(operand, np.float32)
        return operand.reshape(len(operand), *(1,) * (ndim - 1))

    def over(self, shape: Shape) -> Array:
        """The mask's bools in a shape of as many elements, all true without a mask."""
        return np.ones(shape, np.bool_) if self.kept is None else self.kept.reshape(shape)


Meaning = Callable[[LiteralUse], Any]
MEANINGS: dict[str, Meaning] = {}
"""By record: a function that gives a :class:`LiteralResult`, or one for each destination."""
Function = TypeVar("Function", bound=Meaning)


def means(*records: str) -> Callable[[Function], Function]:
    """Make a function the literal meaning of records."""

    def register(meaning: Function) -> Function:
        MEANINGS.update(dict.fromkeys(records, meaning))
        return meaning

    return register


def accumulate_literal(
    use: LiteralUse, engine: str, lanes: Array, op: str | None, start: Any = None, command: str = ""
) -> Any:
    """Reduce ``lanes`` [P, ...] into an engine's registers as ``reduce_cmd`` says; what they hold.

    The registers, one for each partition of the machine, live across instructions. Those of a
    partition of which a mask keeps nothing are left alone.
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
        (registers if use.kept is None else held)[... if use.kept is None else rows] = first
    if command == "LOAD_REDUCE":
        registers[...] = fresh
        held[rows] = np.broadcast_to(to_float32(start).reshape(-1), held.shape)[rows]
    if command not in ("RESET", "READ"):
        for column, counts in zip(to_float32(lanes).reshape(kept.shape).T, kept.T, strict=True):
            held[...] = np.where(counts, ARITHMETIC[op](held, column), held)
    return LiteralResult(held[:, None].copy(), rows[:, None])
