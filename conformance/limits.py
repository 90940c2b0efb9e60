"""A limit in time for what runs in this process; it needs a Unix."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def limited(seconds: float, what: str) -> Iterator[None]:
    """Let the body take at most ``seconds``.

    Raises
    ------
    TimeoutError : ``what`` took longer.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"{what} took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
