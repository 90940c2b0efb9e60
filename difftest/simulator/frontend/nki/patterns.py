"""``NkiTensor.ap``: an access pattern on a tensor's storage, whatever view it is called on.

Source: "NKI Access Patterns" and the stub ``nki.language.NkiTensor.ap`` at v2.32.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from difftest.simulator.dtypes import DType, name_of
from difftest.simulator.errors import KernelError, NkiError, OutOfBoundsError, ShapeError
from difftest.simulator.frontend.nki.dynamic import Rows, one_offset, row_offsets
from difftest.simulator.index import as_integer
from difftest.simulator.pattern import Pattern


class NkiValidationError(NkiError, ValueError):
    """``nisa.NkiValidationError``: a constraint of the hardware is violated."""


def access(
    tensor: Any,
    pattern: Sequence[Sequence[int]],
    offset: int | None,
    scalar_offset: Any,
    vector_offset: Any,
    indirect_dim: int,
    dtype: DType,
) -> Any:
    """``tensor.ap(...)``, strides and offset in elements of ``dtype``.

    Raises
    ------
    NkiValidationError : on chip the pattern's first stride is not the tensor's own, or
        ``scalar_offset`` would move along the partitions.
    OutOfBoundsError : where the pattern leaves its tensor, or on chip its partitions, any use of it
        raises; kernels make patterns for tiles that they then find to be beyond the end.
    KernelError : ``offset`` on a sliced view, of which AWS's pages say two things; two dynamic
        offsets.
    """
    wanted = _wanted(tensor, pattern, offset, dtype)
    if scalar_offset is None and vector_offset is None:
        try:
            return tensor._with_pattern(wanted, dtype)
        except OutOfBoundsError as error:
            return type(tensor)(tensor.storage, wanted, 0, dtype, error)
    if scalar_offset is not None and vector_offset is not None:
        raise KernelError(
            "ap takes scalar_offset or vector_offset, not both",
            happened="ap got both scalar_offset and vector_offset",
            received=f"both, on {tensor!r}",
        )
    dim = as_integer(indirect_dim, "ap with indirect_dim")
    if not 0 <= dim < tensor.ndim:
        raise ShapeError(
            "ap's indirect_dim is a dimension of the tensor",
            happened=f"ap got indirect_dim={dim} for a tensor of {tensor.ndim} dimensions",
            received=f"indirect_dim={dim} of {tensor!r}",
            limit=f"0 to {tensor.ndim - 1}",
        )
    unit, rest = divmod(tensor.strides[dim] * tensor.itemsize, dtype.itemsize)
    if rest:
        raise ShapeError(
            "ap's dynamic offset counts whole elements of dtype",
            happened=f"ap was to step by parts of {name_of(dtype)} elements",
            received=f"steps of {tensor.strides[dim]} elements of {tensor!r} as {name_of(dtype)}",
        )
    rows = Rows(unit, tensor.shape[dim], dtype)
    if vector_offset is not None:
        if dim:
            raise KernelError(
                "ap with vector_offset takes indirect_dim 0",
                happened=f"ap got vector_offset with indirect_dim={dim}",
                received=f"indirect_dim={dim}",
            )
        return row_offsets(tensor, wanted, vector_offset, rows)
    if not (tensor.in_hbm or dim):
        raise NkiValidationError(
            "a dynamic offset on chip moves along a free dimension: the partitions of an access "
            "are known when the kernel is built",
            happened="ap was to move along the partitions of a tensor on chip by scalar_offset",
            received=f"ap(scalar_offset=..., indirect_dim=0) of {tensor!r}",
            remedy="set indirect_dim (0 by default) to a free dimension, or keep the tensor in HBM",
        )
    return one_offset(tensor, wanted, scalar_offset, rows)


def _wanted(
    tensor: Any, pattern: Sequence[Sequence[int]], offset: int | None, dtype: DType
) -> Pattern:
    """The pattern, its numbers checked, its extent not yet."""
    try:
        pairs = [
            (as_integer(stride, "stride"), as_integer(count, "count")) for stride, count in pattern
        ]
    except (TypeError, ValueError):
        raise KernelError(
            "ap takes a list of [stride, count] pairs, the partitions first",
            happened="ap got a pattern that is not a list of pairs",
            received=f"pattern={pattern!r:.80}",
            remedy="write tensor.ap(pattern=[[stride, count], ...])",
        ) from None
    if not pairs or any(count < 1 for _, count in pairs):
        raise ShapeError(
            "ap's counts are at least 1",
            happened="ap got an empty pattern, or a count below 1",
            received=f"pattern={pattern!r:.80}",
        )
    storage = tensor.storage
    if not storage.in_hbm:
        stride, count = pairs[0]
        step = storage.partition_step * storage.dtype.itemsize // dtype.itemsize
        if stride != step and count > 1:
            raise NkiValidationError(
                "the first stride of an access pattern on chip is the tensor's elements in each "
                "partition: partitions are walked one by one",
                happened=f"an access pattern on chip has the first stride {stride}, not {step}",
                received=f"ap(pattern={[list(pair) for pair in pairs]}) of {storage.allocation}: "
                f"partition stride {stride}",
                limit=f"{step}",
            )
        pairs[0] = (step, count)
    if offset is not None and tensor.offset:
        raise KernelError(
            "ap with an offset is called on a whole tensor: AWS's pages say of a sliced view both "
            "that the offset is added to the view's own and that it replaces it",
            happened=f"ap(offset={offset}) was called on a sliced view",
            received=f"ap(offset={offset}) of {tensor!r}, which begins at element {tensor.offset}",
            remedy="call ap on the tensor that was sliced, or leave offset out",
        )
    if offset is None:
        start, rest = divmod(tensor.offset * tensor.itemsize, dtype.itemsize)
        if rest:
            raise ShapeError(
                "an access pattern of another dtype begins at one of its elements",
                happened=f"a pattern of {name_of(dtype)} begins inside an element",
                received=f"{tensor!r} with offset {tensor.offset} as {name_of(dtype)}",
            )
    else:
        start = as_integer(offset, "ap with offset")
    return Pattern(start, tuple([n for _, n in pairs]), tuple([step for step, _ in pairs]))
