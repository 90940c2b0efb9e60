"""What a worker's process may do: its limits, and a hook that denies and names what it may not.

The hook is in the kernel's own process, so that a kernel which looks for it can take it apart. It
names what honest mistakes and simple cheats do, and keeps them from the user's files. What the
verdict rests on is elsewhere: the judge runs the kernel's instructions on data that the kernel
never saw.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from difftest.harness.frames import is_installed, is_library

_FORBIDDEN = {
    "opens a socket": "socket.",
    "starts a process": "subprocess. os.system os.exec os.posix_spawn os.spawn os.startfile",
    "forks": "os.fork",
    "sends a signal": "os.kill signal.pthread_kill",
    "removes a file": "os.remove",
    "renames a file": "os.rename",
    "removes a folder": "os.rmdir",
    "makes a folder": "os.mkdir",
    "makes a link": "os.link os.symlink",
    "truncates a file": "os.truncate",
    "changes a file's mode": "os.chmod",
    "moves or copies files": "shutil.",
    "calls foreign code through ctypes": "ctypes.",
}
FORBIDDEN = {name: what for what, names in _FORBIDDEN.items() for name in names.split()}
"""The beginnings of audit events that no kernel needs, in words."""
WATCHED = {
    "sys._getframe": "looks at the frames of its callers",
    "sys._current_frames": "looks at the frames of its callers",
    "gc.get_": "looks for objects through the garbage collector",
}
"""Those that are named where the kernel's own code does them, and let be."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class ForbiddenError(PermissionError):
    """A kernel did what a kernel under judgement may not."""


class Hook:
    """An audit hook, :func:`sys.addaudithook`; there is no way to take it out again.

    Attributes
    ----------
    denied, named : what was denied, and what was only seen, each once, in order.
    """

    def __init__(self, folder: str, secret: tuple[str, ...]) -> None:
        self.denied: dict[str, None] = {}
        self.named: dict[str, None] = {}
        self._folder = os.path.realpath(folder) + os.sep
        self._secret = frozenset(map(os.path.realpath, secret))
        self._busy = False

    def forget(self) -> None:
        """Another kernel is loaded: nothing is known of it yet."""
        self.denied.clear()
        self.named.clear()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Deny what is forbidden; raises ForbiddenError."""
        if self._busy or ("." not in event and event != "open"):
            return
        self._busy = True
        try:
            what = self._open(arguments) if event == "open" else self._other(event)
            if event == "object.__setattr__" and arguments[1] == "__code__":
                what = "changes a function's code"
        finally:
            self._busy = False
        if what:
            self.denied[what] = None
            raise ForbiddenError(f"a kernel under judgement {what}, which it may not")

    def _open(self, arguments: tuple[Any, ...]) -> str:
        path, mode, flags = arguments
        if not isinstance(path, (str, bytes, os.PathLike)):
            return ""
        place = os.path.realpath(os.fsdecode(path))
        if _source_of(place) in self._secret:
            return f"reads {Path(place).name}, which judges it"
        process = place.partition("/proc/")[2].partition("/")[0] if place[:6] == "/proc/" else ""
        if process.isdigit() and int(process) != os.getpid():
            return "reads what another process has"
        writes = bool(isinstance(flags, int) and flags & _WRITING) or (
            isinstance(mode, str) and not {*mode}.isdisjoint("wax+")
        )
        if writes and place != os.devnull and not place.startswith(self._folder):
            return f"opens {place} for writing"
        return ""

    def _other(self, event: str) -> str:
        what = next((text for name, text in FORBIDDEN.items() if event.startswith(name)), "")
        if what:
            caller = _author()
            is_allowed = event.startswith("ctypes.") and (caller is None or _is_others(caller))
            return "" if is_allowed else what
        seen = next((text for name, text in WATCHED.items() if event.startswith(name)), "")
        if seen and not _is_others(sys._getframe(2).f_code.co_filename):
            self.named[seen] = None
        return ""


def _source_of(place: str) -> str:
    """The source of a module that is kept compiled; any other file itself."""
    path = Path(place)
    if path.parent.name != "__pycache__":
        return place
    return str(path.parents[1] / f"{path.name.partition('.')[0]}.py")


def _is_others(file: str) -> bool:
    return file.startswith("<") or is_library(file) or is_installed(file)


def _author() -> str | None:
    """The file of the nearest caller that is not Python's own, nor ours."""
    frame: FrameType | None = sys._getframe(3)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and not is_library(file):
            return file
        frame = frame.f_back
    return None


def scrubbed(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """The environment of a worker: what Python needs to start, and nothing of the user's."""
    kept = {name: environment[name] for name in ("SYSTEMROOT", "PATH") if name in environment}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **one_thread, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}


def limit(memory: int | None, file_size: int) -> tuple[str, ...]:
    """Set the limits of this process that the system has; the names of those that it has not.

    Parameters
    ----------
    memory : bytes of address space. file_size : bytes of a file.
    """
    try:
        import resource
    except ImportError:  # Windows: the judge's clock alone ends a worker
        return ("memory", "file size")
    missing = []
    wanted: tuple[tuple[str, str, int | None], ...] = (
        ("memory", "RLIMIT_AS", memory),
        ("file size", "RLIMIT_FSIZE", file_size),
        ("core dumps", "RLIMIT_CORE", 0),
    )
    for name, constant, value in wanted:
        if value is None:
            continue
        try:
            number = getattr(resource, constant)
            hard = resource.getrlimit(number)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(number, (most, hard))
        except (AttributeError, ValueError, OSError):
            missing.append(name)
    return tuple(missing)


def without_network(call: Callable[[int], None] | None = None) -> bool:
    """Leave the network for a namespace of this process alone; whether the system let it.

    Before any thread is there. ``call`` stands for :func:`os.unshare`, which Python has from 3.12.
    """
    call = call or getattr(os, "unshare", None)
    if call is None:
        return False
    with contextlib.suppress(OSError):
        call(getattr(os, "CLONE_NEWUSER", 0) | getattr(os, "CLONE_NEWNET", 0))
        return True
    return False
