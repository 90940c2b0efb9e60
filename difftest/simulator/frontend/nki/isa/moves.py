"""``nki.isa``: copies on chip, constants, and what the DMA engines move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from difftest.simulator.core import current
from difftest.simulator.dtypes import is_float, name_of
from difftest.simulator.errors import BufferError, DtypeError, KernelError, ShapeError, warn
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import engine_of, member_of
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.isa.elementwise import UNKNOWN
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.levels import check_level
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.frontend.nki.virtual_registers import DeviceValue
from difftest.simulator.index import Index, as_integer, as_integers
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import dma
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

MOST_AXES = 4
"""Dimensions of the pattern of iota and affine_select."""
_DGE = constants.dge_mode
_OOB = constants.oob_mode
_PRIORITIES = range(4)


@public
def tensor_copy(
    dst: Any, src: Any, engine: Any = UNKNOWN, name: str | None = None
) -> NkiInstruction:
    """``dst = src`` on chip, cast to dst's dtype."""
    chosen = engine_of(engine, "tensor_copy")
    if chosen is Engine.SCALAR and current().machine.nc_version == 2:
        raise KernelError(
            "tensor_copy does not support engine.scalar on NeuronCore-v2 (Trn1/Inf2). Use "
            "nisa.activation with op=nl.copy instead.",
            happened="tensor_copy was to run on the Scalar Engine of NeuronCore-v2",
            received=f"engine.scalar on {current().machine.name}",
        )
    return issue(copies.tensor_copy, dst, (src,), engine=chosen)


@public
def tensor_copy_predicated(
    dst: Any, src: Any, predicate: Any, reverse_pred: bool = False, name: str | None = None
) -> NkiInstruction:
    """``dst = src`` where the predicate is true."""
    return issue(copies.tensor_copy_predicated, dst, (src, predicate), (bool(reverse_pred),))


@public
def memset(dst: Any, value: Any, engine: Any = UNKNOWN, name: str | None = None) -> NkiInstruction:
    """Every element of dst becomes a constant, of dst's own kind."""
    if isinstance(dst, Tile) and isinstance(value, float) and not is_float(dst.dtype):
        if value.is_integer():
            check_level("a float as nisa.memset's value for integers")
            return memset(dst, int(value), engine, name)
        raise DtypeError(
            "memset takes a value of dst's own kind",
            happened=f"memset got the float {value!r} for a dst of {name_of(dst.dtype)}",
            received=f"value={value!r} for {dst!r}",
            remedy="give dst a float dtype",
        )
    return issue(copies.memset, dst, (value,), (None,), engine=engine_of(engine, "memset"))


# -- patterns of integers --------------------------------------------------------------------------


def affine(
    dst: Any, pattern: Sequence[Sequence[int]], offset: Any, multiplier: int, where: str
) -> Index:
    """``offset + channel * multiplier + sum(step * i)`` over dst's partitions and the pattern.

    ``offset`` is an integer, or a register, which is read now.

    Raises
    ------
    ShapeError : the pattern has more than four dimensions, or not dst's elements.
    """
    if not isinstance(dst, Tile):
        raise KernelError(
            f"{where} takes a tensor as dst",
            happened=f"{where} got a dst that is no tensor",
            received=f"{dst!r:.60}",
        )
    try:
        pairs = [(as_integer(s, "step"), as_integer(n, "num")) for s, n in pattern]
    except (TypeError, ValueError):
        raise KernelError(
            f"{where} takes pattern as a list of [step, num]",
            happened=f"{where} got a pattern that is not a list of pairs",
            received=f"pattern={pattern!r:.80}",
        ) from None
    shape = (dst.tile_shape()[0], *(n for _, n in pairs))
    total = 1
    for size in shape:
        total *= size
    if not 1 <= len(pairs) <= MOST_AXES or total != dst.size:
        raise ShapeError(
            f"{where}'s pattern has up to {MOST_AXES} dimensions, and dst's elements in each "
            "partition",
            happened=f"{where} got a pattern of {len(pairs)} dimensions and {total} elements",
            received=f"pattern={[list(pair) for pair in pairs]} for {dst!r}",
            limit=f"{dst.size // max(shape[0], 1)} elements",
        )
    steps = (as_integer(multiplier, "channel_multiplier"), *(s for s, _ in pairs))
    start = offset.device_value() if isinstance(offset, DeviceValue) else offset
    return Index(shape, as_integer(start, "offset"), steps)


