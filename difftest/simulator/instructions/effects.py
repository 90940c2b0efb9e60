"""Effects: records of what an instruction does beside making a result of its operands.

Other cores and ranks send and receive, registers hold scalars, random states begin anew. Their
rules are checked at the gate like all others, and what nothing wrote is carried on. A meaning does
its work on a :class:`EffectUse`, which knows what each member of an exchange gave.

Random numbers come from NumPy's generator of the launch, and not from the machine's: the same in
every run, and never the bits that a device would make. Engines have states of 6 words a lane
(GpSimd) or 24 (Vector), which kernels set and read (AWS ``nki.isa`` at tag v2.32.0). Here all
engines draw from the one generator. A state that is set begins it anew, and one that is read is
made up of fresh words from which it then goes on: to set that state later repeats the numbers that
followed the reading.
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
from difftest.simulator.errors import ShapeError
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
from difftest.simulator.instructions.rules import needs_generation, no_gpsimd_in_psum, rule_factory
from difftest.simulator.instructions.values import column
from difftest.simulator.lifted import is_array, settled
from difftest.simulator.memory import UNWRITTEN, Shape
from difftest.simulator.program_scheduler import ProgramScheduler
from difftest.simulator.recording import InstructionAccesses, Part
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Origin, Purpose


class Message(NamedTuple):
    """What a tile held when it was sent.

    ``missing`` is what of it nothing had written, None if all was, with its origin; ``exact`` what
    it would be without rounding, None where that is the same.
    """

    values: Array
    missing: Array | None = None
    origin: Origin | None = None
    exact: Any = None
    src: Tile | None = None


class Rendezvous(NamedTuple):
    """An exchange as one of its members, numbered as its baton has them, comes to it."""

    scheduler: ProgramScheduler
    me: int
    members: tuple[int, ...]
    point: Hashable
    """What the members have to agree on."""
    call: str
    """For the error if they never meet."""
    member: str
    """What each of them is: "rank"."""
    steps: int = 0
    alike: bool = False
    """Whether all send the same shapes and dtypes."""


class EffectUse:
    """One act of an effect, with what stands at each role.

    Attributes
    ----------
    numbers : the operands that are numbers.
    reads, writes : the tensors by role, as its event names them; a meaning may name others.
    parts : those of them that are touched in part, and what of them.
    meeting : where the members of its exchange meet.
    messages : what each of them gave of this act, in their order.
    """

    meeting: Rendezvous
    messages: list[Any]

    def __init__(self, call: CheckedCall, operands: Sequence[Any], dsts: Sequence[Any]) -> None:
        record = call.instruction
        roles = zip(record.operands, operands, strict=True)
        self.call = call
        self.numbers = () if call.numbers is None else call.numbers(tuple(operands))
        self.reads: dict[str, Any] = {r.name: tile for r, tile in roles if isinstance(tile, Tile)}
        self.writes: dict[str, Any] = {
            role.name: tile for role, tile in zip(record.destinations, dsts, strict=True)
        }
        self.parts: list[Part] = []

    def send(self, tile: Tile) -> Message:
        """What a tile holds now.

        Raises
        ------
        UnwrittenError : nothing of it was written.
        """
        missing = tile._unwritten(UNWRITTEN)
        some = missing is not None and not missing.all()
        values = tile._values(unwritten=some).copy()
        shadow = current().followers.shadow
        event = f"sent by {self.meeting.member} {self.meeting.me}"
        origin = None if missing is None else tile._origin(event)
        return Message(values, missing, origin, None if shadow is None else shadow.sent(tile), tile)

    def send_all(self) -> list[Message]:
        """What its operands hold now."""
        return [self.send(tile) for tile in self.reads.values()]

    def take(self, result: Message, dst: Any = None) -> None:
        """Write what came, or was made, to a tile: ``dst`` if no other one is named."""
        dst = self.writes["dst"] if dst is None else dst
        shadow = current().followers.shadow
        if shadow is not None:
            shadow.foresee_effect(self.call.name, dst, result.exact)
        write(dst, result.values)
        if result.missing is not None and result.origin is not None:
            dst._forget_written(result.missing, result.origin)


def combined(
    messages: Sequence[Message], make: Callable[[list[Array], Any], Array], op: Any
) -> Message:
    """What ``make`` makes of several; what of it follows from elements that one misses, it misses.

    Parameters
    ----------
    make : moves and repeats elements, and joins them by an operator that it is given: ``op``.
    """
    none = np.zeros(messages[0].values.shape, np.bool_)
    missing = None
    origin = None
    for at, message in enumerate(messages):
        if message.missing is not None:
            planes = [message.missing if n == at else none for n in range(len(messages))]
            follows = make(planes, np.logical_or)
            if follows.any():
                missing = follows if missing is None else follows | missing
                origin = origin or message.origin
    return Message(make([sent.values for sent in messages], op), missing, origin)


class Exchange(NamedTuple):
    """How an effect meets others: where, and what a member gives there of each act."""

    meet: Callable[[Sequence[EffectUse]], Rendezvous]
    give: Callable[[EffectUse], Any] = EffectUse.send_all


def of_dst(call: CheckedCall) -> Result:
    """What fills ``dst``; of an effect without one nothing is made."""
    dst = call.destinations.get("dst")
    return Result((), INT32) if dst is None else Result(dst.shape, dst.dtype)


def effect(*engines: Engine, **record: Any) -> Callable[[Callable[..., Any]], Instruction]:
    """Make a function the meaning of an effect: ``meaning(act)``, which writes by itself."""
    fields = {
        "operands": (),
        "destinations": (),
        "result": of_dst,
        "fit": DestinationFit.EXACT,
        **record,
    }
    return partial(instruction, table=EFFECTS, classic=False, **fields)(*engines)


# -- the one way to do one -------------------------------------------------------------------------


@entry("effect")
def issue_effect(
    core: Core,
    record: Instruction,
    acts: Sequence[tuple[Sequence[Any], Sequence[Any]]],
    options: tuple[Any, ...] = (),
    engine: Engine = Engine.UNKNOWN,
) -> Any:
    """Do what an effect does to the tensors of its acts, and record one event of all of them.

    Returns what the meaning gives for the last act: what a register is to hold.

    Parameters
    ----------
    acts : of each the operands and the destinations.

    Raises
    ------
    NkiError : a rule of the record is broken; nothing is written then. DeadlockError : another
        member of its exchange never comes.
    """
    checked = [_act(core, record, *act, (options, engine)) for act in acts]
    if record.exchange is not None and not _meet(record.exchange, checked):
        return None
    results = [record.meaning(act) for act in checked]
    writes = _by_role([act.writes for act in checked])
    reads = _by_role([act.reads for act in checked])
    if writes or reads:  # who only sends what others name has no event
        roles = [role for role, _ in (*writes, *reads)]
        tiles = [tile for _, tile in writes]
        sources = [tile for _, tile in reads]
        parts = [part for act in checked for part in act.parts]
        first = checked[0]
        for tell in core.followers.happened:
            tell(first.call.kind.opcode, tiles, sources)
        core.count(
            InstructionAccesses(first.call.kind, tiles, sources, roles, first.numbers, parts)
        )
    return results[-1]


def _act(
    core: Core,
    record: Instruction,
    operands: Sequence[Any],
    dsts: Sequence[Any],
    chosen: tuple[tuple[Any, ...], Engine],
) -> EffectUse:
    """An act that keeps the rules, into destinations that can be written."""
    for role, dst in zip(record.destinations, dsts, strict=True):
        if dst is None:
            raise wrong_kind(dst, "a tile", record.name, role.name)
    dst, *others = dsts or (None,)
    options, engine = chosen
    issued = InstructionUse(record, tuple(operands), options, dst, tuple(others), engine=engine)
    call = gate.checked_call(core, issued)
    for tile in dsts:
        check_destination(tile)
    return EffectUse(call, operands, dsts)


def _meet(exchange: Exchange, acts: Sequence[EffectUse]) -> bool:
    """Tell each act what the members have given, when all have come; if this is one of them."""
    meeting = exchange.meet(acts)
    if meeting.me not in meeting.members:
        return False
    for act in acts:
        act.meeting = meeting
    messages = [exchange.give(act) for act in acts]
    baton, me, members, point, call, _, steps, alike = meeting
    met = baton.rendezvous(me, point, members, messages, call, steps)
    if alike:
        _check_alike(acts[0].call.name, {n: list(chain(*met[n])) for n in members})
    for at, act in enumerate(acts):
        act.messages = [met[n][at] for n in members]
    return True


def _check_alike(name: str, ranks: Mapping[int, list[Message]]) -> None:
    seen = {n: [(src.values.shape, src.values.dtype) for src in sent] for n, sent in ranks.items()}
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
    """The tensors of several acts with their roles, role by role."""
    roles = dict.fromkeys(role for side in sides for role in side)
    return [(role, side[role]) for role in roles for side in sides]


# -- registers of the engines' sequencers ----------------------------------------------------------


@rule_factory
def one_element(call: CheckedCall, role: str) -> None:
    """The tensor at a role has one element."""
    tile = {**call.operands, **call.destinations}[role]
    if tile.size != 1:
        rule = f"takes {role} of one element"
        did = f"got {role} of {tile.size} elements"
        raise call.refused(rule, did, repr(tile), error=ShapeError, limit="[1] or [1, 1]")


def _integer(role: str) -> tuple[Role, ...]:
    return (Role(name=role, buffers=DMA_SPACES, dtypes=INTEGERS),)


_LOADS = effect(
    Engine.UNKNOWN,
    operands=_integer("src"),
    options=("dst",),
    rules=(one_element("src"),),
    purpose=Purpose.REGISTER,
)
_STORES = effect(
    Engine.UNKNOWN,
    operands=(Role(name="value", takes=OperandKind.NUMBER),),
    destinations=_integer("dst"),
    options=("src",),
    rules=(one_element("dst"),),
    purpose=Purpose.REGISTER,
)


@_LOADS
def register_load(act: EffectUse) -> int:
    """Let a register hold what a tensor of one integer in HBM or SBUF does."""
    return int(act.reads["src"]._values().reshape(-1)[0])


@_LOADS
def scalar_load(act: EffectUse) -> Any:
    """What a scalar is to be."""
    return register_load.meaning(act)


@_STORES
def register_store(act: EffectUse) -> None:
    """``dst`` becomes what a register holds."""
    dst = act.writes["dst"]
    bits = np.array(act.numbers[0], np.int64).astype(dst.dtype)
    act.take(Message(np.full(dst.shape, bits)))


@_STORES
def scalar_store(act: EffectUse) -> None:
    """``dst`` becomes what a scalar is."""
    register_store.meaning(act)


# -- random numbers --------------------------------------------------------------------------------

# -- rng -------------------------------------------------------------------------------------------


def _rng_engine(call: CheckedCall, wanted: Engine) -> Engine:
    """On NeuronCore-v2 the Vector Engine alone."""
    if call.machine.nc_version < 3:
        return choose_engine(call, wanted, (Engine.VECTOR,))
    return choose_engine(call, wanted)


@instruction(
    Engine.VECTOR,
    Engine.GPSIMD,
    operands=(),
    destinations=(Role(name="dst", dtypes=INTEGERS),),
    rules=(no_gpsimd_in_psum,),
    engine=_rng_engine,
    result=of_dst,
    classic=False,
    purpose=Purpose.BITS,
)
def rng(call: CheckedCall) -> Array:
    """Every element of ``dst`` becomes random bits: the lowest of 32."""
    bits: Array = current().numbers().integers(0, 2**32, call.result.shape, dtype=np.uint32)
    dtype = call.result.dtype
    return bits.astype(f"u{dtype.itemsize}").view(dtype)


# -- rand2 -----------------------------------------------------------------------------------------


@instruction(
    Engine.VECTOR,
    operands=(
        Role(name="min", takes=OperandKind.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
        Role(name="max", takes=OperandKind.VECTOR_OR_NUMBER, dtypes=(FLOAT32,)),
    ),
    destinations=(Role(name="dst", dtypes=(*FLOATS, *INTEGERS)),),
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
        rule = "takes a min below its max"
        did = f"got a min of {np.max(bottom)!s} and a max of {np.min(top)!s}"
        raise call.refused(rule, did, f"min up to {np.max(bottom)!s}, max from {np.min(top)!s}")
    share = current().numbers().random(shape, dtype=np.float32)
    between: Array = bottom + share * (top - bottom)
    return np.clip(between, bottom, top)


# -- seeds and states ------------------------------------------------------------------------------


def _begin(words: Array) -> None:
    """Let the launch's generator begin anew from words of 32 bits."""
    bits = np.ascontiguousarray(words).view(np.uint32)
    current().draws.random = np.random.default_rng(bits.reshape(-1).tolist())


