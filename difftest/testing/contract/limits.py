"""Limits of one call of a kernel or a reference.

Options limit time and memory. Global state that a call changes is restored after it
(:mod:`difftest.testing.contract.restored_state`). A call that forks is an error: its child ends
here, because it would run the other tests once more. ``os._exit`` raises SystemExit, because it
would end the run without a failure. Arrays that do not fit in this computer's memory are rejected
before they are made.
"""

from __future__ import annotations

import bdb
import contextlib
import ctypes
import errno
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from difftest.support.tracebacks import format_error
from difftest.testing.contract.restored_state import read_state, restore_state

USED = Path("/proc/self/statm")
"""The file with the number of this process's pages. Without it, memory cannot be limited."""
_SHARE = 2
"""The copies of the inputs that a run holds at least: the drawn arrays, and the kernel's own."""
AGAIN = 1.0
"""Seconds between two attempts to stop a call that is over its time."""
_FORKS: list[int] = []
EXIT = os._exit
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=lambda: _FORKS.append(os.getpid()))


class CaseLimitError(RuntimeError):
    """A call took more than a case may, or forked."""


class ExpiredError(BaseException):
    """The error that stops a call over its time; ``except Exception`` in a kernel misses it."""


@dataclass
class CaseLimits:
    """Limits of one call: seconds, and MiB beyond the process's present size; None for no limit."""

    seconds: float | None = None
    memory: float | None = None
    case: Any = None
    """The name of the running call, or its KernelCall; None if unknown."""
    expired: int = 0
    """The number of calls over their time, so far."""
    stops: int = 0
    """The number of attempts to stop the running call: code on its way caught BaseException."""


LIMITS = CaseLimits()
_MACHINE = {
    errno.ENOMEM: "memory",
    errno.ENOSPC: "space on a disk",
    errno.EDQUOT: "space on a disk",
    errno.EMFILE: "open files",
    errno.ENFILE: "open files",
}
"""The resource that a computer lacks, by the error's number."""
TOO_LITTLE = "this computer has too little "
"""The beginning of the reason why a case cannot be judged here."""
NEEDS_LESS = "run fewer processes at once, or give the domain smaller sizes"
"""The remedy for such a case."""


def fault_of_machine(error: BaseException | None) -> str:
    """Return the resource that this computer lacks, according to an error; empty for other errors.

    Such an error does not judge a kernel or its reference. A broken limit is no such error, because
    the user chose the limit.
    """
    if isinstance(error, MemoryError):
        return f"{TOO_LITTLE}memory: {format_error(error)}"
    resource = _MACHINE.get(error.errno or 0) if isinstance(error, OSError) else None
    if error is None or resource is None:
        return ""
    return f"{TOO_LITTLE}{resource}: {format_error(error)}"


def limit(seconds: float | None, memory: float | None) -> contextlib.ExitStack:
    """Limit each call; close the returned stack to restore the limits before.

    A lower limit that applies already stays.
    """
    if memory is not None and not USED.exists():
        raise OSError("this system cannot limit a process; Linux can")
    undo = contextlib.ExitStack()
    undo.callback(setattr, LIMITS, "seconds", LIMITS.seconds)
    undo.callback(setattr, LIMITS, "memory", LIMITS.memory)
    LIMITS.seconds = _lower(seconds, LIMITS.seconds)
    LIMITS.memory = _lower(memory, LIMITS.memory)
    return undo


def _lower(value: float | None, other: float | None) -> float | None:
    """Return the lower of two limits; None means no limit."""
    if value is None or other is None:
        return other if value is None else value
    return min(value, other)


def within_limits(function: Callable[[], Any], case: Any = None) -> Any:
    """Call a function within the limits, and return its result.

    ``case`` is the value of :attr:`CaseLimits.case` during the call.

    Raises
    ------
    CaseLimitError : the call broke a limit, or forked. Its traceback ends in the function.

    Warns
    -----
    UserWarning : the call changed state that is restored.
    """
    process = os.getpid()
    forks = len(_FORKS)
    expired = None if LIMITS.seconds is None else threading.Event()
    before = read_state()
    outer = (os._exit, sys.stdout, LIMITS.case)
    try:
        try:
            os._exit = exit_of(process)
            LIMITS.case = case
            with contextlib.ExitStack() as after:
                _limit(after, expired)
                result = function()
        finally:
            os._exit, sys.stdout, LIMITS.case = outer
            restore_state(before, case)
    except BaseException as error:
        _check(process, forks, expired, error)
        raise
    _check(process, forks, expired, getattr(result, "error", None))
    return result


def _check(
    process: int,
    forks: int,
    expired: threading.Event | None,
    error: BaseException | None,
) -> None:
    """Raise a CaseLimitError if a call broke a limit; ``error`` is the one that ended it, or None.

    An error that ends a session, such as a debugger's quit, becomes a KeyboardInterrupt.
    """
    if os.getpid() != process:
        os._exit(1)
    if expired is not None and expired.is_set():
        LIMITS.expired += 1
    text = _broken_limit(forks, expired, error)
    ends: list[type[BaseException]] = [bdb.BdbQuit]
    if "pytest" in sys.modules:
        ends.append(sys.modules["pytest"].exit.Exception)
    if isinstance(error, tuple(ends)):  # Hypothesis lets no other error end a test
        raise KeyboardInterrupt(str(error) or "a debugger was left") from error
    if text:
        frames = None if error is None else error.__traceback__
        traceback.clear_frames(frames)  # frees the arrays that filled the memory
        raise CaseLimitError(text).with_traceback(frames) from None