@public
def iota(
    dst: Any, pattern: Any, offset: int = 0, channel_multiplier: int = 0, name: str | None = None
) -> NkiInstruction:
    """``dst = offset + channel * channel_multiplier + sum(step * i)``, in 32-bit integers."""
    index = affine(dst, pattern, offset, channel_multiplier, "iota")
    return issue(copies.iota, dst, (index,))


# -- DMA -------------------------------------------------------------------------------------------


def check_priority(priority: Any, where: str) -> None:
    """Raise :class:`KernelError` unless the priority is one that the machine has."""
    if priority is None:
        return
    if current().machine.nc_version < 4 or as_integer(priority, "priority") not in _PRIORITIES:
        raise KernelError(
            f"{where}'s priority is 0 to 3, on NeuronCore-v4 and later",
            happened=f"{where} got priority={priority!r:.40} on {current().machine.name}",
            received=f"priority={priority!r} on {current().machine.name}",
        )


def check_sides(where: str, **sides: Any) -> None:
    """DMA reads and writes HBM and SBUF; since NKI 0.3 PSUM is not among them."""
    for role, side in sides.items():
        if isinstance(side, (Tile, DynamicView)) and side.space is Space.PSUM:
            raise BufferError(
                f"{where} takes {role} in hbm or sbuf",
                happened=f"{where} got {role} in psum",
                received=f"{role} = {side!r}",
                limit="hbm or sbuf",
                remedy="copy between PSUM and SBUF with nisa.tensor_copy",
            )


def _dge(mode: Any, engine: Any, dst: Any, src: Any, where: str) -> str:
    """The name of the DGE mode; hardware descriptors move bytes (stub of dma_copy, v2.32.0)."""
    name = str(member_of(_DGE, mode, where).name)
    if engine is not UNKNOWN and name != "hwdge":
        raise KernelError(
            f"{where} takes engine with dge_mode.hwdge only",
            happened=f"{where} got an engine with dge_mode.{name}",
            received=f"engine={engine!r}, dge_mode.{name}",
        )
    if name == "hwdge" and getattr(dst, "dtype", None) != getattr(src, "dtype", None):
        raise DtypeError(
            f"{where} with dge_mode.hwdge does not cast",
            happened=f"{where} with dge_mode.hwdge got two dtypes",
            received=f"src {src!r}, dst {dst!r}",
            remedy="give both one dtype, or leave dge_mode out",
        )
    return name


