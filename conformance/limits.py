"""A limit in time for what runs in this process; it needs a Unix.

It is processor time, so that a table is the same on a machine that does other things meanwhile.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

WAITING = 10
"""The factor by which wall-clock time may exceed the limit, for code that sleeps or waits."""
_LOOK = 0.05
"""Seconds between two looks at the time."""


@contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """Let the body take at most ``seconds`` of this process's processor time.

    Raises
    ------
    TimeoutError : ``what`` took longer, or ten times as long by the clock.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"{what} took longer than {seconds:g} s")

    over = threading.Event()
    used, begun = time.process_time(), time.monotonic()

    def watch() -> None:
        while not over.wait(_LOOK):
            waited = time.monotonic() - begun
            if time.process_time() - used > seconds or waited > WAITING * seconds:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
                return

    before = signal.signal(signal.SIGALRM, end)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            over.set()
            watcher.join()
    finally:
        signal.signal(signal.SIGALRM, before)
