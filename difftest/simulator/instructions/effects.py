"""Effects: records of actions other than computing a result from operands.

Cores and ranks exchange data, registers hold scalars, and random states restart. The gate checks
their rules like all others, and unwritten elements propagate. A meaning works on an
:class:`EffectUse`, which holds the messages of all members of an exchange.

Random numbers come from NumPy's generator of the launch, not from the machine's. They are the same
in every run, and never a device's bits. Engines have states of 6 words a lane (GpSimd) or 24
(Vector), which kernels set and read (AWS ``nki.isa`` at tag v2.32.0). Here all engines draw from
one generator. Setting a state restarts it. Reading a state returns fresh words and restarts the
generator from them. So setting that state later repeats the numbers that followed the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import Core, current, entry
from difftest.simulator.dtypes import (
    FLOAT32,
    FLOATS,
    INT32,
    INTEGERS,
    TFLOAT32,
    WIDE_INTEGERS,
    Array,
)
from difftest.simulator.errors import ShapeError, kernel_location
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.checks import wrong_kind
from difftest.simulator.instructions.gate import check_destination, write
from difftest.simulator.instructions.record import (
    DMA_SPACES,
    EFFECTS,
    SBUF_ONLY,
    CheckedCall,
    DestinationFit,
    Instruction,
    InstructionUse,
    OperandKind,
    Result,
    Role,
    choose_engine,
    instruction,
)
from difftest.simulator.instructions.rules import (
    needs_generation,
    no_gpsimd_in_psum,
    rule_factory,
)
from difftest.simulator.instructions.values import column
from difftest.simulator.lifted import is_array, settled
from difftest.simulator.memory import UNWRITTEN, Shape
from difftest.simulator.program_scheduler import ProgramScheduler, Waiter
from difftest.simulator.recording import InstructionAccesses, Part
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Origin, Purpose


class Message(NamedTuple):
    """The values of a tile when it was sent.

    ``missing`` marks unwritten elements, None for none; ``origin`` is their origin. ``exact`` has
    the values without rounding, None if they are the same.
    """

    values: Array
    missing: Array | None = None
    origin: Origin | None = None
    exact: Any = None
    src: Tile | None = None


class Rendezvous(NamedTuple):
    """An exchange from the point of view of one member, by the scheduler's numbers."""

    scheduler: ProgramScheduler
    me: int
    members: tuple[int, ...]
    point: Hashable
    """The data on which the members have to agree."""
    call: str
    """The call, for the error if the members never meet."""
    member: str
    """The kind of member, such as "rank"."""
    steps: int = 0
    alike: bool = False
    """True if all members send the same shapes and dtypes."""


class EffectUse:
    """An act of an effect, with the tensors and numbers at its roles.

    Attributes
    ----------
    numbers : the operands that are numbers.
    reads, writes : the tensors by role, as the event names them; a meaning may replace them.
    parts : the tensors that are touched in part, with the touched elements.
    meeting : the meeting point of the exchange.
    messages : the members' messages for this act, in their order.
    """

    meeting: Rendezvous
    messages: list[Any]

    def __init__(
        self, call: CheckedCall, operands: Sequence[Any], dsts: Sequence[Any]
    ) -> None:
        record = call.instruction
        roles = zip(record.operands, operands, strict=True)
        self.call = call
        numbers = call.cache.numbers
        self.numbers = () if numbers is None else numbers(tuple(operands))
        self.reads: dict[str, Any] = {
            r.name: tile for r, tile in roles if isinstance(tile, Tile)
        }
        self.writes: dict[str, Any] = {
            role.name: tile
            for role, tile in zip(record.destinations, dsts, strict=True)
        }
        self.parts: list[Part] = []

    def send(self, tile: Tile) -> Message:
        """Return a message with a tile's current values.

        Raises
        ------
        UnwrittenError : no element of the tile was written.
        """
        missing = tile._unwritten(UNWRITTEN)
        some = missing is not None and not missing.all()
        values = tile._values(unwritten=some).copy()
        shadow = current().followers.shadow
        event = f"sent by {self.meeting.member} {self.meeting.me}"
        origin = None if missing is None else tile._origin(event)
        return Message(
            values, missing, origin, None if shadow is None else shadow.sent(tile), tile
        )

    def send_all(self) -> list[Message]:
        """Return messages with the current values of the operands."""
        return [self.send(tile) for tile in self.reads.values()]

    def take(self, result: Message, dst: Any = None) -> None:
        """Write a received or computed message to a tile, by default to ``dst``."""
        if dst is None:
            dst = self.writes["dst"]
        shadow = current().followers.shadow
        if shadow is not None:
            shadow.foresee_effect(self.call.name, dst, result.exact)
        write(dst, result.values)
        if result.missing is not None and result.origin is not None:
            dst._forget_written(result.missing, result.origin)


