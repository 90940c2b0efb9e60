"""Copies on chip, searches and views: ``nisa.tensor_copy``, ``nisa.max8``, ``nl.broadcast_to``."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

from difftest.simulator.frontend.arguments import engine
from difftest.simulator.frontend.classic.calls import ISA, LANGUAGE
from difftest.simulator.frontend.classic.operators import on_chip
from difftest.simulator.index import as_integers
from difftest.simulator.instructions import copy as instructions
from difftest.simulator.instructions import search


@ISA.issues(instructions.tensor_copy)
def tensor_copy(src, *, mask=None, dtype=None, engine=engine.unknown):
    """A copy of ``src`` in SBUF, cast to ``dtype``."""
    return locals()


@ISA.issues(instructions.tensor_copy_dynamic_src)
def tensor_copy_dynamic_src(src, *, mask=None, dtype=None, engine=engine.unknown):
    """A copy of ``src``, a tile indexed with an offset held in SBUF."""
    return locals()


@ISA.issues(instructions.tensor_copy_dynamic_dst)
def tensor_copy_dynamic_dst(*, dst, src, mask=None, dtype=None, engine=engine.unknown):
    """Copy ``src`` to ``dst``, a tile indexed with an offset held in SBUF."""
    return locals()


@ISA.issues(instructions.tensor_copy_predicated)
def tensor_copy_predicated(*, src, dst, predicate, reverse_pred=False, mask=None, dtype=None):
    """Copy ``src`` to ``dst`` where ``predicate`` is true."""
    return locals()


@ISA.issues(search.max8)
def max8(*, src, mask=None, dtype=None):
    """The 8 largest values of each partition, descending."""
    return locals()


@ISA.issues(search.nc_find_index8, all_ones=False)
def nc_find_index8(*, data, vals, mask=None, dtype=None):
    """The index of each of 8 values in its partition, uint32 (or uint16)."""
    return locals()


@ISA.issues(search.nc_match_replace8, backwards=False)
def nc_match_replace8(*, data, vals, imm, dst_idx=None, mask=None, dtype=None):
    """``data`` with the first occurrence of each of 8 values replaced by ``imm``."""
    return locals()


@ISA.issues(search.local_gather)
def local_gather(src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, *, mask=None):
    """Gather within each GpSimd core's 16 partitions; [P, indices, elements]."""
    return locals()


@ISA.issues(search.nc_stream_shuffle)
def nc_stream_shuffle(src, dst, shuffle_mask, *, dtype=None, mask=None):
    """Move partitions within each quadrant of 32, into ``dst``."""
    return locals()


@ISA.issues(search.sequence_bounds)
def sequence_bounds(*, segment_ids, dtype=None):
    """Start and end of each element's segment: [1, 2, n] for ids [1, n]."""
    return locals()


@LANGUAGE.issues(search.gather_flattened)
def gather_flattened(data, indices, *, mask=None, dtype=None):
    """``data``'s elements at ``indices`` of the flattened free axes, within each partition."""
    return locals()


@LANGUAGE.issues(instructions.tensor_copy)
def copy(src, *, mask=None, dtype=None):
    """A new SBUF tile with the elements of an on-chip tile."""
    src = on_chip(src, "nl.copy", "src")
    return locals()


@LANGUAGE.by_hand
def broadcast_to(src, *, shape):
    """A new SBUF tile that repeats ``src`` along its dimensions of size 1."""
    tile = on_chip(src, "nl.broadcast_to", "src")
    wanted = as_integers(shape, "nl.broadcast_to's shape")
    return tile if tile.shape == wanted else copy(tile._broadcast_to(wanted))


@LANGUAGE.by_hand
def expand_dims(data, axis):
    """A view with dimensions of size 1 more; ``axis`` (or axes) of the result."""
    tile: Any = on_chip(data, "nl.expand_dims", "data")
    axes = as_integers(axis, "nl.expand_dims' axis")
    ndim = tile.ndim + len(axes)
    for at in sorted(number + ndim if number < 0 else number for number in axes):
        tile = tile.expand_dims(at)
    return tile
