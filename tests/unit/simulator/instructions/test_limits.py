"""Rejections by records: each declared buffer, dtype and shape; each rule just over its limit."""

import dataclasses
import random

import pytest

from difftest.simulator import BufferError, DtypeError, KernelError, ShapeError, Space
from difftest.simulator.dtypes import DTYPES, dtype_name
from difftest.simulator.instructions.record import INSTRUCTIONS, OperandKind
from tests.every import every
from tests.unit.simulator.instructions.calls.drawn import Operand
from tests.unit.simulator.instructions.calls.examples import LIMITS, drawn
from tests.unit.simulator.instructions.calls.uses import Tensor, Use

CALLS = "tests/unit/simulator/instructions/calls"
SHAPED_BY_DST = ("memset", "rand", "rand2", "rng")
"""Instructions that take their shape from ``dst``."""
RULES = [
    (name, rule)
    for name, record in sorted(INSTRUCTIONS.items())
    for rule in record.rules
]
EDGES = [(*key, number) for key in sorted(LIMITS) for number in range(len(LIMITS[key]))]
NUMBERS = (OperandKind.VECTOR_OR_NUMBER, OperandKind.TILE_OR_NUMBER)
WITHOUT_DATA = (OperandKind.NUMBER, OperandKind.INDEX)
ROLES = [
    (name, role.name)
    for name, record in sorted(INSTRUCTIONS.items())
    for role in (*record.operands, *record.destinations)
    if role.takes not in WITHOUT_DATA
]


def test_each_rule_of_each_record_has_its_limits():
    rules = {(name, rule.__name__) for name, rule in RULES}
    missing = sorted(rules - set(LIMITS))
    assert not missing, (
        f"{missing} have no limit(...): add one to limits_computing.py, limits_moving.py or "
        f"limits_today.py in {CALLS}"
    )
    without_rule = sorted(set(LIMITS) - rules)
    assert not without_rule, f"no record has the rules of {without_rule} in {CALLS}"


@every("name, rule, number", EDGES)
def test_a_rule_at_its_limit_and_just_over_it(name, rule, number):
    record = INSTRUCTIONS[name]
    edge = LIMITS[name, rule][number]
    edge.legal.check(record)
    with pytest.raises(edge.error) as caught:
        edge.illegal.check(record)
    assert edge.text in str(caught.value)
    assert type(caught.value) is edge.error
    check_structure(caught.value)

    others = tuple(one for one in record.rules if one.__name__ != rule)
    assert len(others) == len(record.rules) - 1
    assert edge.text not in refusal(
        edge.illegal, dataclasses.replace(record, rules=others)
    )


def check_structure(error):
    """Assert that the headline says what happened, and that rule and received value follow."""
    headline, *rows = str(error).splitlines()
    assert headline == error.happened
    assert rows[0] == f"  rule:     {error.rule}"
    assert rows[1].startswith("  received: ")
    assert error.happened not in error.rule
    assert error.rule not in error.happened


def refusal(use, record):
    """Return a failure's message: another rule's, or of code that relies on the removed rule."""
    try:
        use.check(record)
    except Exception as error:
        return str(error)
    return ""


# -- declarations of a record ----------------------------------------------------------------------


def declared_role(record, name):
    (role,) = (
        one for one in (*record.operands, *record.destinations) if one.name == name
    )
    return role


def use(name, role, **changes):
    """A use of an example's shapes, with another buffer or dtype at one role."""
    record = INSTRUCTIONS[name]
    # An example with a tile there, and with every destination.
    everything = {
        one.name: one.buffers[0] for one in (*record.operands, *record.destinations)
    }
    call = drawn(name, random.Random(1).choice, everything)

    def tensor(at):
        one = call.role(at)
        if not isinstance(one, Operand):
            return one
        made = {"dtype": dtype_name(one.dtype), "space": one.space}
        made |= changes if at == role else {}
        if one.at:  # as many elements as the other side has
            made["indexed"] = call.role("dst" if at == "src" else "src").array.shape
        return Tensor(one.array.shape, **made)

    first, *rest = (tensor(one.name) for one in record.destinations)
    operands = {one.name: tensor(one.name) for one in record.operands}
    return Use(
        operands, call.options, first, tuple(rest), None, call.engine, call.machine
    )


@every("name, role", ROLES)
def test_a_buffer_that_a_record_does_not_declare(name, role):
    record = INSTRUCTIONS[name]
    declared = declared_role(record, role)
    use(name, role).check(record)
    forbidden = [space for space in Space if space not in declared.buffers]
    assert forbidden
    for space in forbidden:
        with pytest.raises(BufferError, match=f"{name} takes {role} in ") as caught:
            use(name, role, space=space).check(record)
        check_structure(caught.value)
        assert caught.value.received.startswith(f"{role} = ")


@every("name, role", ROLES)
def test_a_dtype_that_a_record_does_not_declare(name, role):
    record = INSTRUCTIONS[name]
    declared = declared_role(record, role)
    allowed = DTYPES if declared.dtypes is None else declared.dtypes
    for dtype in set(DTYPES) - set(allowed):
        with pytest.raises(
            DtypeError, match=f"{name} takes {role} of certain dtypes"
        ) as caught:
            use(name, role, dtype=dtype_name(dtype)).check(record)
        check_structure(caught.value)
        assert caught.value.happened == f"{name} got {role} of {dtype_name(dtype)}"


@every("name, role", ROLES)
def test_something_else_in_a_tiles_place(name, role):
    record = INSTRUCTIONS[name]
    declared = declared_role(record, role)
    legal = use(name, role)
    if role == "dst":
        wrong = [dataclasses.replace(legal, dst="no tile")]
    elif role not in legal.operands:
        wrong = [dataclasses.replace(legal, others=("no tile",))]
    else:
        values = ["no tile"] if declared.optional else ["no tile", None]
        values += [] if declared.takes in NUMBERS else [3.0]
        wrong = [
            dataclasses.replace(legal, operands={**legal.operands, role: value})
            for value in values
        ]
    for each in wrong:
        rule = f"{name} takes {declared.takes.value} as {role}"
        with pytest.raises(KernelError, match=rule) as caught:
            each.check(record)
        check_structure(caught.value)


@every("name", sorted(INSTRUCTIONS))
def test_a_destination_of_another_shape(name):
    """The destination has one element a partition more than the result."""
    record = INSTRUCTIONS[name]
    for number, role in enumerate(record.destinations):
        legal = use(name, role.name)
        made = [legal.dst, *legal.others]
        shape = made[number].shape
        longer = made[number]._replace(shape=(*shape[:-1], shape[-1] + 1))
        if role.takes is OperandKind.INDIRECT:
            indexed = (*longer.indexed[:-1], longer.indexed[-1] + 1)
            longer = longer._replace(shape=shape, indexed=indexed)
        made[number] = longer
        changed = dataclasses.replace(legal, dst=made[0], others=tuple(made[1:]))
        if name in SHAPED_BY_DST:
            changed.check(record)
        else:
            with pytest.raises(ShapeError):
                changed.check(record)
