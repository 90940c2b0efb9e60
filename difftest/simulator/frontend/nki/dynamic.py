"""Access patterns by ``NkiTensor.ap``, and views whose place is unknown until the kernel runs.

``ap`` is an access pattern on a tensor's storage, for any view that it is called on. With
``scalar_offset``, and in ``select(dim, tensor)``, a value in SBUF moves the whole pattern. With
``vector_offset``, and in ``vector_select``, each row of the result has its own place. Source:
"NKI Access Patterns" and the stub ``nki.language.NkiTensor`` at v2.32.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import Array, DType, dtype_name
from difftest.simulator.errors import (
    BufferError,
    KernelError,
    NkiError,
    OutOfBoundsError,
    ShapeError,
)
from difftest.simulator.frontend.arguments import as_pairs, not_taken
from difftest.simulator.frontend.levels import public
from difftest.simulator.frontend.nki.views import Views
from difftest.simulator.frontend.nki.virtual_registers import DeviceValue
from difftest.simulator.index import as_integer, left_tensor
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.anomalies import record_anomaly
from difftest.simulator.instructions.checks import check_indices, need_tile, wrong_kind
from difftest.simulator.instructions.record import SBUF_ONLY
from difftest.simulator.pattern import Pattern
from difftest.simulator.tile import Tile
from difftest.simulator.trace import AnomalyKind


class Rows(NamedTuple):
    """The indexed dimension: elements from one row to the next, and the number of rows.

    ``dtype`` is the unit in which the view counts; None for the tensor's own.
    """

    unit: int
    size: int
    dtype: DType | None = None


MOVING: set[type] = set()
"""The classes of views that depend on data in SBUF, for a fast check."""


class Moving:
    """A view that an index on the device moves.

    Instructions accept it; it cannot be indexed again.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        MOVING.add(cls)

    def is_indirect(self) -> bool:
        """Return True: the view depends on an index that is unknown until the kernel runs."""
        return True

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self._refuse("an assignment")

    def _refuse(self, what: str) -> NoReturn:
        raise KernelError(
            "an indirect view is for instructions, has one index, and its dimension stays whole",
            happened=f"{what} was applied to a view that is already indirect",
            received=f"{what} of {self!r}",
            remedy="slice the tensor before indirect, select, vector_select or ap with an offset, "
            "write by nisa.tensor_copy or nisa.memset; is_indirect() tells such views",
        )