_SEED = Role(name="src_seeds", dtypes=(FLOAT32, TFLOAT32, *WIDE_INTEGERS))


@effect(Engine.VECTOR, operands=(_SEED,), rules=(one_element("src_seeds"),))
def set_rng_seed(act: EffectUse) -> None:
    """Let the numbers begin anew from a seed of 32 bits, a (1, 1) tensor on chip."""
    _begin(act.reads["src_seeds"]._values())


def _lanes_engine(call: CheckedCall, wanted: Engine) -> Engine:
    """The Vector Engine has states since NeuronCore-v4."""
    vector = (Engine.VECTOR,) if call.machine.nc_version >= 4 else ()
    return choose_engine(call, wanted, (Engine.GPSIMD, *vector))


def _lanes(call: CheckedCall) -> Shape:
    """A state for each partition."""
    (tile,) = (*call.tiles.values(), *call.destinations.values())
    return (tile.partitions, 6 if call.engine is Engine.GPSIMD else 24)


@effect(
    Engine.GPSIMD,
    Engine.VECTOR,
    operands=(Role(name="src_seeds", buffers=SBUF_ONLY, dtypes=(WIDE_INTEGERS[1],), shape=_lanes),),
    rules=(needs_generation(3),),
    engine=_lanes_engine,
)
def rand_set_state(act: EffectUse) -> None:
    """Let the numbers begin anew from the states of an engine's lanes, [P, words] in SBUF."""
    _begin(act.reads["src_seeds"]._values())


@effect(
    Engine.GPSIMD,
    Engine.VECTOR,
    destinations=(Role(name="dst", dtypes=(WIDE_INTEGERS[1],), shape=_lanes),),
    rules=(needs_generation(3), no_gpsimd_in_psum),
    engine=_lanes_engine,
)
def rand_get_state(act: EffectUse) -> None:
    """States for the lanes of an engine, from which its numbers go on: [P, words]."""
    words = current().numbers().integers(0, 2**32, act.call.result.shape, dtype=np.uint32)
    act.take(Message(words))
    _begin(words)
