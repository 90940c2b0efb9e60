"""Copies, constants, DMA, registers, random numbers and communication of two cores in ``nki.isa``.

Moves between registers leave no event in a trace: AWS's compiler places them on the sequencers of
the engines. Source: the stubs of ``nki.isa`` at v2.32.0; scalars as NKI 0.7 documents them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import INT32, dtype_name, is_integer
from difftest.simulator.errors import DtypeError, kernel_location, warn, warn_of_hazard
from difftest.simulator.frontend.arguments import no_member, not_taken
from difftest.simulator.frontend.dispatch import declare
from difftest.simulator.frontend.levels import check_level, public
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.calls import (
    affine,
    call,
    issue,
    issued,
    operator_of,
)
from difftest.simulator.frontend.nki.constants import UNKNOWN, member_of
from difftest.simulator.frontend.nki.constants import dge_mode as dge_modes
from difftest.simulator.frontend.nki.constants import oob_mode as oob_modes
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.virtual_registers import (
    NkiScalar,
    VirtualRegister,
    new_label,
    note_origins,
)
from difftest.simulator.index import as_integer
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import dma, effects
from difftest.simulator.instructions.checks import is_number, wrong_kind
from difftest.simulator.instructions.dma import MOST_SOURCES
from difftest.simulator.instructions.dma import dma_compute as record
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

_PRIORITIES = range(4)
_LOADED = "loaded"
"""The origin of a device's value that was read from memory."""
_QUEUES = (UNKNOWN, constants.engine.sync, constants.engine.scalar)


@call(copies.memset)
def memset(dst, value, engine=UNKNOWN, name=None):
    """Set every element of dst to a constant of dst's own kind.

    An integral float for integers counts as an integer, as before NKI 0.3.
    """
    if isinstance(value, float) and isinstance(dst, Tile) and is_integer(dst.dtype):
        if not value.is_integer():
            raise not_taken(
                "memset",
                "a value of dst's own kind",
                f"the float {value!r} for a dst of {dtype_name(dst.dtype)}",
                f"value={value!r} for {dst!r}",
                error=DtypeError,
                remedy="give dst a float dtype",
            )
        check_level("a float as nisa.memset's value for integers")
        value = int(value)
    return locals()


@call(copies.iota)
def iota(dst, pattern, offset=0, channel_multiplier=0, name=None):
    """Compute ``offset + channel * channel_multiplier + sum(step * i)``, in 32-bit integers."""
    expr = affine(locals(), "iota")
    return locals()


# -- DMA -------------------------------------------------------------------------------------------


def check_priority(priority, where):
    """Raise :class:`KernelError` unless the machine has this priority."""
    if priority is None:
        return
    if (
        current().machine.nc_version < 4
        or as_integer(priority, "priority") not in _PRIORITIES
    ):
        got = f"priority={priority!r:.40} on {current().machine.name}"
        raise not_taken(
            where, "priority as 0 to 3, on NeuronCore-v4 and later", got, got
        )


def _no_engine(value, where):
    """Check the engine whose queue has the descriptors; the data move on the DMA engines."""
    if value not in _QUEUES:
        raise no_member(constants.engine, value, where, map(str, _QUEUES))
    return Engine.UNKNOWN


@call(dma.dma_copy, engine=_no_engine)
def dma_copy(
    dst, src, priority=None, oob_mode=oob_modes.error, dge_mode=dge_modes.unknown, engine=UNKNOWN,
    name=None,
):  # fmt: skip
    """Copy ``dst = src`` between HBM and SBUF; a side with dynamic offsets gathers or scatters."""
    check_priority(priority, "dma_copy")
    dge_mode = member_of(dge_modes, dge_mode, "dma_copy").name
    if engine is not UNKNOWN and dge_mode != "hwdge":
        raise not_taken(
            "dma_copy",
            "engine with dge_mode.hwdge only",
            f"an engine with dge_mode.{dge_mode}",
            f"engine={engine!r}, dge_mode.{dge_mode}",
        )
    oob_mode = member_of(oob_modes, oob_mode, "dma_copy").name
    if not isinstance(src, DynamicView) and not isinstance(dst, DynamicView):
        oob_mode = None
    return locals()


def stays_dynamic(side, skip):
    """Return whether a side has an offset for each row, or an invalid one that is skipped."""
    if not isinstance(side, DynamicView):
        return False
    return not side._whole or (skip and side._settled() is None)


