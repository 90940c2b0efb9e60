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

from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

from difftest.simulator.errors import Location
from difftest.simulator.frontend.nki.virtual_registers import KEPT
from difftest.simulator.tape import Tape, TapedCall
from difftest.simulator.trace import Iteration, LoopKind
from difftest.tools.verdict.call_parts import (
    DeviceCall,
    Made,
    Part,
    PartKind,
    Parts,
    calls_of,
    opcode_of,
    renumbered,
)


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
    name = opcode_of(step) or step.call
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
    """Return the first difference of two sequences of calls; ``made`` is made before both."""
    before = made or Made()
    for first, second in zip_longest(renumbered(one, before), renumbered(two, before)):
        if first is None or second is None or first.parts != second.parts:
            return Difference(first and first.step, second and second.step)
    return None


def kept_turn(tape: Tape) -> TapedCall | None:
    """Return the first call that uses the variable of another turn, or of a loop that has ended."""
    for step, parts in calls_of(tape):
        if any(map(_is_kept, parts)):
            return step
    return None


def _is_kept(part: Part) -> bool:
    return isinstance(part.value, str) and part.value.startswith(KEPT)


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
        made = made.after(call)
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


def unpredicted_turn(tape: Tape) -> TurnDifference | None:
    """Return the first turn of a classic loop that its first two turns do not predict.

    The classic compiler traces the body once, with operands that are affine in the loop's variable.
    The simulator runs Python in each turn: an ``if`` of the variable works there.
    """
    for turns in _turns_of(tape, _CLASSIC):
        numbered = [
            (turn, list(renumbered(calls, turns.made)))
            for turn, calls in turns.rows.items()
        ]
        for turn, calls in numbered[1:]:
            if found := _unpredicted(numbered[0], numbered[1], (turn, calls)):
                return TurnDifference(turn, found)
    return None


_NumberedTurn: TypeAlias = tuple[Iteration, Sequence[DeviceCall]]


def _unpredicted(
    first: _NumberedTurn, second: _NumberedTurn, turn: _NumberedTurn
) -> Difference | None:
    """Return the first call of a turn that is not affine in the number of the turn."""
    distance = turn[0].number - first[0].number
    step = second[0].number - first[0].number
    for one, two, call in zip_longest(first[1], second[1], turn[1]):
        if one is None or two is None or call is None:
            return Difference(one and one.step, call and call.step)
        if not _is_affine(one.parts, two.parts, call.parts, distance / step):
            return Difference(one.step, call.step)
    return None


def _is_affine(begin: Parts, after: Parts, now: Parts, steps: float) -> bool:
    """Return whether ``now`` is ``steps`` times as far from ``begin`` as ``after`` is.

    Arrays do not count: a mask that a turn decides differs at the edges of a tensor.
    """
    if not len(begin) == len(after) == len(now):
        return False
    return all(
        one == two == three or _is_extended(one, two, three, steps)
        for one, two, three in zip(begin, after, now, strict=True)
    )


_COUNTED = (PartKind.TENSOR, PartKind.REGISTER, PartKind.NUMBER)


def _is_extended(begin: Part, after: Part, now: Part, steps: float) -> bool:
    """Return whether three parts are arrays, or numbers with this ratio of distances."""
    kind = begin.kind
    if after.kind is not kind or now.kind is not kind:
        return False
    if kind is PartKind.ARRAY:
        return True
    if kind not in _COUNTED:
        return False
    first, second, third = map(_number_of, (begin, after, now))
    return third == first + (second - first) * steps


def _number_of(part: Part) -> float:
    """Return the number in a part."""
    if part.kind is PartKind.NUMBER:
        _, text = part.value
        return float(text)
    return float(part.value)
