"""``nki.isa``: copies on chip, constants, and what the DMA engines move."""

from __future__ import annotations

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import is_float, name_of
from difftest.simulator.errors import DtypeError, kernel_location, warn
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.nki.calls import affine, call, issue, operator_of
from difftest.simulator.frontend.nki.constants import UNKNOWN, engine_of, member_of
from difftest.simulator.frontend.nki.constants import dge_mode as dge_modes
from difftest.simulator.frontend.nki.constants import oob_mode as oob_modes
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.levels import check_level, public
from difftest.simulator.index import as_integer
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import dma
from difftest.simulator.instructions.dma import MOST_SOURCES
from difftest.simulator.instructions.dma import dma_compute as record
from difftest.simulator.instructions.operands import is_number
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

_PRIORITIES = range(4)


@call(copies.tensor_copy)
def tensor_copy(dst, src, engine=UNKNOWN, name=None):
    """``dst = src`` on chip, cast to dst's dtype."""


@call(copies.tensor_copy_predicated)
def tensor_copy_predicated(dst, src, predicate, reverse_pred=False, name=None):
    """``dst = src`` where the predicate is true."""


def _of_its_kind(values, where):
    """A float for integers counts as the integer that it is, as before NKI 0.3."""
    value = values["value"]
    if not isinstance(value, float):
        return
    dst = values["dst"]
    if isinstance(dst, Tile) and not is_float(dst.dtype):
        if not value.is_integer():
            takes = "a value of dst's own kind"
            got = f"the float {value!r} for a dst of {name_of(dst.dtype)}"
            raise not_taken(
                "memset",
                takes,
                got,
                f"value={value!r} for {dst!r}",
                error=DtypeError,
                remedy="give dst a float dtype",
            )
        check_level("a float as nisa.memset's value for integers")
        values["value"] = int(value)


@call(copies.memset, prepare=_of_its_kind)
def memset(dst, value, engine=UNKNOWN, name=None):
    """Every element of dst becomes a constant, of dst's own kind."""


def _pattern(values, where):
    values["expr"] = affine(values, where)


@call(copies.iota, prepare=_pattern, expr=None)
def iota(dst, pattern, offset=0, channel_multiplier=0, name=None):
    """``dst = offset + channel * channel_multiplier + sum(step * i)``, in 32-bit integers."""


# -- DMA -------------------------------------------------------------------------------------------


def check_priority(priority, where):
    """Raise :class:`KernelError` unless the priority is one that the machine has."""
    if priority is None:
        return
    if current().machine.nc_version < 4 or as_integer(priority, "priority") not in _PRIORITIES:
        takes = "priority as 0 to 3, on NeuronCore-v4 and later"
        got = f"priority={priority!r:.40} on {current().machine.name}"
        raise not_taken(where, takes, got, got)


def _of_both_sides(values, where):
    """Which ``oob_mode`` the event has follows from both sides."""
    check_priority(values["priority"], where)
    values["dge_mode"] = mode = member_of(dge_modes, values["dge_mode"], where).name
    if values["engine"] not in (UNKNOWN, Engine.UNKNOWN) and mode != "hwdge":
        takes, got = "engine with dge_mode.hwdge only", f"an engine with dge_mode.{mode}"
        raise not_taken(where, takes, got, f"engine={values['engine']!r}, dge_mode.{mode}")
    outside = member_of(oob_modes, values["oob_mode"], where).name
    indirect = isinstance(values["src"], DynamicView) or isinstance(values["dst"], DynamicView)
    values["oob_mode"] = outside if indirect else None


def _no_engine(value, where):
    """Descriptors come from the queue of any engine, and DMA engines move what they say."""
    engine_of(value, where)
    return Engine.UNKNOWN


@call(dma.dma_copy, prepare=_of_both_sides, engine=_no_engine)
def dma_copy(
    dst,
    src,
    priority=None,
    oob_mode=oob_modes.error,
    dge_mode=dge_modes.unknown,
    engine=UNKNOWN,
    name=None,
):
    """``dst = src`` between HBM and SBUF; a side with dynamic offsets gathers or scatters."""


def stays_dynamic(side, skip):
    """Whether a side has an offset for each row, or one that leaves its tensor and is skipped."""
    if not isinstance(side, DynamicView):
        return False
    return not side._whole or (skip and side._settled() is None)


def _modes(values, where):
    """The modes by name. What descriptors of the runtime transpose is not documented."""
    check_priority(values["priority"], where)
    src = values["src"]
    values["oob_mode"] = outside = member_of(oob_modes, values["oob_mode"], where).name
    values["dge_mode"] = mode = member_of(dge_modes, values["dge_mode"], where).name
    if outside == "skip" and not isinstance(src, DynamicView):
        takes, got = "where src has a dynamic offset", "without a dynamic offset"
        received = f"oob_mode.skip with src {src!r}"
        raise not_taken(where, f"oob_mode.skip {takes}", f"oob_mode.skip {got}", received)
    if mode == "none" and not (isinstance(src, DynamicView) and not src._whole):
        page = "dma_transpose takes dge_mode.unknown or hwdge (its page at v2.32.0)"
        warn(UserWarning(f"{page}; taken as unknown"))
        values["dge_mode"] = "unknown"


@call(dma.dma_transpose, prepare=_modes)
def dma_transpose(
    dst,
    src,
    axes=None,
    priority=None,
    dge_mode=dge_modes.unknown,
    oob_mode=oob_modes.error,
    name=None,
):
    """``dst = src`` with its axes permuted by the DMA engines; dst in SBUF."""


# -- sums that the DMA engines compute on the way --------------------------------------------------


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
