"""A view of a tensor's storage, as kernels of the current dialect use it: ``nl.NkiTensor``.

All views share their storage, and none is a copy. Attributes and methods are those of the stub
``nki.language.NkiTensor`` at v2.32.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array, as_nki_dtype
from difftest.simulator.errors import (
    BufferError,
    KernelError,
    ShapeError,
    kernel_location,
    not_modelled,
    warn,
)
from difftest.simulator.frontend.arguments import no_attribute, not_taken
from difftest.simulator.frontend.levels import public
from difftest.simulator.frontend.nki.constants import NKIObject
from difftest.simulator.frontend.nki.dynamic import (
    DynamicOffset,
    DynamicView,
    Moving,
    access,
    select_one,
    select_rows,
)
from difftest.simulator.frontend.nki.views import Views
from difftest.simulator.index import as_integer, left_tensor
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.checks import check_indices, is_number, need_tile
from difftest.simulator.instructions.copy import memset, tensor_copy
from difftest.simulator.instructions.dma import dma_copy
from difftest.simulator.instructions.record import (
    DMA_SPACES,
    Instruction,
    InstructionUse,
)
from difftest.simulator.misuses import ASSIGNMENT_BY_DMA
from difftest.simulator.pattern import Pattern
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import COMPARISONS, OPERATORS, Tile
from difftest.simulator.trace import Engine, Purpose, Space

Self = TypeVar("Self", bound="NkiTensor")


class TruthWarning(UserWarning):
    """A tensor decides in Python, which sees that the tensor exists but not its values."""


class NkiTensor(Views, Tile, NKIObject):
    """A tensor in SBUF, PSUM or HBM, or a view of one.

    Attributes
    ----------
    shape, strides, offset : of the view, in elements of its storage.
    dtype, buffer, name, ndim, size : of the tensor.
    """

    __slots__ = ()
    _may_collide = (
        True  # kernels discard results with a step of 0: dst.ap([[1, 128], [0, 512]])
    )
    __hash__ = Tile.__hash__
    __getattr__ = no_attribute
    _in_place = True

    # -- attributes ------------------------------------------------------------------------------

    @property
    @public
    def data(self: Self) -> Self:
        """The tensor itself, for code that also takes grids: AWS's pages use it so (NKI 0.7)."""
        return self

    @public
    def is_indirect(self) -> bool:
        """Return False: the view depends on no index that is unknown before the kernel runs."""
        return False

    def _view(self: Self, pattern: Pattern) -> Self:
        if self._axes is not None:
            self._check_bounds()
        return type(self)(self._storage, pattern, 0, self.dtype)

    def _select_by(self, dim: int, index: Any) -> DynamicView:
        return select_one(self, dim, index)

    # -- values ----------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        """Assign ``tensor[...] = other``: copy (by DMA if a side is in HBM), or fill."""
        target = self[key]
        if any(isinstance(side, Tile) and side._in_hbm for side in (target, value)):
            # AWS documents no such assignment, but devices run it.
            for side, role in ((target, "its target"), (value, "its value")):
                need_tile(side, role, "assignment by DMA", DMA_SPACES)
            report_violation(ASSIGNMENT_BY_DMA(f"{target!r} = {value!r}"))
            gate.issue(dma_copy, (value,), dst=target)
        elif is_number(value):
            gate.issue(memset, (value,), dst=target)
        else:
            source = need_tile(value, "its value", "assignment")
            gate.issue(tensor_copy, (source,), dst=target)

    def __bool__(self) -> bool:
        """Return True, as with AWS's stub: kernels test ``if bias:`` for a missing tensor."""
        warn(
            TruthWarning(
                f"{self!r} is true as a condition, whatever its values are ({kernel_location()}): "
                "to ask whether it was given write 'is not None'"
            )
        )
        return True

    def __iter__(self: Self) -> Iterator[Self]:
        return (self[k] for k in range(self.shape[0]))

    # -- views -----------------------------------------------------------------------------------

    @public
    def vector_select(self, dim: int, vector_offset: Any) -> DynamicView:
        """Select a row for each of ``vector_offset`` [P, 1] in SBUF; ``dim`` 0, HBM only."""
        return select_rows(self, dim, vector_offset)

    @public
    def view(self: Self, dtype: object) -> Self:
        """Return the same bits as another dtype; the last dimension is scaled."""
        wanted = as_nki_dtype(dtype)
        if wanted == self.dtype:
            return self
        return self._reinterpret(wanted)

    @public
    def reinterpret_cast(self: Self, dtype: object) -> Self:
        """Return :meth:`view` under its other name."""
        return self.view(dtype)

    @public
    def indirect(self, index: Any, num_elem: int | None = None) -> IndirectTensor:
        """Select ``num_elem`` elements of each partition, at offsets that a tensor in SBUF holds.

        Instructions with a role for it can read or write it, on NeuronCore-v4. The index is read
        immediately.
        """
        return IndirectTensor._of(self, index, check_index(self, index, num_elem))

    @public
    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: object = None,
    ) -> Any:
        """Return an access pattern ``[[stride, count], ...]`` on the tensor's storage."""
        wanted = self.dtype if dtype is None else as_nki_dtype(dtype)
        dynamic = DynamicOffset(scalar_offset, vector_offset, indirect_dim)
        return access(self, pattern, offset, dynamic, wanted)