@public
def dma_copy(
    dst: Any,
    src: Any,
    priority: int | None = None,
    oob_mode: Any = _OOB.error,
    dge_mode: Any = _DGE.unknown,
    engine: Any = UNKNOWN,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = src`` between HBM and SBUF; a side with dynamic offsets gathers or scatters."""
    check_priority(priority, "dma_copy")
    check_sides("dma_copy", src=src, dst=dst)
    dge = _dge(dge_mode, engine, dst, src, "dma_copy")
    outside = member_of(_OOB, oob_mode, "dma_copy").name
    skip = outside == "skip"
    gathers, scatters = stays_dynamic(src, skip), stays_dynamic(dst, skip)
    if (gathers or scatters) and dge == "hwdge":
        raise KernelError(
            "hardware descriptors take no offset for each row",
            happened="dma_copy with dge_mode.hwdge got an offset for each row",
            received=f"dge_mode.hwdge with src {src!r}, dst {dst!r}",
            remedy="leave dge_mode out, or use dge_mode.swdge",
        )
    if dge == "none" and (_by_rows(src) or _by_rows(dst)):
        raise KernelError(
            "an offset for each row needs software descriptors",
            happened="dma_copy with dge_mode.none got an offset for each row",
            received=f"dge_mode.none with src {src!r}, dst {dst!r}",
            remedy="leave dge_mode out, or use dge_mode.swdge",
        )
    source = src.unsettled() if gathers else src
    if scatters:
        return issue(dma.dma_scatter, dst.unsettled(), (source,), (None, outside, dge))
    if gathers:
        return issue(dma.dma_gather, dst, (source,), (None, outside, dge))
    return issue(dma.dma_copy, dst, (src,), (None, dge))


def _by_rows(side: Any) -> bool:
    """Whether a side has an offset for each row."""
    return isinstance(side, DynamicView) and not side.whole


def stays_dynamic(side: Any, skip: bool) -> bool:
    """Whether a side has an offset for each row, or one that leaves its tensor and is skipped."""
    if not isinstance(side, DynamicView):
        return False
    return not side.whole or (skip and side.settled() is None)


@public
def dma_transpose(
    dst: Any,
    src: Any,
    axes: Any = None,
    priority: int | None = None,
    dge_mode: Any = _DGE.unknown,
    oob_mode: Any = _OOB.error,
    name: str | None = None,
) -> NkiInstruction:
    """``dst = src`` with its axes permuted by the DMA engines; dst in SBUF."""
    check_priority(priority, "dma_transpose")
    check_sides("dma_transpose", src=src, dst=dst)
    if isinstance(dst, Tile) and dst.space is not Space.SBUF:
        raise BufferError(
            "dma_transpose writes dst in sbuf",
            happened=f"dma_transpose got dst in {dst.space.value}",
            received=f"dst = {dst!r}",
            limit="sbuf",
        )
    if isinstance(dst, Tile) and isinstance(src, Tile) and dst.dtype != src.dtype:
        raise DtypeError(
            "dma_transpose does not cast",
            happened=f"dma_transpose got {name_of(src.dtype)} for a dst of {name_of(dst.dtype)}",
            received=f"src {src!r}, dst {dst!r}",
        )
    outside = member_of(_OOB, oob_mode, "dma_transpose").name
    skip = outside == "skip"
    if skip and not isinstance(src, DynamicView):
        raise KernelError(
            "dma_transpose takes oob_mode.skip where src has a dynamic offset",
            happened="dma_transpose got oob_mode.skip without a dynamic offset",
            received=f"oob_mode.skip with src {src!r}",
        )
    dge = _dge(dge_mode, UNKNOWN, dst, src, "dma_transpose")
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
    elif dge == "hwdge":
        _check_hardware_transpose(src)
    order = None if axes is None else as_integers(axes, "axes")
    source = src.unsettled() if stays_dynamic(src, skip) else src
    return issue(dma.dma_transpose, dst, (source,), (order, dge, outside))


def _check_gathered_transpose(src: DynamicView, dge: str) -> None:
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


def _check_hardware_transpose(src: Any) -> None:
    """What the hardware DGE transposes (stub of dma_transpose, v2.32.0)."""
    shape, rank = src.shape, len(src.shape)
    most, few = current().machine.partitions, current().machine.dge_rows
    halves = [few >> k for k in range(few.bit_length())]
    wrong = None
    if src.dtype.itemsize != 2:
        wrong = "src's dtype has 2 bytes"
    elif shape[-1] > most:
        wrong = f"src.shape[-1] is at most {most}"
    elif rank == 2 and shape[0] != few:
        wrong = f"src.shape[0] is {few} for two dimensions"
    elif rank > 2 and (shape[0] not in halves or shape[0] * shape[-2] % few):
        wrong = (
            f"src.shape[0] is one of {', '.join(map(str, reversed(halves)))}, and "
            f"src.shape[0] * src.shape[-2] a multiple of {few}"
        )
    if wrong:
        raise KernelError(
            f"dma_transpose with dge_mode.hwdge: {wrong}",
            happened="dma_transpose with dge_mode.hwdge got a src that it does not take",
            received=f"src = {src!r}",
            remedy="leave dge_mode out",
        )
