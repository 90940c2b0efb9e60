"""The engines' reduction registers: ``nisa.reduce_cmd`` (AWS ``nki.isa`` at tag v2.26.0).

Each engine that reduces on the way has one float32 register a partition, which lives across
instructions.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import KernelError
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.record import Call, Reach, Role
from difftest.simulator.instructions.values import rows
from difftest.simulator.memory import Shape


class Accumulate(Enum):
    """``nisa.reduce_cmd``: what an instruction does with its engine's accumulation registers."""

    IDLE = 0
    RESET = 1
    REDUCE = 2
    RESET_REDUCE = 3
    READ = "read"
    """Only read out what they hold, as today's dialect does with ``idle`` and a ``reduce_res``."""


def one_a_partition(call: Call) -> Shape:
    """The shape of what the registers are read out to: [P, 1]."""
    return (call.result.shape[0], 1)


def reach_of_registers(call: Call) -> Reach:
    """Where the registers take part, they take up a whole row."""
    return Reach.ELEMENT if call["command"] is Accumulate.IDLE else Reach.ROW


REDUCE_RES = Role(name="reduce_res", optional=True, shape=one_a_partition)


_FOLDS: dict[str, tuple[Any, float]] = {
    "add": (np.add, 0.0),
    "multiply": (np.multiply, 1.0),
    "maximum": (np.maximum, -np.inf),
    "minimum": (np.minimum, np.inf),
}
"""How a register takes up a result, and what it holds when it is reset."""


def reads_what_it_uses(call: Call) -> None:
    """The registers are read out only by an instruction that uses them."""
    into = call.destinations.get("reduce_res")
    if into is not None and call["command"] is Accumulate.IDLE:
        raise KernelError(
            f"{call.name} reads the reduction registers only if it uses them",
            received=f"reduce_res = {into!r} with reduce_cmd.idle",
            remedy="pass reduce_cmd=nisa.reduce_cmd.reset_reduce",
        )


def registers(engine: str, values: Array, op: AluOp | None, command: Accumulate) -> Array | None:
    """Add up ``values`` along the free axes in an engine's registers; what they hold then, [P, 1].

    With the operator maximum their largest is kept instead. None if the command is to do nothing.
    """
    if command is Accumulate.IDLE:
        return None
    if command is Accumulate.READ:
        held = current().accumulators.get(engine)
        if held is None:
            raise KernelError(
                "an instruction reads reduction registers into which nothing was reduced",
                received=f"reduce_cmd.read of the {engine} engine's",
                remedy="reduce into them first: reduce_cmd=nisa.reduce_cmd.reset_reduce",
            )
        return held[: values.shape[0]].copy()
    name = "maximum" if op is not None and op.name == "maximum" else "add"
    reduced = None
    if command in (Accumulate.REDUCE, Accumulate.RESET_REDUCE):
        flat = rows(values)
        if name == "maximum":
            reduced = np.maximum.reduce(flat, axis=1, keepdims=True)
        else:
            reduced = np.add.reduce(flat, axis=1, keepdims=True, dtype=np.float32)
    return fold(engine, values.shape[0], reduced, name, command)


def fold(
    engine: str,
    partitions: int,
    reduced: Array | None,
    name: str,
    command: Accumulate,
    start: Any = None,
) -> Array:
    """Take ``reduced`` [P, 1] up into an engine's registers; what they hold then, [P, 1].

    ``start`` is what they are loaded with first, where that is neither what they hold nor what a
    reset gives them.
    """
    core = current()
    function, identity = _FOLDS[name]
    if command is not Accumulate.REDUCE or engine not in core.accumulators or start is not None:
        first = np.float32(identity) if start is None else start
        fresh = np.full((core.machine.partitions, 1), np.float32(identity))
        fresh[:partitions] = first
        core.accumulators[engine] = fresh
    held = core.accumulators[engine][:partitions]
    if reduced is not None:
        held[...] = function(held, reduced)
    return held.copy()