@call(dma.dma_transpose)
def dma_transpose(
    dst, src, axes=None, priority=None, dge_mode=dge_modes.unknown, oob_mode=oob_modes.error,
    name=None,
):  # fmt: skip
    """Copy ``dst = src`` with its axes permuted by the DMA engines; dst in SBUF.

    The transpose by descriptors of the runtime is not documented.
    """
    where = "dma_transpose"
    check_priority(priority, where)
    oob_mode = member_of(oob_modes, oob_mode, where).name
    dge_mode = member_of(dge_modes, dge_mode, where).name
    if oob_mode == "skip" and not isinstance(src, DynamicView):
        takes = "where src has a dynamic offset"
        got = "without a dynamic offset"
        raise not_taken(
            where,
            f"oob_mode.skip {takes}",
            f"oob_mode.skip {got}",
            f"oob_mode.skip with src {src!r}",
        )
    if dge_mode == "none" and not (isinstance(src, DynamicView) and not src._whole):
        page = "dma_transpose takes dge_mode.unknown or hwdge (its page at v2.32.0)"
        warn(UserWarning(f"{page}; taken as unknown"))
        dge_mode = "unknown"
    return locals()


# -- sums of the DMA engines -----------------------------------------------------------------------


_TWO = 2


class LostAdditionWarning(UserWarning):
    """An indirect sum selects a row twice: a device may lose one of the additions."""


@public  # by hand: dst and srcs decide which instruction computes the sum
def dma_compute(
    dst,
    srcs,
    reduce_op,
    scales=None,
    unique_indices=True,
    oob_mode=oob_modes.error,
    name=None,
):
    """Compute ``dst = srcs[0] + srcs[1] + ...``, or add rows of HBM by their index."""
    where = "dma_compute"
    listed = isinstance(srcs, (list, tuple))
    if not listed or not 1 <= len(srcs) <= MOST_SOURCES:
        raise not_taken(
            where,
            f"srcs as a list of 1 to {MOST_SOURCES} tensors",
            f"{type(srcs).__name__}{f' of {len(srcs)}' if listed else ''} as srcs",
            f"srcs={srcs!r:.80}",
        )
    operator = operator_of(reduce_op, where)
    skip = member_of(oob_modes, oob_mode, where) is oob_modes.skip
    factors = None if scales is None else _factors(scales)
    if any(stays_dynamic(side, skip) for side in (dst, *srcs)):
        return _indirect(
            dst, srcs, operator, factors, skip=skip, unique=bool(unique_indices)
        )
    if skip:
        raise not_taken(
            where,
            "oob_mode.skip with a vector_offset only",
            "oob_mode.skip and no side with a vector_offset",
            f"dst = {dst!r}",
        )
    left = (None,) * (MOST_SOURCES - len(srcs))
    return issue(record, dst, (*srcs, *left), (operator, factors))


def _factors(scales):
    """Return the scales as floats; raise if they are no list of numbers."""
    if isinstance(scales, (list, tuple)) and all(map(is_number, scales)):
        return tuple(map(float, scales))
    more = {
        "limit": "None, or 1.0 for each source",
        "remedy": "scale a tile with nisa.tensor_scalar or nisa.tensor_tensor first",
    }
    raise not_taken(
        "dma_compute",
        "scales as a list of numbers, one for each source",
        f"a {type(scales).__name__} as scales",
        f"scales={scales!r:.80}",
        **more,
    )


def _indirect(dst, srcs, operator, factors, *, skip, unique):
    """Compute ``dst[rows] += src`` in HBM, or ``dst += src[rows]`` in SBUF."""
    if len(srcs) != _TWO or not unique or set(factors or ()) - {1.0}:
        raise not_taken(
            "dma_compute with a vector_offset",
            "two srcs, scales of 1.0 and unique indices",
            f"{len(srcs)} srcs",
            f"{len(srcs)} srcs, scales={factors}, unique_indices={unique}",
        )
    other = _other_source(dst, srcs)
    options = (operator, "skip" if skip else "error", "swdge")
    if isinstance(dst, DynamicView):
        _check_rows(dst)
    elif not isinstance(dst, Tile) or dst._space is not Space.SBUF:
        raise not_taken(
            "dma_compute",
            "a dst in SBUF that gathered rows are added to",
            "a dst that is not there",
            f"dst = {dst!r}",
        )
    return issue(dma.dma_copy, dst, (other,), options)


def _other_source(dst, srcs):
    """Return the source that is not ``dst``; raise unless there is one."""
    others = [src for src in srcs if not _same_place(src, dst)]
    if len(others) == 1:
        return others[0]
    raise not_taken(
        "dma_compute with a vector_offset",
        "its dst as one of its two srcs",
        "a dst that is not one of the two srcs",
        f"dst = {dst!r}, srcs = {list(srcs)!r:.160}",
        remedy="write dma_compute(dst=x, srcs=[x, y], reduce_op=nl.add): one of them is indirect",
    )


