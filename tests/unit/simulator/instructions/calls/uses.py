"""Uses of instructions without data: only the parts that the rules of a record see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator import TRN2, Engine, Machine, Space, launch
from difftest.simulator.core import current
from difftest.simulator.dtypes import NKI_NAMES
from difftest.simulator.frontend.classic.indexing import IndexedTile
from difftest.simulator.instructions.checks import check_call
from difftest.simulator.instructions.record import (
    CheckedCall,
    Instruction,
    InstructionUse,
)


class Tensor(NamedTuple):
    """A tensor to be made, and the part of it that is taken."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    space: Space = Space.SBUF
    part: Any = None
    indexed: tuple[int, ...] = ()
    """The shape of the tile of its indices; () without indices."""

    def made(self) -> Any:
        """The tile, in the launch that is running; all of it is unwritten."""
        core = current()
        tile = core.tile._whole(
            core.allocate(self.shape, NKI_NAMES[self.dtype], self.space)
        )
        if self.indexed:
            places = Tensor(self.indexed, "int32").made()
            return IndexedTile(tile, (places, *(0 for _ in self.shape[1:])))
        return tile if self.part is None else tile[self.part]


@dataclass(frozen=True)
class Use:
    """Operands, options and destinations of one use of an instruction."""

    operands: Mapping[str, Any]
    options: tuple[Any, ...] = ()
    dst: Any = None
    others: tuple[Any, ...] = ()
    dtype: str | None = None
    engine: Engine = Engine.UNKNOWN
    machine: Machine = field(default=TRN2)

    def check(self, record: Instruction) -> CheckedCall:
        """Check the use against a record.

        Raises
        ------
        NkiError : the record does not allow it.
        """
        calls = []

        def kernel() -> None:
            operands = tuple(
                _made(self.operands[role.name]) for role in record.operands
            )
            dst, *others = (_made(one) for one in (self.dst, *self.others))
            dtype = None if self.dtype is None else np.dtype(NKI_NAMES[self.dtype])
            how = {
                "dst": dst,
                "others": tuple(others),
                "dtype": dtype,
                "engine": self.engine,
            }
            core = current()
            core.issued = InstructionUse(record, operands, self.options, **how)
            calls.append(check_call(core, core.issued))

        launch(kernel, machine=self.machine)
        return calls[0]


def _made(one: Any) -> Any:
    if isinstance(one, Tensor):
        return one.made()
    return one() if callable(one) else one
