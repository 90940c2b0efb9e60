"""``nki.isa``: copies on chip, constants, and what the DMA engines move."""

from __future__ import annotations

from difftest.simulator.core import current
from difftest.simulator.dtypes import is_float, name_of
from difftest.simulator.errors import DtypeError, KernelError, warn
from difftest.simulator.frontend.arguments import not_taken
from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.frontend.nki.constants import UNKNOWN, engine_of, member_of
from difftest.simulator.frontend.nki.constants import dge_mode as dge_modes
from difftest.simulator.frontend.nki.constants import oob_mode as oob_modes
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.frontend.nki.operands import affine
from difftest.simulator.index import as_integer
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import dma
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

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
        raise KernelError(
            f"{where}'s priority is 0 to 3, on NeuronCore-v4 and later",
            happened=f"{where} got priority={priority!r:.40} on {current().machine.name}",
            received=f"priority={priority!r} on {current().machine.name}",
        )


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
