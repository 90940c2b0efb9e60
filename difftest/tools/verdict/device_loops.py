"""Compare what a kernel asks of a device, which receives the body of a loop once.

AWS's compiler traces a loop on the device once ("a single copy of the body is generated"), and the
arithmetic of registers is traced, not evaluated. The simulator runs the kernel's Python in each
turn. So Python's state may follow turns and registers here, and not on a device. These comparisons
find such kernels:

- two runs on other data ask for the same, but for the values of registers;
- each turn of a loop asks for what its first turn asks;
- a run whose loops have one turn at most asks for the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from difftest.simulator.errors import Location
from difftest.simulator.frontend.nki.virtual_registers import KEPT
from difftest.simulator.tape import Tape, TapedCall, TapedForm
from difftest.simulator.tape_json import tape_to_json
from difftest.simulator.trace import Iteration, LoopKind

NAME = re.compile(r'(?<=\["name",)"(?:[^"\\]|\\.)*"')
"""A tensor's name on a tape. It may differ between runs, and changes no instruction."""
_VALUE = re.compile(r'(?<=\["DeviceValue",\[)-?\d+,"([^"]*)",')
"""The value and the label of a register."""
_STORED = re.compile(r'(?<=_store"\]\},\[\[\[)-?\d+(?=\])')
"""The value that a register stores."""
_OF_REGISTERS = '"register '
_NUMBER = re.compile(rf'("TileForm":\[|{_OF_REGISTERS})(\d+)')
"""The number of a tensor or of a register."""
_REGISTER = re.compile(rf"{_OF_REGISTERS}(\d+)")
_PLACES = re.compile(r",[^,]*,\d+,\d+,\[[\d,]*\]\](,|\]\})?$")
"""The fields of a line after its call: the number that it made, its places and its program."""


class DeviceCall(NamedTuple):
    """A call on a tape: the step, and its text without values of registers and places."""

    step: TapedCall
    text: str


class Difference(NamedTuple):
    """The first difference of two sequences of calls; None for a call that is missing."""

    first: TapedCall | None
    second: TapedCall | None

    def __str__(self) -> str:
        one, two = map(described_call, self)
        if one != two:
            return f"{one} in one, {two} in the other"
        return f"{one} with other operands or numbers"


def described_call(step: TapedCall | None) -> str:
    """Return the name and the line of a call."""
    if step is None:
        return "no further instruction"
    operation = next(filter(_is_opcode, step.args), None)
    name = step.call if operation is None else str(operation.parts[0])
    if step.call == "note":
        name = _NOTES.get(step.args[0], name)
    place = step.stack[0].place if step.stack else "an unknown line"
    return f"{name} at {place}"


_NOTES = {
    "range": "the bounds of a loop",
    "while": "the condition of a loop",
    "stored": "a stored register",
    "turn": "a turn",
    "end": "the end of a loop",
    "left": "a loop that break or return may leave",
    "allocated": "an allocated register",
    "moved": "a moved register",
}
"""The names of notes on a tape."""


def _is_opcode(value: object) -> bool:
    return isinstance(value, TapedForm) and value.kind == "Opcode"


def calls_of(tape: Tape) -> list[DeviceCall]:
    """Return the calls of a tape, with texts that can be compared."""
    text = NAME.sub("", tape_to_json(tape)).partition('"steps":[\n')[2]
    return [
        DeviceCall(step, _text_of(step, line))
        for step, line in zip(tape.steps, text.splitlines(), strict=True)
    ]


def _text_of(step: TapedCall, line: str) -> str:
    """Return a line of a tape without values of registers and places.

    The variable of a loop is named by the depth of its loop.
    """
    depths = {f"loop {turn.loop.id}": at for at, turn in enumerate(step.loops)}

    def label(match: re.Match[str]) -> str:
        name = match[1]
        if not name.startswith("loop "):
            return f'"{name}",'
        return f'"loop at depth {depths.get(name)}",'

    return _PLACES.sub("", _STORED.sub("", _VALUE.sub(label, line)))


def device_turns(step: TapedCall) -> list[Iteration]:
    """Return the iterations of loops on the device around a call, the outermost first."""
    return [turn for turn in step.loops if turn.loop.kind is LoopKind.DYNAMIC]


def has_device_loop(tape: Tape) -> bool:
    """Return whether a call of a tape is in a loop on the device."""
    return any(device_turns(step) for step in tape.steps)


def difference_of_runs(tape: Tape, other: Tape) -> Difference | None:
    """Return the first difference of what a device receives in two runs; None if they are equal.

    A device receives calls outside of loops, and calls of first turns. Calls in loops that only one
    run enters are left out.
    """
    one = list(_received(calls_of(tape)))
    two = list(_received(calls_of(other)))
    both = {loop for around, _ in one for loop in around}
    both &= {loop for around, _ in two for loop in around}
    return _difference(
        [call for around, call in one if around <= both],
        [call for around, call in two if around <= both],
    )


def _received(
    calls: Sequence[DeviceCall],
) -> Iterator[tuple[set[tuple[Location | None, int]], DeviceCall]]:
    """Yield the calls that a device receives, each with its loops.

    A loop is identified by its line and by the number of calls outside of loops before it.
    """
    outside = 0
    for call in calls:
        turns = device_turns(call.step)
        outside += not turns
        if not any(turn.number for turn in turns):
            yield {(turn.loop.location, outside) for turn in turns}, call


def _difference(
    one: Sequence[DeviceCall], two: Sequence[DeviceCall], made: Made | None = None
) -> Difference | None:
    """Return the first difference of two sequences of calls, with numbers by their first use."""
    for first, second in zip_longest(_numbered(one, made), _numbered(two, made)):
        if first is None or second is None or first[1] != second[1]:
            return Difference(first and first[0], second and second[0])
    return None


