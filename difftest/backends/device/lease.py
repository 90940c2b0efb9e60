"""One NeuronCore for each process: which cores there are, and whose turn it is.

A lease is an exclusive ``flock`` on a file that is named for the core. The operating system gives
it back when the last process that inherited it has ended, however it ended: a worker that is killed
loses its lease, and a child of it that still runs on the core keeps it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"
"""Runtime: an index, an inclusive range, or several of these with commas (configuration guide)."""
LOCK_FOLDER = "DIFFTEST_LOCK_DIR"


class NoCoreError(Exception):
    """No NeuronCore is free, or none is there."""


def find_cores() -> tuple[int, ...]:
    """The cores that the environment names, as ``0``, ``4-7`` or ``0,2,4-5``; 0 if it names none.

    Raises NoCoreError: it is none of these.
    """
    text = os.environ.get(VISIBLE_CORES) or "0"
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise NoCoreError(
                f"{VISIBLE_CORES}: received {text!r}; accepted: an index or a range, as 0 or 0-3"
            )
        cores += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(cores))


class CoreLease:
    """The exclusive use of one core, until :meth:`release` or the end of the process.

    Attributes
    ----------
    core : its index, as NEURON_RT_VISIBLE_CORES takes it.

    Raises
    ------
    NoCoreError : all cores of the environment are taken; the text names their holders.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        usual = Path(tempfile.gettempdir()) / "difftest-neuroncores"
        folder = Path(os.environ.get(LOCK_FOLDER) or usual)
        folder.mkdir(parents=True, exist_ok=True)
        holders = []
        for self.core in find_cores():
            lock = folder / f"neuroncore-{self.core}.lock"
            self._descriptor = _locked(lock)
            if self._descriptor is not None:
                return
            holder = lock.read_text(encoding="utf-8").strip() or "of unknown id"
            holders.append(f"core {self.core} by process {holder}")
        raise NoCoreError(
            f"no NeuronCore is free: {', '.join(holders)}.\n"
            f"  remedy: name more cores in {VISIBLE_CORES}, or use fewer workers (pytest -n),\n"
            "          or end the processes that hold the cores"
        )

    def release(self) -> None:
        """Give the core back; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _locked(lock: Path) -> int | None:
    """The descriptor of the lock that this process has now; None if another has it.

    Another user's file is a PermissionError: DIFFTEST_LOCK_DIR names a folder that all can write.
    """
    import fcntl  # here, for the module is read on computers that have no flock

    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
