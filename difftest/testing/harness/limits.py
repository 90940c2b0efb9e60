"""What one call of a kernel or a reference may take, and what it may leave behind.

Time and memory are limited where that was asked for. NumPy's settings and the random states are put
back, and a warning says that they were changed. A call that forks is told, and its child ends here:
it would run the other tests once more. One that calls ``os._exit`` would end the run as if all were
well: it raises SystemExit here. Whether arrays fit in this computer's memory is asked before they
are made.
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
"""Pages that this process has. Where there is no such file, memory cannot be limited."""
_SHARE = 2
"""A run has its inputs at least twice: as they were drawn, and as the kernel gets them."""
AGAIN = 1.0
"""Seconds after which a call is stopped once more whose time is over."""
_FORKS: list[int] = []
EXIT = os._exit
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=lambda: _FORKS.append(os.getpid()))


class CaseLimitError(RuntimeError):
    """A call took more than a case may, or forked."""


class ExpiredError(BaseException):
    """Stops a call whose time is over; no Exception, which a kernel may catch."""


@dataclass
class CaseLimits:
    """Of one call: seconds, and MiB more than this process has; None for no limit."""

    seconds: float | None = None
    memory: float | None = None
    case: Any = None
    """What is called: its name, or a KernelCall; None where nobody said."""
    expired: int = 0
    """Calls whose time was over, so far."""
    stops: int = 0
    """How often one was stopped that runs still: it catches BaseException, or Python does."""


LIMITS = CaseLimits()
_MACHINE = {
    errno.ENOMEM: "memory",
    errno.ENOSPC: "space on a disk",
    errno.EDQUOT: "space on a disk",
    errno.EMFILE: "open files",
    errno.ENFILE: "open files",
}
"""What a computer has too little of, by the number of the error that says so."""
TOO_LITTLE = "this computer has too little "
"""How the reason begins of a case that cannot be judged here."""
NEEDS_LESS = "run fewer processes at once, or give the domain smaller sizes"
"""What a person can do about it."""


def fault_of_machine(error: BaseException | None) -> str:
    """Return what this computer lacks, as an error says; empty if the error is another one.

    Such an error says nothing of a kernel or of its reference. A limit that a call broke is none:
    a person chose it.
    """
    if isinstance(error, MemoryError):
        return f"{TOO_LITTLE}memory: {format_error(error)}"
    what = _MACHINE.get(error.errno or 0) if isinstance(error, OSError) else None
    return "" if error is None or what is None else f"{TOO_LITTLE}{what}: {format_error(error)}"


def limit(seconds: float | None, memory: float | None) -> contextlib.ExitStack:
    """Hold calls to these limits, or to what is less already; what is returned takes that back."""
    if memory is not None and not USED.exists():
        raise OSError("this system cannot limit a process; Linux can")
    undo = contextlib.ExitStack()
    for name, value in (("seconds", seconds), ("memory", memory)):
        before = getattr(LIMITS, name)
        undo.callback(setattr, LIMITS, name, before)
        setattr(LIMITS, name, min((n for n in (value, before) if n is not None), default=None))
    return undo


def within_limits(function: Callable[[], Any], case: Any = None) -> Any:
    """What a function returns; ``case`` is what it calls, for :attr:`CaseLimits.case`.

    Raises
    ------
    CaseLimitError : it took more than a case may, or forked. Its traceback ends in the function.

    Warns
    -----
    UserWarning : it changed what is put back.
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
            _put_back(before, case)
    except BaseException as error:
        _check(process, forks, expired, error)
        raise
    _check(process, forks, expired, getattr(result, "error", None))
    return result


