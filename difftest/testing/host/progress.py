"""A line on the terminal for what takes long, so that nobody wonders what hangs."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from difftest.testing.harness.limits import EXIT, LIMITS

AFTER, LATER = 10.0, 60.0
"""Seconds before a terminal shows a case below the last line, and a log has a line, then twice."""
EVERY = 1.0
"""Seconds between two looks."""
STOPS = 10
"""A call that goes on after so many only its process can end."""


class ProgressThread:
    """A thread that looks at what runs, and writes where no capture takes it away.

    On a terminal it is one live line, which goes with its case: pytest's dots stay whole. To be
    made while pytest captures nothing. In a worker of pytest-xdist it writes for itself.

    Parameters
    ----------
    now : what runs: the same object as long as it is the same case; None if nothing does.
    label : what is said of it.
    """

    def __init__(self, now: Callable[[], Any], label: Callable[[Any], str]) -> None:
        self._now = now
        self._label = label
        self._over = threading.Event()
        self._file = _terminal()
        self._is_live = self._file.isatty()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()
        self._file.close()

    def _look(self) -> None:
        first = AFTER if self._is_live else LATER
        task = None
        began = 0.0
        after = first
        shown = False
        while not self._over.wait(EVERY):
            now = self._now()
            if LIMITS.stops >= STOPS:
                told = f"{self._label(now) if now else 'what runs'} catches BaseException"
                print(f"\ndifftest: {told}: its process ends", file=self._file, flush=True)
                EXIT(1)
            if now is not task:
                if shown:
                    self._below("")
                task = now
                began = time.monotonic()
                after = first
                shown = False
            elif now is not None and (seconds := time.monotonic() - began) >= after:
                remedy = "" if LIMITS.seconds else "; --case-timeout stops it"
                said = f"{self._label(now)} has run for {seconds:.0f} s{remedy}"
                if shown := self._is_live:
                    self._below(f"difftest: {said}"[: shutil.get_terminal_size().columns - 1])
                else:
                    print(f"\ndifftest: {said}", file=self._file, flush=True)
                    after *= 2
        if shown:
            self._below("")

    def _below(self, text: str) -> None:
        """Show a text in the line below the cursor's, which stays where it is."""
        # Down and up first: at the screen's end that scrolls, and with it the place to come back to
        print(f"\x1bD\x1b[A\x1b7\x1b[B\r\x1b[2K{text}\x1b8", end="", file=self._file, flush=True)


def _terminal() -> TextIO:
    """What standard error is now, whoever takes its place later."""
    try:
        number = sys.stderr.fileno()
    except (AttributeError, ValueError, OSError):  # a stream of pytester's, or of an editor's
        number = 2
    return os.fdopen(os.dup(number), "w", encoding="utf-8", errors="replace")
