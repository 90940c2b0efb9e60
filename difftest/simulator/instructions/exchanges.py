"""Records of the exchanges between cores of a logical NeuronCore, and between ranks.

The ranks are those of :func:`difftest.simulator.launch_ranks`, each with its own HBM. On a rank
with two cores, a program meets the programs of its number on the other ranks. No page documents
this, but kernels of aws-neuron/nki-library (``allgather_sb2sb_tiled``) gather the tiles of each
core separately. Reductions follow the order of the group, floats in float32; a device's order is
not documented. The runtime determines the ring of each channel; here it is the order of the group.
Source: the stubs ``nisa.core_barrier``, ``nisa.sendrecv`` and those of ``nki.collectives`` at
v2.32.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce, wraps
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import (
    KernelError,
    OutOfBoundsError,
    ShapeError,
    call_error,
    warn,
)
from difftest.simulator.instructions.effects import (
    EffectUse,
    Exchange,
    Message,
    Rendezvous,
    combined,
    effect,
)
from difftest.simulator.instructions.gate import check_destination
from difftest.simulator.instructions.record import (
    DMA_SPACES,
    HBM,
    SBUF_ONLY,
    CheckedCall,
    Instruction,
    Role,
    Rule,
)
from difftest.simulator.instructions.rules import (
    limits,
    needs_generation,
    one_dtype,
    one_memory,
    one_of,
    same_shape,
)
from difftest.simulator.memory import Shape
from difftest.simulator.program_scheduler import Rank
from difftest.simulator.trace import Engine, Purpose, Space

# -- the two cores of a logical NeuronCore ---------------------------------------------------------

CORES = (0, 1)
"""The cores of a logical NeuronCore with two cores, the only cores that meet."""


class BarrierWarning(UserWarning):
    """A barrier names a tensor that the cores do not share."""


def _pair(name: str, point: Any, call: str) -> Rendezvous:
    """Return the meeting point of the running core and the other core.

    Raises
    ------
    KernelError : the logical NeuronCore has one core.
    """
    core = current()
    seat = core.seat
    if seat.scheduler is None or core.grid != (len(CORES),):
        raise call_error(
            name,
            "is for two programs side by side",
            "was called by a program that has no other beside it",
            f"a launch with {f'grid {core.grid}' if core.grid else 'no grid'}",
            limit="kernel[2]",
            remedy="launch kernel[2](...), or call it only if nl.num_programs() is 2",
        )
    return Rendezvous(
        seat.scheduler, seat.number, CORES, (name, point), call, "core", seat.steps
    )


def _at_barrier(acts: Sequence[EffectUse]) -> Rendezvous:
    """Return a barrier's meeting point.

    A tile in SBUF, which the cores do not share, gives one common barrier and a warning.
    """
    data = acts[0].reads["data"]
    if not data._in_hbm:
        text = f"core_barrier got data in sbuf, which the cores do not share: {data!r}"
        warn(BarrierWarning(text))
    allocation = data._storage.allocation
    point = allocation.id if data._in_hbm else "sbuf"
    return _pair("core_barrier", point, f"nisa.core_barrier of {allocation}")


@effect(
    Engine.GPSIMD,
    operands=(Role("data", buffers=(Space.SHARED_HBM, Space.SBUF)),),
    options=("cores",),
    rules=(needs_generation(3), one_of("cores", CORES, says="synchronizes both cores")),
    engine=lambda call, wanted: wanted,
    exchange=Exchange(_at_barrier, lambda act: None),
    purpose=Purpose.BARRIER,
)
def core_barrier(act: EffectUse) -> None:
    """Wait until both cores are here; ``data`` is shared by them, a tensor in shared HBM."""
    # Read and written, so that earlier and later accesses depend on each other through it.
    act.writes["data"] = act.reads["data"]


def _fits_gpsimd(call: CheckedCall) -> None:
    src = call["src"]
    most = call.machine.gpsimd_dma_elements
    size = call["src"].dtype.itemsize
    wrong = call.engine is Engine.GPSIMD and src.free_size > most
    rule = (
        f"GpSimd's own DMA moves at most {most * size} bytes a partition of {src.dtype}"
    )
    limits(call, (wrong, rule, f"{src.free_size * size} bytes a partition"))


def _in_pipe(acts: Sequence[EffectUse]) -> Rendezvous:
    pipe = acts[0].call["pipe_id"]
    return _pair("sendrecv", pipe, f"nisa.sendrecv with pipe_id={pipe}")


@effect(
    Engine.DMA,
    Engine.GPSIMD,
    operands=(Role("src", buffers=SBUF_ONLY),),
    destinations=(Role("dst", buffers=SBUF_ONLY),),
    options=("send_to_rank", "recv_from_rank", "pipe_id", "dma_engine"),
    limits=("gpsimd_dma_elements",),
    rules=(
        needs_generation(3),
        one_dtype("src", "dst"),
        same_shape("src", "dst"),
        _fits_gpsimd,
        one_of(
            "send_to_rank", *CORES, says="sends to a core of the logical NeuronCore"
        ),
        one_of(
            "recv_from_rank",
            *CORES,
            says="receives from a core of the logical NeuronCore",
        ),
    ),
    engine=lambda call, wanted: (
        Engine.GPSIMD if call["dma_engine"] != "dma" else Engine.DMA
    ),
    exchange=Exchange(
        _in_pipe, lambda act: (act.call["send_to_rank"], *act.send_all())
    ),
    purpose=Purpose.SEND,
)
def sendrecv(act: EffectUse) -> None:
    """Send ``src`` to one core while another fills ``dst``; both tiles are in SBUF."""
    me = act.meeting.me
    source = act.call["recv_from_rank"]
    dst = act.writes["dst"]
    to, message = act.messages[source]
    src = message.src
    if to != me:
        raise KernelError(
            "in a sendrecv each core sends to the one that receives from it",
            happened=f"core {me} was to receive from core {source}, which sends to core {to}",
            received=f"core {me} receives from core {source}, which sends to core {to}",
        )
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise ShapeError(
            "both cores of a sendrecv move tiles of the same shape and dtype",
            happened=f"core {source} sent a tile of another shape or dtype than core {me} receives",
            received=f"src {src!r} of core {source}, dst {dst!r} of core {me}",
        )
    act.take(message)
    act.reads["src"] = src


# -- ranks -----------------------------------------------------------------------------------------


def rank_of(where: str) -> Rank:
    """Return the running rank; on a rank with two cores, let the program with less work run first.

    Raises
    ------
    KernelError : the kernel was launched alone.
    """
    seat = current().seat
    if seat.rank is None:
        raise call_error(
            where,
            "is between ranks",
            "was called with no other ranks",
            "a kernel that was launched alone",
            remedy="difftest.simulator.launch_ranks(kernel, [arguments of each rank])",
        )
    if seat.scheduler is not None:
        seat.scheduler.check()
        seat.scheduler.yield_turn(seat.number, seat.steps)
    return seat.rank


_OWN = ("recv_counts_known", "replica_group")
"""Options that may differ between members, or are agreed on already."""


def _among_ranks(acts: Sequence[EffectUse]) -> Rendezvous:
    """Return the meeting point of a group: the programs of one number, if their options agree."""
    seat = current().seat
    call = acts[0].call
    rank = seat.rank
    members = call["replica_group"]
    shapes = [act.reads["src"].shape for act in acts]
    assert rank is not None
    if not all(0 <= member < rank.ranks for member in members):
        raise call.refused(
            "names ranks of the launch",
            "names a rank that was not launched",
            f"ranks {list(members)}",
            limit=f"0 to {rank.ranks - 1}",
        )
    agreed = [value for name, value in call.options.items() if name not in _OWN]
    text = f"ncc.{call.name} among ranks {list(members)} of {shapes}"
    if seat.program:
        text += f", by program {', '.join(map(str, seat.program))} of each"
    point = (call.name, members, seat.program, *agreed)
    alike = "metadata_tensor" not in acts[0].reads
    return Rendezvous(
        rank.scheduler, rank.number, members, point, text, "rank", alike=alike
    )


_REDUCTIONS: dict[str, Any] = {
    "add": np.add,
    "minimum": np.minimum,
    "maximum": np.maximum,
}
_OP = one_of("op", *_REDUCTIONS, says="reduces by one of three operators")
_DIM, _DIM_ON_CHIP = (
    one_of("collective_dim", *allowed, says="works along few dimensions")
    for allowed in ((0,), (0, 1))
)


def _along(call: CheckedCall) -> None:
    """Allow a gather on chip along two dimensions, in HBM along the first (v2.32.0)."""
    (_DIM if call["src"].space.is_hbm else _DIM_ON_CHIP)(call)


def _two_dimensions_on_chip(call: CheckedCall) -> None:
    """Require 2D tensors: collectives in SBUF "currently only operate on 2D tensors" (v2.32.0)."""
    src = call["src"]
    third = len(src.shape) > 2 and not src.space.is_hbm
    limits(call, (third, "src has two dimensions on chip", f"src {list(src.shape)}"))


def _divides(call: CheckedCall) -> None:
    """Require that the members can share ``src`` evenly."""
    ranks = len(call["replica_group"])
    size = call["src"].shape[0]
    if size % ranks:
        raise call.refused(
            "splits src evenly among the ranks of a group",
            f"was to split {size} among {ranks} ranks",
            f"{size} in dimension 0 of {call['src']!r}",
            error=ShapeError,
            limit=f"a multiple of {ranks}",
        )


def _like_src(call: CheckedCall) -> Shape:
    shape: Shape = call["src"].shape
    return shape


def _gathered(call: CheckedCall) -> Shape:
    """Return the shape of all members' ``src``, concatenated along the dimension."""
    dim = call["collective_dim"]
    ranks = len(call["replica_group"])
    return tuple(
        size * ranks if k == dim else size for k, size in enumerate(_like_src(call))
    )