def combined(
    messages: Sequence[Message], make: Callable[[list[Array], Any], Array], op: Any
) -> Message:
    """Combine messages with ``make``; unwritten elements propagate to the results.

    Parameters
    ----------
    make : moves and repeats elements, and joins them by its second argument, an operator.
    op : the operator for the values.
    """
    none = np.zeros(messages[0].values.shape, np.bool_)
    missing = None
    origin = None
    for at, message in enumerate(messages):
        if message.missing is not None:
            planes = [
                message.missing if n == at else none for n in range(len(messages))
            ]
            follows = make(planes, np.logical_or)
            if follows.any():
                missing = follows if missing is None else follows | missing
                origin = origin or message.origin
    return Message(make([sent.values for sent in messages], op), missing, origin)


class Exchange(NamedTuple):
    """The exchange of an effect: its meeting point, and each member's message for an act."""

    meet: Callable[[Sequence[EffectUse]], Rendezvous]
    give: Callable[[EffectUse], Any] = EffectUse.send_all


def of_dst(call: CheckedCall) -> Result:
    """Return the result for ``dst``; an empty result for an effect without ``dst``."""
    dst = call.destinations.get("dst")
    if dst is None:
        return Result((), INT32)
    return Result(dst.shape, dst.dtype)


def effect(
    *engines: Engine, **record: Any
) -> Callable[[Callable[..., Any]], Instruction]:
    """Register a function as the meaning of an effect: ``meaning(act)``, which writes by itself."""
    fields = {
        "operands": (),
        "destinations": (),
        "result": of_dst,
        "fit": DestinationFit.EXACT,
        **record,
    }
    return partial(instruction, table=EFFECTS, classic=False, **fields)(*engines)


# -- issuing an effect -----------------------------------------------------------------------------


@entry("effect")
def issue_effect(
    core: Core,
    record: Instruction,
    acts: Sequence[tuple[Sequence[Any], Sequence[Any]]],
    options: tuple[Any, ...] = (),
    engine: Engine = Engine.UNKNOWN,
) -> Any:
    """Run an effect on the tensors of its acts, and record one event for all of them.

    Returns the meaning's result for the last act: a register's new value.

    Parameters
    ----------
    acts : the operands and the destinations of each act.

    Raises
    ------
    NkiError : a rule of the record is broken; nothing is written.
    DeadlockError : another member of its exchange never comes.
    """
    checked = [_act(core, record, *act, (options, engine)) for act in acts]
    if record.exchange is not None and not _meet(record.exchange, checked):
        return None
    results = [record.meaning(act) for act in checked]
    _record_effect(core, checked)
    return results[-1]


def _record_effect(core: Core, acts: Sequence[EffectUse]) -> None:
    """Record one event for the acts of an effect; only receivers of an exchange have one."""
    writes = _by_role([act.writes for act in acts])
    reads = _by_role([act.reads for act in acts])
    if not writes and not reads:
        return
    roles = [role for role, _ in (*writes, *reads)]
    tiles = [tile for _, tile in writes]
    sources = [tile for _, tile in reads]
    parts = list(chain.from_iterable(act.parts for act in acts))
    first = acts[0]
    kind = first.call.cache.kind
    for tell in core.followers.happened:
        tell(kind.opcode, tiles, sources)
    core.count(InstructionAccesses(kind, tiles, sources, roles, first.numbers, parts))


def _act(
    core: Core,
    record: Instruction,
    operands: Sequence[Any],
    dsts: Sequence[Any],
    chosen: tuple[tuple[Any, ...], Engine],
) -> EffectUse:
    """Return an act that keeps the rules, with writable destinations."""
    for role, dst in zip(record.destinations, dsts, strict=True):
        if dst is None:
            raise wrong_kind(dst, "a tile", record.name, role.name)
    dst, *others = dsts or (None,)
    options, engine = chosen
    issued = InstructionUse(
        record, tuple(operands), options, dst, others=tuple(others), engine=engine
    )
    call = gate.checked_call(core, issued)
    for tile in dsts:
        check_destination(tile)
    return EffectUse(call, operands, dsts)


