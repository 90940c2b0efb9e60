"""How this dialect issues an instruction: an existing ``dst``, and views that move at run time."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.objects import ISSUED, NkiInstruction
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.record import Instruction
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
    if type(dst) is DynamicView:
        dst, indices = settle(dst), dst.index_tiles
    if DynamicView in map(type, operands):
        indices += tuple(
            tile for op in operands if type(op) is DynamicView for tile in op.index_tiles
        )
        operands = tuple(settle(op) if type(op) is DynamicView else op for op in operands)
    gate.issue(
        instruction, operands, options, dst=dst, others=others, engine=engine, indices=indices
    )
    return ISSUED


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
