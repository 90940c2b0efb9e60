"""A cooperative scheduler: programs run in threads, one at a time, in a fixed order.

A program yields where it waits for others, where it ends, and before it accesses shared memory
while another program is behind. The program that has done the fewest steps then runs first. As a
result, programs see each other's writes as if they ran step by step in turn. All launches do the
same. Programs that share nothing run one after the other.

An :class:`ExecutionOrder` tests a kernel's claim that the order of programs, or of the iterations
of ``affine_range``, does not matter. If the claim holds, the outputs are equal in each order.
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
    loop : the line of the ``affine_range`` whose iterations are reordered; None for the programs.
    serial : whether programs of the current dialect run one after the other instead of taking
    turns.
        Reversed programs always do.
    held : lines at which a program yields until each other program has reached one of them or has
        ended. With ``serial``, the first program yields where it reads, and the others run to
        their ends. The programs of a classic grid then run side by side.
    """

    loop: Location | None = None
    reversed: bool = False
    serial: bool = False
    seed: int | None = None
    held: frozenset[Location | None] = frozenset()

    def arranged(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items in this order."""
        if self.seed is not None:
            rng = np.random.default_rng((self.seed, len(items)))
            return [items[place] for place in rng.permutation(len(items))]
        if self.reversed:
            return items[::-1]
        return items


FORWARD = ExecutionOrder()
"""The simulator's own order."""


class DeadlockError(KernelError):
    """Programs wait for each other, or for a program that has ended."""


class ProgramStopped(BaseException):
    """Ends a program whose launch is over. It is not an Exception, so kernels do not catch it."""


class Waiter(NamedTuple):
    """A program that waits at a rendezvous."""

    point: Hashable
    """Where it waits. All members must wait at equal points."""
    members: tuple[int, ...]
    value: Any
    """What it gives to the other members."""
    call: str
    """The call, for the error if the members never meet."""
    location: Location | None
    """The kernel's line."""


class ProgramScheduler:
    """A cooperative scheduler: runs one program at a time.

    Parameters
    ----------
    names : the programs' names, for errors.
    handed_on : called with two programs' numbers when the second one continues after the first.
    first : the program that begins, and runs as far as it can; by default they take turns.
    holds : whether a program yields to any other program, not only to those that are behind.
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
        """The running program; None before all programs have a thread."""
        self._first = first or 0
        self._arrivals: dict[int, Waiter] = {}
        self._met: dict[int, dict[int, Any]] = {}
        self._ended: set[int] = set()
        self._steps = dict.fromkeys(range(len(names)), 0)
        """The steps of each program when it last yielded."""
        self._ahead = dict.fromkeys(range(len(names)), 0)
        """The offset to a program's own steps: programs that meet continue as equals."""
        self._failure: BaseException | None = None

    def run(self, programs: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run the programs, each in its own thread and context; return their results.

        Raises
        ------
        DeadlockError : the programs wait for each other. Any exception of a program ends all of
        them.
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
            # an interrupt of this loop may leave a thread that never starts
            for thread in threads:
                thread.start()
            with self._changed:
                self._turn = self._first
                self._changed.notify_all()
            for thread in threads:
                # a signal at the start of a wait is handled after the wait
                while thread.is_alive():
                    thread.join(timeout=0.1)
        except BaseException as error:  # an interrupt, in the waiting thread
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
        """Let programs that are behind catch up, before a program accesses shared memory.

        Parameters
        ----------
        steps : the number of steps that the program has done; among equals the first one continues.
        """
        with self._changed:
            self._steps[me] = steps + self._ahead[me]
            if not self._takes_turns:
                return
            free = [
                n
                for n in self._steps
                if n not in self._arrivals and n not in self._ended
            ]
            if self._holds:  # the next program in turn; the caller last
                chosen = min(
                    free, key=lambda number: (number - me - 1) % len(self.names)
                )
            else:
                chosen = min(free, key=lambda number: (self._steps[number], number))
            if chosen != me:
                self._pass_to(chosen, me)
                self._await_turn(me)

    def rendezvous(
        self,
        me: int,
        waiter: Waiter,
        steps: int = 0,
    ) -> Mapping[int, Any]:
        """Wait until all members have reached a point; return their values, by number.

        The last member to arrive continues first.

        Parameters
        ----------
        steps : see :meth:`yield_turn`.
        """
        members = waiter.members
        with self._changed:
            self._steps[me] = steps + self._ahead[me]
            self._arrivals[me] = waiter
            here = [
                n
                for n in members
                if n in self._arrivals and self._arrivals[n].point == waiter.point
            ]
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

    def _run_one(
        self, me: int, program: Callable[[], Any], returned: list[Any]
    ) -> None:
        """Run a program in its thread, when its turn comes."""
        try:
            with self._changed:
                self._await_turn(me)
            returned[me] = program()
        except ProgramStopped as stopped:
            # from an enclosing launch, unless this launch has failed itself
            self._fail(stopped)
            return
        except BaseException as error:
            self._fail(error)
            return
        with self._changed:
            self._ended.add(me)
            if len(self._ended) < len(self.names):
                self._hand_on(me)

    def _await_turn(self, me: int) -> None:
        """Wait until a program may run; raise if the launch has failed."""
        while self._turn != me and self._failure is None:
            self._changed.wait()
        if self._failure is not None:
            raise ProgramStopped

    def _hand_on(self, me: int) -> None:
        """Run the next program that can run; if there is none, the launch fails."""
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
        """End all programs with an error."""
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._changed.notify_all()

    def _deadlock(self) -> DeadlockError:
        """Return the error of programs that wait for each other."""
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
    """The program that a core runs, and its place among the others.

    Attributes
    ----------
    program : its index in the grid.
    scheduler : the scheduler of programs that run side by side; None if a program runs alone.
    number : the program's number in the scheduler.
    steps : the number of instructions it has issued, if it runs together with others.
    rank : its place among several ranks; None for a single launch.
    """

    def __init__(self, program: tuple[int, ...]) -> None:
        self.program = program
        self.scheduler: ProgramScheduler | None = None
        self.number = self.steps = 0
        self.rank: Rank | None = None


class YieldOnShared(Follower):
    """Let programs that are behind run first, before a program accesses shared memory.

    A tensor that no program has written, and that needs no write, is an argument: all programs see
    the same values.
    """

    def __init__(self, core: Any) -> None:
        self._core = core

    def asked(self, issued: Any) -> None:
        seat = self._core.seat
        seat.scheduler.check()
        seat.steps += 1
        for access in (issued.dst, *issued.operands):
            if self._yields(access, is_dst=access is issued.dst):
                seat.scheduler.yield_turn(seat.number, seat.steps)
                break

    def _yields(self, access: Any, *, is_dst: bool) -> bool:
        """Return whether programs that are behind run before an access."""
        storage = getattr(access, "_storage", None)
        if storage is None or storage.allocation.space is not Space.SHARED_HBM:
            return False
        is_written = storage.validity is not None or storage.allocation.writes
        if not (is_dst or is_written):
            return False
        order = self._core.loops.order
        if not order.held:
            return True
        goes_on = order.serial and (is_dst or self._core.seat.number > 0)
        return not goes_on and kernel_location() in order.held


# -- BLAS ------------------------------------------------------------------------------------------

_LIMITED = threading.Lock()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS to one thread within the block. It costs microseconds.

    The matrix products of a kernel have the size of tiles. BLAS threads spin while they wait for
    work. If another process uses the core, that takes hundreds of times longer than the product.

    The limit belongs to the process. A nested or concurrent block leaves it unchanged, so that
    overlapping blocks cannot restore a wrong limit.
    """
    if not _LIMITED.acquire(blocking=False):
        yield
        return
    several = [
        (own, n) for own in _blas().lib_controllers if (n := own.num_threads or 1) > 1
    ]
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
    """Return the libraries that NumPy has loaded. Finding them takes a millisecond."""
    return ThreadpoolController().select(user_api="blas")
