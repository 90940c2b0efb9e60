"""How this dialect issues an instruction: an existing ``dst``, and views that move at run time."""

from __future__ import annotations

import dataclasses
from typing import Any

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.nki.dynamic import MOVING, DynamicView
from difftest.simulator.frontend.nki.indirection import check_use
from difftest.simulator.frontend.nki.objects import ISSUED, NkiInstruction
from difftest.simulator.frontend.nki.tensor import IndirectTensor
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.operands import need_tile, wrong_buffer
from difftest.simulator.instructions.record import ON_CHIP, DType, Instruction
from difftest.simulator.instructions.writing import check_destination
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Region


def issue(
    instruction: Instruction,
    dst: Any,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    *,
    others: tuple[Any, ...] = (),
    engine: Engine = Engine.UNKNOWN,
) -> NkiInstruction:
    """Issue an instruction that writes ``dst``.

    Parameters
    ----------
    operands, options, others, engine : as :func:`difftest.simulator.instructions.gate.issue`
        takes them. A view with one dynamic offset is accessed where that puts it.

    Raises
    ------
    NkiError : a rule of the record is broken; nothing is written then.
    """
    if dst is None:
        raise KernelError(
            f"{instruction.name} takes a tensor as dst",
            happened=f"{instruction.name} got no dst",
            received="None",
        )
    indices: tuple[Tile, ...] = ()
    if isinstance(dst, DynamicView) and dst.settles:
        dst, indices = settle(dst), dst.index_tiles
    if not MOVING.isdisjoint(map(type, operands)):
        indices += tuple(tile for op in operands if _moves(op) for tile in op.index_tiles)
        operands = tuple(settle(op) if _moves(op) else op for op in operands)
    given = (dst, *operands, *others)
    if MOVING.isdisjoint(map(type, given)):
        gate.issue(
            instruction, operands, options, dst=dst, others=others, engine=engine, indices=indices
        )
        return ISSUED
    roles = ("dst", *(role.name for role in instruction.operands))
    names = (*roles, *(role.name for role in instruction.destinations[1:]))
    views = [one for one in given if isinstance(one, IndirectTensor)]
    for role, one in zip(names, given, strict=False):
        if isinstance(one, IndirectTensor):
            check_use(instruction.name, role, one.group, one, one.index)
    indices += tuple(view.index for view in views)
    scatters = dst if isinstance(dst, IndirectTensor) else None
    if scatters is not None:
        _check_parameter(scatters)
    gate.issue(
        instruction, operands, options, dst=dst, others=others, engine=engine, indices=indices
    )
    if scatters is not None:
        scatters.scatter()
        scatters.storage.mutable = False
    _note_owners(views)
    return ISSUED


def issue_new(
    instruction: Instruction,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    *,
    dst: Any = None,
    others: tuple[Any, ...] = (),
    dtype: DType | None = None,
    engine: Engine = Engine.UNKNOWN,
) -> Any:
    """As :func:`issue`, into a new tile, which it returns: what functions of ``nl`` do.

    ``dst`` is a tile that the function has made itself.
    """
    indices: tuple[Tile, ...] = ()
    if not MOVING.isdisjoint(map(type, operands)):
        dynamic = [operand for operand in operands if _moves(operand)]
        indices = tuple(tile for view in dynamic for tile in view.index_tiles)
        operands = tuple(settle(op) if _moves(op) else op for op in operands)
    how = {"dst": dst, "others": others, "dtype": dtype, "engine": engine}
    return gate.issue(instruction, operands, options, indices=indices, **how)


def need_operand(value: object, name: str, where: str) -> Any:
    """``value`` as a tile on chip, or as a view of one that an offset moves.

    Raises
    ------
    KernelError : it is no tensor. BufferError : it is in another memory.
    """
    if not isinstance(value, DynamicView) or not value.settles:
        return need_tile(value, name, where)
    if value.in_hbm:
        raise wrong_buffer(value, name, where, ON_CHIP)
    return value


def _moves(value: object) -> bool:
    """Whether a value is a view that an instruction takes where its offset puts it."""
    return isinstance(value, DynamicView) and value.settles


def _check_parameter(view: IndirectTensor) -> None:
    """Let an instruction write to a view, unless its tensor cannot be written."""
    check_destination(view.owner)
    view.storage.mutable = True


def _note_owners(views: list[IndirectTensor]) -> None:
    """Let the last event say of indirect views which tensors they read and wrote, and where."""
    core = current()
    owners = {id(view.storage.allocation): view.owner for view in views}
    for view in views:
        counted, kept = view.storage.allocation, view.owner.storage.allocation
        kept.reads, kept.writes = kept.reads + counted.reads, kept.writes + counted.writes
        kept.last = max(kept.last, counted.last)
        kept.first = counted.first if kept.first < 0 else kept.first
        counted.reads = counted.writes = 0
    if not core.record:
        return
    event = core.trace.events[-1]

    def named(region: Region) -> Region:
        owner = owners.get(id(region.allocation))
        if owner is None:
            return region
        where = (owner.storage.allocation, owner.offset, owner.shape, owner.strides)
        return Region(*where, 0, region.role, whole=False)

    core.trace.events[-1] = dataclasses.replace(
        event,
        writes=tuple(map(named, event.writes)),
        reads=tuple(map(named, event.reads)),
    )


def settle(view: DynamicView) -> Any:
    """The view where its one offset puts it.

    Raises
    ------
    OutOfBoundsError : the offset leaves the tensor. KernelError : it has one for each row.
    """
    if not view.whole:
        raise KernelError(
            "an offset for each row is for the DMA engines",
            happened="an engine was given a view with an offset for each row",
            received=repr(view),
            remedy="gather into SBUF with nisa.dma_copy first",
        )
    settled = view.settled()
    if settled is None:
        view.resolve(skip=False)
    return settled
