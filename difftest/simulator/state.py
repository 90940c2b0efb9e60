"""The state of a launch in groups: what it draws, its loops, memories and registers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from difftest.simulator.baton import FORWARD
from difftest.simulator.dtypes import Array, DType
from difftest.simulator.errors import Location
from difftest.simulator.follower import Follower
from difftest.simulator.memory import PlacedMemory, Shape, Storage
from difftest.simulator.misuses import USE_AFTER_LOOP
from difftest.simulator.trace import Allocation, Iteration, Loop, Origin, Space


class Draws:
    """Random numbers, of which an instruction that asks again gets the same again.

    So does each program in each turn of its loops, if it runs in another order.

    Attributes
    ----------
    random : what makes them.
    states : the state of it before each draw, by who drew.
    """

    def __init__(self, random: np.random.Generator, states: dict[Any, Any]) -> None:
        self.random, self.states = random, states
        self._counts: dict[Any, dict[int, int]] = {}
        """By program and turn of its loops: steps of it at a draw -> draws before it."""

    def at(self, turn: Any, step: int) -> np.random.Generator:
        """The numbers for a step of a program in a turn of its loops."""
        draws = self._counts.setdefault(turn, {})
        at = turn, draws.setdefault(step, len(draws))
        state = self.states.setdefault(at, self.random.bit_generator.state)
        self.random.bit_generator.state = state
        return self.random


class Bodies(Follower):
    """The bodies of loops on the device: what one makes is of no use when its loop has ended.

    Attributes
    ----------
    running : of each loop that runs, the numbers of the tensors that its body has made.
    ended : those of loops that have ended, and the loop's line.
    """

    def __init__(self) -> None:
        self.running: list[list[int]] = []
        self.ended: dict[int, Location | None] = {}

    def asked(self, issued: Any) -> None:
        self.check((issued.dst, *issued.operands, *issued.others, *issued.indices))

    def check(self, tiles: Sequence[Any]) -> None:
        """Raise :class:`KernelError` where a body that has ended made one of the tensors."""
        for tile in tiles:
            storage = getattr(tile, "_storage", None)
            if storage is not None and storage.allocation.id in self.ended:
                loop = self.ended[storage.allocation.id]
                raise USE_AFTER_LOOP(
                    f"{tile!r}, made at {storage.allocation.location}, of the loop at {loop}"
                )


class Loops:
    """Where the loops of a program stand.

    Attributes
    ----------
    turns : those that run, the outermost loop's first.
    count : how many loops the launch has begun.
    order : in which order what claims to have none runs.
    keeps_order : whether the kernel is inside ``nl.no_reorder``.
    tested : of each ``while register:`` that runs, by frame and line: the loop, the turns around
        it, and how many it has begun.
    carried : names that an earlier turn of a loop that runs has bound, and its body reads before.
    made_by_lines : how much the kernel's lines have made, each turn of a loop that is traced once
        alike.
    made_first : by line and number of it: see
        :func:`difftest.simulator.frontend.loops.of_first_turn`.
    bodies : of the loops on the device.
    """

    def __init__(self) -> None:
        self.turns: tuple[Iteration, ...] = ()
        self.count = 0
        self.order = FORWARD
        self.keeps_order = False
        self.tested: dict[tuple[int, int], tuple[Loop, tuple[Iteration, ...], int]] = {}
        self.carried: tuple[str, ...] = ()
        self.made_by_lines: Counter[tuple[Location, ...]] = Counter()
        self.made_first: dict[Any, Any] = {}
        self.bodies = Bodies()


class Memories:
    """What a core's memories hold.

    Attributes
    ----------
    placed : those in which the kernel places tensors itself.
    auto_alloc : whether the kernel asked for its own placements to be ignored.
    in_psum : the tensors in PSUM.
    fitting : tensors on chip that fit their memory -> the dtype in which one is held.
    shared : the tensors in shared_hbm of a grid, by name and number of that name.
    named : how many of a name the program that runs has asked for.
    """

    def __init__(self) -> None:
        self.placed: dict[Space, PlacedMemory] = defaultdict(PlacedMemory)
        self.auto_alloc = False
        self.in_psum: list[Allocation] = []
        self.fitting: dict[tuple[Space, Shape, DType, int], DType] = {}
        self.shared: dict[tuple[str, int], Storage] = {}
        self.named: Counter[str] = Counter()


class Registers:
    """The registers of a core.

    Attributes
    ----------
    accumulators : those of the engines for reductions (nisa.reduce_cmd), by the engine's name.
    origins : whence came what they hold of elements that nothing wrote.
    named : how many scalar registers the trace has named.
    """

    def __init__(self) -> None:
        self.accumulators: dict[str, Array] = {}
        self.origins: dict[str, Origin] = {}
        self.named = 0
