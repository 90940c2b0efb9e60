"""Compare what a kernel asks of a device, which receives the body of a loop once.

AWS's compiler traces a loop on the device once ("a single copy of the body is generated"), and the
arithmetic of registers is traced, not evaluated. The simulator runs the kernel's Python in each
turn. So Python's state may follow turns and registers here, and not on a device. These comparisons
find such kernels:

- two runs on other data ask for the same, but for the values of registers;
- each turn of a loop asks for what its first turn asks;
- a run whose loops have one turn each asks for the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

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
    "begin": "a loop",
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
    """Return whether a tape has a loop on the device; it may have no turn."""
    return any(
        step.call == "note" and step.args[0] in ("begin", "while")
        for step in tape.steps
    )


def difference_of_runs(tape: Tape, other: Tape) -> Difference | None:
    """Return the first difference of what a device receives in two runs; None if they are equal.

    A device receives calls outside of loops, and calls of first turns. Calls in loops that only one
    run enters are left out.
    """
    one, two = (
        _received((device_turns(call.step), call) for call in calls_of(each))
        for each in (tape, other)
    )
    return _common_difference(one, two)


_LoopNumber: TypeAlias = tuple[int, ...]


class _Received(NamedTuple):
    """The calls that a device receives.

    Attributes
    ----------
    rows : the calls, each with the numbers of the loops around it.
    loops : the numbers of all loops. A loop is numbered, within the loop around it, by the calls
        before it: a call begins each loop, also one without a turn.
    """

    rows: list[tuple[set[_LoopNumber], DeviceCall]]
    loops: set[_LoopNumber]


def _received(calls: Iterable[tuple[Sequence[Iteration], DeviceCall]]) -> _Received:
    """Return the calls that a device receives, of calls with the iterations around them."""
    received = _Received([], set())
    before: Counter[_LoopNumber] = Counter()
    for turns, call in calls:
        if call.step.call == "note" and call.step.args[0] == "end":
            continue  # the loop may have no turn in another run
        if any(turn.number for turn in turns):
            continue
        around: list[_LoopNumber] = [()]
        for _ in turns:
            around.append((*around[-1], before[around[-1]]))
        before[around[-1]] += 1
        received.rows.append((set(around[1:]), call))
        received.loops.update(around[1:])
    return received


def _common_difference(
    one: _Received, two: _Received, made: Made | None = None
) -> Difference | None:
    """Return the first difference of calls, without loops that only one of two enters."""
    both = one.loops & two.loops
    first, second = (
        [call for around, call in each.rows if around <= both] for each in (one, two)
    )
    return _difference(first, second, made)


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
    rows : the calls of each turn, each with the iterations of inner loops around it.
    """

    made: Made
    rows: dict[Iteration, list[tuple[Sequence[Iteration], DeviceCall]]]


def _turns_of(tape: Tape, kinds: Collection[LoopKind]) -> list[_Turns]:
    """Return the turns of each loop of some kinds."""
    loops: dict[int, _Turns] = {}
    made = Made(len(tape.inputs))
    for call in calls_of(tape):
        around = [turn for turn in call.step.loops if turn.loop.kind in kinds]
        for place, turn in enumerate(around):
            turns = loops.setdefault(turn.loop.id, _Turns(made, {}))
            turns.rows.setdefault(turn, []).append((around[place + 1 :], call))
        made = made.after(call)
    return list(loops.values())


def difference_of_turns(tape: Tape) -> TurnDifference | None:
    """Return the first turn of a loop on the device that asks for other calls than one before.

    A turn is compared with the first turn, and with each turn that has entered further inner loops.
    """
    for turns in _turns_of(tape, (LoopKind.DYNAMIC,)):
        before: list[_Received] = []
        for turn, calls in turns.rows.items():
            now = _received(calls)
            for one in before:
                if found := _common_difference(one, now, turns.made):
                    return TurnDifference(turn, found)
            if not before or now.loops - set().union(*(one.loops for one in before)):
                before.append(now)
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
            (turn, list(renumbered(_of_first_turns(calls), turns.made)))
            for turn, calls in turns.rows.items()
        ]
        for turn, calls in numbered[1:]:
            if found := _unpredicted(numbered[0], numbered[1], (turn, calls)):
                return TurnDifference(turn, found)
    return None


def _of_first_turns(
    calls: Iterable[tuple[Sequence[Iteration], DeviceCall]],
) -> list[DeviceCall]:
    """Return the calls outside of inner loops, and those of their first turns."""
    return [call for turns, call in calls if not any(turn.number for turn in turns)]


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
