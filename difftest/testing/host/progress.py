"""A progress line on the terminal for cases that take long."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from difftest.testing.contract.limits import EXIT, LIMITS

TERMINAL_SECONDS = 10.0
"""Seconds before a terminal shows a case."""
LOG_SECONDS = 60.0
"""Seconds before a log shows a case. The wait for the next line then doubles."""
CHECK_SECONDS = 1.0
"""Seconds between two checks."""
MOST_STOPS = 10
"""The attempts to stop a call before its process is ended."""


class ProgressThread:
    """A thread that shows the running case, and is not captured by pytest.

    On a terminal it shows one live line, which ends with its case, so pytest's dots stay intact.
    Make it while pytest captures nothing. In a worker of pytest-xdist it writes on its own.

    Parameters
    ----------
    now : returns the running case: the same object for the same case; None if none runs.
    label : returns the text for a case.
    """

    def __init__(self, now: Callable[[], Any], label: Callable[[Any], str]) -> None:
        self._now = now
        self._label = label
        self._over = threading.Event()
        self._file = _terminal()
        self._is_live = self._file.isatty()
        self._shown = False
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()
        self._file.close()

    def _look(self) -> None:
        """Show each case that takes long, until the thread is closed."""
        first = TERMINAL_SECONDS if self._is_live else LOG_SECONDS
        task = None
        began = 0.0
        after = first
        while not self._over.wait(CHECK_SECONDS):
            now = self._now()
            if LIMITS.stops >= MOST_STOPS:
                self._end_process(now)
            if now is not task:
                self._erase()
                task = now
                began = time.monotonic()
                after = first
                continue
            seconds = time.monotonic() - began
            if now is not None and seconds >= after:
                self._show(f"{self._label(now)} has run for {seconds:.0f} s")
                if not self._is_live:
                    after *= 2
        self._erase()

    def _end_process(self, now: Any) -> None:
        """End a process whose code catches each error that would stop it."""
        label = self._label(now) if now else "the running code"
        text = f"{label} catches BaseException: its process ends"
        print(f"\ndifftest: {text}", file=self._file, flush=True)
        EXIT(1)

    def _show(self, text: str) -> None:
        """Show a case: in the live line of a terminal, or as a line of a log."""
        if not LIMITS.seconds:
            text += "; --case-timeout stops it"
        if not self._is_live:
            print(f"\ndifftest: {text}", file=self._file, flush=True)
            return
        self._below(f"difftest: {text}"[: shutil.get_terminal_size().columns - 1])
        self._shown = True

    def _erase(self) -> None:
        """Erase the live line."""
        if self._shown:
            self._below("")
        self._shown = False

    def _below(self, text: str) -> None:
        """Show a text in the line below the cursor, which does not move."""
        # Move down and up first: at the screen's end this scrolls before the cursor is saved.
        print(
            f"\x1bD\x1b[A\x1b7\x1b[B\r\x1b[2K{text}\x1b8",
            end="",
            file=self._file,
            flush=True,
        )


def _terminal() -> TextIO:
    """Return a copy of the current standard error, which later redirections do not change."""
    try:
        number = sys.stderr.fileno()
    except (AttributeError, ValueError, OSError):
        number = 2  # the stream of pytester or of an editor has no file
    return os.fdopen(os.dup(number), "w", encoding="utf-8", errors="replace")
