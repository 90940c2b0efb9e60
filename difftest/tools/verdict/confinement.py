"""The second wall: what a worker's process is given, and what the system keeps it from.

Numbers are those of Linux's headers for Landlock, prctl, sched, seccomp, BPF and system calls.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping

_BOX = "DIFFTEST_BOX"
"""Set in the environment of what bubblewrap has started."""
_CREATE = 444
_ADD = 445
_RESTRICT = 446
_FILTER = 22
_NO_NEW_PRIVILEGES = 38
_NEW_USER = 0x10000000
_NEW_NETWORK = 0x40000000
_PATH_BENEATH = 1
_EXECUTE = 1
_WRITE_FILE = 1 << 1
_WRITES = _EXECUTE | _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""To run, write, remove and make files, folders, links, devices: Landlock's first version."""
_LATER = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""By the version that has it: to move files between folders, to truncate them, to ask devices."""
_SCOPES = 0b11
"""Abstract sockets and signals of processes outside, from version 6 on."""
_CALLS = {
    "x86_64": (0xC000003E, 56, (57, 58, 59, 322, 101, 435)),
    "aarch64": (0xC00000B7, 220, (221, 281, 117, 435)),
}
"""Of a machine: its number, ``clone``, and what else makes a process, runs a file or looks at one;
``clone3``, the last, hides its flags, and is told to be unknown."""
_THREAD = 0x10000
_REFUSED = 0x50001
_ALLOWED = 0x7FFF0000
_LIMITS = (
    ("file size", "RLIMIT_FSIZE", 2**26),
    ("core dumps", "RLIMIT_CORE", 0),
    ("open files", "RLIMIT_NOFILE", 64),
)
"""Their names, the system's, and bytes or files."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("ports", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # the layout of packed structures; Python 3.14 asks for its name
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def clean_environment(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """The environment of a worker: what Python needs to start, and nothing of the user's."""
    kept = {"PATH": environment["PATH"]} if "PATH" in environment else {}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **one_thread, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}


def bubblewrap_command(folder: str) -> list[str]:
    """What starts a command in bubblewrap's box: it writes in the folder alone, off the network."""
    bubblewrap = shutil.which("bwrap")
    words = f"{bubblewrap} --unshare-user --unshare-ipc --unshare-net --setenv {_BOX} 1".split()
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--bind", folder, folder, "--"]
    works = bubblewrap and not subprocess.run([*words, "true"], capture_output=True).returncode
    return words if works else []


def confine(folder: str, memory: int, seconds: float) -> list[str]:
    """Keep this process in a folder, off the network and within limits; what could not be done."""
    import resource

    is_linux = sys.platform == "linux"
    own = _NEW_USER | _NEW_NETWORK  # a namespace of this process alone
    walls: dict[str, Callable[[], bool]] = {
        "network": lambda: not ctypes.CDLL(None).unshare(own),
        "writing": functools.partial(_writes_only_in, folder),
    }
    lacks = [name for name, wall in walls.items() if not (is_linux and wall())]
    missing = [] if _BOX in os.environ else lacks
    missing += [] if is_linux and _makes_no_process() else ["processes"]
    more = (("memory", "RLIMIT_AS", memory), ("time", "RLIMIT_CPU", seconds))
    for name, constant, value in (*_LIMITS, *more):
        try:
            number = getattr(resource, constant)
            hard = resource.getrlimit(number)[1]
            most = int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
            resource.setrlimit(number, (most, most))
        except (AttributeError, ValueError, OSError):
            missing.append(name)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error where it is written
    return missing


def _writes_only_in(folder: str) -> bool:
    """Let this process write below a folder alone; whether the system could."""
    libc = ctypes.CDLL(None)
    version = libc.syscall(_CREATE, None, 0, 1)
    files = _WRITES | sum(bit for first, bit in _LATER.items() if version >= first)
    rules = _Ruleset(files, 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 8
    opened = libc.syscall(_CREATE, ctypes.byref(rules), size, 0) if version > 0 else -1
    if opened < 0:
        return False
    done = True
    for path, allowed in ((folder, files), (os.devnull, _WRITE_FILE)):
        parent = os.open(path, os.O_PATH)
        rule = _PathBeneath(allowed, parent)
        done &= not libc.syscall(_ADD, opened, _PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(parent)
    done = done and not libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = done and not libc.syscall(_RESTRICT, opened, 0)
    os.close(opened)
    return done


def _makes_no_process() -> bool:
    """Let this process make threads alone, and run no other file; whether the system could."""
    if platform.machine() not in _CALLS:
        return False
    machine, clone, others = _CALLS[platform.machine()]
    steps = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), (0x06, 0, 0, _REFUSED), (0x20, 0, 0, 0)]
    steps += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, _REFUSED)]  # other names of the same
    for number in others:
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, _REFUSED + 37 * (number == 435))]
    steps += [(0x15, 0, 3, clone), (0x20, 0, 0, 16), (0x45, 1, 0, _THREAD)]
    steps += [(0x06, 0, 0, _REFUSED), (0x06, 0, 0, _ALLOWED)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return not libc.prctl(_FILTER, 2, program, 0, 0)
