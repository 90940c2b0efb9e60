"""Views whose place is known only when the kernel runs: an offset, or one for each row, in SBUF.

``ap(scalar_offset=...)`` and ``select(dim, tensor)`` move the whole pattern, while
``ap(vector_offset=...)`` and ``vector_select`` give each row of the result its own place. Source:
"NKI Access Patterns" and the stub ``nki.language.NkiTensor`` at v2.32.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from difftest.simulator.dtypes import Array, DType, name_of
from difftest.simulator.errors import (
    BufferError,
    DtypeError,
    KernelError,
    OutOfBoundsError,
    ShapeError,
)
from difftest.simulator.frontend.nki import views
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.views import Layout
from difftest.simulator.frontend.nki.virtual_registers import DeviceValue
from difftest.simulator.index import as_integer, is_integer
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.pattern import Pattern
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

if TYPE_CHECKING:
    from difftest.simulator.frontend.nki.tensor import NkiTensor


class Rows(NamedTuple):
    """The dimension that is indexed: elements from one row to the next, and how many there are.

    ``dtype`` is the one in whose elements the view counts; None for the tensor's own.
    """

    unit: int
    size: int
    dtype: DType | None = None


MOVING: set[type] = set()
"""The classes of views that move when the kernel runs, for those who ask in a hurry."""


class DynamicView(IndirectTile):
    """A view that lies ``index * unit`` elements further on than its layout says.

    Attributes
    ----------
    shape, strides, offset : of the view, in elements of its storage.
    index : what holds the offset: one element, or one for each row of the view's first dimension.
    """

    __slots__ = ("index", "layout", "owner", "rows", "whole")

    settles = True
    """Whether an instruction takes the view where its offset puts it."""

    def __init_subclass__(cls) -> None:
        if cls.settles:
            MOVING.add(cls)

    def __init__(
        self,
        owner: NkiTensor,
        layout: Layout,
        index: Tile | DeviceValue,
        rows: Rows,
        *,
        whole: bool,
    ) -> None:
        dtype = owner.dtype if rows.dtype is None else rows.dtype
        size = owner.storage.size * owner.storage.dtype.itemsize // dtype.itemsize
        super().__init__(_part(owner, Pattern(0, (size,), (1,)), dtype), layout.shape)
        self.owner, self.layout, self.index, self.rows = owner, layout, index, rows
        self.whole = whole
        """Whether one offset moves the whole pattern; else each row has one."""

    def __repr__(self) -> str:
        return f"{self.owner!r} indexed by {self.index!r}, shape {list(self.shape)}"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def buffer(self) -> Any:
        """The memory that the tensor lies in."""
        return self.owner.buffer

    @property
    def strides(self) -> tuple[int, ...]:
        """Of the pattern, in elements."""
        return self.layout.strides

    @property
    def offset(self) -> int:
        """Where the pattern begins, before the index is added."""
        return self.layout.offset

    @property
    def name(self) -> str:
        return self.owner.name

    @property
    def index_tiles(self) -> tuple[Tile, ...]:
        """The tile that holds the offsets; a register is none."""
        return (self.index,) if isinstance(self.index, Tile) else ()

    def is_indirect(self) -> bool:
        """Whether the view depends on an index that is known only when the kernel runs: yes."""
        return True

    def get_pattern(self) -> list[list[int]]:
        """The access pattern as ``[[stride, count], ...]``."""
        return [list(pair) for pair in zip(self.strides, self.shape, strict=True)]

    def signature(self) -> tuple[object, ...]:
        return ("dynamic", self.base.signature(), self.shape)

    @property
    def reach(self) -> Tile:
        """Where the pattern lies for each offset that keeps it inside; on chip the whole tensor."""
        offset, unit = self.layout.offset, self.rows.unit
        moved = slice(None) if self.whole else slice(1, None)
        inner = Pattern(offset, self.layout.shape[moved], self.layout.strides[moved])
        low, high = inner.extent()
        if not self.in_hbm or unit <= 0 or low < 0 or high >= self.base.size:
            return self.base
        count = min(self.rows.size, (self.base.size - 1 - high) // unit + 1)
        pattern = Pattern(offset, (count, *inner.shape), (unit, *inner.strides))
        return _part(self.owner, pattern, self.dtype)

    # -- places ----------------------------------------------------------------------------------

    def offsets(self) -> Array:
        """The rows that the index names, int64: one for each row of the view, or one in all."""
        values = np.asarray(self.index.values(), dtype=np.int64)
        if self.whole:
            return values.reshape(-1)[:1]
        return values.T.reshape(-1)[: self.shape[0]]

    def settled(self) -> Tile | None:
        """The view where its one offset puts it; None if each row has one, or if it leaves."""
        if not self.whole:
            return None
        _, inside = self.locate()
        if not inside.all():
            return None
        start = self.layout.offset + int(self.offsets()[0]) * self.rows.unit
        shape, strides = self.layout.shape, self.layout.strides
        return self.owner.with_pattern(shape, strides, start, self.dtype)

    def locate(self, where: Array | None = None) -> tuple[tuple[Array, ...], Array]:
        """Addresses of all elements, and which rows (of a whole pattern, all or none) fit."""
        assert where is None, "this dialect has no masks"
        shape, strides = self.layout.shape, self.layout.strides
        rows = self.offsets()
        first = self.layout.offset + rows * self.rows.unit
        inner = np.zeros((1,) * len(shape), dtype=np.int64)
        for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
            if axis == 0 and not self.whole:
                continue
            steps = np.arange(size, dtype=np.int64) * stride
            inner = inner + steps.reshape((-1,) + (1,) * (len(shape) - axis - 1))
        places = np.broadcast_to(first.reshape((-1,) + (1,) * (len(shape) - 1)) + inner, shape)
        low = places.reshape(len(rows), -1).min(axis=1)
        high = places.reshape(len(rows), -1).max(axis=1)
        kept = (rows >= 0) & (rows < self.rows.size) & (low >= 0) & (high < self.base.size)
        inside = np.broadcast_to(kept.reshape((-1,) + (1,) * (len(shape) - 1)), shape)
        return (places,), inside

    def resolve(self, *, skip: bool, where: Array | None = None) -> tuple[tuple[Array, ...], Array]:
        """:meth:`locate`; unless ``skip``, an offset that leaves the tensor raises."""
        places, inside = self.locate(where)
        if not skip and not inside.all():
            rows = self.offsets()
            kept = inside.reshape(len(inside), -1)[:, 0] if not self.whole else inside.ravel()[:1]
            wrong = int(np.flatnonzero(~kept)[0])
            raise OutOfBoundsError(
                "an offset held in SBUF stays inside its tensor",
                happened=f"an offset held in SBUF left its tensor: {int(rows[wrong])}",
                received=f"offset {int(rows[wrong])} (element {wrong} of {self.index!r}) into "
                f"{self.owner!r}, in steps of {self.rows.unit} elements",
                limit=f"0 to {self.rows.size - 1}",
                remedy="correct the offsets, or pass oob_mode=nisa.oob_mode.skip",
            )
        return places, inside

    def kept(self) -> KeptView:
        """The view for the DMA engines."""
        return KeptView(self.owner, self.layout, self.index, self.rows, whole=self.whole)

    # -- views of it -----------------------------------------------------------------------------

    def _derived(self, change: Callable[..., Layout], *args: Any) -> DynamicView:
        """A view of the view: the dimension of the offsets stays, as the partitions' on chip."""
        layout = change(self.layout._replace(on_chip=self.layout.on_chip or not self.whole), *args)
        return self._with(layout._replace(on_chip=self.layout.on_chip))

    def _with(self, layout: Layout) -> DynamicView:
        return DynamicView(self.owner, layout, self.index, self.rows, whole=self.whole)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise KernelError(
            "a view that an offset moves is written by an instruction",
            happened="a value was assigned to a view that an offset moves",
            received=f"assignment to {self!r}",
            remedy="use nisa.tensor_copy(dst, src) or nisa.memset(dst, value)",
        )

    def __getitem__(self, key: Any) -> DynamicView:
        if key is Ellipsis:
            return self
        first = key[0] if isinstance(key, tuple) and key else key
        if not self.whole and first is not Ellipsis and first != slice(None):
            self._refuse("indexing of the dimension of the offsets")
        return self._with(views.index(self.layout, key))

    @public
    def slice(self, dim: int, start: int, end: int, step: int = 1) -> DynamicView:
        """As of a tensor; not of the dimension of the offsets."""
        self._check_free(dim, "slice")
        return self._with(views.cut(self.layout, dim, start, end, step))

    @public
    def select(self, dim: int, index: Any) -> Any:
        """As of a tensor, with an integer; not of the dimension of the offsets."""
        self._check_free(dim, "select")
        if isinstance(index, DeviceValue) or not is_integer(index):
            self._refuse("select with an index held in SBUF")
        return self._with(views.pick(self.layout, dim, index))

    @public
    def reshape(self, shape: Any) -> DynamicView:
        """The same elements in another shape; the dimension of the offsets stays."""
        return self._derived(views.reshape, shape)

    @public
    def permute(self, dims: Any) -> DynamicView:
        """The dimensions in another order; that of the offsets stays first."""
        return self._derived(views.permute, dims)

    @public
    def expand_dim(self, dim: int) -> DynamicView:
        """A new dimension of size 1, not before that of the offsets."""
        return self._derived(views.expand, dim)

    @public
    def squeeze_dim(self, dim: int) -> DynamicView:
        """Without a dimension of size 1; that of the offsets stays."""
        return self._derived(views.squeeze, dim)

    @public
    def broadcast(self, dim: int, size: int) -> DynamicView:
        """A dimension of size 1 repeated; not that of the offsets."""
        return self._derived(views.broadcast, dim, size)

    @public
    def reshape_dim(self, dim: int, shape: Any) -> DynamicView:
        """One dimension as several; that of the offsets stays."""
        return self._derived(views.split, dim, shape)

    @public
    def flatten_dims(self, start_dim: int, end_dim: int) -> DynamicView:
        """Adjacent dimensions as one; that of the offsets stays."""
        return self._derived(views.flatten, start_dim, end_dim)

    @public
    def rearrange(self, src_pattern: Any, dst_pattern: Any, fixed_sizes: Any = None) -> DynamicView:
        """Dimensions split, permuted and merged by name; that of the offsets stays first."""
        return self._derived(views.rearrange, src_pattern, dst_pattern, fixed_sizes)

    @public
    def is_contiguous(self) -> bool:
        """Whether the elements are adjacent in row-major order, wherever the offset puts them."""
        return views.contiguous(self.layout)

    def _check_free(self, dim: Any, what: str) -> None:
        """Raise unless a dimension is not that of the offsets."""
        if not self.whole and is_integer(dim) and dim in (0, -self.ndim):
            self._refuse(f"{what} of the dimension of the offsets")

    def _refuse(self, what: str) -> NoReturn:
        raise KernelError(
            "an indirect view takes one dynamic offset, and its dimension stays whole",
            happened=f"{what} was asked of a view that is already indirect",
            received=f"{what} of {self!r}",
            remedy="slice the tensor before select, vector_select or ap with an offset; "
            "is_indirect() tells such views",
        )

    @public
    def vector_select(self, dim: int, vector_offset: Any) -> NoReturn:
        """Not possible twice."""
        self._refuse("vector_select")

    @public
    def view(self, dtype: object) -> NoReturn:
        """Not of an indirect view."""
        self._refuse("view(dtype)")

    reinterpret_cast = view

    def ap(self, *args: Any, **kwargs: Any) -> Any:
        """``ap`` of the tensor itself: patterns do not compose."""
        return self.owner.ap(*args, **kwargs)


