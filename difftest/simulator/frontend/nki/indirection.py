"""Tensor indirection of NeuronCore-v4: what ``tensor.indirect(index)`` names, and who takes it.

Offset ``i`` of a group of partitions is ``index[i % G, i // G]``, G being 16, and 32 for the Tensor
Engine. Whether each group of a taller tensor has offsets of its own, or all have those of the first
one, the page does not say: groups with other offsets are refused. Source: the stubs
``NkiTensor.indirect`` and "Tensor indirection" of ``nki.isa`` at v2.32.0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import BufferError, KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.index import as_integer, left_tensor
from difftest.simulator.instructions.operands import check_indices
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

GROUP = 16
TENSOR_GROUP = 32
"""Partitions that share their offsets: of the Tensor Engine, and of the others."""
_QUADRANT = 32

TAKES: dict[str, tuple[str, ...]] = {
    "activate2": ("dst", "data"),
    "activation": ("dst", "data"),
    "exponential": ("dst", "src"),
    "nc_matmul": ("dst", "stationary", "moving"),
    "nc_matmul_mx": ("dst", "stationary", "moving", "stationary_scale", "moving_scale"),
    "tensor_copy": ("dst", "src"),
    "tensor_copy_predicated": ("dst", "predicate"),
    "tensor_reduce": ("dst", "data"),
    "tensor_scalar": ("dst", "data"),
    "tensor_scalar_cumulative": ("dst", "src"),
    "tensor_scalar_reduce": ("dst", "data"),
    "tensor_tensor": ("dst", "data1"),
}
"""By instruction: the operands that may be indirect."""
_PRODUCTS = ("nc_matmul", "nc_matmul_mx")


def _unfit(
    tensor: Tile, index: Any, rule: str, got: str, error: Any = ShapeError, **more: Any
) -> Any:
    """The error for an indirect view that there is not."""
    received = f"indirect of {tensor!r} by {index!r:.80}"
    return error(f"indirect {rule}", happened=f"indirect {got}", received=received, **more)


def check_index(tensor: Tile, index: Any, num_elem: Any) -> int:
    """How many elements an indirect view names in each partition."""
    machine = current().machine
    if machine.nc_version < 4:
        rule, got = "is available on NeuronCore-v4 and newer", f"was used on {machine.name}"
        remedy = "gather with nisa.dma_copy or nisa.nc_n_gather, or launch with machine=TRN3"
        raise _unfit(tensor, index, rule, got, KernelError, remedy=remedy)
    if tensor._in_hbm or not isinstance(index, Tile) or index._space is not Space.SBUF:
        got = "got a tensor in HBM, or an index that is not in SBUF"
        rule = "takes a tensor on chip and an index in SBUF"
        raise _unfit(tensor, index, rule, got, BufferError)
    check_indices(index, "an index of tensor indirection")
    if index.ndim != 2 or index.shape[0] != tensor.shape[0]:
        rule = "takes an index that has two dimensions and the tensor's partitions"
        raise _unfit(tensor, index, rule, f"got an index of {list(index.shape)}")
    starts = [tile._first_partition() for tile in (tensor, index)]
    if starts[1] % _QUADRANT or starts[0] != starts[1]:
        rule = f"takes an index that begins where its tensor does, at a multiple of {_QUADRANT}"
        got = f"got a tensor on partition {starts[0]} and its index on {starts[1]}"
        raise _unfit(tensor, index, rule, got, KernelError)
    count = index.size if num_elem is None else as_integer(num_elem, "indirect with num_elem")
    if count < 1:
        raise _unfit(tensor, index, "names at least one element", f"got num_elem={count}")
    return count


def offsets(tensor: Tile, index: Tile, count: int, group: int) -> Array:
    """The offsets of ``count`` elements of each partition: int64, flat free elements."""
    rows, columns = index.shape
    numbers = np.arange(count)
    most = min(group, rows) * columns
    if count > most or int((numbers % group).max()) >= rows:
        rule = f"names as many elements as a group of {group} partitions has offsets"
        got, remedy = f"was to name {count} elements", "pass num_elem="
        raise _unfit(tensor, index, rule, got, limit=f"{most}", remedy=remedy)
    chosen = _of_agreeing_groups(index, numbers, group)
    size = tensor.size // tensor.shape[0]
    if chosen.min() < 0 or chosen.max() >= size:
        wrong = int(chosen[(chosen < 0) | (chosen >= size)][0])
        received = f"offset {wrong} of {index!r} into {tensor!r}"
        place = f"{wrong} of {size} elements in a partition"
        raise left_tensor("an offset of tensor indirection", place, received, f"0 to {size - 1}")
    return chosen


def group_of(index: Tile, count: int) -> int:
    """How many partitions share their offsets, as far as an index tells before it is used.

    That is 16, and 32 where ``count`` offsets fit, or agree between the groups, in groups of 32
    alone: such an index is for the Tensor Engine.
    """
    if count > min(GROUP, index.shape[0]) * index.shape[1]:
        return TENSOR_GROUP
    numbers = np.arange(count)
    if index.shape[0] <= GROUP or _agree(_of_groups(index, numbers, GROUP)):
        return GROUP
    fits = count <= min(TENSOR_GROUP, index.shape[0]) * index.shape[1]
    return TENSOR_GROUP if fits and _agree(_of_groups(index, numbers, TENSOR_GROUP)) else GROUP


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
    """The offsets of these numbers in each group of partitions that has them all."""
    held = np.asarray(index._values(), dtype=np.int64)
    parts = (held[first : first + group] for first in range(0, index.shape[0], group))
    deepest = int((numbers % group).max())
    return [part[numbers % group, numbers // group] for part in parts if len(part) > deepest]


def _agree(of_groups: list[Array]) -> bool:
    return all((one == of_groups[0]).all() for one in of_groups[1:])


def check_use(name: str, role: str, group: int, received: Tile, index: Tile) -> None:
    """Raise unless an operand of an instruction may be indirect, in groups of this size."""
    if role not in TAKES.get(name, ()):
        takes, got = f"no indirect view as {role}", f"an indirect view as {role}"
        limit, remedy = ", ".join(TAKES.get(name, ("none",))), "gather with nisa.tensor_copy first"
        raise not_taken(name, takes, got, f"{role} = {received!r}", limit=limit, remedy=remedy)
    if (name in _PRODUCTS) != (group == TENSOR_GROUP):
        count = received.shape[1]
        if count <= min(GROUP, index.shape[0]) * index.shape[1]:
            _of_agreeing_groups(index, np.arange(count), GROUP)
        raise KernelError(
            f"the offsets of {name} are in groups of {GROUP} partitions",
            happened=f"{name} got an indirect view whose offsets fit groups of {group} alone",
            received=f"{role} = {received!r}",
            remedy="lay the offsets out as index[i % 16, i // 16]",
        )
