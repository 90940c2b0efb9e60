"""The one way to issue an instruction: check it, read its operands, compute, round, write, record.

Whoever calls, the rules of the record are checked on the operands and on every destination. What
they depend on is a signature: buffers, dtypes, shapes, options. One that passed is kept, with the
:class:`~difftest.simulator.instructions.record.Call` that came of it, and is not checked again.
What depends on the data (bounds, what was written, values) is checked each time.
"""

from __future__ import annotations

from typing import Any

from difftest.simulator.baton import Baton
from difftest.simulator.core import Core, current
from difftest.simulator.dtypes import Array
from difftest.simulator.index import Index
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions.checks import check
from difftest.simulator.instructions.definedness import (
    Gapped,
    reads_gaps,
    settle_further,
)
from difftest.simulator.instructions.indices import see_indices
from difftest.simulator.instructions.observing import (
    counts,
    is_rounded,
    look,
    look_at_product,
    stored,
    watches_of,
)
from difftest.simulator.instructions.recomputing import look_for_rounding
from difftest.simulator.instructions.record import Call, DType, Instruction, Masked, Reach, Unboxed
from difftest.simulator.instructions.writing import check_destination, write
from difftest.simulator.recording import Part
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

_KEPT = 4096
"""Calls kept for each machine; beyond that they are forgotten, and checked anew."""


def issue(
    instruction: Instruction,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    *,
    dst: Any = None,
    others: tuple[Tile | None, ...] = (),
    dtype: DType | None = None,
    engine: Engine = Engine.UNKNOWN,
    where: Array | None = None,
    moved: Tile | None = None,
    indices: tuple[Tile, ...] = (),
    unboxed: Unboxed | None = None,
    named: bool = True,
) -> Any:
    """Run an instruction and return its first destination.

    Parameters
    ----------
    operands, options : in the order of the record; an operand is a tile, a number or None, an
        option hashable.
    dst : where the result goes; None for a new tile, as the record says.
    others : the further destinations (``reduce_res``, ``dst_idx``), None for one left out.
    dtype : of a new tile, if the kernel names it.
    engine : the one that the kernel names.
    where : bools over the result's shape; only where they are true is ``dst`` written.
    moved : the operand that is only taken to its destination (see :mod:`difftest.simulator.fuse`).
    indices : tiles that hold where operands or ``dst`` lie: the instruction reads them too.
    unboxed : what the meaning would give, for a mask that changes how it is computed.
    named : whether the kernel named ``dst``, if there is one; a mask makes one for a call that did
        not, and AWS documents a few instructions otherwise where ``dst`` is named.

    Raises
    ------
    NkiError : a rule of the record is broken; nothing is written then.
    """
    core = current()
    if core.baton is not None:
        _let_others_catch_up(core, core.baton, (dst, *operands))
    if core.ended:
        core.check_bodies((dst, *operands, *others, *indices))
    call = prepare(core, instruction, operands, options, dst, others, dtype, engine, named)
    if dst is None:
        dst = new_tile(core, call)
    if core.shadow is not None:
        core.shadow.foresee(call, dst, operands, others, where, unboxed)
    in_part: list[Part] = [] if where is None else _read_in_part(operands, call, where, unboxed)
    _look_at_operands(core, call, dst, operands, where)
    gapped: Gapped | None = None
    if reads_gaps(call, dst, operands):
        gapped = Gapped(core, call, dst, operands, where)
    core.alarm = False
    if instruction.in_place:
        if gapped is not None:
            gapped.foresee()
        written = instruction.meaning(call, dst, *operands, where=where)
        where = where if written is None else written
        if core.alarm:
            look_at_product(core, dst, operands)
    else:
        results = _results(call, dst, operands, gapped) if unboxed is None else unboxed.results
        if core.alarm:
            look(core, call, operands, results)
        if gapped is not None:
            gapped.look(results, unboxed)
        elif call.counts and is_rounded(results):
            look_for_rounding(core, call, dst, operands, results)
        where = _put(dst, results, others, where, in_part)
        if gapped is not None or core.register_origins:
            settle_further(core, call, dst, others, gapped)
    if gapped is not None:
        gapped.settle(where)
    if core.made and dst.in_hbm:
        stored(core, dst.base if isinstance(dst, IndirectTile) else dst)
    if call.is_simple and not indices:
        reads = [operands[place] for place in call.read_places]
        if call.reads_dst:
            reads.append(dst)
        if where is not None:
            in_part.append((dst, where))
        core.emit(
            call.name, call.engine, (dst,), reads, call.roles, call.attributes, in_part, moved
        )
    else:
        _record(core, call, operands, dst, others, where, in_part, moved, indices)
    return dst


def _read_in_part(
    operands: tuple[Any, ...], call: Call, where: Array, unboxed: Unboxed | None
) -> list[Part]:
    """The operands of which a mask leaves what it leaves of the instruction."""
    instruction, chosen = call.instruction, where if unboxed is None else unboxed.inner
    reach = instruction.reach(call)
    if instruction.walk is not None or reach not in (Reach.ELEMENT, Reach.AXES):
        return []
    tiles = [one for one in operands if isinstance(one, Tile)]
    return [(one, chosen) for one in tiles if one.size == chosen.size]


def _look_at_operands(
    core: Core, call: Call, dst: Any, operands: tuple[Any, ...], where: Array | None
) -> None:
    """Note what stands out in them, of the few calls where something can."""
    for watch in call.watches:
        watch(core, call, operands)
    if not call.is_simple:
        for access in (dst, *operands):
            if isinstance(access, IndirectTile):
                see_indices(core, call, access, where)


