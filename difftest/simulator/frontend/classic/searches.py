"""Gathers and searches as the classic API spells them (``nki.isa`` and ``nki.language``)."""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.arguments import no_extras, same_dtype
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import on_chip
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import search


def gather_flattened(
    data: Any, indices: Any, *, mask: object = None, dtype: object = None, **kwargs: object
) -> Tensor:
    """``data``'s elements at ``indices`` of the flattened free axes, within each partition."""
    no_extras("nl.gather_flattened", kwargs)
    result: Tensor = issue(search.gather_flattened, (indices, data), dtype=dtype, mask=mask)
    return result


def max8(*, src: Any, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """The 8 largest values of each partition, descending."""
    no_extras("nisa.max8", kwargs)
    result: Tensor = issue(search.max8, (src,), dtype=dtype, mask=mask)
    return result


def nc_find_index8(
    *, data: Any, vals: Any, mask: object = None, dtype: object = None, **kwargs: object
) -> Tensor:
    """The index of each of 8 values in its partition, uint32 (or uint16)."""
    no_extras("nisa.nc_find_index8", kwargs)
    result: Tensor = issue(search.nc_find_index8, (data, vals), (False,), dtype=dtype, mask=mask)
    return result


def nc_match_replace8(
    *,
    data: Any,
    vals: Any,
    imm: Any,
    dst_idx: Any = None,
    mask: object = None,
    dtype: object = None,
    **kwargs: object,
) -> Tensor:
    """``data`` with the first occurrence of each of 8 values replaced by ``imm``."""
    no_extras("nisa.nc_match_replace8", kwargs)
    result: Tensor = issue(
        search.nc_match_replace8,
        (data, vals, imm),
        (False,),
        others=(dst_idx,),
        dtype=dtype,
        mask=mask,
    )
    return result


def local_gather(
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    *,
    mask: object = None,
) -> Tensor:
    """Gather within each GpSimd core's 16 partitions; [P, indices, elements]."""
    width = as_integer(num_elem_per_idx, "num_elem_per_idx")
    count = None
    if num_valid_indices is not None:
        count = as_integer(num_valid_indices, "num_valid_indices")
    result: Tensor = issue(search.local_gather, (src_buffer, index), (width, count), mask=mask)
    return result


def nc_stream_shuffle(
    src: Any,
    dst: Any,
    shuffle_mask: Any,
    *,
    dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> None:
    """Move partitions within each quadrant of 32, into ``dst``."""
    no_extras("nisa.nc_stream_shuffle", kwargs)
    target = on_chip(dst, "nc_stream_shuffle", "dst")
    same_dtype(dtype, target, "nc_stream_shuffle")
    order = as_integers(shuffle_mask, "shuffle_mask")
    issue(search.nc_stream_shuffle, (src,), (order,), dst=target, mask=mask)


def sequence_bounds(*, segment_ids: Any, dtype: object = None) -> Tensor:
    """Start and end of each element's segment: [1, 2, n] for ids [1, n]."""
    result: Tensor = issue(search.sequence_bounds, (segment_ids,), dtype=dtype)
    return result
