"""Linux's Landlock: after it, this process writes in one folder and nowhere else, for good.

Numbers are those of the kernel's ``linux/landlock.h`` and of its system calls, which all
architectures share from 424 on.
"""

from __future__ import annotations

import ctypes
import os
import sys

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES = 38
_PATH_BENEATH = 1
_WRITE_FILE = 1 << 1
_WRITES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""To write, remove and make files, folders, links, sockets, devices: Landlock's first version."""


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def writes_only_in(folder: str) -> bool:
    """Let this process write below a folder alone; whether the system could."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    rules = libc.syscall(_CREATE, (ctypes.c_uint64 * 1)(_WRITES), 8, 0)
    if rules < 0:
        return False
    done = True
    for path, allowed in ((folder, _WRITES), (os.devnull, _WRITE_FILE)):
        parent = os.open(path, os.O_PATH)
        rule = _PathBeneath(allowed, parent)
        done &= not libc.syscall(_ADD, rules, _PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(parent)
    done = done and not libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done = done and not libc.syscall(_RESTRICT, rules, 0)
    os.close(rules)
    return done