MOVING.add(DynamicView)


class KeptView(DynamicView):
    """A dynamic view that goes to the DMA engines as it is, because they may skip parts of it."""

    __slots__ = ()

    settles = False


def _part(owner: NkiTensor, pattern: Pattern, dtype: DType) -> NkiTensor:
    """Elements of the storage as ``dtype``, in a row; on chip partition after partition."""
    if dtype == owner.storage.dtype:
        return type(owner)(owner.storage, pattern, 0)
    return type(owner)(owner.storage, pattern, 0, owner._held_as(dtype))


# -- how they come to be ---------------------------------------------------------------------------


def select_one(tensor: NkiTensor, dim: int, index: Any) -> DynamicView:
    """``tensor.select(dim, index)`` with an index held in SBUF."""
    axis = as_integer(dim, "select with dim")
    axis = axis + tensor.ndim if axis < 0 else axis
    if not (0 if tensor.in_hbm else 1) <= axis < tensor.ndim:
        raise ShapeError(
            "select with an index held in SBUF takes a free dimension on chip",
            happened=f"a dynamic select was to walk dimension {dim} of {tensor.ndim}",
            received=f"select({dim}, ...) of {tensor!r}",
            remedy="on chip every partition is accessed alike: select a free dimension",
        )
    layout = tensor._layout()
    rows = Rows(unit=layout.strides[axis], size=layout.shape[axis])
    shape = (*layout.shape[:axis], *layout.shape[axis + 1 :])
    strides = (*layout.strides[:axis], *layout.strides[axis + 1 :])
    least = 1 if tensor.in_hbm else 2
    if len(shape) < least:
        shape, strides = (*shape, 1), (*strides, 1)
    return one_offset(tensor, layout._replace(shape=shape, strides=strides), index, rows)


