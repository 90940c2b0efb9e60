"""``nki.isa``: searches within partitions, gathers and shuffles."""

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import gather, search


@public
def max8(dst: Any, src: Any, name: str | None = None) -> NkiInstruction:
    """The 8 largest values of each partition, descending."""
    return issue(search.max8, dst, (src,))


@public
def nc_find_index8(dst: Any, data: Any, vals: Any, name: str | None = None) -> NkiInstruction:
    """The index of each of 8 values in its partition; all ones for one that is not there."""
    return issue(search.nc_find_index8, dst, (data, vals), (True,))


@public
def nc_match_replace8(
    dst: Any, data: Any, vals: Any, imm: float, dst_idx: Any = None, name: str | None = None
) -> NkiInstruction:
    """``dst = data`` with the first occurrence of each of 8 values replaced by ``imm``."""
    operands = (data, vals, imm)
    return issue(search.nc_match_replace8, dst, operands, (True,), others=(dst_idx,))


@public
def local_gather(
    dst: Any,
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Gather within each GpSimd core's 16 partitions: [P, indices, elements]."""
    width = as_integer(num_elem_per_idx, "num_elem_per_idx")
    count = num_valid_indices
    if count is not None:
        count = as_integer(count, "num_valid_indices")
    return issue(search.local_gather, dst, (src_buffer, index), (width, count))


@public
def nc_stream_shuffle(
    dst: Any, src: Any, shuffle_mask: Any, name: str | None = None
) -> NkiInstruction:
    """``dst[q + i] = src[q + shuffle_mask[i]]`` in each quadrant of 32 partitions."""
    order = as_integers(shuffle_mask, "shuffle_mask")
    return issue(search.nc_stream_shuffle, dst, (src,), (order,))


@public
def sequence_bounds(dst: Any, segment_ids: Any, name: str | None = None) -> NkiInstruction:
    """Start and end of each element's segment: [1, 2, n] for ids [1, n]."""
    return issue(search.sequence_bounds, dst, (segment_ids,))


@public
def nc_n_gather(dst: Any, data: Any, indices: Any, name: str | None = None) -> NkiInstruction:
    """``dst[p, i] = data[p, indices[p, i]]``, the free axes of each taken as one."""
    return issue(gather.nc_n_gather, dst, (data, indices))


@public
def nonzero_with_count(
    dst: Any, src: Any, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> NkiInstruction:
    """Indices of what is not 0, padding, and their count; in each 16th partition."""
    options = (as_integer(index_offset, "index_offset"), as_integer(padding_val, "padding_val"))
    return issue(gather.nonzero_with_count, dst, (src,), options)
