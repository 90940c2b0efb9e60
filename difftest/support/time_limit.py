"""Limit the time of a block in the main thread."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_AGAIN = 2.0
"""Seconds until the error is raised once more if the block caught it."""


class TimeLimitError(BaseException):
    """A block exceeded its time. ``except Exception`` does not catch it."""


class TimeLimit:
    """The state of a limit: ``is_over`` says whether the time has passed."""

    def __init__(self) -> None:
        self.is_over = False

    def expire(self, *_: object) -> None:
        """Raise TimeLimitError; a signal handler."""
        self.is_over = True
        raise TimeLimitError


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[TimeLimit]:
    """Raise TimeLimitError within the block after some seconds, and again until the block ends.

    There is no limit outside of the main thread, and on systems without interval timers.
    """
    limit = TimeLimit()
    is_main = threading.current_thread() is threading.main_thread()
    if not (is_main and hasattr(signal, "setitimer")):
        yield limit
        return
    handler = signal.signal(signal.SIGALRM, limit.expire)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield limit
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
