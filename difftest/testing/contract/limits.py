"""Limits of one call of a kernel or a reference, and the restoration of global state after it.

Options limit time and memory. NumPy's settings and the random states are restored, and a warning
names those that changed. A call that forks is an error: its child ends here, because it would run
the other tests once more. ``os._exit`` raises SystemExit, because it would end the run without a
failure. Arrays that do not fit in this computer's memory are rejected before they are made.
"""

from __future__ import annotations

import bdb
import contextlib
import ctypes
import errno
import functools
import math
import os
import random
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from difftest.support.signature import function_name
from difftest.support.tracebacks import format_error

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
    for name, value in (("seconds", seconds), ("memory", memory)):
        before = getattr(LIMITS, name)
        undo.callback(setattr, LIMITS, name, before)
        setattr(
            LIMITS,
            name,
            min((n for n in (value, before) if n is not None), default=None),
        )
    return undo


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
    before = _settings()
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
            _restore_settings(before, case)
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
    text = ""
    if os.getpid() != process:
        os._exit(1)
    if expired is not None and expired.is_set():
        LIMITS.expired += 1
        text = f"ran for more than {LIMITS.seconds:g} s (--case-timeout)"
    elif isinstance(error, MemoryError) and LIMITS.memory is not None:
        text = f"needed more than {LIMITS.memory:g} MiB of memory (--case-memory)"
    elif len(_FORKS) != forks:
        text = "forked, and its child would run what follows once more"
    exits = (sys.modules["pytest"].exit.Exception,) if "pytest" in sys.modules else ()
    if isinstance(
        error, (bdb.BdbQuit, *exits)
    ):  # Hypothesis lets no other error end a test
        raise KeyboardInterrupt(str(error) or "a debugger was left") from error
    if text:
        frames = None if error is None else error.__traceback__
        traceback.clear_frames(frames)  # frees the arrays that filled the memory
        raise CaseLimitError(text).with_traceback(frames) from None


def _limit(after: contextlib.ExitStack, expired: threading.Event | None) -> None:
    """Limit memory and time from here on, until ``after`` is closed."""
    if expired is not None:
        _start_clock(
            after, expired
        )  # before the memory limit: its thread needs a stack
    if LIMITS.memory is not None:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        used = int(USED.read_text().split()[0]) * resource.getpagesize()
        most = used + int(min(LIMITS.memory, 2**40) * 2**20)
        after.callback(resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (least, hard))


_OF_PYTHON: Any = random.getstate.__self__  # type: ignore[attr-defined]
_OF_NUMPY: Any = np.random.get_state.__self__  # type: ignore[attr-defined]
_HEAD = object.__basicsize__
"""The number of bytes before an object's own data; they hold a reference count that changes."""


@functools.lru_cache(maxsize=8)
def _bytes_at(owner: Any) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * (type(owner).__basicsize__ - _HEAD)).from_address(
        id(owner) + _HEAD
    )


def _memory(owner: Any) -> object:
    """Return a quick mark of a random state: its raw memory. To read the 624 numbers is slower."""
    return _bytes_at(owner).raw, {**getattr(owner, "__dict__", {})}


_SETTINGS: dict[
    str, tuple[Callable[[], object], Callable[[], Any], Callable[[Any], object]]
] = {
    "NumPy's error settings": (
        np.geterr,
        np.geterr,
        lambda errors: np.seterr(**errors),
    ),
    "NumPy's print options": (
        np.get_printoptions,
        np.get_printoptions,
        lambda shown: np.set_printoptions(**shown),
    ),
    "NumPy's random state": (
        lambda: (_memory(_OF_NUMPY), _memory(np.random.get_bit_generator())),
        functools.partial(np.random.get_state, legacy=False),
        np.random.set_state,
    ),
    "Python's random state": (
        lambda: _memory(_OF_PYTHON),
        random.getstate,
        random.setstate,
    ),
}
"""Global state that a call may change: functions for a quick mark, for its value, to restore it."""
_LAST: dict[str, tuple[object, Any]] = {}
"""The last mark and value of each state. The value is read again only if the mark differs."""


def _settings() -> dict[str, tuple[object, Any]]:
    """Return the mark and the value of each state."""
    for name, (read_mark, read_value, _) in _SETTINGS.items():
        mark = read_mark()
        if name not in _LAST or _LAST[name][0] != mark:
            _LAST[name] = mark, read_value()
    return {**_LAST}


def _restore_settings(before: dict[str, tuple[object, Any]], case: Any) -> None:
    """Restore the state that a call has changed, and warn of the change."""
    changed = [
        name for name, (mark, _, _) in _SETTINGS.items() if mark() != before[name][0]
    ]
    for name in changed:
        _SETTINGS[name][2](before[name][1])
    if changed:  # warn without a line: the lines of the harness do not help the author
        kernel = getattr(case, "kernel", case)
        caller = kernel if isinstance(kernel, str) else function_name(kernel)
        caller = "a reference" if case is None else caller
        text = f"{caller} changed {' and '.join(changed)}, put back after the call"
        warnings.warn_explicit(text, UserWarning, "difftest", 0)


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
    seconds = min(LIMITS.seconds or 0.0, threading.TIMEOUT_MAX)
    over = threading.Event()
    me = threading.get_ident()
    before = {thread.ident for thread in threading.enumerate()}
    has_signal = hasattr(signal, "SIGALRM") and me == threading.main_thread().ident

    def stop(*_: object) -> NoReturn:
        LIMITS.stops += 1
        raise ExpiredError

    def expire() -> None:
        wait = seconds
        while not over.wait(wait):
            expired.set()
            now = {thread.ident for thread in threading.enumerate()}
            for started in now - before - {clock.ident}:
                _raise_in(started, ExpiredError)
            if has_signal:  # a signal ends a sleep, too
                signal.pthread_kill(me, signal.SIGALRM)
            else:
                _raise_in(me, ExpiredError)
            wait = AGAIN

    def end() -> None:
        while clock.is_alive():
            with contextlib.suppress(
                ExpiredError
            ):  # a late error arrives here: see _raise_in
                over.set()
                clock.join()
        LIMITS.stops = 0

    report = sys.unraisablehook

    def report_others(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, ExpiredError):
            report(unraisable)

    after.callback(setattr, sys, "unraisablehook", report)
    sys.unraisablehook = report_others
    if has_signal:
        after.callback(
            signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, stop)
        )
    clock = threading.Thread(target=expire)
    for _ in range(
        2
    ):  # a late error may interrupt the first call before its first line
        after.callback(end)
    clock.start()


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
