"""What an instruction accesses of a tensor, in whatever plane: data, what is defined, errors.

A tile names elements by a pattern. Where indices choose some of those, :meth:`Elements._take` and
:meth:`Elements._give` go by them; everything else follows from these two.
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

    What AWS's tensors do not have begins with an underscore: a kernel's typo finds nothing here.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        dtype: DType
        shape: Shape
        _storage: Storage
        _literal: Any
        """What it names, as an oracle that follows the launch knows it; else not there."""

    _strided: ClassVar[bool] = True
    """Whether it is all that its pattern names, so that NumPy has a view of it; else an index
    chooses some of that."""

    def _named(self) -> tuple[Pattern, DType]:
        """The pattern of which it takes elements, and its dtype."""
        raise NotImplementedError

    @property
    def _space(self) -> Space:
        return self._storage.allocation.space

    @property
    def _in_hbm(self) -> bool:
        return self._storage.in_hbm

    @property
    def _holds_bits(self) -> bool:
        """Whether memory has the dtype's own bits: in HBM, and on chip where a view needs them."""
        return self._storage.holds_bits

    # -- in any plane ------------------------------------------------------------------------

    def _take(self, region: Array) -> Array:
        """Of what the pattern names what is accessed: of data, or of anything kept of them."""
        return region

    def _give(self, region: Array, values: Any, where: Array | None = None) -> None:
        """Put values where :meth:`_take` takes them, or where ``where`` chooses of that."""
        if where is None:
            region[...] = values
        else:
            np.copyto(region, values, where=where, casting="unsafe")

    def _gather(self, plane: Array) -> Array:
        """Its part of a plane that has something for each element of the tensor: a view."""
        return self._take(pattern_view(plane, self._named()[0], plane.dtype))

    def _scatter(self, plane: Array, values: Any, where: Array | None = None) -> None:
        """:meth:`_give` to its part of a plane."""
        self._give(pattern_view(plane, self._named()[0], plane.dtype), values, where)

    def _products(self) -> tuple[Array, bool]:
        """Its part of the plane of products, and whether that has parts of elements as last axis.

        The plane has one for each element of the tensor, until a narrower dtype names its parts.
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
        pattern = pattern.finer(size // unit) if is_split else pattern
        return pattern_view(storage.products, pattern, BOOL), is_split

    def _in_product(self) -> Array:
        """Where a matmul was the last to write (bool, of its shape), if one has written at all."""
        region, is_split = self._products()
        written = self._take(region)
        return written.all(axis=-1) if is_split else written

    def _mark_product(self, by_matmul: bool, where: Array | None = None) -> None:
        """Note that a matmul has written, or something else."""
        region, is_split = self._products()
        self._give(region, by_matmul, where[..., None] if is_split and where is not None else where)

    def _elements(self) -> Array:
        """The elements in memory, as they are held there."""
        return self._take(self._storage.elements(*self._named()))

    # -- what is defined ---------------------------------------------------------------------

    def _codes(self) -> Array | None:
        """What is known of its elements (see :class:`memory.Gaps`); None if all are defined."""
        codes = self._storage.codes(*self._named())
        return None if codes is None else self._take(codes)

    def _unwritten(self, code: int = MASKED_OUT, most: int = FROM_UNWRITTEN) -> Array | None:
        """Which of its elements (bool, of its shape) were never written; None if all were.

        ``code`` is the least that is known of them.
        """
        if self._storage.validity is None or (codes := self._codes()) is None:
            return None
        chosen: Array = codes >= code
        if most < FROM_UNWRITTEN:
            chosen &= codes <= most
        return chosen if chosen.any() else None

    def _fresh(self) -> Array | None:
        """Which of its elements no instruction wrote, nor made of such; None if none."""
        return None if self._storage.validity is None else self._unwritten(MASKED_OUT, UNWRITTEN)

    def _chosen(self, where: Array | None) -> Array | None:
        """Of what its pattern names the elements that ``where`` chooses; None for all."""
        if self._strided:
            return where
        chosen = np.zeros(self._named()[0].shape, BOOL)
        self._give(chosen, True, where)
        return chosen

    def _mark(self, code: int = DEFINED, where: Array | None = None) -> None:
        """Note what is known of its elements, or of those that ``where`` chooses."""
        if code == DEFINED and self._storage.validity is None:
            return
        pattern, dtype = self._named()
        chosen = where if self._strided else self._chosen(where)
        self._storage.mark(pattern, code, chosen, dtype=dtype)

    def _origin(self, event: str) -> Origin:
        """Whence its elements came that nothing wrote; ``event`` is what happens to them now."""
        storage = self._storage
        if storage.validity is not None and storage.validity.origin is not None:
            return storage.validity.origin
        low, high = storage.unwritten_box()
        return Origin(storage.allocation, low, high, event, kernel_location())

    def _forget_written(self, where: Array, origin: Origin) -> None:
        """Note that the elements that ``where`` chooses hold what nothing wrote after all.

        They look so from now on: what was computed there is of no use, and differs by the mode.
        ``origin`` says whence that came, for the error of whoever reads them.
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
        """Note that the elements that ``where`` chooses depend on what a mask left out."""
        self._mark(FROM_MASKED, where)
        if self._storage.validity is not None:
            self._storage.validity.origin = origin


def unwritten_error(tile: Elements, missing: Array, *, returned: bool = False) -> UnwrittenError:
    """The error for reading, or returning, a tile of which these elements were never written."""
    first = tuple(int(i) for i in np.argwhere(missing)[0]) if missing.ndim else ()
    storage = tile._storage
    gaps = tile._storage.validity
    origin = gaps and gaps.origin
    place = storage.allocation.location
    rule = "an instruction reads only what was written before"
    happened = "an instruction read what nothing had written"
    so_far = "never"
    remedy = (
        "write the tensor first (nl.zeros, nl.load, an instruction's result), or read only the "
        "part that is written"
    )
    if returned:
        rule = "a kernel writes what it returns"
        happened = "the kernel returned what nothing had"
        happened += " written"
    elif storage.programs > 1:
        rule = "what another program writes may be read after the two have met, no sooner"
        happened = "a program read what no program had written yet"
        so_far = "not yet"
        remedy = (
            "if another program writes it, a barrier is missing: let them meet between the two "
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
