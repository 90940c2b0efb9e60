"""``nki.isa``: searches within partitions, gathers and shuffles."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.errors import kernel_location, not_modelled, warn
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.levels import is_level
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import gather, search
from difftest.simulator.instructions import topk as snakes
from difftest.simulator.tile import Tile


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


class TopKWarning(UserWarning):
    """AWS's pages at NKI 0.6 and 0.7 say different things of where topk's results lie."""


@public
def topk(
    val_dst: Any, idx_dst: Any, src: Any, n: int, sorted: bool = False, name: str | None = None
) -> NkiInstruction:
    """The largest of ``n`` elements in each 16 partitions, and their numbers, in the same layout.

    How many there are is val_dst's free size, k. Results fill the first ceil(k / 16) columns, down
    the partitions; what the last of these has beyond k is undefined, the others stay. Their order
    is not documented.
    """
    if sorted:
        raise not_modelled(
            "nki.isa.topk's sorted=True", f"sorted={sorted!r}", "sort with nisa.max8 and its kin"
        )
    issued = issue(snakes.topk, val_dst, (src,), (as_integer(n, "n"),), others=(idx_dst,))
    if not is_level("0.7"):
        warn(
            TopKWarning(
                f"topk writes its results down 16 partitions ({kernel_location()}), as AWS's page "
                "of NKI 0.7 and its library have it; the page of NKI 0.6 has them in each "
                "partition, ascending. Rely on the values alone, not on their order."
            )
        )
    for dst in (val_dst, idx_dst):
        _forget_rest(dst)
    return issued


def _forget_rest(dst: Tile) -> None:
    """Let what topk's last column has beyond the results count as never written."""
    lanes = current().machine.gpsimd_core_partitions
    column, used = divmod(dst.size // dst.shape[0], lanes)
    if not used:
        return
    missing = np.zeros((dst.shape[0], dst.size // dst.shape[0]), dtype=np.bool_)
    missing[np.arange(dst.shape[0]) % lanes >= used, column] = True
    dst.forget_written(missing.reshape(dst.shape), dst.origin("left by topk"))
