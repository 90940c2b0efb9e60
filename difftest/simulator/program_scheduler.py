"""Programs that run side by side: threads, of which one runs at a time, in an order of its own.

A baton is handed on where a program waits for others, ends, or is about to touch memory that they
share while another one is behind: then the one that has done fewest steps catches up first. So
what they see of each other is what they would see if they ran step by step in turn, each launch
does the same, and programs that share nothing run one after the other.

An :class:`ExecutionOrder` is for whoever asks whether a kernel keeps its claim that the order of
programs, or of the iterations of ``affine_range``, does not matter: the outputs are the same in
each then.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from difftest.simulator.errors import KernelError, Location, kernel_location
from difftest.simulator.follower import Follower
from difftest.simulator.trace import Space

T = TypeVar("T")


class ExecutionOrder(NamedTuple):
    """Forward, reversed, or shuffled with a seed: the programs, or the iterations of one loop.

    Attributes
    ----------
    loop : the line of the ``affine_range`` whose iterations it is about; None for the programs.
    serial : whether programs run one after the other that would take turns, those of today's
        dialect; reversed they do anyway.
    held : lines at which a program lets all others go on until each of them has come to one, too,
        or has ended; serial the first program does, where it reads, and the others go on to their
        ends. The programs of a classic grid run side by side for it.
    """

    loop: Location | None = None
    reversed: bool = False
    serial: bool = False
    seed: int | None = None
    held: frozenset[Location | None] = frozenset()

    def arranged(self, items: Sequence[T]) -> Sequence[T]:
        """The items in this order."""
        if self.seed is not None:
            rng = np.random.default_rng((self.seed, len(items)))
            return [items[place] for place in rng.permutation(len(items))]
        return items[::-1] if self.reversed else items


FORWARD = ExecutionOrder()
"""The simulator's own."""


class DeadlockError(KernelError):
    """Programs wait for each other, or for one that has ended."""


class ProgramStopped(BaseException):
    """Ends a program whose launch is over; not an Exception, so that kernels do not catch it."""


class Waiter(NamedTuple):
    """A program that waits at a point of communication."""

    point: Hashable
    members: tuple[int, ...]
    value: Any
    call: str
    location: Location | None


