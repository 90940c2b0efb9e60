"""``nki.isa.dma_compute``: sums that the DMA engines compute on the way."""

from __future__ import annotations

import numpy as np

from difftest.simulator.errors import kernel_location, warn
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import member_of
from difftest.simulator.frontend.nki.constants import oob_mode as oob_modes
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.isa.moves import stays_dynamic
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.operands import operator_of
from difftest.simulator.instructions import dma
from difftest.simulator.instructions.dma_compute import MOST_SOURCES
from difftest.simulator.instructions.dma_compute import dma_compute as record
from difftest.simulator.instructions.operands import is_number
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space

_TWO = 2


class LostAdditionWarning(UserWarning):
    """An indirect sum names a row twice: on a device one of the additions may be lost."""


@public  # by hand: of what dst and srcs are follows which instruction sums them
def dma_compute(
    dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=oob_modes.error, name=None
):
    """``dst = srcs[0] + srcs[1] + ...``, or rows of HBM added to or taken up by their index."""
    where = "dma_compute"
    if not isinstance(srcs, (list, tuple)) or not 1 <= len(srcs) <= MOST_SOURCES:
        takes = f"srcs as a list of 1 to {MOST_SOURCES} tensors"
        got = f"{type(srcs).__name__} as srcs"
        raise not_taken(where, takes, got, f"srcs={srcs!r:.80}")
    operator = operator_of(reduce_op, where)
    skip = member_of(oob_modes, oob_mode, where) is oob_modes.skip
    factors = None if scales is None else _factors(scales)
    if any(stays_dynamic(side, skip) for side in (dst, *srcs)):
        return _indirect(dst, srcs, operator, factors, skip=skip, unique=bool(unique_indices))
    if skip:
        takes = "oob_mode.skip with a vector_offset only"
        got = "oob_mode.skip and no side with a vector_offset"
        raise not_taken(where, takes, got, f"dst = {dst!r}")
    left = (None,) * (MOST_SOURCES - len(srcs))
    return issue(record, dst, (*srcs, *left), (operator, factors))


def _factors(scales):
    if isinstance(scales, (list, tuple)) and all(map(is_number, scales)):
        return tuple(map(float, scales))
    takes = "scales as a list of numbers, one for each source"
    got = f"a {type(scales).__name__} as scales"
    more = {
        "limit": "None, or 1.0 for each source",
        "remedy": "scale a tile with nisa.tensor_scalar or nisa.tensor_tensor first",
    }
    raise not_taken("dma_compute", takes, got, f"scales={scales!r:.80}", **more)


def _indirect(dst, srcs, operator, factors, *, skip, unique):
    """One source is ``dst`` again: ``dst[rows] += src`` in HBM, or ``dst += src[rows]`` in SBUF."""
    if len(srcs) != _TWO or any(one != 1.0 for one in factors or ()) or not unique:
        takes, got = "two srcs, scales of 1.0 and unique indices", f"{len(srcs)} srcs"
        received = f"{len(srcs)} srcs, scales={factors}, unique_indices={unique}"
        raise not_taken("dma_compute with a vector_offset", takes, got, received)
    others = [src for src in srcs if not _same_place(src, dst)]
    if len(others) != 1:
        takes, got = "its dst as one of its two srcs", "a dst that is not one of the two srcs"
        received = f"dst = {dst!r}, srcs = {list(srcs)!r:.160}"
        remedy = "write dma_compute(dst=x, srcs=[x, y], reduce_op=nl.add): one of them is indirect"
        raise not_taken("dma_compute with a vector_offset", takes, got, received, remedy=remedy)
    (other,) = others
    options = (operator, "skip" if skip else "error", "swdge")
    if isinstance(dst, DynamicView):
        _warn_of_repetition(dst)
    elif not isinstance(dst, Tile) or dst._space is not Space.SBUF:
        takes, got = "a dst in SBUF that gathered rows are added to", "a dst that is not there"
        raise not_taken("dma_compute", takes, got, f"dst = {dst!r}")
    return issue(dma.dma_copy, dst, (other,), options)


def _same_place(src, dst):
    """Whether a source is the destination itself, also as another view of it."""
    if isinstance(src, DynamicView) and isinstance(dst, DynamicView):
        same = src._owner._storage is dst._owner._storage and src._pattern == dst._pattern
        return same and np.array_equal(src._offsets(), dst._offsets())
    if isinstance(src, Tile) and isinstance(dst, Tile):
        return src._storage is dst._storage and src._pattern == dst._pattern
    return False


def _warn_of_repetition(dst):
    """Two additions to one row are both made here; their order on a device is not defined."""
    rows = dst._offsets()
    kept = rows[(rows >= 0) & (rows < dst._rows.size)]
    if len(np.unique(kept)) < len(kept):
        warn(
            LostAdditionWarning(
                f"dma_compute adds to a row of {dst._owner!r} twice ({kernel_location()}): indices "
                "are to be unique, and on a device an addition may be lost"
            )
        )
