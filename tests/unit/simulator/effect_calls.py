"""A call of each effect, like drawn calls of instructions: its operands, each in its buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator import TRN3, Engine, Space
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.record import EFFECTS, OperandKind, Role
from tests.unit.simulator.instructions.calls.drawn import DrawnCall, Operand

OF_CORES = ("core_barrier", "sendrecv")
OF_RANDOM_STATES = ("rand_set_state", "set_rng_seed")
MANY = 70_003
"""A number of a register that half of its bits do not hold."""
_ADD = ALU_OPS["add"]
_GROUP = (0, 1)
CHIP = (0, 1, 2, 3)
OF_A_CHIP = ("all_gather_v",)
"""Effects of the four ranks of a chip, with two cores each."""
_OPTIONS: dict[str, tuple[Any, ...]] = {  # by effect, in the order of its record
    "core_barrier": (_GROUP,),
    "sendrecv": (1, 1, 0, "dma"),  # of the first core; the second one's ranks are 0
    "all_reduce": (_ADD, _GROUP),
    "all_gather": (0, _GROUP),
    "reduce_scatter": (0, _ADD, _GROUP),
    "all_to_all": (0, _GROUP),
    "collective_permute": (((0, 1), (1, 0)), _GROUP),
    "collective_permute_implicit": ((0,), _GROUP),
    "collective_permute_implicit_reduce": ((0,), _ADD, _GROUP),
    "all_gather_v": (False, False, CHIP),
    "all_to_all_v": (False, False, _GROUP),
}
_DST_SHAPES = {"all_gather": (32, 4), "reduce_scatter": (8, 4)}
_TABLE = np.array([[4, 4, 4, 4], [0, 8, 16, 24], [0, 0, 0, 0]])
"""The number of elements from each rank to each, the first place, and room for the received."""


def effect_call(name: str, seed: int) -> DrawnCall:
    """Return a call of an effect in a buffer that it takes; the seed picks the buffer."""
    record = EFFECTS[name]
    of_state = name.startswith("rand_")
    of_one = name.startswith(("register_", "scalar_", "set_rng"))

    def tensor(role: Role, shape: tuple[int, ...]) -> Operand:
        if of_one:
            shape = (1, 1)
        elif of_state:
            shape = (128, 24)
        else:
            shape = shape
        values = np.arange(np.prod(shape)).reshape(shape) % 11 + (MANY if of_one else 3)
        wanted = np.dtype(np.int32 if of_one else np.float32)
        dtype = (
            wanted
            if role.dtypes is None or wanted in role.dtypes
            else np.dtype(np.uint32)
        )
        spaces = [one for one in role.buffers if one is not Space.PRIVATE_HBM]
        if role.name == "metadata_tensor":
            ranks = len(CHIP if name in OF_A_CHIP else _GROUP)
            return Operand(_TABLE[:, :ranks], dtype, Space.SHARED_HBM)
        if name == "core_barrier":  # it warns of buffers that the cores do not share
            spaces = [Space.SHARED_HBM]
        return Operand(values, dtype, spaces[seed % len(spaces)])

    operands: dict[str, Any] = {
        role.name: MANY if role.takes is OperandKind.NUMBER else tensor(role, (16, 4))
        for role in record.operands
    }
    into = _DST_SHAPES.get(name, (16, 4))
    destinations = {role.name: tensor(role, into) for role in record.destinations}
    options = _OPTIONS.get(name, ("r",) * len(record.options))
    engine = Engine.VECTOR if of_state else Engine.UNKNOWN
    return DrawnCall(record, operands, options, destinations, engine, machine=TRN3)