def select_rows(tensor: NkiTensor, dim: int, offsets: Any) -> DynamicView:
    """``tensor.vector_select(0, offsets)``."""
    if as_integer(dim, "vector_select with dim") != 0:
        raise ShapeError(
            "vector_select takes dimension 0",
            happened=f"vector_select was to select along dimension {dim}",
            received=f"dim {dim} of {tensor!r}",
        )
    layout = tensor._layout()
    count = offsets.shape[0] if isinstance(offsets, Tile) else 1
    if isinstance(offsets, Tile) and offsets.size != count:
        raise ShapeError(
            "vector_select takes one offset in each partition, shape (P, 1)",
            happened=f"vector_select got {offsets.size // count} offsets in each partition",
            received=repr(offsets),
        )
    rows = Rows(unit=layout.strides[0], size=layout.shape[0])
    wanted = layout._replace(shape=(count, *layout.shape[1:]))
    return row_offsets(tensor, wanted, offsets, rows)


def one_offset(tensor: NkiTensor, layout: Layout, index: Any, rows: Rows) -> DynamicView:
    """A pattern that one element, held in SBUF, moves as a whole."""
    if isinstance(index, DeviceValue):
        return DynamicView(tensor, layout, index.snapshot(), rows, whole=True)
    held = _held(index, "scalar_offset")
    if held.size != 1:
        raise ShapeError(
            "a scalar offset is one element in SBUF, shape (1, 1)",
            happened=f"a scalar offset has {held.size} elements",
            received=f"{held!r}",
        )
    return DynamicView(tensor, layout, held, rows, whole=True)