def _let_others_catch_up(core: Core, baton: Baton, operands: tuple[Any, ...]) -> None:
    """Before an access to what programs share, let those go first that are behind.

    What none of them has written yet, and none has to, is an argument: it is the same to all.
    """
    baton.check()
    for operand in operands:
        tile = operand.base if isinstance(operand, IndirectTile) else operand
        if isinstance(tile, Tile) and tile.space is Space.SHARED_HBM:
            storage = tile.storage
            if storage.gaps is not None or storage.allocation.writes or tile is operands[0]:
                baton.give_way(core.seat, core.steps)
                return


def _results(call: Call, dst: Any, operands: tuple[Any, ...], gapped: Gapped | None) -> Any:
    """What the instruction means for what its operands hold."""
    if gapped is not None:
        values = gapped.values()
    else:
        values = [op.engine_values() if isinstance(op, Tile) else op for op in operands]
    if call.reads_dst:
        values.append(dst.engine_values())
    return call.instruction.meaning(call, *values)


def _put(
    dst: Tile,
    results: Any,
    others: tuple[Tile | None, ...],
    where: Array | None,
    in_part: list[Part],
) -> Array | None:
    """Write results to the destinations; where ``dst`` was written, None if everywhere.

    Further destinations of which only some elements are written are appended to ``in_part``.
    """
    further: list[tuple[Tile, Any]] = []
    if type(results) is tuple:
        results, *rest = results
        further = [
            (tile, value) for tile, value in zip(others, rest, strict=True) if tile is not None
        ]
        for tile, _ in further:
            check_destination(tile)
    if type(results) is Masked:
        chosen = results.chosen
        where = chosen if where is None else chosen & where
        results = results.values
    write(dst, results, where)
    for tile, value in further:  # after dst, whose values may still lie in an operand that is one
        if type(value) is Masked:
            in_part.append((tile, value.chosen))
            write(tile, value.values, value.chosen)
        else:
            write(tile, value)
    return where


def _record(
    core: Core,
    call: Call,
    operands: tuple[Any, ...],
    dst: Tile | IndirectTile,
    others: tuple[Tile | None, ...],
    where: Array | None,
    in_part: list[Part],
    moved: Tile | None,
    indices: tuple[Tile, ...],
) -> None:
    """Tell the launch what was read and written, where that is more than tiles and one result."""
    instruction = call.instruction
    target = dst.reach if isinstance(dst, IndirectTile) else dst
    writes, written = [target], ["dst"]
    reads: list[Tile] = list(indices)
    read: list[str] = ["index" for _ in indices]
    if isinstance(dst, IndirectTile):
        in_part.append((target, dst.numbers() if core.record else None))
    elif where is not None:
        in_part.append((target, where))
    for role, operand in zip(instruction.operands, operands, strict=True):
        if isinstance(operand, Tile):
            reads.append(operand)
            read.append(role.name)
        elif isinstance(operand, IndirectTile):
            reached = operand.reach
            reads += (reached, *operand.index_tiles)
            read += (role.name, *("index" for _ in operand.index_tiles))
            in_part.append((reached, operand.numbers() if core.record else None))
    if call.reads_dst:
        reads.append(target)
        read.append("dst")
    if isinstance(dst, IndirectTile):
        reads += dst.index_tiles
        read += ["index" for _ in dst.index_tiles]
    for role, other in zip(instruction.destinations[1:], others, strict=False):
        if other is not None:
            writes.append(other)
            written.append(role.name)
    attributes = call.attributes
    if instruction.notes is not None:
        attributes = attributes._replace(**instruction.notes(*operands))
    roles = (*written, *read)
    core.emit(call.name, call.engine, writes, reads, roles, attributes, in_part, moved)


def prepare(
    core: Core,
    instruction: Instruction,
    operands: tuple[Any, ...],
    options: tuple[Any, ...],
    dst: Tile | IndirectTile | None,
    others: tuple[Tile | None, ...],
    dtype: DType | None,
    engine: Engine,
    named: bool = True,
) -> Call:
    """The call that these operands make, checked, or remembered if its like passed before."""
    key: tuple[Any, ...] = (
        instruction,
        options,
        dtype,
        engine,
        dst.signature() if isinstance(dst, Tile) else _signature(dst),
        *[
            operand.signature() if isinstance(operand, Tile) else _signature(operand)
            for operand in operands
        ],
    )
    if others:
        key += tuple(map(_signature, others))
    if not named:
        key = (False, *key)
    calls = core.calls
    call: Call | None = calls.get(key)
    if call is None:
        call = check(core, instruction, operands, options, dst, others, dtype, engine, named)
        call.watches = watches_of(call)
        call.counts = counts(call)
        if len(calls) >= _KEPT:
            calls.clear()
        calls[key] = call
    for remark in call.remarks:
        note(remark())
    return call


def _signature(operand: Any) -> Any:
    """What rules may know of an operand: of a number its type, of an index its shape."""
    if isinstance(operand, (Tile, IndirectTile)):
        return operand.signature()
    return operand.shape if isinstance(operand, Index) else type(operand)


def new_tile(core: Core, call: Call) -> Any:
    """A tile for the result of a call."""
    result = call.result
    storage = core.allocate(result.shape, result.dtype, result.space)
    return core.tile.whole(storage)
