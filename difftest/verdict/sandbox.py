"""The judge's end of a worker: asks it, and ends it when its time is over."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from difftest.verdict import wire
from difftest.verdict.nursery import Nursery
from difftest.verdict.outcome import Outcome
from difftest.verdict.wire import Frame, WireError, WorkerEnd

PATIENCE = 10
"""Times the seconds of a run that all runs of a kernel may take."""
_STARTING = 60.0
"""Seconds for Python and NumPy to be imported, on a machine that has other work."""


class Limits(NamedTuple):
    """What a kernel may take: seconds for its import, and for each run, and bytes of memory.

    They are of the worker's address space, Python and NumPy included; None for no limit.
    """

    seconds: float = 60.0
    memory: int | None = 4096 * 2**20


class Sandbox:
    """A process that runs one kernel's Python, forked by a nursery; a context that ends it.

    ``missing`` has the limits that this system does not have. Each question raises WorkerEnd if the
    process ends or has no time left.
    """

    def __init__(self, limits: Limits | None = None, nursery: Nursery | None = None) -> None:
        self.limits = limits or Limits()
        self._nursery = nursery or Nursery()
        self._is_own = nursery is None
        self._left = PATIENCE * self.limits.seconds
        self._ended: int | None = None
        self._late = False
        self._pid = 0
        try:
            self._pid, folder, self._way = self._nursery.fork()
            given = {"memory": self.limits.memory, "seconds": self._left + 1}
            settings = {"folder": folder, **given}
            self.missing = tuple(map(str, self._ask(settings, (), _STARTING).header["missing"]))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def ask(self, header: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> Frame:
        """The answer to a request."""
        began = time.monotonic()
        try:
            return self._ask(header, blobs, min(self.limits.seconds, self._left))
        finally:
            self._left = max(0.0, self._left - (time.monotonic() - began))

    def _ask(self, header: Mapping[str, Any], blobs: Sequence[bytes], seconds: float) -> Frame:
        """It and whatever stalls the way to it end when the time is over."""
        clock = threading.Timer(seconds, self._expire)
        clock.daemon = True
        clock.start()
        try:
            wire.send(self._way, header, blobs)
            found = wire.receive(self._way, wire.MOST_HEADER, wire.MOST_ANSWER)
            if found is not None:
                return wire.checked(found)
        except WireError as error:
            if not self._late:
                self._end(kill=True)
                text = f"its process does not keep to the protocol: {error}"
                raise WorkerEnd(Outcome.CRASHED, text) from None
        except OSError:
            pass  # it has ended
        finally:
            clock.cancel()
        raise self._death()

    def _expire(self) -> None:
        self._late = True
        self._end(kill=True)

    def close(self) -> None:
        """End the process and whatever it has started, and remove its folder."""
        if self._pid:
            self._end(kill=True)
            self._way.close()
        if self._is_own:
            self._nursery.close()

    def _end(self, *, kill: bool) -> int:
        if self._ended is None:
            self._ended = 0
            try:
                self._ended = self._nursery.end(self._pid, kill=kill)
            except WorkerEnd:
                if not kill:
                    raise
        return self._ended

    def _death(self) -> WorkerEnd:
        """Why the process is no more."""
        if self._late:
            each, total = self.limits.seconds, PATIENCE * self.limits.seconds
            told = f"a run did not end within {each:g} seconds, or all runs within {total:g}"
            return WorkerEnd(Outcome.TIMEOUT, told)
        code = self._end(kill=False)
        if code < 0:
            name = signal.Signals(-code).name
            return WorkerEnd(Outcome.CRASHED, f"its process was ended by {name}")
        text = f"it ended its process with the exit code {code}, and gave no answer"
        return WorkerEnd(Outcome.CRASHED, text)