def _meet(exchange: Exchange, acts: Sequence[EffectUse]) -> bool:
    """Pass each act the members' messages; return whether this member takes part."""
    meeting = exchange.meet(acts)
    if meeting.me not in meeting.members:
        return False
    for act in acts:
        act.meeting = meeting
    messages = [exchange.give(act) for act in acts]
    members = meeting.members
    waiter = Waiter(meeting.point, members, messages, meeting.call, kernel_location())
    met = meeting.scheduler.rendezvous(meeting.me, waiter, meeting.steps)
    if meeting.alike:
        _check_alike(acts[0].call.name, {n: list(chain(*met[n])) for n in members})
    for at, act in enumerate(acts):
        act.messages = [met[n][at] for n in members]
    return True


def _check_alike(name: str, ranks: Mapping[int, list[Message]]) -> None:
    seen = {
        n: [(src.values.shape, src.values.dtype) for src in sent]
        for n, sent in ranks.items()
    }
    if len(set(map(tuple, seen.values()))) > 1:
        raise ShapeError(
            f"{name} takes srcs of the same shapes and dtypes on all ranks",
            happened=f"{name} got srcs that differ between ranks",
            received="; ".join(
                f"rank {n}: {', '.join(f'{list(s)} {d}' for s, d in sent)}"
                for n, sent in seen.items()
            ),
        )


def _by_role(sides: Sequence[Mapping[str, Any]]) -> list[tuple[str, Tile]]:
    """Return the tensors of several acts with their roles, role by role."""
    roles = dict.fromkeys(role for side in sides for role in side)
    return [(role, side[role]) for role in roles for side in sides]


# -- registers of the engines' sequencers ----------------------------------------------------------


@rule_factory
def one_element(call: CheckedCall, role: str) -> None:
    """Require one element in the tensor at a role."""
    tile = {**call.operands, **call.destinations}[role]
    if tile.size != 1:
        raise call.refused(
            f"takes {role} of one element",
            f"got {role} of {tile.size} elements",
            repr(tile),
            error=ShapeError,
            limit="[1] or [1, 1]",
        )


def _integer(role: str) -> tuple[Role, ...]:
    return (Role(role, buffers=DMA_SPACES, dtypes=INTEGERS),)


_LOADS = effect(
    Engine.UNKNOWN,
    operands=_integer("src"),
    options=("dst",),
    rules=(one_element("src"),),
    purpose=Purpose.REGISTER,
)
_STORES = effect(
    Engine.UNKNOWN,
    operands=(Role("value", takes=OperandKind.NUMBER),),
    destinations=_integer("dst"),
    options=("src",),
    rules=(one_element("dst"),),
    purpose=Purpose.REGISTER,
)


@_LOADS
def register_load(act: EffectUse) -> int:
    """Load a register from a tensor of one integer in HBM or SBUF."""
    return int(act.reads["src"]._values().reshape(-1)[0])


@_LOADS
def scalar_load(act: EffectUse) -> Any:
    """Load a scalar from a tensor of one integer in HBM or SBUF."""
    return register_load.meaning(act)


@_STORES
def register_store(act: EffectUse) -> None:
    """``dst`` becomes the value of a register."""
    dst = act.writes["dst"]
    bits = np.array(act.numbers[0], np.int64).astype(dst.dtype)
    act.take(Message(np.full(dst.shape, bits)))


@_STORES
def scalar_store(act: EffectUse) -> None:
    """``dst`` becomes the value of a scalar."""
    register_store.meaning(act)


# -- random numbers --------------------------------------------------------------------------------

# -- rng -------------------------------------------------------------------------------------------


def _rng_engine(call: CheckedCall, wanted: Engine) -> Engine:
    """Choose the Vector Engine on NeuronCore-v2, the only engine for it there."""
    if call.machine.nc_version < 3:
        return choose_engine(call, wanted, (Engine.VECTOR,))
    return choose_engine(call, wanted)