def row_offsets(tensor: NkiTensor, layout: Layout, index: Any, rows: Rows) -> DynamicView:
    """A pattern whose first dimension is walked by the rows that SBUF holds."""
    held = _held(index, "vector_offset")
    if not tensor.in_hbm:
        raise BufferError(
            "a vector of offsets indexes a tensor in HBM",
            happened=f"a vector of offsets was to index a tensor in {tensor.space.value}",
            received=f"vector_offset of {tensor!r}",
            limit="hbm",
            remedy="gather on chip with nisa.nc_n_gather or nisa.local_gather",
        )
    if held.size < layout.shape[0]:
        raise ShapeError(
            "vector_offset has one offset for each row of the pattern",
            happened=f"a pattern of {layout.shape[0]} rows got {held.size} offsets",
            received=f"{held.size} offsets for {layout.shape[0]} rows",
        )
    return DynamicView(tensor, layout, held, rows, whole=False)


def _held(index: Any, what: str) -> Tile:
    """The tile that holds the offsets: integers in SBUF."""
    if not isinstance(index, Tile):
        raise KernelError(
            f"{what} is a tensor of integers in SBUF",
            happened=f"{what} is a {type(index).__name__}",
            received=f"{type(index).__name__} {index!r:.60}",
        )
    if index.space is not Space.SBUF:
        raise BufferError(
            f"{what} lies in SBUF",
            happened=f"{what} lies in {index.space.value}",
            received=f"{index!r}",
            limit="sbuf",
        )
    if index.dtype.kind not in "iu":
        raise DtypeError(
            f"{what} holds integers",
            happened=f"{what} holds {name_of(index.dtype)}",
            received=f"{name_of(index.dtype)}",
            limit="int32, uint32 and smaller integers",
        )
    return index
