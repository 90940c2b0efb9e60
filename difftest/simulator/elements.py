"""The elements of a tensor that an instruction accesses: data, validity codes, errors.

A tile selects elements by a pattern. Where indices choose some of these elements,
:meth:`Elements._take` and :meth:`Elements._give` apply the indices. Everything else builds on
these two methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from difftest.simulator.dtypes import BOOL, Array, DType
from difftest.simulator.errors import UnwrittenError, kernel_location
from difftest.simulator.memory import (
    DEFINED,
    FROM_MASKED,
    FROM_UNWRITTEN,
    MASKED_OUT,
    UNWRITTEN,
    Storage,
    pattern_view,
    poison_array,
)
from difftest.simulator.pattern import Pattern, Shape
from difftest.simulator.trace import Origin, Space


class Elements:
    """Elements of ``dtype`` of one tensor, in ``shape``.

    Attributes that AWS's tensors lack begin with an underscore, so that a kernel's typo finds none.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        dtype: DType
        shape: Shape
        _storage: Storage
        _literal: Any
        """The oracle's view of these elements; set only while an oracle follows the launch."""

    _strided: ClassVar[bool] = True
    """True if all elements of the pattern are accessed, so that NumPy has a view of them.

    If false, an index chooses some of them.
    """

    def _named(self) -> tuple[Pattern, DType]:
        """Return the pattern that contains the elements, and its dtype."""
        raise NotImplementedError

    @property
    def _space(self) -> Space:
        return self._storage.allocation.space

    @property
    def _in_hbm(self) -> bool:
        return self._storage.in_hbm

    @property
    def _holds_bits(self) -> bool:
        """True if memory holds the dtype's own bits: in HBM, and on chip if a view needs them."""
        return self._storage.holds_bits

    # -- in any plane ------------------------------------------------------------------------

    def _take(self, region: Array) -> Array:
        """Return the accessed elements of a pattern's ``region``, of data or another plane."""
        return region

    def _give(self, region: Array, values: Any, where: Array | None = None) -> None:
        """Write values to the elements of :meth:`_take`, or to those where ``where`` is true."""
        if where is None:
            region[...] = values
        else:
            np.copyto(region, values, where=where, casting="unsafe")

    def _gather(self, plane: Array) -> Array:
        """Return a view of these elements in a plane with an entry for each of the tensor's."""
        return self._take(pattern_view(plane, self._named()[0], plane.dtype))

    def _scatter(self, plane: Array, values: Any, where: Array | None = None) -> None:
        """Write to these elements' part of a plane, as :meth:`_give` does."""
        self._give(pattern_view(plane, self._named()[0], plane.dtype), values, where)

    def _products(self) -> tuple[Array, bool]:
        """Return this view's part of the plane of products, and whether elements are split.

        Parts of elements are along the last axis. The plane has one entry for each element of the
        tensor, until a narrower dtype selects parts of elements.
        """
        storage = self._storage
        (pattern, dtype) = self._named()
        assert storage.products is not None
        size = dtype.itemsize
        unit = storage.dtype.itemsize * storage.size // storage.products.size
        if size < unit:
            storage.products = storage.products.repeat(unit // size)
            unit = size
        is_split = size != unit
        if is_split:
            pattern = pattern.finer(size // unit)
        return pattern_view(storage.products, pattern, BOOL), is_split

    def _in_product(self) -> Array:
        """Return where a matmul wrote last: bool, in this shape."""
        region, is_split = self._products()
        written = self._take(region)
        if is_split:
            return written.all(axis=-1)
        return written

    def _mark_product(self, by_matmul: bool, where: Array | None = None) -> None:
        """Record whether a matmul or another instruction has written."""
        region, is_split = self._products()
        self._give(
            region,
            by_matmul,
            where[..., None] if is_split and where is not None else where,
        )

    def _elements(self) -> Array:
        """Return the elements as memory holds them."""
        if self._storage.blank:
            self._storage.poison()
        return self._take(self._storage.elements(*self._named()))

    # -- validity codes ----------------------------------------------------------------------

    def _codes(self) -> Array | None:
        """Return the validity codes (see :class:`~memory.ValidityMap`); None if all are defined."""
        codes = self._storage.codes(*self._named())
        if codes is None:
            return None
        return self._take(codes)

    def _unwritten(
        self, code: int = MASKED_OUT, most: int = FROM_UNWRITTEN
    ) -> Array | None:
        """Return which elements (bool, in this shape) are unwritten; None if all are written.

        Elements with a validity code from ``code`` to ``most`` count as unwritten.
        """
        if self._storage.validity is None or (codes := self._codes()) is None:
            return None
        chosen: Array = codes >= code
        if most < FROM_UNWRITTEN:
            chosen &= codes <= most
        if chosen.any():
            return chosen
        return None

    def _fresh(self) -> Array | None:
        """Return which elements were never written, not even with invalid data; None if none."""
        if self._storage.validity is None:
            return None
        return self._unwritten(MASKED_OUT, UNWRITTEN)

    def _chosen(self, where: Array | None) -> Array | None:
        """Return which elements of the pattern ``where`` chooses; None for all."""
        if self._strided:
            return where
        chosen = np.zeros(self._named()[0].shape, BOOL)
        self._give(chosen, True, where)
        return chosen

    def _mark(self, code: int = DEFINED, where: Array | None = None) -> None:
        """Set the validity code of the elements, or of those where ``where`` is true."""
        if code == DEFINED and self._storage.validity is None:
            return
        pattern, dtype = self._named()
        chosen = where if self._strided else self._chosen(where)
        self._storage.mark(pattern, code, chosen, dtype=dtype)

    def _origin(self, event: str) -> Origin:
        """Return the origin of the unwritten elements; ``event`` is their present use."""
        storage = self._storage
        if storage.validity is not None and storage.validity.origin is not None:
            return storage.validity.origin
        low, high = storage.unwritten_box()
        return Origin(storage.allocation, low, high, event, kernel_location())

    def _forget_written(self, where: Array, origin: Origin) -> None:
        """Mark the elements where ``where`` is true as computed from unwritten data.

        They hold poison from now on: the values computed there are useless, and differ by the mode.
        ``origin`` is the origin of the data, for the error of a later read.
        """
        chosen = self._chosen(where)
        assert chosen is not None
        if not chosen.any():
            return
        held = self._storage.elements(*self._named())
        np.copyto(held, poison_array((), held.dtype), where=chosen)
        self._mark(MASKED_OUT if self._storage.masked else FROM_UNWRITTEN, where)
        gaps = self._storage.validity
        assert gaps is not None
        gaps.origin = origin
        gaps.lost_at = kernel_location()

    def _doubt(self, where: Array, origin: Origin) -> None:
        """Mark the elements where ``where`` is true as dependent on masked-out elements."""
        self._mark(FROM_MASKED, where)
        if self._storage.validity is not None:
            self._storage.validity.origin = origin


def unwritten_error(
    tile: Elements, missing: Array, *, returned: bool = False
) -> UnwrittenError:
    """Return the error for reading or returning a tile with these ``missing`` elements."""
    first = tuple(int(i) for i in np.argwhere(missing)[0]) if missing.ndim else ()
    storage = tile._storage
    gaps = tile._storage.validity
    origin = gaps and gaps.origin
    place = storage.allocation.location
    rule = "an instruction reads only elements that were written before"
    happened = "an instruction read elements that were never written"
    so_far = "never"
    remedy = (
        "write the tensor first (nl.zeros, nl.load, an instruction's result), or read only the "
        "part that is written"
    )
    if returned:
        rule = "a kernel writes all elements that it returns"
        happened = "the kernel returned elements that were never written"
    elif storage.programs > 1:
        rule = "a program reads another program's data only after a barrier between the two"
        happened = "a program read elements that no program had written yet"
        so_far = "not yet"
        remedy = (
            "if another program writes the elements, put a barrier between the two accesses "
            "(nisa.core_barrier on this tensor; a classic grid has none)"
        )
    return UnwrittenError(
        rule,
        happened=happened,
        received=f"{int(missing.sum())} of {missing.size} elements of {tile!r} were {so_far} "
        f"written, the first at {list(first)}"
        + ("" if place is None else f"; it was made at {place}")
        + ("" if origin is None else f"; they came from {origin}"),
        location=gaps.lost_at if returned and gaps else None,
        remedy=remedy,
    )
