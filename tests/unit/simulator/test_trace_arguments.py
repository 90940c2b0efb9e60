"""The events of two runs of an instruction show their differences, for every record."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from difftest.simulator import launch, trace_from_json, trace_to_json
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.index import Index
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.alu import ALU_OPS
from difftest.simulator.instructions.record import (
    INSTRUCTIONS,
    Instruction,
    OperandKind,
    Result,
    Role,
)
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.pattern import Pattern
from tests.every import every
from tests.unit.simulator.instructions.calls.examples import drawn

SHAPE = (4, 6)
NUMBERS = (
    OperandKind.NUMBER,
    OperandKind.VECTOR_OR_NUMBER,
    OperandKind.TILE_OR_NUMBER,
    OperandKind.INDEX,
)
PATTERNS = (Index(SHAPE, 0, (6, 1)), Index(SHAPE, 5, (6, 1)), Index(SHAPE, 0, (6, -1)))
COMMANDS = tuple(Accumulate)
CHOICES = (None, True, False, 0.5, -7, "exp", "relu", (3, 1), (1, 3), ((0, 2), (1, 1)))
CHOICES += (ALU_OPS["add"], ALU_OPS["multiply"], *COMMANDS)


def number_roles(record: Instruction) -> tuple[Role, ...]:
    """The roles that take a number or an index pattern."""
    return tuple(role for role in record.operands if role.takes in NUMBERS)


def slots(record: Instruction) -> dict[str, tuple[Any, ...]]:
    """Values that differ, for each option and each number."""
    options = {
        name: COMMANDS if name == "reduce_cmd" else CHOICES for name in record.options
    }
    numbers = {
        role.name: PATTERNS
        if role.takes is OperandKind.INDEX
        else (2.5, -2.5, 3, np.float32(0.1))
        for role in number_roles(record)
    }
    return options | numbers


def bare(record: Instruction) -> Instruction:
    """Takes any options and numbers, and all values of them: it is without rules."""
    return replace(
        record,
        operands=(Role("any"), *number_roles(record)),
        destinations=(Role("dst"),),
        rules=(),
        only={},
        engine=lambda call, wanted: record.engines[0],
        result=lambda call: Result(SHAPE, np.dtype(np.float32)),
        meaning=lambda call, *values: np.zeros(SHAPE, np.float32),
        facts=lambda call: {},
        event=lambda call: (call.name, record.purpose),
        reads_dst=lambda call: False,
        resolves=None,
        in_place=False,
        carries=None,
    )


def told_of(record: Instruction, slot: str) -> list[str]:
    """Return the events of calls that differ in one slot."""
    values = slots(record)
    plain = bare(record)

    def kernel() -> None:
        tile, dst = (nl.zeros(SHAPE, nl.float32) for _ in range(2))
        for value in values[slot]:
            given = {name: some[0] for name, some in values.items()} | {slot: value}
            numbers = [given[role.name] for role in number_roles(record)]
            options = tuple(given[name] for name in record.options)
            gate.issue(plain, (tile, *numbers), options, dst=dst)

    trace = launch(kernel, ()).trace
    again = trace_from_json(trace_to_json(trace))
    assert [one.arguments for one in again] == [one.arguments for one in trace]
    return [repr(one.arguments) for one in again if one.opcode == record.name][
        -len(values[slot]) :
    ]


@every("name", sorted(INSTRUCTIONS))
def test_events_differ_as_their_calls_do(name):
    record = INSTRUCTIONS[name]
    for slot, values in slots(record).items():
        told = told_of(record, slot)
        assert len(set(told)) == len(values), (slot, told)


@every("name", sorted(INSTRUCTIONS))
def test_the_event_of_a_legal_call_has_all_its_arguments(name):
    """An option or a number that is given is there."""
    record = INSTRUCTIONS[name]
    for seed in range(4):
        call = drawn(name, Random(seed).choice)
        events = [
            one.arguments for one in call.launched("record").trace if one.opcode == name
        ]
        options = dict(zip(record.options, call.options, strict=True))
        given = {
            role.name: call.operands[role.name]
            for role in number_roles(record)
            if isinstance(call.operands[role.name], int | float | np.generic)
            or callable(call.operands[role.name])
        }
        names = {one for one, value in options.items() if value is not None}
        (told, *_) = (one for one in events if one.keys() == names | given.keys())
        for role, value in given.items():
            assert (
                isinstance(told[role], Pattern)
                if callable(value)
                else told[role] == value
            )
