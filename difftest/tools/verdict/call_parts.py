"""The parts of a call on a tape, which comparisons of a candidate's runs look at.

A call is flattened into its names, numbers, tensors and registers. These do not count:

- names that the kernel gives tensors, because they change no instruction;
- the values of registers, because a compiler never knows them;
- the place of the call: its line, and its iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from difftest.simulator.frontend.nki.virtual_registers import register_number
from difftest.simulator.tape import Tape, TapedCall, TapedForm, TileForm

NAME = "name"
"""The argument of an instruction that names a tensor."""
_STORES = ("register_store", "scalar_store")
"""The effects whose first operand is the value of a register."""


class PartKind(Enum):
    """The kind of a part of a call."""

    GROUP = "group"
    """The beginning of a tuple, a dictionary or an object: its class, and the number of items."""
    NUMBER = "number"
    """A number of the kernel's Python."""
    TENSOR = "tensor"
    """The number of a tensor."""
    REGISTER = "register"
    """The number of a register."""
    NEW_TENSOR = "new tensor"
    """A tensor of the compared calls, numbered by its first use there."""
    NEW_REGISTER = "new register"
    """A register of the compared calls, numbered by its first use there."""
    ARRAY = "array"
    """The elements of an array."""
    OTHER = "other"
    """A text, a dtype, a member of an enumeration, a truth value, or None."""


class Part(NamedTuple):
    """A part of a call; equal parts have the same effect."""

    kind: PartKind
    value: Any


Parts: TypeAlias = tuple[Part, ...]


class DeviceCall(NamedTuple):
    """A call on a tape, and its parts."""

    step: TapedCall
    parts: Parts


def calls_of(tape: Tape) -> list[DeviceCall]:
    """Return the calls of a tape with their parts."""
    return [DeviceCall(step, parts_of(step)) for step in tape.steps]


def parts_of(step: TapedCall) -> Parts:
    """Return the parts of a call."""
    depths = {f"loop {turn.loop.id}": at for at, turn in enumerate(step.loops)}
    call = step.program, step.call, _without_stored_value(step), step.kwargs
    parts: list[Part] = []
    _add_parts(parts, call, depths)
    if step.made is not None and step.call != "effect":
        parts.append(Part(PartKind.TENSOR, step.made))
    return tuple(parts)


def _without_stored_value(step: TapedCall) -> tuple[Any, ...]:
    """Return the arguments of a call without the value that a register stores."""
    if step.call != "effect" or opcode_of(step) not in _STORES:
        return step.args
    record, acts, *others = step.args
    return record, [(operands[1:], written) for operands, written in acts], others


def opcode_of(step: TapedCall) -> str | None:
    """Return the name of the instruction of a call; None for other calls."""
    for value in step.args:
        if isinstance(value, TapedForm) and value.kind == "Opcode":
            return str(value.parts[0])
    return None


def _add_parts(parts: list[Part], value: Any, depths: dict[str, int]) -> None:
    """Append the parts of a value; ``depths`` has those of the loops around the call.

    A list takes a third of the time of a generator that yields from another at each level.
    """
    if isinstance(value, TapedForm) and value.kind == "DeviceValue":
        _, label, origin = value.parts
        parts.append(Part(PartKind.GROUP, (value.kind, 2)))
        if label in depths:
            label = f"loop at depth {depths[label]}"
        parts.append(_part_of_text(label))
        parts.append(_part_of_text(origin))
    elif isinstance(value, TileForm):
        tensor, *others = value
        parts.append(Part(PartKind.GROUP, ("TileForm", len(value))))
        parts.append(Part(PartKind.TENSOR, tensor))
        for item in others:
            _add_parts(parts, item, depths)
    elif isinstance(value, (tuple, list)):
        parts.append(Part(PartKind.GROUP, (type(value).__name__, len(value))))
        for item in value:
            _add_parts(parts, item, depths)
    elif isinstance(value, dict):
        parts.append(Part(PartKind.GROUP, ("dict", len(value))))
        for key, item in value.items():
            parts.append(_part_of_text(key))
            if key != NAME or not isinstance(item, str):
                _add_parts(parts, item, depths)
    else:
        parts.append(_leaf(value))


def _leaf(value: Any) -> Part:
    """Return the part of a value without items."""
    if isinstance(value, str):
        return _part_of_text(value)
    if isinstance(value, np.ndarray):
        return Part(PartKind.ARRAY, (value.dtype, value.shape, value.tobytes()))
    if isinstance(value, (int, float, np.generic)) and not isinstance(value, bool):
        plain = value.item() if isinstance(value, np.generic) else value
        # The text tells -0.0 from 0.0, and NaN equals itself.
        return Part(PartKind.NUMBER, (type(value).__name__, repr(plain)))
    return Part(PartKind.OTHER, value)


def _part_of_text(text: str) -> Part:
    number = register_number(text)
    if number is None:
        return Part(PartKind.OTHER, text)
    return Part(PartKind.REGISTER, number)


# -- numbers of tensors and registers --------------------------------------------------------------


class Made(NamedTuple):
    """The numbers of tensors and of registers that are made so far."""

    tensors: int = 0
    registers: int = 0

    def after(self, call: DeviceCall) -> Made:
        """Return the numbers after a call."""
        tensors, registers = self
        made = call.step.made
        if call.step.call != "effect" and made is not None:
            tensors = max(tensors, made + 1)
        for kind, value in call.parts:
            if kind is PartKind.REGISTER:
                registers = max(registers, value + 1)
        return Made(tensors, registers)


def renumbered(calls: Sequence[DeviceCall], made: Made) -> Iterator[DeviceCall]:
    """Yield calls with the tensors and registers that they make numbered by their first use.

    The numbers of tensors and registers that are ``made`` before stay.
    """
    numbers: dict[Part, int] = {}
    kinds = {
        PartKind.TENSOR: (made.tensors, PartKind.NEW_TENSOR),
        PartKind.REGISTER: (made.registers, PartKind.NEW_REGISTER),
    }

    def changed(part: Part) -> Part:
        if part.kind not in kinds:
            return part
        first, new = kinds[part.kind]
        if part.value < first:
            return part
        return Part(new, numbers.setdefault(part, len(numbers)))

    for call in calls:
        yield call._replace(parts=tuple(map(changed, call.parts)))


# -- whole tapes -----------------------------------------------------------------------------------


def are_equal_except_names(tape: Tape, other: Tape) -> bool:
    """Return whether two tapes differ in the names of tensors at most."""
    heads = [field.name for field in fields(Tape) if field.name != "steps"]
    if any(getattr(tape, name) != getattr(other, name) for name in heads):
        return False
    if len(tape.steps) != len(other.steps):
        return False
    return all(
        one[3:] == two[3:] and parts_of(one) == parts_of(two)
        for one, two in zip(tape.steps, other.steps, strict=True)
    )


def change_names(value: Any, change: Callable[[str], str]) -> Any:
    """Return an argument on a tape with the names of tensors changed."""
    if isinstance(value, dict):
        changed = {key: change_names(item, change) for key, item in value.items()}
        if isinstance(value.get(NAME), str):
            changed[NAME] = change(value[NAME])
        return changed
    if isinstance(value, tuple):
        items = [change_names(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value
