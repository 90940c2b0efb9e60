"""``nki.isa``: what the two cores of a logical NeuronCore say to each other.

Source: the stubs ``nisa.core_barrier`` and ``nisa.sendrecv`` at v2.32.0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from difftest.simulator.baton import Baton
from difftest.simulator.core import Core, current
from difftest.simulator.dtypes import name_of
from difftest.simulator.errors import (
    DtypeError,
    KernelError,
    LimitError,
    ShapeError,
    warn,
)
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import engine_of, member_of
from difftest.simulator.frontend.nki.objects import ISSUED
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions.effects import Sent, note, sent, take
from difftest.simulator.instructions.operands import need_tile
from difftest.simulator.instructions.writing import check_destination
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

CORES = (0, 1)
"""Of a logical NeuronCore with two cores: the only ones that meet."""


class BarrierWarning(UserWarning):
    """A barrier names what the cores do not share."""


class _Message(NamedTuple):
    """What a core gives in a sendrecv, to whom, and from whom it takes."""

    sent: Sent
    to: int
    source: int


def _pair(where: str) -> tuple[Core, Baton]:
    """The core that runs and the baton of its logical NeuronCore.

    Raises
    ------
    KernelError : there is no second core.
    """
    core = current()
    if core.machine.nc_version < 3:
        raise KernelError(
            f"{where} is available on NeuronCore-v3 and newer",
            happened=f"{where} was called on {core.machine.name}",
            received=core.machine.name,
        )
    if core.baton is None or core.grid != (len(CORES),):
        raise KernelError(
            f"{where} is for two programs side by side",
            happened=f"{where} was called by a program that has no other beside it",
            received=f"a launch with {f'grid {core.grid}' if core.grid else 'no grid'}",
            limit="kernel[2]",
            remedy="launch kernel[2](...), or call it only if nl.num_programs() is 2",
        )
    return core, core.baton


@public
def core_barrier(data, cores, engine=constants.engine.gpsimd, name=None):
    """Wait until both cores are here; ``data`` is what they share, a tensor in shared HBM.

    Of a tile in SBUF, which the cores do not share, it is the same barrier, with a warning: kernels
    of aws-neuron/nki-library have it.

    Raises
    ------
    KernelError : the launch has not two programs, ``cores`` is not (0, 1), or the machine is
        older than NeuronCore-v3. BufferError : ``data`` is in neither memory. DeadlockError : the
        other core never comes to a barrier on the same tensor.
    """
    core, baton = _pair("core_barrier")
    shared = need_tile(data, "data", "core_barrier", (Space.SHARED_HBM, Space.SBUF))
    if as_integers(cores, "core_barrier of cores") != CORES:
        raise KernelError(
            "core_barrier synchronizes both cores",
            happened=f"core_barrier got cores={cores!r:.40}",
            received=f"cores={cores!r}",
            limit="(0, 1)",
        )
    chosen = engine_of(engine, "core_barrier")
    allocation = shared.storage.allocation
    call = f"nisa.core_barrier of {allocation}"
    if not shared.in_hbm:
        warn(
            BarrierWarning(
                f"core_barrier got data in sbuf, which the cores do not share: {shared!r}"
            )
        )
    point = allocation.id if shared.in_hbm else "sbuf"
    baton.meet(core.seat, ("core_barrier", point), CORES, None, call, core.steps)
    # Read and written: what comes before it and what comes after depend on each other through it.
    note("core_barrier", chosen, writes=[("data", shared)], reads=[("data", shared)])
    return ISSUED


@public
def sendrecv(
    src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=constants.dma_engine.dma, name=None
):
    """Send ``src`` to one core while ``dst`` is filled by one; both tiles in SBUF.

    Raises
    ------
    BufferError, DtypeError, ShapeError : ``src`` and ``dst`` are not two SBUF tiles of one dtype
        and shape. LimitError : too many bytes a partition for ``dma_engine.gpsimd_dma``.
    KernelError : a rank is not 0 or 1, or who sends and who receives do not agree. DeadlockError :
        the other core never calls it with the same ``pipe_id``.
    """
    core, baton = _pair("sendrecv")
    _check_sides(src, dst)
    by_gpsimd = member_of(constants.dma_engine, dma_engine, "sendrecv").name == "gpsimd_dma"
    if by_gpsimd:
        _check_gpsimd(src)
    to, source = _rank(send_to_rank, "send_to_rank"), _rank(recv_from_rank, "recv_from_rank")
    pipe = as_integer(pipe_id, "sendrecv with pipe_id")
    check_destination(dst)
    mine = _Message(sent(src, f"core {core.seat}"), to, source)
    call = f"nisa.sendrecv with pipe_id={pipe}"
    met = baton.meet(core.seat, ("sendrecv", pipe), CORES, mine, call, core.steps)
    message: _Message = met[source]
    theirs = _check_agreement(core.seat, source, message, dst)
    if core.shadow is not None:
        core.shadow.foresee_received("sendrecv", dst, message.sent.exact)
    take(dst, message.sent)
    engine = Engine.GPSIMD if by_gpsimd else Engine.DMA
    note(
        "sendrecv",
        engine,
        writes=[("dst", dst)],
        reads=[("src", theirs)],
        send_to_rank=to,
        recv_from_rank=source,
        pipe_id=pipe,
    )
    return ISSUED


def _rank(value: Any, name: str) -> int:
    rank = as_integer(value, f"sendrecv with {name}")
    if rank not in CORES:
        raise KernelError(
            f"sendrecv's {name} is a core of the logical NeuronCore",
            happened=f"sendrecv got {name}={rank}",
            received=f"{name}={rank}",
            limit="0 or 1",
        )
    return rank


def _check_sides(src: Any, dst: Any) -> None:
    for role, side in (("src", src), ("dst", dst)):
        need_tile(side, role, "sendrecv", (Space.SBUF,))
    if src.dtype != dst.dtype:
        raise DtypeError(
            "sendrecv takes src and dst of the same dtype",
            happened=f"sendrecv got src in {name_of(src.dtype)} and dst in {name_of(dst.dtype)}",
            received=f"src {name_of(src.dtype)}, dst {name_of(dst.dtype)}",
        )
    if src.shape != dst.shape:
        raise ShapeError(
            "sendrecv takes src and dst of the same shape",
            happened=f"sendrecv got src {list(src.shape)} and dst {list(dst.shape)}",
            received=f"src {list(src.shape)}, dst {list(dst.shape)}",
        )


def _check_gpsimd(src: Tile) -> None:
    each = src.size // src.shape[0] * src.dtype.itemsize
    most = current().machine.gpsimd_dma_elements * src.dtype.itemsize
    if each > most:
        raise LimitError(
            "sendrecv by GpSimd's own DMA moves few bytes a partition",
            happened=f"sendrecv by GpSimd's own DMA got {each} bytes a partition",
            received=f"{each} bytes a partition of {name_of(src.dtype)}",
            limit=f"{most} bytes",
            remedy="leave dma_engine out, or send it in parts",
        )


def _check_agreement(me: int, source: int, message: _Message, dst: Tile) -> Tile:
    """The tile that the other core sent, if both mean the same exchange."""
    src = message.sent.src
    assert src is not None
    if message.to != me:
        raise KernelError(
            "in a sendrecv each core sends to the one that receives from it",
            happened=f"core {me} was to receive from core {source}, which sends to core "
            f"{message.to}",
            received=f"core {me} receives from core {source}, which sends to core {message.to}",
        )
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise ShapeError(
            "both cores of a sendrecv move tiles of the same shape and dtype",
            happened=f"core {source} sent a tile of another shape or dtype than core {me} receives",
            received=f"src {src!r} of core {source}, dst {dst!r} of core {me}",
        )
    return src
