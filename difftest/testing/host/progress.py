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

AFTER, LATER = 10.0, 60.0
"""Seconds before a terminal shows a case, and before a log does. A log's wait then doubles."""
EVERY = 1.0
"""Seconds between two checks."""
STOPS = 10
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
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
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
                text = (
                    f"{self._label(now) if now else 'what runs'} catches BaseException"
                )
                print(
                    f"\ndifftest: {text}: its process ends", file=self._file, flush=True
                )
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
                text = f"{self._label(now)} has run for {seconds:.0f} s{remedy}"
                if shown := self._is_live:
                    self._below(
                        f"difftest: {text}"[: shutil.get_terminal_size().columns - 1]
                    )
                else:
                    print(f"\ndifftest: {text}", file=self._file, flush=True)
                    after *= 2
        if shown:
            self._below("")

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
    except (
        AttributeError,
        ValueError,
        OSError,
    ):  # a stream of pytester or of an editor
        number = 2
    return os.fdopen(os.dup(number), "w", encoding="utf-8", errors="replace")
