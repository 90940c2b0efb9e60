"""One NeuronCore for each process: which cores there are, and whose turn it is.

A lease is an exclusive ``flock`` on a file that is named for the core. The operating system gives
it back when the last process that inherited it has ended, however it ended: a worker that is killed
loses its lease, and a child of it that still runs on the core keeps it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"
"""Runtime: an index, an inclusive range, or several of these with commas (configuration guide)."""
LOCK_FOLDER = "DIFFTEST_LOCK_DIR"
_POLL_SECONDS = 0.05
_NEURON_LS_SECONDS = 30


class NoCoreError(Exception):
    """No NeuronCore is free, or none is there."""


def parse_cores(text: str) -> tuple[int, ...]:
    """The cores of a value of NEURON_RT_VISIBLE_CORES, as ``0``, ``4-7`` or ``0,2,4-5``.

    Raises
    ------
    NoCoreError : it is none of these.
    """
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise NoCoreError(
                f"{VISIBLE_CORES}: received {text!r}; accepted: an index or a range, as 0 or 0-3"
            )
        cores += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(cores))


def find_cores() -> tuple[int, ...]:
    """The cores that this process may use: those of the environment, else those of ``neuron-ls``.

    Without either it is core 0 alone, for each Neuron device has one.
    """
    allowed, tool = os.environ.get(VISIBLE_CORES), shutil.which("neuron-ls")
    if allowed:
        return parse_cores(allowed)
    if tool is None:
        return (0,)
    try:
        listed = subprocess.run(
            [tool, "-j"], capture_output=True, text=True, timeout=_NEURON_LS_SECONDS
        )
        ids = [int(core) for chip in json.loads(listed.stdout) for core in chip["neuroncore_ids"]]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return (0,)
    return tuple(sorted(ids)) or (0,)


class CoreLease:
    """The exclusive use of one core, until :meth:`release` or the end of the process.

    Attributes
    ----------
    core : its index, as NEURON_RT_VISIBLE_CORES takes it.
    """

    def __init__(self, core: int, descriptor: int) -> None:
        self.core = core
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give the core back; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def lease_core(
    cores: Sequence[int] | None = None, *, wait: float = 0.0, folder: Path | None = None
) -> CoreLease:
    """Lease the first free one of ``cores`` (of :func:`find_cores` if not given).

    Parameters
    ----------
    wait : seconds to wait for one to become free.
    folder : of the lock files; one place for all users of the computer, unless told otherwise.

    Raises
    ------
    NoCoreError : all of them stay taken; the text names their holders.
    """
    wanted = find_cores() if cores is None else tuple(cores)
    usual = os.environ.get(LOCK_FOLDER) or Path(tempfile.gettempdir()) / "difftest-neuroncores"
    place = folder or Path(usual)
    place.mkdir(parents=True, exist_ok=True)
    locks = {core: place / f"neuroncore-{core}.lock" for core in wanted}
    deadline = time.monotonic() + wait
    while True:
        for core, lock in locks.items():
            descriptor = _locked(lock)
            if descriptor is not None:
                return CoreLease(core, descriptor)
        if time.monotonic() >= deadline:
            raise NoCoreError(_all_taken(locks))
        time.sleep(_POLL_SECONDS)


def _locked(lock: Path) -> int | None:
    """The descriptor of the lock that this process has now; None if another has it."""
    import fcntl  # here, for the module is read on computers that have no flock

    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError as error:
        raise NoCoreError(
            f"another user's lock file cannot be opened: {error.filename}\n"
            f"  remedy: set {LOCK_FOLDER} to a folder that all users of the cores can write"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _all_taken(locks: dict[int, Path]) -> str:
    holders = ", ".join(
        f"core {core} by process {lock.read_text(encoding='utf-8').strip() or 'of unknown id'}"
        for core, lock in locks.items()
    )
    return (
        f"no NeuronCore is free: {holders or 'there is none'}.\n"
        "  remedy: fewer workers (pytest -n), or end the processes that hold the cores"
    )
