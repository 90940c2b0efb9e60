"""The oracle's memory, and views of it: for each element the place at which it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL
from difftest.simulator.oracle.numbers import Array, DType, host_dtype, poison

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
        self.memory, self.base, self.row, self.pitch = memory, base, row, pitch
        self.shape, self.dtype = like.shape, like.dtype
        self.on_chip = on_chip
        self.size = int(np.prod(self.shape)) * self.dtype.itemsize
        memory.grow(base + -(-self.size // max(row, 1)) * pitch)
        places = np.arange(0, self.size, self.dtype.itemsize).reshape(self.shape)
        self.whole = Literal(self, places, self.dtype)
        fresh = ~self.whole.touched()
        if fresh.any():
            self.whole.store(np.full(self.shape, poison(self.dtype)), fresh)
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
        self.held, self._places, self.dtype = held, places, dtype

    @property
    def places(self) -> Array:
        """The elements' places, now."""
        return self._places() if callable(self._places) else self._places

    @property
    def on_chip(self) -> bool:
        return self.held.on_chip

    def viewed(self, rule: Callable[[Array], Array], dtype: DType | None = None) -> Literal:
        """Another view of the tensor, of places that a rule makes of these."""
        known = self._places
        made = (lambda: rule(known())) if callable(known) else rule(known)
        return Literal(self.held, made, self.dtype if dtype is None else dtype)

    def settled(self) -> Literal:
        """The view as it lies now."""
        return Literal(self.held, self.places, self.dtype)

    def _bytes(self, places: Array) -> Array:
        return self.held.at(places)[..., None] + np.arange(self.dtype.itemsize)

    def _elements(self, base: Array, places: Array, host: DType) -> tuple[Array, Array]:
        """The memory as elements of this size, if they lie so, or as bytes; and where they lie."""
        at, size = self.held.at(places), self.dtype.itemsize
        if base.size % size or (at % size).any():
            return base, self._bytes(places)
        return base.view(host), at // size

    def read(self) -> Array:
        """A copy of the elements, as the host has them; of one that lies outside, anything."""
        host = host_dtype(self.dtype)
        base, at = self._elements(self.held.memory.bytes, np.maximum(self.places, 0), host)
        found = base[at]
        if at.ndim > self.places.ndim:
            found = found.view(host)[..., 0]
        return found != 0 if self.dtype == BOOL else found

    def store(self, elements: Array, kept: Array | None = None, *, product: bool = False) -> None:
        """Put elements there, one after the other, where ``kept`` is true and they lie inside."""
        places, host = self.places, host_dtype(self.dtype)
        chosen = places >= 0 if kept is None else kept & (places >= 0)
        spread = np.broadcast_to(np.asarray(elements, host), places.shape)
        given = np.ascontiguousarray(spread[chosen])
        base, at = self._elements(self.held.memory.bytes, places[chosen], host)
        base[at] = given if at.ndim == 1 else given.view(_BYTE).reshape(at.shape)
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