@instruction(
    Engine.VECTOR,
    Engine.GPSIMD,
    operands=(),
    destinations=(Role("dst", dtypes=INTEGERS),),
    rules=(no_gpsimd_in_psum,),
    engine=_rng_engine,
    result=of_dst,
    classic=False,
    purpose=Purpose.BITS,
)
def rng(call: CheckedCall) -> Array:
    """Every element of ``dst`` becomes random bits: the lowest of 32."""
    bits: Array = (
        current().numbers().integers(0, 2**32, call.result.shape, dtype=np.uint32)
    )
    dtype = call.result.dtype
    return bits.astype(f"u{dtype.itemsize}").view(dtype)


# -- rand2 -----------------------------------------------------------------------------------------


@instruction(
    Engine.VECTOR,
    operands=(
        Role("min", takes=OperandKind.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
        Role("max", takes=OperandKind.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
    ),
    destinations=(Role("dst", dtypes=FLOATS + INTEGERS),),
    rules=(needs_generation(4),),
    carries=False,
    result=of_dst,
    classic=False,
    purpose=Purpose.DRAW,
)
def rand2(call: CheckedCall, low: Any, high: Any) -> Array:
    """Every element of ``dst`` becomes uniformly random between two bounds; NeuronCore-v4 on."""
    shape = call.result.shape
    bottom, top = (
        settled(column(bound, len(shape))) if is_array(bound) else np.float32(bound)
        for bound in (low, high)
    )
    if not np.all(bottom < top):
        raise call.refused(
            "takes a min below its max",
            f"got a min of {np.max(bottom)!s} and a max of {np.min(top)!s}",
            f"min up to {np.max(bottom)!s}, max from {np.min(top)!s}",
        )
    share = current().numbers().random(shape, dtype=np.float32)
    between: Array = bottom + share * (top - bottom)
    return np.clip(between, bottom, top)


# -- seeds and states ------------------------------------------------------------------------------


def _begin(words: Array) -> None:
    """Restart the launch's generator from words of 32 bits."""
    bits = np.ascontiguousarray(words).view(np.uint32)
    current().draws.random = np.random.default_rng(bits.reshape(-1).tolist())


_SEED = Role("src_seeds", dtypes=(FLOAT32, TFLOAT32, *WIDE_INTEGERS))


@effect(Engine.VECTOR, operands=(_SEED,), rules=(one_element("src_seeds"),))
def set_rng_seed(act: EffectUse) -> None:
    """Restart the random numbers from a seed of 32 bits, a (1, 1) tensor on chip."""
    _begin(act.reads["src_seeds"]._values())


def _lanes_engine(call: CheckedCall, wanted: Engine) -> Engine:
    """Allow the Vector Engine only from NeuronCore-v4 on, which gave it states."""
    vector = (Engine.VECTOR,) if call.machine.nc_version >= 4 else ()
    return choose_engine(call, wanted, (Engine.GPSIMD, *vector))


def _lanes(call: CheckedCall) -> Shape:
    """Return the shape of the states, one a partition."""
    (tile,) = (*call.tiles.values(), *call.destinations.values())
    return (tile.partitions, 6 if call.engine is Engine.GPSIMD else 24)


@effect(
    Engine.GPSIMD,
    Engine.VECTOR,
    operands=(
        Role(
            "src_seeds",
            buffers=SBUF_ONLY,
            dtypes=(WIDE_INTEGERS[1],),
            shape=_lanes,
        ),
    ),
    rules=(needs_generation(3),),
    engine=_lanes_engine,
)
def rand_set_state(act: EffectUse) -> None:
    """Restart the random numbers from the states of an engine's lanes, [P, words] in SBUF."""
    _begin(act.reads["src_seeds"]._values())


@effect(
    Engine.GPSIMD,
    Engine.VECTOR,
    destinations=(Role("dst", dtypes=(WIDE_INTEGERS[1],), shape=_lanes),),
    rules=(needs_generation(3), no_gpsimd_in_psum),
    engine=_lanes_engine,
)
def rand_get_state(act: EffectUse) -> None:
    """Get states for the lanes of an engine, from which its numbers continue: [P, words]."""
    words = (
        current().numbers().integers(0, 2**32, act.call.result.shape, dtype=np.uint32)
    )
    act.take(Message(words))
    _begin(words)
