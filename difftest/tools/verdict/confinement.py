"""The second line of defence: system restrictions on a worker's process.

The numeric constants come from Linux's headers for Landlock, prctl, sched, seccomp, BPF and
system calls.
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
from typing import NamedTuple

_BOX = "DIFFTEST_BOX"
"""An environment variable that is set in processes that bubblewrap has started."""
_CREATE = 444  # the system call landlock_create_ruleset
_ADD = 445  # the system call landlock_add_rule
_RESTRICT = 446  # the system call landlock_restrict_self
_FILTER = 22  # PR_SET_SECCOMP
_FILTER_MODE = 2  # SECCOMP_MODE_FILTER
_NO_NEW_PRIVILEGES = 38
_NEW_USER = 0x10000000
_NEW_NETWORK = 0x40000000
_PATH_BENEATH = 1
_EXECUTE = 1
_WRITE_FILE = 1 << 1
_WRITES = _EXECUTE | _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""Access rights of Landlock's first version: run, write, remove and make files, folders, links
and devices."""
_LATER = {2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
"""Access rights by the Landlock version that added them: move files between folders, truncate
files, control devices."""
_SCOPES = 0b11
"""Abstract sockets and signals of processes outside; Landlock has them from version 6 on."""
_LIMITS = (
    ("file size", "RLIMIT_FSIZE", 2**26),
    ("core dumps", "RLIMIT_CORE", 0),
    ("open files", "RLIMIT_NOFILE", 64),
)
"""Resource limits: the printed name, the system's name, and bytes or a number of files."""


_NO_CALL = None
"""In a table of system calls: the architecture does not have the call."""
_CALLS: dict[str, tuple[int | None, int | None]] = {
    # memory
    "brk": (12, 214),
    "madvise": (28, 233),
    "mincore": (27, 232),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    # files that are open, and what lies in folders
    "access": (21, _NO_CALL),
    "chdir": (80, 49),
    "close": (3, 57),
    "dup": (32, 23),
    "dup2": (33, _NO_CALL),
    "dup3": (292, 24),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "fadvise64": (221, 223),
    "fchdir": (81, 50),
    "fcntl": (72, 25),
    "fstat": (5, 80),
    "fstatfs": (138, 44),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "lseek": (8, 62),
    "lstat": (6, _NO_CALL),
    "newfstatat": (262, 79),
    "pipe": (22, _NO_CALL),
    "pipe2": (293, 59),
    "poll": (7, _NO_CALL),
    "ppoll": (271, 73),
    "pread64": (17, 67),
    "preadv": (295, 69),
    "pselect6": (270, 72),
    "pwrite64": (18, 68),
    "read": (0, 63),
    "readlink": (89, _NO_CALL),
    "readlinkat": (267, 78),
    "readv": (19, 65),
    "select": (23, _NO_CALL),
    "stat": (4, _NO_CALL),
    "statfs": (137, 43),
    "statx": (332, 291),
    "umask": (95, 166),
    "write": (1, 64),
    "writev": (20, 66),
    # time and random numbers
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "getitimer": (36, 102),
    "getrandom": (318, 278),
    "gettimeofday": (96, 169),
    "nanosleep": (35, 101),
    "setitimer": (38, 103),
    "time": (201, _NO_CALL),
    "times": (100, 153),
    # signals of the process itself
    "rt_sigaction": (13, 134),
    "rt_sigpending": (127, 136),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132),
    # threads and the process
    "arch_prctl": (158, _NO_CALL),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "futex": (202, 98),
    "get_robust_list": (274, 100),
    "getcpu": (309, 168),
    "getegid": (108, 177),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getpgid": (121, 155),
    "getpgrp": (111, _NO_CALL),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getrusage": (98, 165),
    "getsid": (124, 156),
    "gettid": (186, 178),
    "getuid": (102, 174),
    "membarrier": (324, 283),
    "rseq": (334, 293),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "sysinfo": (99, 179),
    "uname": (63, 160),
}
"""The system calls that a worker may make with any arguments: numbers on x86-64 and arm64.

Python and NumPy make them while they compute, import modules and read files.
"""
_CLONE = (56, 220)
"""``clone`` is allowed for threads only."""
_CLONE3 = (435, 435)
"""``clone3`` passes its flags in memory, where a filter cannot read them. The filter reports it as
not implemented, and the C library then calls ``clone``."""
_OPEN = (2, _NO_CALL)
_OPENAT = (257, 56)
"""Files can be opened for reading only."""
_IOCTL = (16, 29)
"""``ioctl`` can ask whether a file is a terminal, and set whether it stays open."""
_SIGNALS = {"kill": (62, 129), "tgkill": (234, 131)}
"""A worker can send signals to itself only."""
_PRLIMIT = (302, 261)
"""A worker can read and lower its own limits only."""
_MACHINES = {"x86_64": 0, "aarch64": 1}
"""The columns of the tables, by the machine's name."""
_AUDIT = (0xC000003E, 0xC00000B7)
"""The AUDIT_ARCH number of each machine."""