class DynamicView(Moving, Views, IndirectTile):
    """A view that is ``index * unit`` elements behind its pattern.

    Attributes
    ----------
    index : the holder of the offset: one element, or one for each row of the view's first
        dimension.
    """

    __slots__ = ("_index", "_owner", "_pattern", "_rows", "_whole")

    def __init__(
        self,
        owner: Any,
        pattern: Pattern,
        index: Tile | DeviceValue,
        rows: Rows,
        *,
        whole: bool,
    ) -> None:
        dtype = owner.dtype if rows.dtype is None else rows.dtype
        size = owner._storage.size * owner._storage.dtype.itemsize // dtype.itemsize
        super().__init__(_part(owner, Pattern(0, (size,), (1,)), dtype), pattern.shape)
        self._owner = owner
        self._pattern = pattern
        self._index = index
        self._rows = rows
        self._whole = whole
        """True if one offset moves the whole pattern; otherwise each row has one."""

    def __repr__(self) -> str:
        return f"{self._owner!r} indexed by {self._index!r}, shape {list(self.shape)}"

    @property
    def _kept(self) -> int:
        """The number of leading dimensions that views keep: the offsets' or the partitions'."""
        if self._in_hbm and self._whole:
            return 0
        return 1

    @property
    def _index_tiles(self) -> tuple[Tile, ...]:
        """The tile that holds the offsets; empty for a register."""
        if isinstance(self._index, Tile):
            return (self._index,)
        return ()

    @property
    def _reach(self) -> Tile:
        """The places of the pattern for all valid offsets; on chip the whole tensor."""
        unit = self._rows.unit
        moved = self._pattern if self._whole else self._pattern.select(0, 0)
        low, high = moved.extent()
        if not self._in_hbm or unit <= 0 or low < 0 or high >= self._base.size:
            return self._base
        count = min(self._rows.size, (self._base.size - 1 - high) // unit + 1)
        return _part(self._owner, moved.splice(0, 0, (count,), (unit,)), self.dtype)

    def _signature(self) -> tuple[object, ...]:
        """Return the signature, as :meth:`Tile._signature` does, with the offsets' tile."""
        return (
            *super()._signature(),
            *[tile._signature() for tile in self._index_tiles],
        )

    def _descriptor(self, role: str = "", *, blocks: bool = False) -> Descriptor:
        """Return the descriptor, as :meth:`Tile._descriptor` does, with the offsets' tile."""
        index = self._index._descriptor() if isinstance(self._index, Tile) else None
        return super()._descriptor(role)._replace(index=index)

    # -- places ----------------------------------------------------------------------------------

    def _offsets(self) -> Array:
        """Return the rows of the index, int64: one for each row of the view, or one in all."""
        values = np.asarray(self._index._values(), dtype=np.int64)
        if self._whole:
            return values.reshape(-1)[:1]
        return values.T.reshape(-1)[: self.shape[0]]

    def _settled(self) -> Tile | None:
        """Return the view at its one offset.

        None if each row has one, or if it leaves the tensor.
        """
        if not self._whole:
            return None
        row = int(self._offsets()[0])
        moved = self._pattern._replace(offset=self.offset + row * self._rows.unit)
        if not (0 <= row < self._rows.size and moved.fits(self._base.size)):
            return None
        settled: Tile = self._owner._with_pattern(moved, self.dtype)
        return settled

    def _resolve(
        self, *, skip: bool, where: Array | None = None
    ) -> tuple[tuple[Array, ...], Array]:
        """Return the result of :meth:`_locate`; report skipped rows whose index is in bounds."""
        resolved = super()._resolve(skip=skip, where=where)
        if skip:
            rows = self._offsets()
            in_bounds = (rows >= 0) & (rows < self._rows.size)
            inside = resolved[1].reshape(len(rows), -1)[:, 0]
            record_anomaly(
                current(), AnomalyKind.PATTERN_SKIPPED, "", in_bounds & ~inside, rows
            )
        return resolved

    def _locate(self, where: Array | None = None) -> tuple[tuple[Array, ...], Array]:
        """Return the addresses of all elements, and which rows fit (a whole pattern, or none)."""
        assert where is None, "this dialect has no masks"
        rows = self._offsets()
        moved = self._pattern if self._whole else self._pattern.slice(0, 0, 1)
        further = (rows * self._rows.unit).reshape(-1, *(1,) * (self.ndim - 1))
        places = np.broadcast_to(moved.elements() + further, self.shape)
        lines = places.reshape(len(rows), -1)
        kept = (rows >= 0) & (rows < self._rows.size)
        kept &= (lines.min(axis=1) >= 0) & (lines.max(axis=1) < self._base.size)
        return (places,), np.broadcast_to(kept.reshape(further.shape), self.shape)

    def _left(self, arrays: tuple[Array, ...], at: tuple[int, ...]) -> OutOfBoundsError:
        """Return the error of an offset that leaves the tensor."""
        row = 0 if self._whole else at[0]
        offset = int(self._offsets()[row])
        fitting = self._fitting()
        return left_tensor(
            "an offset",
            f"{offset}",
            f"offset {offset} (element {row} of {self._index!r}) into "
            f"{self._owner!r}, in steps of {self._rows.unit} elements",
            f"{fitting[0]} to {fitting[-1]}" if fitting else "no offset fits",
            "correct the offsets, or pass oob_mode=nisa.oob_mode.skip",
        )

    def _fitting(self) -> range:
        """Return the offsets for which the pattern, or each row's, is inside the tensor."""
        unit = self._rows.unit
        moved = self._pattern if self._whole else self._pattern.slice(0, 0, 1)
        low, high = moved.extent()
        if unit <= 0:
            return range(self._rows.size)
        first = max(0, -(low // unit))
        last = min(self._rows.size - 1, (self._base.size - 1 - high) // unit)
        return range(first, last + 1)

    # -- views of it -----------------------------------------------------------------------------

    def _view(self, pattern: Pattern) -> DynamicView:
        return DynamicView(
            self._owner, pattern, self._index, self._rows, whole=self._whole
        )

    def __getitem__(self, key: Any) -> DynamicView:
        first = key[0] if isinstance(key, tuple) and key else key
        if not self._whole and first is not Ellipsis and first != slice(None):
            self._refuse("indexing of the dimension of the offsets")
        return super().__getitem__(key)

    def _axis(self, dim: object, what: str, *, first: int = 0, extra: int = 0) -> int:
        axis = super()._axis(dim, what, first=first, extra=extra)
        if not axis and not self._whole and what in ("slice", "select"):
            self._refuse(f"{what} of the dimension of the offsets")
        return axis

    def _select_by(self, dim: int, index: Any) -> NoReturn:
        self._axis(dim, "select")
        self._refuse("select with an index held in SBUF")

    @public
    def vector_select(self, dim: int, vector_offset: Any) -> NoReturn:
        """Raise: a view can be indirect only once."""
        self._refuse("vector_select")

    @public
    def view(self, dtype: object) -> NoReturn:
        """Raise: an indirect view cannot change its dtype."""
        self._refuse("view(dtype)")

    reinterpret_cast = view

    def ap(self, *args: Any, **kwargs: Any) -> Any:
        """Return ``ap`` of the tensor itself: patterns do not compose."""
        return self._owner.ap(*args, **kwargs)


def _part(owner: Tile, pattern: Pattern, dtype: DType) -> Tile:
    """Return elements of the storage as ``dtype``, in a row; on chip partition after partition."""
    if dtype == owner._storage.dtype:
        return type(owner)(owner._storage, pattern, 0)
    return type(owner)(owner._storage, pattern, 0, owner._held_as(dtype))


# -- making them ----------------------------------------------------------------------------------


def select_one(tensor: Any, dim: int, index: Any) -> DynamicView:
    """Return ``tensor.select(dim, index)`` for an index in SBUF."""
    axis = tensor._axis(dim, "select with an index held in SBUF", first=tensor._kept)
    rows = Rows(unit=tensor.strides[axis], size=tensor.shape[axis])
    row = tensor._pattern.select(axis, 0)
    least = 1 if tensor._in_hbm else 2
    if len(row.shape) < least:
        row = row.splice(least - 1, least, (1,), (1,))
    return one_offset(tensor, row, index, rows)


def select_rows(tensor: Any, dim: int, offsets: Any) -> DynamicView:
    """Return ``tensor.vector_select(0, offsets)``."""
    if as_integer(dim, "vector_select with dim") != 0:
        raise not_taken(
            "vector_select",
            "dimension 0",
            f"dimension {dim} to select along",
            f"dim {dim} of {tensor!r}",
            error=ShapeError,
        )
    count = offsets.shape[0] if isinstance(offsets, Tile) else 1
    if isinstance(offsets, Tile) and offsets.size != count:
        raise not_taken(
            "vector_select",
            "one offset in each partition, shape (P, 1)",
            f"{offsets.size // count} offsets in each partition",
            repr(offsets),
            error=ShapeError,
        )
    rows = Rows(unit=tensor.strides[0], size=tensor.shape[0])
    return row_offsets(tensor, tensor._pattern.slice(0, 0, count), offsets, rows)


def one_offset(tensor: Any, pattern: Pattern, index: Any, rows: Rows) -> DynamicView:
    """Return a pattern that one element, held in SBUF, moves as a whole."""
    if isinstance(index, DeviceValue):
        return DynamicView(tensor, pattern, index.snapshot(), rows, whole=True)
    held = _held(index, "scalar_offset")
    if held.size != 1:
        raise not_taken(
            "a scalar offset",
            "one element in SBUF, shape (1, 1)",
            f"{held.size} elements",
            f"{held!r}",
            error=ShapeError,
        )
    return DynamicView(tensor, pattern, held, rows, whole=True)


def row_offsets(tensor: Any, pattern: Pattern, index: Any, rows: Rows) -> DynamicView:
    """Return a pattern whose first dimension is walked by the rows in SBUF."""
    held = _held(index, "vector_offset")
    if not tensor._in_hbm:
        got = f"{tensor!r}"
        raise not_taken(
            "vector_offset",
            "a tensor in HBM",
            got,
            got,
            error=BufferError,
            remedy="gather on chip with nisa.nc_n_gather or nisa.local_gather",
        )
    if held.size < pattern.shape[0]:
        got = f"{held.size} offsets for {pattern.shape[0]} rows"
        raise not_taken("vector_offset", "one for each row", got, got, error=ShapeError)
    return DynamicView(tensor, pattern, held, rows, whole=False)


def _held(index: Any, what: str) -> Tile:
    """Return the tile that holds the offsets: integers in SBUF."""
    if not isinstance(index, Tile):
        raise wrong_kind(index, "a tensor of integers in SBUF", "a view", what)
    held = need_tile(index, what, "a view", SBUF_ONLY)
    check_indices(held, what)
    return held


# -- access patterns -------------------------------------------------------------------------------


class NkiValidationError(NkiError, ValueError):
    """A constraint of the hardware is violated: ``nisa.NkiValidationError``."""


class DynamicOffset(NamedTuple):
    """The offset of an access pattern that the machine reads: of all rows, or of each."""

    scalar: Any
    """A tile of one element or a register; None for none."""
    vector: Any
    """A tile with an offset for each row; None for none."""
    dim: int
    """The dimension along which it moves."""


def access(
    tensor: Any,
    pattern: Sequence[Sequence[int]],
    offset: int | None,
    dynamic: DynamicOffset,
    dtype: DType,
) -> Any:
    """Return ``tensor.ap(...)``; strides and offset are in elements of ``dtype``.

    Kernels make patterns for tiles that they later find to be beyond the end. A pattern that leaves
    its tensor therefore raises when it is used.
    """
    wanted = _wanted(tensor, pattern, offset, dtype)
    if dynamic.scalar is None and dynamic.vector is None:
        try:
            return tensor._with_pattern(wanted, dtype)
        except OutOfBoundsError as error:
            return type(tensor)(tensor._storage, wanted, 0, dtype, error)
    if dynamic.scalar is not None and dynamic.vector is not None:
        raise not_taken(
            "ap",
            "scalar_offset or vector_offset, not both",
            "both scalar_offset and vector_offset",
            f"both, on {tensor!r}",
        )
    dim = as_integer(dynamic.dim, "ap with indirect_dim")
    rows = _rows_along(tensor, dim, dtype)
    if dynamic.vector is not None:
        if dim:
            got = f"indirect_dim={dim}"
            raise not_taken("ap with vector_offset", "indirect_dim 0", got, got)
        return row_offsets(tensor, wanted, dynamic.vector, rows)
    if not (tensor._in_hbm or dim):
        raise NkiValidationError(
            "a dynamic offset on chip moves along a free dimension: the partitions of an access "
            "are known when the kernel is built",
            happened="ap was to move along the partitions of a tensor on chip by scalar_offset",
            received=f"ap(scalar_offset=..., indirect_dim=0) of {tensor!r}",
            remedy="set indirect_dim (0 by default) to a free dimension, or keep the tensor in HBM",
        )
    return one_offset(tensor, wanted, dynamic.scalar, rows)


def _rows_along(tensor: Any, dim: int, dtype: DType) -> Rows:
    """Return the rows of a dimension: the steps of a dynamic offset, in elements of ``dtype``."""
    if not 0 <= dim < tensor.ndim:
        raise not_taken(
            "ap",
            "a dimension as indirect_dim",
            f"indirect_dim={dim} for a tensor of {tensor.ndim} dimensions",
            f"indirect_dim={dim} of {tensor!r}",
            error=ShapeError,
            limit=f"0 to {tensor.ndim - 1}",
        )
    unit, rest = divmod(tensor.strides[dim] * tensor._itemsize, dtype.itemsize)
    if rest:
        raise ShapeError(
            "ap's dynamic offset counts whole elements of dtype",
            happened=f"ap was to step by parts of {dtype_name(dtype)} elements",
            received=f"steps of {tensor.strides[dim]} elements of {tensor!r} as "
            f"{dtype_name(dtype)}",
        )
    return Rows(unit, tensor.shape[dim], dtype)


def _wanted(
    tensor: Any, pattern: Sequence[Sequence[int]], offset: int | None, dtype: DType
) -> Pattern:
    """Return the pattern with its numbers checked, but not its extent."""
    pairs = as_pairs(pattern, "ap", "stride", "count")
    if not pairs or any(count < 1 for _, count in pairs):
        raise not_taken(
            "ap",
            "counts of at least 1",
            "an empty pattern, or a count below 1",
            f"pattern={pattern!r:.80}",
            error=ShapeError,
        )
    if not tensor._in_hbm:
        step = _partition_step(tensor, pairs, dtype)
        pairs[0] = (step, pairs[0][1])
    start = _start_of(tensor, offset, dtype)
    return Pattern(
        start, tuple([n for _, n in pairs]), tuple([step for step, _ in pairs])
    )


def _partition_step(tensor: Any, pairs: list[tuple[int, int]], dtype: DType) -> int:
    """Return the first stride of a pattern on chip, from one partition to the next."""
    storage = tensor._storage
    stride, count = pairs[0]
    step: int = storage.allocation.partition_step * storage.dtype.itemsize
    step //= dtype.itemsize
    if stride != step and count > 1:
        raise NkiValidationError(
            "the first stride of an access pattern on chip is the tensor's elements in each "
            "partition: partitions are walked one by one",
            happened=f"an access pattern on chip has the first stride {stride}, not {step}",
            received=f"ap(pattern={[list(pair) for pair in pairs]}) of {storage.allocation}: "
            f"partition stride {stride}",
            limit=f"{step}",
        )
    return step


def _start_of(tensor: Any, offset: int | None, dtype: DType) -> int:
    """Return the first element of a pattern, which begins at the tensor's by default."""
    if offset is not None and tensor.offset:
        raise KernelError(
            "ap with an offset is called on a whole tensor: AWS's pages say of a sliced view both "
            "that the offset is added to the view's own and that it replaces it",
            happened=f"ap(offset={offset}) was called on a sliced view",
            received=f"ap(offset={offset}) of {tensor!r}, which begins at element {tensor.offset}",
            remedy="call ap on the tensor that was sliced, or leave offset out",
        )
    if offset is not None:
        return as_integer(offset, "ap with offset")
    start, rest = divmod(tensor.offset * tensor._itemsize, dtype.itemsize)
    if rest:
        raise ShapeError(
            "an access pattern of another dtype begins at one of its elements",
            happened=f"a pattern of {dtype_name(dtype)} begins inside an element",
            received=f"{tensor!r} with offset {tensor.offset} as {dtype_name(dtype)}",
        )
    return int(start)