def _broken_limit(
    forks: int, expired: threading.Event | None, error: BaseException | None
) -> str:
    """Return the limit that a call broke, in words; empty if it broke none."""
    if expired is not None and expired.is_set():
        return f"ran for more than {LIMITS.seconds:g} s (--case-timeout)"
    if isinstance(error, MemoryError) and LIMITS.memory is not None:
        return f"needed more than {LIMITS.memory:g} MiB of memory (--case-memory)"
    if len(_FORKS) != forks:
        return "forked, and its child would run what follows once more"
    return ""


def _limit(after: contextlib.ExitStack, expired: threading.Event | None) -> None:
    """Limit memory and time from here on, until ``after`` is closed."""
    if expired is not None:
        # before the memory limit: its thread needs a stack
        _start_clock(after, expired)
    if LIMITS.memory is not None:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        used = int(USED.read_text().split()[0]) * resource.getpagesize()
        most = used + int(min(LIMITS.memory, 2**40) * 2**20)
        after.callback(resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (least, hard))


def exit_of(process: int) -> Any:
    """Return a replacement of ``os._exit`` that raises SystemExit in this process.

    In a forked child it ends the child.
    """

    def instead(status: int) -> NoReturn:
        if os.getpid() != process:
            EXIT(status)
        raise SystemExit(f"os._exit({status})")

    return instead


def _start_clock(after: contextlib.ExitStack, expired: threading.Event) -> None:
    """Raise ExpiredError when the time is over, in this thread and in the threads that it starts.

    It is raised again and again until the call ends. Python does not pass on an error in a
    ``__del__`` or in a callback of the garbage collector. It calls a hook, where pytest would turn
    the error into the test's failure. So the hook ignores ExpiredError.
    """
    clock = _Clock(min(LIMITS.seconds or 0.0, threading.TIMEOUT_MAX), expired)
    report = sys.unraisablehook

    def report_others(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, ExpiredError):
            report(unraisable)

    after.callback(setattr, sys, "unraisablehook", report)
    sys.unraisablehook = report_others
    if clock.has_signal:
        handler = signal.signal(signal.SIGALRM, _stop)
        after.callback(signal.signal, signal.SIGALRM, handler)
    # Twice: a late error may interrupt the first call before its first line.
    after.callback(clock.end)
    after.callback(clock.end)
    clock.start()


def _stop(*_: object) -> NoReturn:
    """Stop the call of the main thread, as the handler of its signal."""
    LIMITS.stops += 1
    raise ExpiredError


class _Clock:
    """A thread that stops the thread that made it, when the time is over, until :meth:`end`.

    ``has_signal`` tells whether a signal stops it, which ends a sleep too.
    """

    def __init__(self, seconds: float, expired: threading.Event) -> None:
        self._seconds = seconds
        self._expired = expired
        self._over = threading.Event()
        self._caller = threading.get_ident()
        self._others = _threads()
        is_main = self._caller == threading.main_thread().ident
        self.has_signal = hasattr(signal, "SIGALRM") and is_main
        self._thread = threading.Thread(target=self._interrupt)

    def start(self) -> None:
        """Start the time."""
        self._thread.start()

    def end(self) -> None:
        """End the thread."""
        while self._thread.is_alive():
            # A late error arrives here: see _raise_in.
            with contextlib.suppress(ExpiredError):
                self._over.set()
                self._thread.join()
        LIMITS.stops = 0

    def _interrupt(self) -> None:
        """Raise an error in the call and in its threads when the time is over, again and again."""
        wait = self._seconds
        while not self._over.wait(wait):
            self._expired.set()
            for started in _threads() - self._others - {self._thread.ident}:
                _raise_in(started, ExpiredError)
            if self.has_signal:
                signal.pthread_kill(self._caller, signal.SIGALRM)
            else:
                _raise_in(self._caller, ExpiredError)
            wait = AGAIN


def _threads() -> set[int | None]:
    """Return the ids of the running threads."""
    return {thread.ident for thread in threading.enumerate()}


def _raise_in(thread: int | None, error: type[BaseException]) -> None:
    """Raise an error at a thread's next line of Python. It cannot be withdrawn.

    Until the error arrives, Python 3.11 starts each traced call again.
    """
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread or 0), ctypes.py_object(error))


def too_large(arrays: Iterable[tuple[Sequence[int], int]]) -> str:
    """Return why this computer cannot hold arrays of these shapes; empty if it can.

    ``arrays`` has the shape and the bytes of an element of each.
    """
    needed = sum(math.prod(shape) * width for shape, width in arrays)
    try:
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return ""
    if _SHARE * needed <= available:
        return ""
    return (
        f"the arrays take {needed:,} bytes ({needed / 2**30:,.3g} GiB); accepted: at most "
        f"1/{_SHARE} of the memory of this computer, {available / 2**30:,.3g} GiB"
    )