def _part(call: CheckedCall) -> Shape:
    rows, *free = _like_src(call)
    return (rows // len(call["replica_group"]), *free)


def _collective(
    *options: str,
    rules: tuple[Rule, ...] = (),
    shape: Callable[[CheckedCall], Shape] | None = _like_src,
    buffers: tuple[Space, ...] = DMA_SPACES,
    srcs: tuple[str, ...] = ("src",),
    **other: Any,
) -> Callable[[Callable[[EffectUse], None]], Instruction]:
    """Return the record of a collective, whose act moves one tensor of each side."""
    sides = (*srcs, "dst")
    memories: tuple[Rule, ...] = ()
    if buffers is DMA_SPACES:
        memories = (one_memory(*sides), _two_dimensions_on_chip)
    fields = {
        "operands": tuple(Role(name, buffers=buffers) for name in srcs),
        "destinations": (Role("dst", buffers=buffers, shape=shape),),
        "options": (*options, "replica_group"),
        "rules": (*memories, one_dtype(*sides), *rules),
        "exchange": Exchange(_among_ranks),
    }
    return effect(Engine.DMA, **{**fields, **other})


def _fills_dst(
    make: Callable[[EffectUse, list[Array], Any], Array],
) -> Callable[[EffectUse], None]:
    """Return the meaning that fills ``dst`` from the ``src`` of all members."""

    @wraps(make)
    def meaning(act: EffectUse) -> None:
        op = _REDUCTIONS[act.call["op"].name] if "op" in act.call.options else None
        act.take(combined([sent[0] for sent in act.messages], partial(make, act), op))

    return meaning


def _position(act: EffectUse) -> int:
    """Return this rank's position among the members."""
    return act.meeting.members.index(act.meeting.me)


@_collective("op", rules=(_OP,))
@_fills_dst
def all_reduce(act: EffectUse, arrays: list[Array], op: Any) -> Array:
    """``dst`` is the reduction of the group's ``src`` by ``op``: add, minimum or maximum."""
    return reduce(op, arrays)


@_collective("collective_dim", rules=(_along,), shape=_gathered)
@_fills_dst
def all_gather(act: EffectUse, arrays: list[Array], op: Any) -> Array:
    """``dst`` is the group's ``src`` side by side along a dimension, in the group's order."""
    return np.concatenate(arrays, axis=act.call["collective_dim"])


@_collective("collective_dim", "op", rules=(_DIM, _OP, _divides), shape=_part)
@_fills_dst
def reduce_scatter(act: EffectUse, arrays: list[Array], op: Any) -> Array:
    """``dst`` is this rank's part of the reduction of the group's ``src``."""
    return np.split(reduce(op, arrays), len(arrays))[_position(act)]


@_collective(
    "collective_dim", rules=(_DIM, _divides), buffers=HBM, purpose=Purpose.EXCHANGE
)
@_fills_dst
def all_to_all(act: EffectUse, arrays: list[Array], op: Any) -> Array:
    """``dst`` is this rank's part of each ``src`` of the group, side by side."""
    return np.concatenate(
        [np.split(array, len(arrays))[_position(act)] for array in arrays]
    )


@_collective("source_target_pairs", buffers=HBM)
def collective_permute(act: EffectUse) -> None:
    """``dst`` of each pair's target is ``src`` of its source; only receivers have an event."""
    pairs = {target: source for source, target in act.call["source_target_pairs"]}
    if act.meeting.me in pairs:
        act.take(act.messages[act.meeting.members.index(pairs[act.meeting.me])][0])
    else:
        act.reads = {}
        act.writes = {}


@_collective("channel_ids")
def collective_permute_implicit(act: EffectUse) -> None:
    """``dst`` is ``src`` of the rank before this one in the ring."""
    act.take(act.messages[_position(act) - 1][0])


@_collective(
    "channel_ids", "op", srcs=("src", "src1"), rules=(_OP, same_shape("src", "src1"))
)
def collective_permute_implicit_reduce(act: EffectUse) -> None:
    """``dst`` is ``op(src, src1)`` of the rank before this one in the ring."""
    op = _REDUCTIONS[act.call["op"].name]
    act.take(combined(act.messages[_position(act) - 1], lambda pair, op: op(*pair), op))


# -- sizes in a tensor: flat buffers; each rank sends some elements --------------------


_NEVER, _ON_A_SWITCH = (
    one_of("has_rdispls", False, says=says)
    for says in (
        "does not support has_rdispls=True (AWS: current limitations)",
        "takes has_rdispls=True on NeuronSwitch-based instances (trn3)",
    )
)


_INTRA_CHIP = 4
"""The ranks of a chip with two cores a rank (stub ``all_gather_v`` at v2.32.0)."""


def _of_one_chip(call: CheckedCall) -> None:
    """Require the ranks of one chip."""
    ranks = len(call["replica_group"])
    rule = (
        f"each list of a replica group has {_INTRA_CHIP} ranks, those of a chip "
        "(AWS: current limitations)"
    )
    limits(call, (ranks != _INTRA_CHIP, rule, f"a list of {ranks} ranks"))


def _within_chip(acts: Sequence[EffectUse]) -> Rendezvous:
    """Return the meeting point of ranks that each have both cores of their NeuronCore."""
    grid = current().grid
    rule = "runs on logical NeuronCores of two cores (AWS: only LNC=2 is supported)"
    wrong = grid != (len(CORES),)
    limits(acts[0].call, (wrong, rule, f"grid {grid}" if grid else "no grid"))
    return _among_ranks(acts)


def _may_displace(call: CheckedCall) -> None:
    if call.machine.nc_version < 4:
        _ON_A_SWITCH(call)


def _table(call: CheckedCall) -> Shape:
    """Return the metadata's shape: counts, places, received counts, destinations, by rank."""
    shape = (4 if call["has_rdispls"] else 3, len(call["replica_group"]))
    if call["metadata_tensor"].space.is_hbm:
        return shape
    return (1, *shape)


def _row(table: Any, number: int) -> Any:
    rows = slice(number, number + 1)
    if table._in_hbm:
        return table[rows, :]
    return table[:, rows, :]


def _numbers(act: EffectUse, row: int) -> list[int]:
    """Return a row of the metadata; the received counts are never read."""
    numbers = np.asarray(_row(act.reads["metadata_tensor"], row)._values())
    return [int(number) for number in numbers.reshape(-1)]


def _chunks(
    act: EffectUse,
    role: str,
    places: Iterable[int],
    counts: Iterable[int],
    most: int | None = None,
) -> list[Any]:
    """Return the elements of a flat tensor at places; None for an empty chunk.

    Raises
    ------
    OutOfBoundsError : a chunk exceeds the tensor, or has more than ``most`` elements.
    """
    tensor = {**act.reads, **act.writes}[role]
    flat = tensor.reshape((tensor.size,))
    chunks = []
    for place, count in zip(places, counts, strict=True):
        some = count or role == "dst"
        if some and (place + count > flat.size or (most is not None and count > most)):
            raise OutOfBoundsError(
                f"{act.call.name} moves elements of {role}",
                happened=f"{act.call.name} was to move elements that {role} does not have",
                received=f"{count} elements at {place} of {tensor!r}",
                limit=f"{flat.size} elements, "
                + ("" if most is None else f"{most} of a rank"),
                remedy="make dst larger, or send less" if role == "dst" else None,
            )
        chunks.append(flat[place : place + count] if count else None)
    return chunks


def _give_chunks(act: EffectUse) -> list[Message]:
    """Return a message for each member from ``src``: a gather sends all of them the same."""
    if not act.call["recv_counts_known"]:
        check_destination(act.reads["metadata_tensor"])
    ranks = len(act.meeting.members)
    some = 1 if act.call.name == "all_gather_v" else None
    chunks = _chunks(act, "src", _numbers(act, 1)[:some], _numbers(act, 0)[:some])
    nothing = Message(np.empty(0, act.reads["src"].dtype))
    messages = [nothing if chunk is None else act.send(chunk) for chunk in chunks]
    if some:
        return messages * ranks
    return messages


def _receive(act: EffectUse) -> None:
    """Put the chunks into their slots of ``dst``, and their counts into the metadata."""
    dst = act.writes["dst"]
    displaced = act.call["has_rdispls"]
    came = [sent[_position(act)] for sent in act.messages]
    counts = [sent.values.size for sent in came]
    slot = dst.size // len(came)
    places = (
        _numbers(act, 3)
        if displaced
        else [slot * sender for sender in range(len(came))]
    )
    chunks = _chunks(act, "dst", places, counts, None if displaced else slot)
    for chunk, message in zip(chunks, came, strict=True):
        if chunk is not None:
            act.take(message, chunk)
    act.parts = [(tile, None) for tile in (dst, *act.reads.values())]
    if not act.call["recv_counts_known"]:
        row = act.writes["metadata_tensor"] = _row(act.reads["metadata_tensor"], 2)
        act.take(Message(np.array(counts, np.uint32).reshape(row.shape)), row)


_BY_TABLE: dict[str, Any] = {
    "operands": (
        Role("src", buffers=HBM),
        Role(
            "metadata_tensor",
            buffers=DMA_SPACES,
            dtypes=(np.dtype(np.uint32),),
            shape=_table,
        ),
    ),
    "buffers": HBM,
    "shape": None,
}


@_collective(
    "recv_counts_known",
    "has_rdispls",
    rules=(_NEVER, _of_one_chip),
    exchange=Exchange(_within_chip, _give_chunks),
    **_BY_TABLE,
)
def all_gather_v(act: EffectUse) -> None:
    """``dst`` gets one chunk of each rank's ``src``, in slots of equal size."""
    _receive(act)


@_collective(
    "recv_counts_known",
    "has_rdispls",
    rules=(_may_displace,),
    exchange=Exchange(_among_ranks, _give_chunks),
    **_BY_TABLE,
    purpose=Purpose.EXCHANGE,
)
def all_to_all_v(act: EffectUse) -> None:
    """``dst`` gets the chunk of each rank's ``src`` that is for this rank."""
    _receive(act)