def _check(
    process: int, forks: int, expired: threading.Event | None, error: BaseException | None
) -> None:
    """Raise a CaseLimitError if a call that ended with this error, or with none, broke a limit.

    What ends a session, such as a debugger's quit, ends it: it is a KeyboardInterrupt then.
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
    if isinstance(error, (bdb.BdbQuit, *exits)):  # Hypothesis lets no other error end a test
        raise KeyboardInterrupt(str(error) or "a debugger was left") from error
    if text:
        frames = None if error is None else error.__traceback__
        traceback.clear_frames(frames)  # they hold what has filled the memory
        raise CaseLimitError(text).with_traceback(frames) from None


def _limit(after: contextlib.ExitStack, expired: threading.Event | None) -> None:
    """Limit the memory and the time that are taken from here on; the end of ``after`` ends that."""
    if expired is not None:
        _start_clock(after, expired)  # whose stack is not the call's
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
"""Bytes of an object that begin with a count that changes."""


@functools.lru_cache(maxsize=8)
def _bytes_at(owner: Any) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * (type(owner).__basicsize__ - _HEAD)).from_address(id(owner) + _HEAD)


def _memory(owner: Any) -> object:
    """What holds a random state, of which to ask takes far longer, as 624 numbers do."""
    return _bytes_at(owner).raw, {**getattr(owner, "__dict__", {})}


_SETTINGS: dict[str, tuple[Callable[[], object], Callable[[], Any], Callable[[Any], object]]] = {
    "NumPy's error settings": (np.geterr, np.geterr, lambda errors: np.seterr(**errors)),
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
    "Python's random state": (lambda: _memory(_OF_PYTHON), random.getstate, random.setstate),
}
"""What a call may change for those after it: a mark of it, what it is, and what puts it back."""
_LAST: dict[str, tuple[object, Any]] = {}
"""The last mark of each, and what it was then: it is asked for where another mark is seen."""


def _settings() -> dict[str, tuple[object, Any]]:
    """What each is now, with its mark."""
    for name, (look, ask, _) in _SETTINGS.items():
        mark = look()
        if name not in _LAST or _LAST[name][0] != mark:
            _LAST[name] = mark, ask()
    return {**_LAST}


def _put_back(before: dict[str, tuple[object, Any]], case: Any) -> None:
    """Put back what a call has changed, and warn of it."""
    changed = [name for name, (look, _, _) in _SETTINGS.items() if look() != before[name][0]]
    for name in changed:
        _SETTINGS[name][2](before[name][1])
    if changed:  # the lines above this call are of no use to its author
        kernel = getattr(case, "kernel", case)
        what = kernel if isinstance(kernel, str) else function_name(kernel)
        what = "a reference" if case is None else what
        text = f"{what} changed {' and '.join(changed)}, put back after the call"
        warnings.warn_explicit(text, UserWarning, "difftest", 0)


def exit_of(process: int) -> Any:
    """What ``os._exit`` is in a scope that a process begins: an error. What it forks there ends."""

    def instead(status: int) -> NoReturn:
        if os.getpid() != process:
            EXIT(status)
        raise SystemExit(f"os._exit({status})")

    return instead


def _start_clock(after: contextlib.ExitStack, expired: threading.Event) -> None:
    """Raise in this thread, and in those that it will start, when the time is over, and again.

    What is raised in a ``__del__`` or in a callback of the garbage collector goes no further.
    Python reports it to a hook, where pytest would make it the test's failure.
    """
    seconds, over = min(LIMITS.seconds or 0.0, threading.TIMEOUT_MAX), threading.Event()
    me, before = threading.get_ident(), {thread.ident for thread in threading.enumerate()}
    has_signal = hasattr(signal, "SIGALRM") and me == threading.main_thread().ident

    def stop(*_: object) -> NoReturn:
        LIMITS.stops += 1
        raise ExpiredError

    def expire() -> None:
        wait = seconds
        while not over.wait(wait):
            expired.set()
            for thread in {one.ident for one in threading.enumerate()} - before - {clock.ident}:
                _raise_in(thread, ExpiredError)
            if has_signal:  # ends a sleep, too
                signal.pthread_kill(me, signal.SIGALRM)
            else:
                _raise_in(me, ExpiredError)
            wait = AGAIN

    def end() -> None:
        while clock.is_alive():
            with contextlib.suppress(ExpiredError):  # comes here, if at all: see _raise_in
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
        after.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, stop))
    clock = threading.Thread(target=expire)
    for _ in range(2):  # the error may come before the first line of one
        after.callback(end)
    clock.start()


def _raise_in(thread: int | None, error: type[BaseException]) -> None:
    """Raise an error at a thread's next line of Python, and never take one back.

    While an error that was announced does not come, Python 3.11 begins each traced call anew.
    """
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread or 0), ctypes.py_object(error))


def too_large(arrays: Iterable[tuple[Sequence[int], int]]) -> str:
    """Why arrays of these shapes and bytes an element cannot be made here; empty if they can."""
    needed = sum(math.prod(shape) * width for shape, width in arrays)
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return ""
    if _SHARE * needed <= there:
        return ""
    return (
        f"the arrays take {needed:,} bytes ({needed / 2**30:,.3g} GiB); accepted: at most "
        f"1/{_SHARE} of the memory of this computer, {there / 2**30:,.3g} GiB"
    )
