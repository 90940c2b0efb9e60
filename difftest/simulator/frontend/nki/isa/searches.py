"""``nki.isa``: searches within partitions, gathers and shuffles."""

from __future__ import annotations

from typing import Any

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import search
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
    _check_starts(dst, src)
    order = as_integers(shuffle_mask, "shuffle_mask")
    return issue(search.nc_stream_shuffle, dst, (src,), (order,))


def _check_starts(dst: Any, src: Any) -> None:
    """The first partitions that go with the number of active ones (stub, v2.32.0)."""
    if not (isinstance(dst, Tile) and isinstance(src, Tile)):
        return  # the record says what is wrong
    quadrant, partitions = current().machine.shuffle_quadrant, current().machine.partitions
    described = {"src": src.descriptor(), "dst": dst.descriptor()}
    most = max(tile.partitions for tile in described.values())
    active = -(-most // quadrant) * quadrant
    step = active if active <= partitions // 2 else partitions
    for role, tile in described.items():
        if tile.start % step:
            raise KernelError(
                f"nc_stream_shuffle of {active} active partitions begins at certain ones",
                received=f"{role} = {tile!r}, which begins at partition {tile.start}",
                limit=", ".join(str(k) for k in range(0, partitions, step)),
            )


@public
def sequence_bounds(dst: Any, segment_ids: Any, name: str | None = None) -> NkiInstruction:
    """Start and end of each element's segment: [1, 2, n] for ids [1, n]."""
    return issue(search.sequence_bounds, dst, (segment_ids,))
