"""``nki.isa``: copies on chip, constants, and what the DMA engines move."""

from __future__ import annotations

from difftest.simulator.core import current
from difftest.simulator.dtypes import is_float, name_of
from difftest.simulator.errors import DtypeError, KernelError, warn
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.frontend.nki.constants import UNKNOWN, member_of
from difftest.simulator.frontend.nki.constants import dge_mode as dge_modes
from difftest.simulator.frontend.nki.constants import oob_mode as oob_modes
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.frontend.nki.operands import affine
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import dma
from difftest.simulator.tile import Tile

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
            raise DtypeError(
                "memset takes a value of dst's own kind",
                happened=f"memset got the float {value!r} for a dst of {name_of(dst.dtype)}",
                received=f"value={value!r} for {dst!r}",
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


# -- DMA, by hand: of what a side is follows which instruction moves it ----------------------------


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


@public
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
    check_priority(priority, "dma_copy")
    dge = member_of(dge_modes, dge_mode, "dma_copy").name
    if engine is not UNKNOWN and dge != "hwdge":
        raise KernelError(
            "dma_copy takes engine with dge_mode.hwdge only",
            happened=f"dma_copy got an engine with dge_mode.{dge}",
            received=f"engine={engine!r}, dge_mode.{dge}",
        )
    outside = member_of(oob_modes, oob_mode, "dma_copy").name
    indirect = isinstance(src, DynamicView) or isinstance(dst, DynamicView)
    return issue(dma.dma_copy, dst, (src,), (None, outside if indirect else None, dge))


def _by_rows(side):
    """Whether a side has an offset for each row."""
    return isinstance(side, DynamicView) and not side.whole


def stays_dynamic(side, skip):
    """Whether a side has an offset for each row, or one that leaves its tensor and is skipped."""
    if not isinstance(side, DynamicView):
        return False
    return not side.whole or (skip and side.settled() is None)


@public
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
    check_priority(priority, "dma_transpose")
    outside = member_of(oob_modes, oob_mode, "dma_transpose").name
    skip = outside == "skip"
    if skip and not isinstance(src, DynamicView):
        raise KernelError(
            "dma_transpose takes oob_mode.skip where src has a dynamic offset",
            happened="dma_transpose got oob_mode.skip without a dynamic offset",
            received=f"oob_mode.skip with src {src!r}",
        )
    dge = member_of(dge_modes, dge_mode, "dma_transpose").name
    if _by_rows(src):
        _check_gathered_transpose(src, dge)
    elif dge == "none":
        warn(
            UserWarning(
                "dma_transpose takes dge_mode.unknown or hwdge (its page at v2.32.0); taken as "
                "unknown"
            )
        )
        dge = "unknown"
    elif dge == "swdge":
        raise KernelError(
            "dma_transpose takes dge_mode.unknown or hwdge where src has no offset for each row",
            happened=f"dma_transpose got dge_mode.{dge} without an offset for each row",
            received=f"dge_mode.{dge} with src {src!r}",
        )
    order = None if axes is None else as_integers(axes, "axes")
    return issue(dma.dma_transpose, dst, (src,), (order, dge, outside))


def _check_gathered_transpose(src, dge):
    """What the software DGE gathers and transposes (stub of dma_transpose, v2.32.0)."""
    shape, index, machine = src.shape, src.index, current().machine
    most, few = machine.partitions, machine.dge_rows
    assert isinstance(index, Tile)
    rows = index.shape[0]
    rules = {
        "dge_mode is unknown or swdge": dge in ("unknown", "swdge"),
        "it runs on NeuronCore-v3 and newer": machine.nc_version >= 3,
        "src[1] or src[2] has one element if src has four dimensions": len(shape) != 4
        or 1 in shape[1:3],
        f"src.shape[-1] is at most {most}": shape[-1] <= most,
        "src's dtype has 2 bytes": src.dtype.itemsize == 2,
        f"src.shape[0] is a multiple of {few}": shape[0] % few == 0,
        "the indices have two dimensions": index.ndim == 2,
        "the indices are uint32": name_of(index.dtype) == "uint32",
        f"the indices' shape[0] is {few} to {most} and a multiple of {few}": few <= rows <= most
        and rows % few == 0,
        f"the indices' shape[0] is {most} if they have several columns": rows == most
        or index.shape[-1] == 1,
    }
    broken = next((rule for rule, holds in rules.items() if not holds), None)
    if broken:
        raise KernelError(
            f"dma_transpose with an offset for each row: {broken}",
            happened="dma_transpose got an offset for each row that does not fit it",
            received=f"src = {src!r}, dge_mode.{dge}",
        )