_LOAD = 0x20
"""BPF_LD | BPF_W | BPF_ABS"""
_JUMP_IF_EQUAL = 0x15
"""BPF_JMP | BPF_JEQ | BPF_K"""
_JUMP_IF_AT_LEAST = 0x35
"""BPF_JMP | BPF_JGE | BPF_K"""
_JUMP_IF_ANY_BIT = 0x45
"""BPF_JMP | BPF_JSET | BPF_K"""
_RETURN = 0x06
"""BPF_RET | BPF_K"""
_CALL_NUMBER = 0
_AUDIT_NUMBER = 4
_ARGUMENTS = (16, 24, 32)
"""Offsets in struct seccomp_data: the low halves of the first three arguments."""
_X32_CALLS = 0x40000000
"""__X32_SYSCALL_BIT: second numbers of the same calls."""
_THREAD = 0x10000
"""CLONE_THREAD"""
_WRITES_FILE = 0o1 | 0o2 | 0o100 | 0o1000
"""O_WRONLY, O_RDWR, O_CREAT and O_TRUNC."""
_TERMINAL = (0x5401, 0x5421, 0x5450, 0x5451)
"""TCGETS, FIONBIO, FIONCLEX and FIOCLEX."""
_ALLOW = 0x7FFF0000
"""SECCOMP_RET_ALLOW"""
_DENY = 0x50001
"""SECCOMP_RET_ERRNO with EPERM"""
_NOT_IMPLEMENTED = 0x50026
"""SECCOMP_RET_ERRNO with ENOSYS"""


