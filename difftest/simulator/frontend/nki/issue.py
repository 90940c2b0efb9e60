"""How this dialect issues an instruction: an existing ``dst``, and views that move at run time."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.nki.dynamic import MOVING, DynamicView
from difftest.simulator.frontend.nki.indirection import check_use
from difftest.simulator.frontend.nki.objects import ISSUED, NkiInstruction
from difftest.simulator.frontend.nki.tensor import IndirectTensor
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.operands import need_tile, wrong_buffer
from difftest.simulator.instructions.record import ON_CHIP, DType, Instruction
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine


def issue(
    instruction: Instruction,
    dst: Any,
    operands: tuple[Any, ...],
    options: tuple[Any, ...] = (),
    *,
    others: tuple[Any, ...] = (),
    engine: Engine = Engine.UNKNOWN,
) -> NkiInstruction:
    """Issue an instruction that writes ``dst``, as :func:`gate.issue` does.

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
    issue_new(instruction, operands, options, dst=dst, others=others, engine=engine)
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
    """As :func:`issue`; without ``dst`` into a new tile, which it returns.

    A view with one dynamic offset is accessed where that puts it.
    """
    indices: list[Tile] = []
    if not MOVING.isdisjoint(map(type, (dst, *operands, *others))):
        roles, further = instruction.operands, instruction.destinations
        dst = _placed(instruction.name, "dst", dst, indices)
        operands = tuple(
            _placed(instruction.name, role.name, one, indices)
            for role, one in zip(roles, operands, strict=True)
        )
        others = tuple(
            _placed(instruction.name, role.name, one, indices)
            for role, one in zip(further[1:], others, strict=False)
        )
    return gate.issue(
        instruction,
        operands,
        options,
        dst=dst,
        others=others,
        dtype=dtype,
        engine=engine,
        indices=tuple(indices),
    )


def _placed(name: str, role: str, given: Any, indices: list[Tile]) -> Any:
    """An operand where its offset puts it; to ``indices`` comes what holds offset or index."""
    if isinstance(given, IndirectTensor):
        check_use(name, role, given.group, given, given.index)
        indices.append(given.index)
    elif isinstance(given, DynamicView) and given.settles:
        indices += given.index_tiles
        return settle(given)
    return given


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
