"""What a kernel asks of an instruction: its operands by role, its options, where results go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from difftest.simulator.dtypes import Array, DType
from difftest.simulator.instructions.record import Instruction
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine


class Issue:
    """One use of an instruction.

    Attributes
    ----------
    operands, options : in the order of the record; an operand is a tile, a number or None, an
        option hashable.
    dst : where the result goes; None for a new tile, as the record says.
    others : the further destinations (``reduce_res``, ``dst_idx``), None for one left out.
    dtype : of a new tile, if the kernel names it.
    engine : the one that the kernel names.
    where : bools over the result's shape; only where they are true is ``dst`` written.
    moved : the operand that is only taken to its destination (see :mod:`difftest.simulator.fuse`).
    indices : what holds where operands or ``dst`` lie: tiles, which the instruction reads too, and
        of a register the role that follows it and its name.
    sources : by role, what the event names as read instead of the operands.
    inner : a mask that is no box, over what the instruction walks: it changes how it is computed.
    named : whether the kernel named ``dst``, if there is one; a mask makes one for a call that did
        not, and AWS documents a few instructions otherwise where ``dst`` is named.
    """

    dst: Any = None
    others: tuple[Tile | None, ...] = ()
    dtype: DType | None = None
    engine: Engine = Engine.UNKNOWN
    where: Array | None = None
    moved: Tile | None = None
    indices: tuple[Tile | tuple[str, str], ...] = ()
    sources: dict[str, Tile] | None = None
    inner: Array | None = None
    named: bool = True

    def __init__(
        self,
        instruction: Instruction,
        operands: tuple[Any, ...],
        options: tuple[Any, ...],
        how: dict[str, Any],
    ) -> None:
        self.__dict__ = how  # it is made for each instruction, and few things are said of most
        self.instruction = instruction
        self.operands = operands
        self.options = options

    def but(self, **how: Any) -> Issue:
        """The issued with something else instead."""
        return Issue(self.instruction, self.operands, self.options, {**self.__dict__, **how})

    def roles(self) -> Iterator[tuple[str, Any]]:
        """What stands at each role."""
        record = self.instruction
        sides = (record.operands, self.operands), (record.destinations, (self.dst, *self.others))
        for roles, given in sides:
            yield from zip((role.name for role in roles), given, strict=False)
