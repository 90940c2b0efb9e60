"""The kernel's frame and the bytecode that it runs, for what a Python function does not see."""

from __future__ import annotations

import dis
import sys
from functools import lru_cache
from types import CodeType, FrameType

from difftest.simulator.errors import is_inside

_FILLERS = ("EXTENDED_ARG", "NOP", "CACHE", "NOT_TAKEN")


def kernel_frame() -> FrameType:
    """The innermost frame outside the simulator."""
    frame = sys._getframe(1)
    while is_inside(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    return frame


@lru_cache(maxsize=64)
def instructions_of(code: CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object that do something."""
    return tuple(one for one in dis.get_instructions(code) if one.opname not in _FILLERS)