class BpfInstruction(NamedTuple):
    """An instruction of classic BPF, ``struct sock_filter``.

    A jump skips ``if_true`` or ``if_false`` instructions.
    """

    code: int
    if_true: int
    if_false: int
    operand: int


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("ports", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # the layout of packed structures; Python 3.14 asks for its name
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def clean_environment(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return the environment of a worker: only the variables that Python needs."""
    kept = {"PATH": environment["PATH"]} if "PATH" in environment else {}
    one_thread = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
    )
    return {**kept, **one_thread, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}


def bubblewrap_command(folder: str) -> list[str]:
    """Return the command prefix that runs a command in bubblewrap; empty if it does not work.

    The command can write in the folder only, and has no network.
    """
    bubblewrap = shutil.which("bwrap")
    words = f"{bubblewrap} --unshare-user --unshare-ipc --unshare-net --setenv {_BOX} 1".split()
    words += ["--ro-bind", "/", "/", "--dev", "/dev", "--bind", folder, folder, "--"]
    works = (
        bubblewrap
        and not subprocess.run([*words, "true"], capture_output=True).returncode
    )
    return words if works else []


def confine(folder: str, memory: int, seconds: float) -> list[str]:
    """Confine this process to a folder, without a network and within limits.

    Parameters
    ----------
    memory : bytes of address space.
    seconds : seconds of processor time.

    Returns
    -------
    list of str
        The restrictions that this system could not apply.
    """
    import resource

    is_linux = sys.platform == "linux"
    own = _NEW_USER | _NEW_NETWORK  # namespaces of this process only
    restrictions: dict[str, Callable[[], bool]] = {
        "network": lambda: not ctypes.CDLL(None).unshare(own),
        "writing": functools.partial(_restrict_writes, folder),
    }
    failed = [
        name for name, apply in restrictions.items() if not (is_linux and apply())
    ]
    missing = [] if _BOX in os.environ else failed
    missing += [] if is_linux and _restrict_calls() else ["system calls"]
    more = (("memory", "RLIMIT_AS", memory), ("time", "RLIMIT_CPU", seconds))
    for name, constant, value in (*_LIMITS, *more):
        try:
            number = getattr(resource, constant)
            hard = resource.getrlimit(number)[1]
            most = (
                int(value) if hard == resource.RLIM_INFINITY else min(int(value), hard)
            )
            resource.setrlimit(number, (most, most))
        except (AttributeError, ValueError, OSError):
            missing.append(name)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write raises an OSError instead
    return missing


def _restrict_writes(folder: str) -> bool:
    """Let this process write below a folder only; return whether the system could do that."""
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


def _restrict_calls() -> bool:
    """Let this process make the listed system calls only; return whether that is possible."""
    column = _MACHINES.get(platform.machine())
    if column is None:
        return False
    instructions = filter_instructions(column, os.getpid())
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", *row) for row in instructions)
    )
    program = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return not libc.prctl(_FILTER, _FILTER_MODE, program, 0, 0)


def filter_instructions(column: int, process: int) -> list[BpfInstruction]:
    """Return a seccomp filter that allows the listed system calls, and denies all others.

    Parameters
    ----------
    column : the machine's column in the tables of system calls.
    process : the process that may send signals to itself.
    """
    rows = [
        BpfInstruction(_LOAD, 0, 0, _AUDIT_NUMBER),
        BpfInstruction(_JUMP_IF_EQUAL, 1, 0, _AUDIT[column]),
        BpfInstruction(_RETURN, 0, 0, _DENY),
        BpfInstruction(_LOAD, 0, 0, _CALL_NUMBER),
        BpfInstruction(_JUMP_IF_AT_LEAST, 0, 1, _X32_CALLS),
        BpfInstruction(_RETURN, 0, 0, _DENY),
    ]
    for numbers in _CALLS.values():
        rows += _if_call(numbers[column], [BpfInstruction(_RETURN, 0, 0, _ALLOW)])
    rows += _if_call(_CLONE[column], _if_bits(0, _THREAD, _ALLOW, _DENY))
    rows += _if_call(_CLONE3[column], [BpfInstruction(_RETURN, 0, 0, _NOT_IMPLEMENTED)])
    rows += _if_call(_OPEN[column], _if_bits(1, _WRITES_FILE, _DENY, _ALLOW))
    rows += _if_call(_OPENAT[column], _if_bits(2, _WRITES_FILE, _DENY, _ALLOW))
    rows += _if_call(_IOCTL[column], _if_equal(1, *_TERMINAL))
    for numbers in _SIGNALS.values():
        rows += _if_call(numbers[column], _if_equal(0, process))
    rows += _if_call(_PRLIMIT[column], _if_equal(0, 0, process))
    rows.append(BpfInstruction(_RETURN, 0, 0, _DENY))
    return rows


def _if_call(number: int | None, rows: list[BpfInstruction]) -> list[BpfInstruction]:
    """Return instructions that run ``rows`` for a system call; none if the machine lacks it."""
    if number is None:
        return []
    return [BpfInstruction(_JUMP_IF_EQUAL, 0, len(rows), number), *rows]


def _if_bits(argument: int, bits: int, answer: int, other: int) -> list[BpfInstruction]:
    """Return instructions that answer whether an argument has any of some bits."""
    return [
        BpfInstruction(_LOAD, 0, 0, _ARGUMENTS[argument]),
        BpfInstruction(_JUMP_IF_ANY_BIT, 0, 1, bits),
        BpfInstruction(_RETURN, 0, 0, answer),
        BpfInstruction(_RETURN, 0, 0, other),
    ]


def _if_equal(argument: int, *values: int) -> list[BpfInstruction]:
    """Return instructions that allow a call whose argument has one of some values."""
    rows = [BpfInstruction(_LOAD, 0, 0, _ARGUMENTS[argument])]
    for value in values:
        rows.append(BpfInstruction(_JUMP_IF_EQUAL, 0, 1, value))
        rows.append(BpfInstruction(_RETURN, 0, 0, _ALLOW))
    rows.append(BpfInstruction(_RETURN, 0, 0, _DENY))
    return rows
