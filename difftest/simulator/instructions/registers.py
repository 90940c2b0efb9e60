"""The engines' reduction registers: ``nisa.reduce_cmd``.

Each engine that reduces on the way has one float32 register a partition, which lives across
instructions and is shared by them. Source: AWS ``nki.isa`` at tags v2.26.0 and v2.32.0
("Accumulator behavior").
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import FLOAT32, Array
from difftest.simulator.errors import KernelError
from difftest.simulator.instructions.alu import NKI_OPS, AluOp
from difftest.simulator.instructions.record import (
    CheckedCall,
    DependenceClass,
    OperandKind,
    Role,
    Rule,
)
from difftest.simulator.instructions.rules import name_rule, rule_factory
from difftest.simulator.instructions.values import as_float, rows, sum_in_order
from difftest.simulator.lifted import as_constant, made_like
from difftest.simulator.memory import Shape
from difftest.simulator.trace import IdentityEnum


class Accumulate(IdentityEnum):
    """``nisa.reduce_cmd``: the action of an instruction on its engine's accumulation registers."""

    IDLE = 0
    RESET = 1
    REDUCE = 2
    RESET_REDUCE = 3
    READ = "read"
    """Only read the registers, as the current dialect does with ``idle`` and a ``reduce_res``."""
    LOAD_REDUCE = "load_reduce"
    """Available since ``import nki``."""


IDENTITIES = {
    "add": 0.0,
    "subtract": 0.0,
    "multiply": 1.0,
    "maximum": -np.inf,
    "minimum": np.inf,
    "abs_max": 0.0,
    "abs_min": np.inf,
}
"""The value of a register after a reset, by the operator that reduces into it."""


def one_a_partition(call: CheckedCall) -> Shape:
    """Return the shape of a read of the registers: [P, 1]."""
    return (call.result.shape[0], 1)


def reach_of_registers(call: CheckedCall) -> DependenceClass:
    """Return how results depend on operands: on a whole row if the registers take part."""
    if call["reduce_cmd"] is Accumulate.IDLE:
        return DependenceClass.ELEMENT
    return DependenceClass.ROW


REDUCE_RES = Role("reduce_res", optional=True, shape=one_a_partition)
REDUCE_INIT = Role(
    "reduce_init",
    takes=OperandKind.VECTOR_OR_NUMBER,
    dtypes=(FLOAT32,),
    optional=True,
)


def _shown(command: Accumulate) -> str:
    return command.name.lower()


def commands(*allowed: Accumulate) -> Rule:
    """Require one of the instruction's commands."""

    def rule(call: CheckedCall) -> None:
        if call["reduce_cmd"] not in allowed:
            raise call.refused(
                "knows only some commands for its registers",
                f"got reduce_cmd.{_shown(call['reduce_cmd'])}",
                f"reduce_cmd.{_shown(call['reduce_cmd'])}",
                limit=", ".join(
                    _shown(cmd) for cmd in allowed if cmd is not Accumulate.READ
                ),
            )

    return name_rule(rule, "commands", tuple(_shown(cmd) for cmd in allowed))


LOADS_NOTHING = commands(
    *(cmd for cmd in Accumulate if cmd is not Accumulate.LOAD_REDUCE)
)
"""For instructions without an operand to load the registers from."""


@rule_factory
def loads(call: CheckedCall, role: str) -> None:
    """Require the operand for loading the registers with load_reduce, and only then."""
    operand = call[role]
    command = call["reduce_cmd"]
    if (operand is None) is (command is Accumulate.LOAD_REDUCE):
        shown = (
            repr(operand) if isinstance(operand, Descriptor) else operand and "a number"
        )
        raise call.refused(
            f"takes {role} with reduce_cmd.load_reduce, and only with it",
            f"got {role} = {shown} with {_shown(command)}",
            f"{role} = {shown}, reduce_cmd.{_shown(command)}",
        )


def read_if_used(call: CheckedCall) -> None:
    """Reject a read of the registers by an instruction that does not use them."""
    if call["reduce_cmd"] is Accumulate.IDLE and "reduce_res" in call.destinations:
        raise call.refused(
            "reads the reduction registers only if it uses them",
            "was to read registers that it does not use",
            f"reduce_res = {call.destinations['reduce_res']!r} with reduce_cmd.idle",
            remedy="pass reduce_cmd=nisa.reduce_cmd.reset_reduce",
        )


def reduce_into_register(
    engine: str, values: Array, op: AluOp | None, command: Accumulate, start: Any = None
) -> Array | None:
    """Reduce ``values`` along the free axes into an engine's registers, and return those [P, 1].

    Without an operator they add. Return None for the idle command.

    Parameters
    ----------
    start : the registers' first values for load_reduce: a number, or float32 [P, 1].
    """
    if command is Accumulate.IDLE:
        return None
    if command is Accumulate.READ:
        held = current().registers.accumulators.get(engine)
        if held is None:
            raise KernelError(
                "an instruction reads reduction registers into which nothing was reduced",
                happened=f"registers of the {engine} engine were read before any reduction",
                received=f"reduce_cmd.read of the {engine} engine's",
                remedy="reduce into them first: reduce_cmd=nisa.reduce_cmd.reset_reduce",
            )
        kept: Array = held[: values.shape[0]].copy()
        return kept
    return accumulate_register(engine, values, op, command, start)


def accumulate_register(
    engine: str, values: Array, op: AluOp | None, command: Accumulate, start: Any = None
) -> Array:
    """Run :func:`reduce_into_register` for a command that reduces or resets."""
    name = "add" if op is None else op.name
    lines = rows(as_float(values))
    held = held_before(engine, lines, name, command, start)
    if command is Accumulate.RESET:
        return held.copy()
    held[...] = reduced = _reduce_into(held[:, 0], lines, name)[:, None]
    return reduced


def held_before(
    engine: str, lines: Array, name: str, command: Accumulate, start: Any = None
) -> Array:
    """Return the registers for ``lines`` [P, N], reset or loaded by the command: [P, 1].

    The result is a view: writing to it writes to the registers.
    """
    core = current()
    accumulators = core.registers.accumulators
    if command is not Accumulate.REDUCE or engine not in accumulators:
        whole = made_like(lines, (core.machine.partitions, 1))
        whole[...] = IDENTITIES[name]
        accumulators[engine] = whole
    held: Array = accumulators[engine][: len(lines)]
    if command is Accumulate.LOAD_REDUCE:
        held[...] = as_constant(start).reshape(-1, 1)
    return held


def _reduce_into(held: Array, lines: Array, name: str) -> Array:
    """Reduce each row of ``lines`` [P, N], in order, to its register's value."""
    if name == "add":
        return sum_in_order(lines, start=held)
    if name == "multiply":
        product: Array = np.multiply.reduce(
            np.concatenate([held[:, None], lines], 1), axis=1
        )
        return product
    if name in ("abs_max", "abs_min"):
        state: Array = functools.reduce(NKI_OPS[name].compute, lines.T, held)
        return state
    ufunc = np.maximum if name == "maximum" else np.minimum
    result: Array = ufunc(held, ufunc.reduce(lines, axis=1))
    return result
