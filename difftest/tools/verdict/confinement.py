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


class _Architecture(NamedTuple):
    """The numbers that a seccomp filter needs on one architecture.

    Attributes
    ----------
    audit : the architecture's AUDIT_ARCH number.
    clone : the system call ``clone``. It is allowed for threads only.
    denied : system calls that start a process, run a file or trace a process.
    """

    audit: int
    clone: int
    denied: tuple[int, ...]


_CLONE3 = 435
"""``clone3`` passes its flags in memory, where a filter cannot read them. The filter reports it as
not implemented, and the C library then calls ``clone``."""
_ARCHITECTURES = {
    "x86_64": _Architecture(
        audit=0xC000003E,
        clone=56,
        denied=(
            57,  # fork
            58,  # vfork
            59,  # execve
            322,  # execveat
            101,  # ptrace
            _CLONE3,
        ),
    ),
    "aarch64": _Architecture(
        audit=0xC00000B7,
        clone=220,
        denied=(
            221,  # execve
            281,  # execveat
            117,  # ptrace
            _CLONE3,
        ),
    ),
}

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_CALL_NUMBER = 0  # offsets in struct seccomp_data
_AUDIT_NUMBER = 4
_FIRST_ARGUMENT = 16
_X32_CALLS = 0x40000000  # __X32_SYSCALL_BIT: second numbers of the same calls
_THREAD = 0x10000  # CLONE_THREAD
_ALLOW = 0x7FFF0000  # SECCOMP_RET_ALLOW
_DENY = 0x50001  # SECCOMP_RET_ERRNO with EPERM
_NOT_IMPLEMENTED = 0x50026  # SECCOMP_RET_ERRNO with ENOSYS


class _Instruction(NamedTuple):
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
    missing += [] if is_linux and _forbid_processes() else ["processes"]
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


def _forbid_processes() -> bool:
    """Let this process start threads only, and run no other file.

    Return whether the system could do that.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        return False
    instructions = _filter_instructions(architecture)
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", *row) for row in instructions)
    )
    program = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    return not libc.prctl(_FILTER, _FILTER_MODE, program, 0, 0)


def _filter_instructions(architecture: _Architecture) -> list[_Instruction]:
    """Return a seccomp filter that denies system calls which start or trace a process."""
    instructions = [
        _Instruction(_LOAD, 0, 0, _AUDIT_NUMBER),
        _Instruction(_JUMP_IF_EQUAL, 1, 0, architecture.audit),
        _Instruction(_RETURN, 0, 0, _DENY),
        _Instruction(_LOAD, 0, 0, _CALL_NUMBER),
        _Instruction(_JUMP_IF_AT_LEAST, 0, 1, _X32_CALLS),
        _Instruction(_RETURN, 0, 0, _DENY),
    ]
    for number in architecture.denied:
        answer = _NOT_IMPLEMENTED if number == _CLONE3 else _DENY
        instructions.append(_Instruction(_JUMP_IF_EQUAL, 0, 1, number))
        instructions.append(_Instruction(_RETURN, 0, 0, answer))
    instructions += [
        _Instruction(_JUMP_IF_EQUAL, 0, 3, architecture.clone),
        _Instruction(_LOAD, 0, 0, _FIRST_ARGUMENT),
        _Instruction(_JUMP_IF_ANY_BIT, 1, 0, _THREAD),
        _Instruction(_RETURN, 0, 0, _DENY),
        _Instruction(_RETURN, 0, 0, _ALLOW),
    ]
    return instructions
