"""Who waits for whom in a program, seen from those that are waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from difftest.simulator.trace import Allocation

if TYPE_CHECKING:
    from difftest.timing.program import LoweredInstruction


class Wiring:
    """What every schedule of a program begins with; none changes it.

    Attributes
    ----------
    missing : of each instruction, how many results and places it waits for; and one more.
    followers : of each instruction those that wait for it, twice their number; one more if they
        read its result.
    join_followers : the same of each join.
    joined_in : instruction, or ``~j`` for a join -> the joins that it is a part of.
    opener : on-chip allocation -> the instruction that touches it first.
    entering : on-chip allocations with their core, in the order in which they want a place.
    """

    def __init__(
        self, instructions: Sequence[LoweredInstruction], joins: Sequence[tuple[int, ...]]
    ) -> None:
        self.missing = [0] * len(instructions)
        self.followers: list[list[int]] = [[] for _ in instructions]
        self.join_followers: list[list[int]] = [[] for _ in joins]
        self.joined_in: dict[int, list[int]] = {}
        self.opener: dict[int, int] = {}
        self.entering: list[tuple[Allocation, int]] = []
        for number, members in enumerate(joins):
            for member in members:
                self.joined_in.setdefault(member, []).append(number)
        waiting = self.followers, self.join_followers
        for one in instructions:
            index = one.index
            self.missing[index] = len(one.data) + len(one.order) + len(one.opens) + 1
            for code, producers in ((2 * index + 1, one.data), (2 * index, one.order)):
                for producer in producers:
                    waiting[producer < 0][producer if producer >= 0 else ~producer].append(code)
            for allocation in one.opens:
                self.opener[allocation.id] = index
                self.entering.append((allocation, one.core))