_OPERATORS = {
    **OPERATORS,
    **COMPARISONS,
    "matmul": "matmul",
    "neg": "negative",
    "abs": "abs",
    "invert": "invert",
}
"""Python's operators that no stub of NkiTensor has, and the function for each."""


def _refused(name: str, *, in_place: bool = False) -> Any:
    remedy = f"write nl.{name}(...), or an instruction of nki.isa"
    if in_place:
        remedy = (
            f"write nisa.tensor_tensor(tile, tile, other, nl.{name}), or "
            f"nisa.tensor_scalar(tile, tile, nl.{name}, other) for a number or a column [P, 1]"
        )

    def operator(self: NkiTensor, *others: Any) -> NoReturn:
        raise KernelError(
            "tensors of the current dialect have no operators",
            happened=f"an operator of Python was used on a tensor in place of nl.{name}",
            received=", ".join(f"{each!r:.60}" for each in (self, *others)),
            remedy=remedy,
        )

    return operator


for _symbol, _name in _OPERATORS.items():
    for _method in (f"__{_symbol}__", f"__r{_symbol}__"):
        setattr(NkiTensor, _method, _refused(_name))
    setattr(NkiTensor, f"__i{_symbol}__", _refused(_name, in_place=True))


class ComparedTensor(NkiTensor):
    """The result of ``nl.equal`` and the other comparisons.

    AWS's examples assert it, so its truth value is whether all elements are true. Only a simulator
    has that value, and a :class:`TruthWarning` says so.
    """

    __slots__ = ()
    __hash__ = NkiTensor.__hash__

    def __bool__(self) -> bool:
        warn(
            TruthWarning(
                f"a comparison of tensors decides in Python ({kernel_location()}): a simulator "
                "knows its value, a device's compiler does not"
            )
        )
        return bool(np.all(self._engine_values() != 0))


