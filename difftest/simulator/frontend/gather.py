"""Gathers and searches as the classic API spells them (``nki.isa`` and ``nki.language``)."""

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import as_dtype
from difftest.simulator.errors import not_modelled
from difftest.simulator.frontend.arguments import no_extras
from difftest.simulator.frontend.tensor import (
    Tensor,
    issue,
    issue_reduction,
    new_tensor,
    on_chip,
)
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import search
from difftest.simulator.instructions.operands import need_number
from difftest.simulator.masking import as_mask, mask_box, restrict
from difftest.simulator.tile import Tile

EIGHT = search.EIGHT


def _refuse(mask: object, where: str) -> None:
    if mask is not None and mask is not True:
        raise not_modelled(f"{where}'s mask", f"{mask!r}", "slice the operands")


def _free_axes(tile: Tile) -> tuple[int, ...]:
    return tuple(range(1, len(tile.tile_shape())))


def gather_flattened(
    data: Any, indices: Any, *, mask: object = None, dtype: object = None, **kwargs: object
) -> Tensor:
    """``data``'s elements at ``indices`` of the flattened free axes, within each partition."""
    no_extras("nl.gather_flattened", kwargs)
    source = on_chip(data, "gather_flattened", "data")
    places = on_chip(indices, "gather_flattened", "indices")
    chosen = as_mask(mask, places.tile_shape())
    box = None if isinstance(chosen, bool) else mask_box(chosen)
    if box is not None:  # the mask is over the indices; of the data it leaves whole partitions
        rows = (box[0], *(slice(0, size) for size in source.tile_shape()[1:]))
        source = restrict(source, rows, source.tile_shape())
    return issue(
        lambda dst, tile, where: search.gather_flattened(dst, source, tile, where=where),
        places.tile_shape(),
        source.dtype if dtype is None else as_dtype(dtype),
        (places,),
        mask,
    )


def max8(*, src: Any, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """The 8 largest values of each partition, descending."""
    no_extras("nisa.max8", kwargs)
    data = on_chip(src, "max8", "src")
    return issue_reduction(
        search.max8,
        (data.tile_shape()[0], EIGHT),
        data.dtype if dtype is None else as_dtype(dtype),
        (data,),
        _free_axes(data),
        mask,
        producer="max8",
    )


def nc_find_index8(
    *, data: Any, vals: Any, mask: object = None, dtype: object = None, **kwargs: object
) -> Tensor:
    """The index of each of 8 values in its partition, uint32 (or uint16)."""
    no_extras("nisa.nc_find_index8", kwargs)
    source = on_chip(data, "nc_find_index8", "data")
    eight = on_chip(vals, "nc_find_index8", "vals")
    if mask is not None and source.size == eight.size:
        _refuse(mask, "nisa.nc_find_index8 on 8 elements a partition")
    return issue_reduction(
        search.nc_find_index8,
        (source.tile_shape()[0], EIGHT),
        search.UINT32 if dtype is None else as_dtype(dtype),
        (source, eight),
        _free_axes(source),
        mask,
        producer="nc_find_index8",
    )


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
    _refuse(mask, "nisa.nc_match_replace8")
    source = on_chip(data, "nc_match_replace8", "data")
    eight = on_chip(vals, "nc_match_replace8", "vals")
    constant = float(need_number(imm, "imm", "nc_match_replace8"))
    places = None if dst_idx is None else on_chip(dst_idx, "nc_match_replace8", "dst_idx")
    return issue(
        lambda dst, a, b, where: search.nc_match_replace8(dst, a, b, constant, places, where=where),
        source.tile_shape(),
        source.dtype if dtype is None else as_dtype(dtype),
        (source, eight),
    )


def local_gather(
    src_buffer: Any,
    index: Any,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    *,
    mask: object = None,
) -> Tensor:
    """Gather within each GpSimd core's 16 partitions; [P, indices, elements]."""
    _refuse(mask, "nisa.local_gather")
    source = on_chip(src_buffer, "local_gather", "src_buffer")
    places = on_chip(index, "local_gather", "index")
    width = as_integer(num_elem_per_idx, "num_elem_per_idx")
    count = None
    if num_valid_indices is not None:
        count = as_integer(num_valid_indices, "num_valid_indices")
    shape, used = search.local_gather_shape(source, places, width, count)
    dst = new_tensor(shape, source.dtype)
    search.local_gather(dst, source, places, width, used)
    return dst


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
    _refuse(mask, "nisa.nc_stream_shuffle")
    if dtype is not None:
        raise not_modelled("nisa.nc_stream_shuffle's dtype", f"{dtype!r}")
    source = on_chip(src, "nc_stream_shuffle", "src")
    target = on_chip(dst, "nc_stream_shuffle", "dst")
    search.nc_stream_shuffle(target, source, list(as_integers(shuffle_mask, "shuffle_mask")))


def sequence_bounds(*, segment_ids: Any, dtype: object = None) -> Tensor:
    """Start and end of each element's segment: [1, 2, n] for ids [1, n]."""
    ids = on_chip(segment_ids, "sequence_bounds", "segment_ids")
    shape = ids.tile_shape()
    dst = new_tensor((shape[0], 2, *shape[1:]), ids.dtype if dtype is None else as_dtype(dtype))
    search.sequence_bounds(dst, ids)
    return dst