class ProgramScheduler:
    """Who runs, and who waits for whom.

    Parameters
    ----------
    names : of the programs, for errors.
    handed_on : called with two programs' numbers when the second one goes on after the first.
    first : the program that begins, and runs as far as it can; by default they take turns.
    holds : whether a program that gives way does so to any other, and not to who is behind alone.
    """

    def __init__(
        self,
        names: Sequence[str],
        handed_on: Callable[[int, int], None],
        first: int | None = None,
        holds: bool = False,
    ) -> None:
        self.names = names
        self._takes_turns = first is None or holds
        self._holds = holds
        self._handed_on = handed_on
        self._changed = threading.Condition()
        self._turn: int | None = None
        """Whose turn it is: nobody's before all programs have a thread."""
        self._first = first or 0
        self._arrivals: dict[int, Waiter] = {}
        self._met: dict[int, dict[int, Any]] = {}
        self._ended: set[int] = set()
        self._steps = dict.fromkeys(range(len(names)), 0)
        """How far each program was when it last handed the baton on."""
        self._ahead = dict.fromkeys(range(len(names)), 0)
        """What to add to a program's own steps: those that meet go on as if equally far."""
        self._failure: BaseException | None = None

    def run(self, programs: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run the programs, each in a thread and a context of its own; what they return.

        Raises
        ------
        DeadlockError : they wait for each other. Whatever a program raises ends all of them.
        """
        returned: list[Any] = [None] * len(programs)
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._run_one, number, program, returned),
                name=self.names[number],
                daemon=True,
            )
            for number, program in enumerate(programs)
        ]
        try:
            for thread in threads:  # an interrupt of this loop may leave one that never starts
                thread.start()
            with self._changed:
                self._turn = self._first
                self._changed.notify_all()
            for thread in threads:
                while thread.is_alive():  # a signal that comes as a wait begins is seen after it
                    thread.join(timeout=0.1)
        except BaseException as error:  # an interrupt, in the thread that waits
            self._fail(error)
            raise
        failure = self._failure
        self._failure = None
        if failure is not None:
            raise failure
        return returned

    def check(self) -> None:
        """End a program whose launch is over: it was interrupted, or another program failed."""
        if self._failure is not None:
            raise ProgramStopped

    def yield_turn(self, me: int, steps: int) -> None:
        """Let those that are behind catch up, before a program touches what they share.

        Parameters
        ----------
        steps : how many the program has done by itself; among equals the first one goes on.
        """
        with self._changed:
            self._steps[me] = steps + self._ahead[me]
            if not self._takes_turns:
                return
            free = [n for n in self._steps if n not in self._arrivals and n not in self._ended]
            if self._holds:  # the next one in turn; itself last of all
                chosen = min(free, key=lambda number: (number - me - 1) % len(self.names))
            else:
                chosen = min(free, key=lambda number: (self._steps[number], number))
            if chosen != me:
                self._pass_to(chosen, me)
                self._await_turn(me)

    def rendezvous(
        self,
        me: int,
        point: Hashable,
        members: tuple[int, ...],
        value: Any,
        call: str,
        steps: int = 0,
    ) -> Mapping[int, Any]:
        """Wait until all members are at a point; what each has given there, by number.

        The last one to arrive goes on first.

        Parameters
        ----------
        point : what the members have to agree on.
        call : the call, for the error if they never meet.
        steps : as :meth:`give_way` takes them.
        """
        with self._changed:
            self._steps[me] = steps + self._ahead[me]
            self._arrivals[me] = Waiter(point, members, value, call, kernel_location())
            here = [n for n in members if n in self._arrivals and self._arrivals[n].point == point]
            if len(here) == len(members):
                all_given = {n: self._arrivals.pop(n).value for n in members}
                self._met.update(dict.fromkeys(members, all_given))
                furthest = max(self._steps[n] for n in members)
                for n in members:
                    self._ahead[n] += furthest - self._steps[n]
                    self._steps[n] = furthest
            else:
                self._hand_on(me)
                self._await_turn(me)
            return self._met.pop(me)

    def _run_one(self, me: int, program: Callable[[], Any], returned: list[Any]) -> None:
        try:
            with self._changed:
                self._await_turn(me)
            returned[me] = program()
        except ProgramStopped as stopped:
            self._fail(stopped)  # of a launch around this one, unless this one has failed itself
            return
        except BaseException as error:
            self._fail(error)
            return
        with self._changed:
            self._ended.add(me)
            if len(self._ended) < len(self.names):
                self._hand_on(me)

    def _await_turn(self, me: int) -> None:
        while self._turn != me and self._failure is None:
            self._changed.wait()
        if self._failure is not None:
            raise ProgramStopped

    def _hand_on(self, me: int) -> None:
        """Let the next program that can run do so; where there is none, the launch fails."""
        count = len(self.names)
        for number in ((me + step) % count for step in range(1, count)):
            if number not in self._arrivals and number not in self._ended:
                self._pass_to(number, me)
                return
        self._fail(self._deadlock())

    def _pass_to(self, number: int, me: int) -> None:
        self._handed_on(me, number)
        self._turn = number
        self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()

    def _deadlock(self) -> DeadlockError:
        lines = []
        for number, name in enumerate(self.names):
            arrival = self._arrivals.get(number)
            if arrival is None:
                lines.append(f"{name} has ended")
            else:
                lines.append(f"{name} waits in {arrival.call} at {arrival.location}")
        first = min(self._arrivals)
        return DeadlockError(
            "programs that communicate meet at the same calls, equally often",
            happened="programs wait for each other, and none can go on",
            received="; ".join(lines),
            remedy="give every program the same control flow around these calls: the same trip "
            "counts, and the same arguments",
            location=self._arrivals[first].location,
        )


class Rank(NamedTuple):
    """The place of a launch among those of :func:`difftest.simulator.launch_ranks`."""

    number: int
    ranks: int
    scheduler: ProgramScheduler


class ProgramContext:
    """Which program of a grid a core runs, and among whom.

    Attributes
    ----------
    program : its place in the grid.
    baton : of the programs that run side by side; None where one runs alone.
    number : of this program to the baton.
    steps : how many instructions it has asked for, where it runs beside others.
    rank : among several ranks; None where a kernel is launched alone.
    """

    def __init__(self, program: tuple[int, ...]) -> None:
        self.program = program
        self.scheduler: ProgramScheduler | None = None
        self.number = self.steps = 0
        self.rank: Rank | None = None


class YieldOnShared(Follower):
    """Before a program touches what programs share, those go first that are behind.

    What none of them has written yet, and none has to, is an argument: it is the same to all.
    """

    def __init__(self, core: Any) -> None:
        self._core = core

    def asked(self, issued: Any) -> None:
        seat = self._core.seat
        order = self._core.loops.order
        seat.scheduler.check()
        seat.steps += 1
        for access in (issued.dst, *issued.operands):
            storage = getattr(access, "_storage", None)
            if storage is not None and storage.allocation.space is Space.SHARED_HBM:
                is_dst = access is issued.dst
                is_same = storage.validity is None and not storage.allocation.writes and not is_dst
                goes_on = order.serial and (is_dst or seat.number > 0)
                if is_same or (order.held and (goes_on or kernel_location() not in order.held)):
                    continue
                seat.scheduler.yield_turn(seat.number, seat.steps)
                break


# -- BLAS ------------------------------------------------------------------------------------------

_LIMITED = threading.Lock()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """A scope in which BLAS has one thread; after it, as many as before. It costs microseconds.

    The products of a kernel are those of tiles. Threads that wait for their share of one spin, and
    where another process has the core, for hundreds of times as long as the product takes.

    The number is the process's. A scope inside another, or beside it in another thread, leaves it
    alone: so scopes that overlap cannot take the limit for the number to go back to.
    """
    if not _LIMITED.acquire(blocking=False):
        yield
        return
    several = [(own, n) for own in _blas().lib_controllers if (n := own.num_threads or 1) > 1]
    try:
        for library, _ in several:
            library.set_num_threads(1)
        yield
    finally:
        for library, number in several:
            library.set_num_threads(number)
        _LIMITED.release()


@functools.cache
def _blas() -> ThreadpoolController:
    """The libraries that NumPy has loaded: it takes a millisecond to look for them."""
    return ThreadpoolController().select(user_api="blas")