def _numbered(
    calls: Sequence[DeviceCall], made: Made | None
) -> Iterator[tuple[TapedCall, object]]:
    """Yield each call with its program and text.

    Numbers of tensors and registers that are ``made`` before stay; others are replaced by the order
    of their first use.
    """
    numbers: dict[str, int] = {}
    before = made or Made()

    def number(match: re.Match[str]) -> str:
        is_register = match[1] == _OF_REGISTERS
        if int(match[2]) < (before.registers if is_register else before.tensors):
            return match[0]
        return f"{match[1]}new {numbers.setdefault(match[0], len(numbers))}"

    for call in calls:
        yield call.step, (call.step.program, _NUMBER.sub(number, call.text))


def kept_turn(tape: Tape) -> TapedCall | None:
    """Return the first call that uses the variable of another turn, or of a loop that has ended."""
    return next((call.step for call in calls_of(tape) if _KEPT in call.text), None)


_KEPT = f'"{KEPT}'


def left_loop(tape: Tape) -> TapedCall | None:
    """Return the first turn of a loop on the device that the kernel's Python leaves early."""
    turns: dict[int, TapedCall] = {}
    ends = 0
    for step in tape.steps:
        if step.call != "note":
            continue
        if step.args[0] == "left":
            return step
        if step.args[0] == "turn" and step.loops[-1].number == 0:
            turns[step.loops[-1].loop.id] = step
        ends += step.args[0] == "end"
    return next(iter(turns.values())) if len(turns) > ends else None


class TurnDifference(NamedTuple):
    """A turn of a loop on the device that differs from the first turn."""

    turn: Iteration
    difference: Difference

    def __str__(self) -> str:
        loop = self.turn.loop.location
        where = "" if loop is None else f" of the loop at {loop.place}"
        return f"turn {self.turn.number}{where}: {self.difference}"


class Made(NamedTuple):
    """The numbers of tensors and of registers that are made so far."""

    tensors: int = 0
    registers: int = 0


class _Turns(NamedTuple):
    """The calls of a loop by its turns.

    Attributes
    ----------
    made : the numbers of the first tensor and register that the loop itself can have made.
    rows : the calls of each turn; of inner loops, those of their first turns.
    """

    made: Made
    rows: dict[Iteration, list[DeviceCall]]


def _turns_of(tape: Tape, kinds: Collection[LoopKind]) -> list[_Turns]:
    """Return the turns of each loop of some kinds."""
    loops: dict[int, _Turns] = {}
    made = Made(len(tape.inputs))
    for call in calls_of(tape):
        around = [turn for turn in call.step.loops if turn.loop.kind in kinds]
        for place, turn in enumerate(around):
            turns = loops.setdefault(turn.loop.id, _Turns(made, {}))
            if not any(inner.number for inner in around[place + 1 :]):
                turns.rows.setdefault(turn, []).append(call)
        tensors, registers = made
        if call.step.call != "effect" and call.step.made is not None:
            tensors = max(tensors, call.step.made + 1)
        for number in _REGISTER.findall(call.text):
            registers = max(registers, int(number) + 1)
        made = Made(tensors, registers)
    return list(loops.values())


def difference_of_turns(tape: Tape) -> TurnDifference | None:
    """Return the first turn of a loop on the device that asks for other calls than its first."""
    for turns in _turns_of(tape, (LoopKind.DYNAMIC,)):
        first, *others = turns.rows.items()
        for turn, calls in others:
            if found := _difference(first[1], calls, turns.made):
                return TurnDifference(turn, found)
    return None


_CLASSIC = (LoopKind.AFFINE, LoopKind.SEQUENTIAL)
"""The loops that the classic compiler traces once (the stub of ``nl.static_range``, v2.26.0)."""
_ARRAYS = re.compile(r'\{"(?:bits|array)":\[[^{}]*\]\}')
"""An array on a tape: a mask that a turn decides differs at the edges of a tensor."""
_NUMERAL = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def unpredicted_turn(tape: Tape) -> TurnDifference | None:
    """Return the first turn of a classic loop that its first two turns do not predict.

    The classic compiler traces the body once, with operands that are affine in the loop's variable.
    The simulator runs Python in each turn: an ``if`` of the variable works there.
    """
    for turns in _turns_of(tape, _CLASSIC):
        numbered = [
            (turn, list(_numbered(calls, turns.made)))
            for turn, calls in turns.rows.items()
        ]
        for turn, calls in numbered[1:]:
            if found := _unpredicted(numbered[0], numbered[1], (turn, calls)):
                return TurnDifference(turn, found)
    return None


_NumberedTurn: TypeAlias = tuple[Iteration, Sequence[tuple[TapedCall, object]]]


def _unpredicted(
    first: _NumberedTurn, second: _NumberedTurn, turn: _NumberedTurn
) -> Difference | None:
    """Return the first call of a turn that is not affine in the number of the turn."""
    distance = turn[0].number - first[0].number
    step = second[0].number - first[0].number
    for one, two, call in zip_longest(first[1], second[1], turn[1]):
        if one is None or two is None or call is None:
            return Difference(one and one[0], call and call[0])
        if not _is_affine([one[1], two[1], call[1]], distance / step):
            return Difference(one[0], call[0])
    return None


def _is_affine(calls: Sequence[object], steps: float) -> bool:
    """Return whether the third call is ``steps`` times as far from the first as the second is."""
    texts = [_ARRAYS.sub("", str(call)) for call in calls]
    if len({_NUMERAL.sub("", text) for text in texts}) > 1:
        return False
    numerals = [[float(found) for found in _NUMERAL.findall(text)] for text in texts]
    return all(
        now == begin + (after - begin) * steps
        for begin, after, now in zip(*numerals, strict=True)
    )