class IndirectTensor(Moving, NkiTensor):
    """A view by tensor indirection [P, N]: the indexed elements of each partition.

    Its pattern consists of whole partitions, as ``owner`` has them.
    """

    __slots__ = ("_group", "_index", "_owner", "_places")
    _strided = False

    _owner: NkiTensor
    _index: Tile
    _places: Any
    """The selected flat elements of a partition, int64 [N]."""
    _group: int
    """The number of partitions that share their offsets."""

    @classmethod
    def _of(
        cls, owner: NkiTensor, index: Tile, count: int, group: int = 0
    ) -> IndirectTensor:
        """Return the view; ``group`` 0 derives the group from the index."""
        flat = owner.reshape((owner.shape[0], owner.size // owner.shape[0]))
        view = cls(flat._storage, flat._pattern, 0, flat.dtype)
        view.shape = (flat.shape[0], count)
        view._owner = flat
        view._index = index
        view._group = group or group_of(index, count)
        view._places = offsets(owner, index, count, view._group)
        return view

    def _grouped(self) -> IndirectTensor:
        """Return the view with its offsets in the groups of the Tensor Engine."""
        return IndirectTensor._of(
            self._owner, self._index, len(self._places), TENSOR_GROUP
        )

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def _take(self, region: Array) -> Array:
        return region[:, self._places]

    def _give(self, region: Array, values: Any, where: Array | None = None) -> None:
        taken = self._take(region)
        super()._give(taken, values, where)
        region[:, self._places] = taken

    def _is_whole(self) -> bool:
        """Return False: the view has its own order."""
        return False

    def _signature(self) -> tuple[object, ...]:
        return (*super()._signature(), self.shape)

    def _span(self) -> tuple[int, int]:
        return 0, self.shape[1] * self._itemsize - 1

    def _derive(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("a view")

    _view = ap = reshape = _with_pattern = _derive


# -- tensor indirection ----------------------------------------------------------------------------
# Offset ``i`` of G partitions is ``index[i % G, i // G]``; G is 16, and 32 for the Tensor Engine.
# For a taller tensor, the page does not say whether each group has its own offsets, or all have the
# first group's. Groups with different offsets are therefore rejected. Source: the stubs
# ``NkiTensor.indirect`` and "Tensor indirection" of ``nki.isa`` at v2.32.0.


GROUP = 16
TENSOR_GROUP = 32
"""The numbers of partitions that share their offsets: for the Tensor Engine, and for the others."""
_QUADRANT = 32


def _unfit(
    tensor: Tile, index: Any, rule: str, got: str, error: Any = ShapeError, **more: Any
) -> Any:
    """Return the error for an invalid indirect view."""
    received = f"indirect of {tensor!r} by {index!r:.80}"
    return error(
        f"indirect {rule}", happened=f"indirect {got}", received=received, **more
    )


def check_index(tensor: Tile, index: Any, num_elem: Any) -> int:
    """Return the number of elements that an indirect view selects in each partition."""
    machine = current().machine
    if machine.nc_version < 4:
        raise _unfit(
            tensor,
            index,
            "is available on NeuronCore-v4 and newer",
            f"was used on {machine.name}",
            KernelError,
            remedy="gather with nisa.dma_copy or nisa.nc_n_gather, or launch with machine=TRN3",
        )
    if tensor._in_hbm or not isinstance(index, Tile) or index._space is not Space.SBUF:
        raise _unfit(
            tensor,
            index,
            "takes a tensor on chip and an index in SBUF",
            "got a tensor in HBM, or an index that is not in SBUF",
            BufferError,
        )
    check_indices(index, "an index of tensor indirection")
    if index.shape[:-1] != tensor.shape[:1]:
        raise _unfit(
            tensor,
            index,
            "takes an index that has two dimensions and the tensor's partitions",
            f"got an index of {list(index.shape)}",
        )
    start = index._first_partition()
    if start % _QUADRANT or tensor._first_partition() != start:
        raise _unfit(
            tensor,
            index,
            f"takes an index that begins where its tensor does, at a multiple of {_QUADRANT}",
            f"got a tensor on partition {tensor._first_partition()} and its index on {start}",
            KernelError,
        )
    if num_elem is None:
        return index.size
    count = as_integer(num_elem, "indirect with num_elem")
    if count < 1:
        raise _unfit(
            tensor, index, "names at least one element", f"got num_elem={count}"
        )
    return count


def offsets(tensor: Tile, index: Tile, count: int, group: int) -> Array:
    """Return the offsets of ``count`` elements of each partition: int64, flat free elements."""
    rows, columns = index.shape
    numbers = np.arange(count)
    most = min(group, rows) * columns
    if count > most or int((numbers % group).max()) >= rows:
        raise _unfit(
            tensor,
            index,
            f"names as many elements as a group of {group} partitions has offsets",
            f"was to name {count} elements",
            limit=f"{most}",
            remedy="pass num_elem=",
        )
    chosen = _of_agreeing_groups(index, numbers, group)
    size = tensor.size // tensor.shape[0]
    if chosen.min() < 0 or chosen.max() >= size:
        wrong = int(chosen[(chosen < 0) | (chosen >= size)][0])
        raise left_tensor(
            "an offset of tensor indirection",
            f"{wrong} of {size} elements in a partition",
            f"offset {wrong} of {index!r} into {tensor!r}",
            f"0 to {size - 1}",
        )
    return chosen


def group_of(index: Tile, count: int) -> int:
    """Return how many partitions share their offsets, if an index shows it before its use.

    The number is 16. It is 32 if ``count`` offsets fit, or agree between the groups, only in groups
    of 32: such an index is for the Tensor Engine.
    """
    if count > min(GROUP, index.shape[0]) * index.shape[1]:
        return TENSOR_GROUP
    numbers = np.arange(count)
    if index.shape[0] <= GROUP or _agree(_of_groups(index, numbers, GROUP)):
        return GROUP
    fits = count <= min(TENSOR_GROUP, index.shape[0]) * index.shape[1]
    if fits and _agree(_of_groups(index, numbers, TENSOR_GROUP)):
        return TENSOR_GROUP
    return GROUP


def _of_agreeing_groups(index: Tile, numbers: Array, group: int) -> Array:
    of_groups = _of_groups(index, numbers, group)
    if not _agree(of_groups):
        raise not_modelled(
            "tensor indirection with other offsets in each group of partitions",
            f"{index!r}, in groups of {group}",
            "give each group the same offsets: AWS's page does not say which it takes",
        )
    return of_groups[0]


def _of_groups(index: Tile, numbers: Array, group: int) -> list[Array]:
    """Return the offsets of these numbers in each group of partitions that has them all."""
    held = np.asarray(index._values(), dtype=np.int64)
    parts = (held[first : first + group] for first in range(0, index.shape[0], group))
    deepest = int((numbers % group).max())
    return [
        part[numbers % group, numbers // group] for part in parts if len(part) > deepest
    ]


def _agree(of_groups: list[Array]) -> bool:
    return all((group == of_groups[0]).all() for group in of_groups[1:])


def check_use(issued: InstructionUse, role: str, received: IndirectTensor) -> None:
    """Raise unless an operand of an instruction may be indirect, in groups of its size."""
    record = issued.instruction
    name = record.name
    taken = [one.name for one in record.operands if one.by_offsets]
    if taken:
        taken.insert(0, "dst")
    if role not in taken:
        limit = ", ".join(taken) or "none"
        raise not_taken(
            name,
            f"no indirect view as {role}",
            f"an indirect view as {role}",
            f"{role} = {received!r}",
            limit=limit,
            remedy="gather with nisa.tensor_copy first",
        )
    _check_engine(issued, role, received)
    _check_group(record, role, received)


def _check_engine(issued: InstructionUse, role: str, received: IndirectTensor) -> None:
    """Raise unless the engine of an instruction can use an indirect view at a role."""
    name = issued.instruction.name
    engine = issued.engine
    if engine is Engine.UNKNOWN:
        engine = issued.instruction.engines[0]
    if engine is Engine.GPSIMD and name == "tensor_copy":
        raise not_taken(
            name,
            "indirect views on the Vector and Scalar Engines",
            "one on the GpSimd Engine",
            f"{role} = {received!r}",
        )
    if engine is Engine.SCALAR and role == "dst" and received._space is Space.PSUM:
        raise not_taken(
            name,
            "a scattered dst in SBUF on the Scalar Engine",
            "a scattered dst in PSUM",
            f"dst = {received!r}",
        )


def _check_group(record: Instruction, role: str, received: IndirectTensor) -> None:
    """Raise unless the offsets of an indirect view are in groups of an instruction's size."""
    group = received._group
    index = received._index
    if (record.purpose is Purpose.PRODUCT) != (group == TENSOR_GROUP):
        count = received.shape[1]
        if count <= min(GROUP, index.shape[0]) * index.shape[1]:
            _of_agreeing_groups(index, np.arange(count), GROUP)
        name = record.name
        raise KernelError(
            f"the offsets of {name} are in groups of {GROUP} partitions",
            happened=f"{name} got an indirect view whose offsets fit groups of {group} alone",
            received=f"{role} = {received!r}",
            remedy="lay the offsets out as index[i % 16, i // 16]",
        )
