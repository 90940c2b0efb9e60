"""``NkiTensor.ap``: an access pattern on a tensor's storage, whatever view it is called on.

Source: "NKI Access Patterns" and the stub ``nki.language.NkiTensor.ap`` at v2.32.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from difftest.simulator.errors import (
    KernelError,
    LimitError,
    NkiError,
    OutOfBoundsError,
    ShapeError,
)
from difftest.simulator.frontend.nki.dynamic import Rows, one_offset, row_offsets
from difftest.simulator.frontend.nki.views import Layout
from difftest.simulator.index import as_integer

if TYPE_CHECKING:
    from difftest.simulator.frontend.nki.tensor import NkiTensor


class NkiValidationError(NkiError, ValueError):
    """``nisa.NkiValidationError``: a constraint of the hardware is violated."""


def access(
    tensor: NkiTensor,
    pattern: Sequence[Sequence[int]],
    offset: int | None,
    scalar_offset: Any,
    vector_offset: Any,
    indirect_dim: int,
) -> Any:
    """``tensor.ap(...)``.

    Raises
    ------
    NkiValidationError : on chip the pattern's first stride is not the tensor's own.
    OutOfBoundsError : the pattern leaves the storage.
    KernelError : ``offset`` on a sliced view, of which AWS's pages say two things; two dynamic
        offsets.
    """
    layout = _layout(tensor, pattern, offset)
    if scalar_offset is None and vector_offset is None:
        _check_extent(tensor, layout)
        return tensor._view(layout)
    if scalar_offset is not None and vector_offset is not None:
        raise KernelError(
            "ap takes scalar_offset or vector_offset, not both", received=f"both, on {tensor!r}"
        )
    dim = as_integer(indirect_dim, "ap with indirect_dim")
    if not 0 <= dim < tensor.ndim:
        raise ShapeError(
            "ap's indirect_dim is a dimension of the tensor",
            received=f"indirect_dim={dim} of {tensor!r}",
            limit=f"0 to {tensor.ndim - 1}",
        )
    rows = Rows(unit=tensor.strides[dim], size=tensor.shape[dim])
    if vector_offset is not None:
        if dim:
            raise KernelError(
                "ap with vector_offset takes indirect_dim 0", received=f"indirect_dim={dim}"
            )
        return row_offsets(tensor, layout, vector_offset, rows)
    return one_offset(tensor, layout, scalar_offset, rows)


def _layout(tensor: NkiTensor, pattern: Sequence[Sequence[int]], offset: int | None) -> Layout:
    """The pattern as a layout, its numbers checked, its extent not yet."""
    try:
        pairs = [
            (as_integer(stride, "stride"), as_integer(count, "count")) for stride, count in pattern
        ]
    except (TypeError, ValueError):
        raise KernelError(
            "ap takes a list of [stride, count] pairs, the partitions first",
            received=f"pattern={pattern!r:.80}",
            remedy="write tensor.ap(pattern=[[stride, count], ...])",
        ) from None
    if not pairs or any(count < 1 for _, count in pairs):
        raise ShapeError("ap's counts are at least 1", received=f"pattern={pattern!r:.80}")
    storage = tensor.storage
    if not storage.in_hbm:
        stride, count = pairs[0]
        step = storage.partition_step
        if stride != step and count > 1:
            raise NkiValidationError(
                "the first stride of an access pattern on chip is the tensor's elements in each "
                "partition: partitions are walked one by one",
                received=f"ap(pattern={[list(pair) for pair in pairs]}) of {storage.allocation}: "
                f"partition stride {stride}",
                limit=f"{step}",
            )
        pairs[0] = (step, count)
    if offset is not None and tensor.offset:
        raise KernelError(
            "ap with an offset is called on a whole tensor: AWS's pages say of a sliced view both "
            "that the offset is added to the view's own and that it replaces it",
            received=f"ap(offset={offset}) of {tensor!r}, which begins at element {tensor.offset}",
            remedy="call ap on the tensor that was sliced, or leave offset out",
        )
    start = tensor.offset if offset is None else as_integer(offset, "ap with offset")
    return Layout(
        start,
        tuple(count for _, count in pairs),
        tuple(stride for stride, _ in pairs),
        not storage.in_hbm,
    )


def _check_extent(tensor: NkiTensor, layout: Layout) -> None:
    """Raise unless the pattern stays inside its storage, and on chip inside its partitions."""
    storage = tensor.storage
    reach = [stride * (n - 1) for stride, n in zip(layout.strides, layout.shape, strict=True)]
    start, total = layout.offset, storage.data.size
    if layout.on_chip:
        partitions = storage.allocation.partitions
        first, start = divmod(layout.offset, storage.partition_step)
        if layout.shape[0] > partitions - first or first < 0:
            raise _too_many(tensor, first, layout.shape[0], partitions)
        total, reach = storage.partition_step, reach[1:]
    low = start + sum(step for step in reach if step < 0)
    high = start + sum(step for step in reach if step > 0)
    if low < 0 or high >= total:
        where = "of each partition" if layout.on_chip else "of the tensor"
        raise OutOfBoundsError(
            "an access pattern stays inside its tensor",
            received=f"elements {low} to {high} {where} {storage.allocation}",
            limit=f"0 to {total - 1}",
            remedy="correct the pattern's counts, strides or offset",
        )


def _too_many(tensor: NkiTensor, first: int, count: int, partitions: int) -> LimitError:
    return LimitError(
        "an access pattern stays inside its tensor's partitions",
        received=f"partitions {first} to {first + count - 1} of {tensor.storage.allocation}: "
        f"partition dimension {first + count} exceeds maximum {partitions}",
        limit=f"0 to {partitions - 1}",
    )