def _check_rows(dst):
    """Warn of a row that is added to twice: the order of both is undefined on a device."""
    rows = dst._offsets()
    kept = rows[(rows >= 0) & (rows < dst._rows.size)]
    if len(np.unique(kept)) == len(kept):
        return
    name = dst._owner
    line = kernel_location()
    warn_of_hazard(
        LostAdditionWarning(
            f"dma_compute adds to a row of {name!r} twice ({line}): indices are to be "
            "unique, and on a device an addition may be lost"
        )
    )


def _same_place(src, dst):
    """Return whether a source is the destination itself, also as another view of it."""
    if isinstance(src, DynamicView) and isinstance(dst, DynamicView):
        same = (
            src._owner._storage is dst._owner._storage and src._pattern == dst._pattern
        )
        return same and np.array_equal(src._offsets(), dst._offsets())
    if isinstance(src, Tile) and isinstance(dst, Tile):
        return src._storage is dst._storage and src._pattern == dst._pattern
    return False


@public  # by hand: it makes an object, and no event
def register_alloc(x=None):
    """Allocate a register; initialize it with ``x`` unless that is None."""
    register = VirtualRegister(None)
    if x is not None:
        x = as_integer(x, "register_alloc of")
        register.set(x, "register_alloc")
    note_origins("allocated", register, x)
    return register


@public  # by hand: between registers, without an event
def register_move(dst, src):
    """Set ``dst = src``, an integer that the kernel knows or another register."""
    target = _register(dst, "dst", "register_move")
    is_register = isinstance(src, VirtualRegister)
    value = src.device_value() if is_register else as_integer(src, "register_move of")
    note_origins("moved", target, src if is_register else value)
    target.set(value, "register_move")
    return issued()


def _load(record, dst, operands, options, **_):
    """Load a register."""
    (target,) = options
    value = effects.issue_effect(record, [(operands, ())], (target.label,))
    target.set(value, record.name)
    return issued()


@call(effects.register_store)
def register_store(dst, src):
    """Write a register to a tensor of one element in HBM or SBUF."""
    register = _register(src, "src", "register_store")
    note_origins("stored", register)
    value = register.device_value()
    src = register.label
    return locals()


@public  # by hand: it makes an object of the loaded value
def scalar_load(src):
    """Load an integer in HBM or SBUF as a scalar."""
    label = new_label()
    value = effects.issue_effect(effects.scalar_load, [((src,), ())], (label,))
    return NkiScalar(value, INT32, label, _LOADED)


@call(effects.scalar_store)
def scalar_store(dst, s):
    """Write a scalar to a tensor of one element in HBM or SBUF."""
    if not isinstance(s, (VirtualRegister, NkiScalar)):
        raise wrong_kind(s, "an nl.NkiScalar", "scalar_store", "s")
    note_origins("stored", s)
    value = s.device_value()
    src = s.label
    return locals()


def _register(value: Any, role: str, where: str) -> VirtualRegister:
    if not isinstance(value, VirtualRegister):
        raise wrong_kind(
            value, "a register", where, role, "make one with nisa.register_alloc()"
        )
    return value


# fmt: off
class MoveCalls:
    """The signatures of calls that need only a record and converters.

    Random numbers repeat in each run.
    """

    def tensor_copy(dst, src, engine=UNKNOWN, name=None): ...
    def tensor_copy_predicated(dst, src, predicate, reverse_pred=False, name=None): ...
    def register_load(dst, src): ...
    def rng(dst, engine=constants.engine.vector, name=None): ...
    def rand2(dst, min, max, name=None): ...
    def set_rng_seed(src_seeds, name=None): ...
    def rand_set_state(src_seeds, engine=constants.engine.gpsimd, name=None): ...
    def rand_get_state(dst, engine=constants.engine.gpsimd, name=None): ...
    def core_barrier(data, cores, engine=constants.engine.gpsimd, name=None): ...
    def sendrecv(src, dst, send_to_rank, recv_from_rank, pipe_id,
                 dma_engine=constants.dma_engine.dma, name=None): ...
# fmt: on


declare(
    MoveCalls,
    call,
    register_load={
        "run": _load,
        "dst": lambda value, where: _register(value, "dst", where),
    },
    sendrecv={
        "dma_engine": lambda value, where: (
            member_of(constants.dma_engine, value, where).name
        )
    },
)
