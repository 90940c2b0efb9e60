"""What one call of a kernel or a reference may take, and what it may leave behind.

Time and memory are limited where that was asked for. NumPy's settings and the random states are put
back, and a warning says that they were changed, as it says that much was printed. A call that forks
is told, and its child ends here: it would run the other tests once more. One that calls
``os._exit`` would end the run as if all were well: it raises SystemExit here.
"""

from __future__ import annotations

import bdb
import contextlib
import ctypes
import functools
import os
import random
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

USED = Path("/proc/self/statm")
"""Pages that this process has. Where there is no such file, memory cannot be limited."""
PRINTED = 2**20
"""Characters that a call may print without a word."""
_FORKS: list[int] = []
_EXIT = os._exit
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=lambda: _FORKS.append(os.getpid()))


class CaseLimitError(RuntimeError):
    """A call took more than a case may, or forked."""


class _ExpiredError(BaseException):
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


LIMITS = CaseLimits()


def limit(seconds: float | None, memory: float | None) -> contextlib.ExitStack:
    """Hold calls to these limits, each None to leave it; what is returned takes that back."""
    if memory is not None and not USED.exists():
        raise OSError("this system cannot limit a process; Linux can")
    undo = contextlib.ExitStack()
    for name, value in (("seconds", seconds), ("memory", memory)):
        undo.callback(setattr, LIMITS, name, getattr(LIMITS, name))
        if value is not None:
            setattr(LIMITS, name, value)
    return undo


def within_limits(function: Callable[[], Any], case: Any = None) -> Any:
    """What a function returns; ``case`` is what it calls, for :attr:`CaseLimits.case`.

    Raises
    ------
    CaseLimitError : it took more than a case may, or forked. Its traceback ends in the function.

    Warns
    -----
    UserWarning : it changed what is put back, or printed more than :data:`PRINTED`.
    """
    process, forks, expired = os.getpid(), len(_FORKS), threading.Event()
    before = _settings()
    try:
        with contextlib.ExitStack() as after:
            after.callback(setattr, LIMITS, "case", LIMITS.case)
            _limit_memory(after)
            after.enter_context(no_exit())
            counted = after.enter_context(contextlib.redirect_stdout(_Counted(sys.stdout)))
            after.callback(_put_back, before, counted, case)
            LIMITS.case = case
            _start_clock(after, expired)
            result = function()
    except BaseException as error:
        _check(process, forks, expired, error)
        raise
    _check(process, forks, expired, getattr(result, "error", None))
    return result


def _check(process: int, forks: int, expired: threading.Event, error: BaseException | None) -> None:
    """Raise a CaseLimitError if a call that ended with this error, or with none, broke a limit.

    What ends a session, such as a debugger's quit, ends it: it is a KeyboardInterrupt then.
    """
    text = ""
    if os.getpid() != process:
        os._exit(1)
    if expired.is_set():
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


def _limit_memory(after: contextlib.ExitStack) -> None:
    """Limit the memory that is taken from here on."""
    if LIMITS.memory is not None:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        used = int(USED.read_text().split()[0]) * resource.getpagesize()
        most = used + int(LIMITS.memory * 2**20)
        after.callback(resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (least, hard))


class _Counted:
    """A stream that counts what is written to it."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.characters = stream, 0

    def write(self, text: str) -> Any:
        self.characters += len(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _settings() -> dict[str, tuple[object, Callable[[], object]]]:
    """What a call may change for those after it: a mark of each, and what puts it back."""
    errors, shown = np.geterr(), np.get_printoptions()
    asked = functools.partial(np.random.get_state, legacy=False)
    of_numpy = _OF_NUMPY, np.random.get_bit_generator()
    return {
        "NumPy's error settings": (errors, lambda: np.seterr(**errors)),
        "NumPy's print options": (shown, lambda: np.set_printoptions(**shown)),
        "NumPy's random state": _held_by(of_numpy, asked, np.random.set_state),
        "Python's random state": _held_by(_OF_PYTHON, random.getstate, random.setstate),
    }


_OF_PYTHON = (random.getstate.__self__,)  # type: ignore[attr-defined]
_OF_NUMPY = np.random.get_state.__self__  # type: ignore[attr-defined]
_STATES: dict[Callable[..., Any], tuple[object, Any]] = {}
"""The last mark of a random state, and the state."""


def _held_by(
    owners: tuple[Any, ...], ask: Callable[[], Any], put: Callable[[Any], object]
) -> tuple[object, Callable[[], object]]:
    """A random state's mark, the memory that holds it, and what puts it back.

    To ask for it takes long, as 624 numbers do: only where the mark is another than the last.
    """
    head = object.__basicsize__  # with a count that changes
    memory = [ctypes.string_at(id(one) + head, type(one).__basicsize__ - head) for one in owners]
    mark = memory, [repr(getattr(one, "__dict__", "")) for one in owners]
    if put not in _STATES or _STATES[put][0] != mark:
        _STATES[put] = mark, ask()
    return mark, functools.partial(put, _STATES[put][1])


def _put_back(before: dict[str, Any], counted: _Counted, case: Any) -> None:
    """Put back what a call has changed, and warn of it, and of how much it has printed."""
    changed = [name for name, (value, _) in _settings().items() if value != before[name][0]]
    for name in changed:
        before[name][1]()
    kernel = getattr(case, "kernel", case)
    what = "a reference" if case is None else getattr(kernel, "__name__", kernel)
    texts = [f"changed {' and '.join(changed)}, put back after the call"] if changed else []
    if counted.characters > PRINTED:
        texts.append(f"printed {counted.characters:,} characters in one call")
    for text in texts:  # the lines above this call are of no use to its author
        warnings.warn_explicit(f"{what} {text}", UserWarning, "difftest", 0)


@contextlib.contextmanager
def no_exit() -> Iterator[None]:
    """A scope in which ``os._exit`` raises SystemExit; a child that was forked there ends."""
    process = os.getpid()

    def instead(status: int) -> NoReturn:
        if os.getpid() != process:
            _EXIT(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = instead
    try:
        yield
    finally:
        os._exit = _EXIT


def _start_clock(after: contextlib.ExitStack, expired: threading.Event) -> None:
    """Raise in this thread, and in those that it will start, when the time is over."""
    if LIMITS.seconds is None:
        return
    me, before = threading.get_ident(), {one.ident for one in threading.enumerate()}
    has_signal = hasattr(signal, "SIGALRM") and me == threading.main_thread().ident

    def stop(*_: object) -> None:
        raise _ExpiredError

    def expire() -> None:
        expired.set()
        for thread in {one.ident for one in threading.enumerate()} - before - {clock.ident}:
            _raise_in(thread, _ExpiredError)
        if has_signal:  # ends a sleep, too
            signal.pthread_kill(me, signal.SIGALRM)
        else:
            _raise_in(me, _ExpiredError)

    def end() -> None:
        with contextlib.suppress(_ExpiredError):  # comes here, if at all: see _raise_in
            clock.cancel()
            clock.join()

    if has_signal:
        after.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, stop))
    clock = threading.Timer(LIMITS.seconds, expire)
    clock.start()
    after.callback(end)


def _raise_in(thread: int | None, error: type[BaseException]) -> None:
    """Raise an error at a thread's next line of Python, and never take one back.

    While an error that was announced does not come, Python 3.11 begins each traced call anew.
    """
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread or 0), ctypes.py_object(error))
