"""A line on the terminal for a case that takes long, so that nobody wonders what hangs."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TextIO

from difftest.harness.runner import Runner
from difftest.report.failure import label

AFTER = 10.0
"""Seconds before the first line of a case; the next comes after twice as many."""
EVERY = 1.0
"""Seconds between two looks."""


class Waiting:
    """A thread that looks at what a runner does, and writes where no capture takes it away.

    To be made while pytest captures nothing. In a worker of pytest-xdist it writes for itself.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner, self._over = runner, threading.Event()
        self._file = _terminal()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()
        self._file.close()

    def _look(self) -> None:
        known, began, limit = None, 0.0, AFTER
        while not self._over.wait(EVERY):
            now = self._runner.now
            if now is not known:
                known, began, limit = now, time.monotonic(), AFTER
            elif now is not None and (seconds := time.monotonic() - began) >= limit:
                spec, case = now
                again = self._runner.again
                where = f"{again.node}: " if again else ""
                text = f"{where}{spec.name} has run for {seconds:.0f} s on the case {label(case)}"
                print(f"\ndifftest: {text}; --case-timeout stops it", file=self._file, flush=True)
                limit *= 2


def _terminal() -> TextIO:
    """What standard error is now, whoever takes its place later."""
    try:
        number = sys.stderr.fileno()
    except (AttributeError, ValueError, OSError):  # a stream of pytester's, or of an editor's
        number = 2
    return os.fdopen(os.dup(number), "w", encoding="utf-8", errors="replace")
