"""Trace a launch line by line: the line that issues each instruction, and its tensors.

It needs no support in the simulator: Python's tracing reports each line of the kernel before it
runs.
"""

from __future__ import annotations

import contextlib
import pdb
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from difftest.simulator.core import Core, current, is_running
from difftest.simulator.errors import frame_at
from difftest.simulator.exact.exact_values import raw_values
from difftest.simulator.tile import Tile, contents
from difftest.simulator.trace import Event
from difftest.testing.harness.differential import BOUND_SLACK
from difftest.testing.harness.tracer import trace_code

Seen = Callable[[FrameType, Core], None]
_OWN_ERROR = 2.0**-50
"""The error of float64 in an exact value, relative to the value."""


def trace_lines(folder: Path, run: Callable[[], Any], callback: Seen) -> None:
    """Call ``run``, and ``callback`` before each line of a file below ``folder``.

    Errors of the run are suppressed, because another run has reported them.
    """
    prefix = str(folder)

    def line(frame: FrameType) -> None:
        if is_running():
            callback(frame, current())

    tracing = trace_code(lambda code: code.co_filename.startswith(prefix), line)
    with contextlib.suppress(Exception), tracing:
        run()


class IssuingLines:
    """The lines that issued instructions, and the first tensor outside its exact bounds.

    Attributes
    ----------
    at : instructions issued so far -> the last line that began there, as file and number.
    outside : the first instruction after which a tensor is out of bounds, and the tensor's name.
    """

    def __init__(self) -> None:
        self.at: dict[int, tuple[str, int]] = {}
        self.outside: tuple[int, str] | None = None
        self._looked = 0

    def __call__(self, frame: FrameType, core: Core) -> None:
        """Note a line."""
        is_new = core.instructions > self._looked
        if self.outside is None and core.followers.shadow and is_new:
            name = _outside(core, frame)
            if name:
                self.outside = core.instructions - 1, name
            self._looked = core.instructions
        self.at[core.instructions] = frame.f_code.co_filename, frame.f_lineno

    def of(self, number: int) -> tuple[str, int, int] | None:
        """Return the file and line that issued an instruction, and the instructions before it."""
        before = max((start for start in self.at if start <= number), default=None)
        return None if before is None else (*self.at[before], before)


def _outside(core: Core, frame: FrameType) -> str:
    """Return the name of a tensor in a frame that is outside its exact bounds; else empty."""
    for name, tile in _tiles(frame).items():
        held = core.followers.shadow.held(tile)
        if held is None or held.partial:
            continue
        missing = tile._unwritten()
        with np.errstate(all="ignore"):
            error = 0.0 if held.error is None else held.error
            allowed = error * (1 + BOUND_SLACK) + _OWN_ERROR * np.abs(held.value)
            values = raw_values(tile).astype(np.float64)
            wrong = ~(np.abs(values - held.value) <= allowed) & np.isfinite(held.value)
        if missing is not None:
            wrong &= ~missing
        if wrong.any():
            return name
    return ""


def _tiles(frame: FrameType) -> dict[str, Tile]:
    """Return the tensors in a frame's variables."""
    return {
        name: value
        for name, value in frame.f_locals.items()
        if isinstance(value, Tile) and value._axes is None
    }


class OperandSnapshot:
    """The contents of an instruction's tensors after it, as text by role.

    Only tensors in variables are shown.
    """

    def __init__(self, event: Event) -> None:
        self.event = event
        self.contents: dict[str, str] = {}

    def __call__(self, frame: FrameType, core: Core) -> None:
        """Take the snapshot at the first line after the instruction."""
        if self.contents or core.instructions <= self.event.number:
            return
        here: dict[int, tuple[str, Tile]] = {}
        at: FrameType | None = frame
        while at is not None:
            for name, tile in _tiles(at).items():
                here.setdefault(tile._storage.allocation.id, (name, tile))
            at = at.f_back
        for region in self.event.writes + self.event.reads:
            if region.allocation.id in here:
                name, tile = here[region.allocation.id]
                values = contents(tile._values(unwritten=True), tile._unwritten())
                self.contents[region.role] = f"{name}, {region.allocation}\n{values}"


def debug_at(run: Callable[[], Any], file: str, line: int, before: int) -> None:
    """Call ``run`` in Python's debugger, which stops at a line of the kernel.

    Parameters
    ----------
    before : the number of instructions that have been issued when it stops.
    """
    debugger = pdb.Pdb()
    where = "__import__('difftest.simulator.core', fromlist=['current']).current().instructions"
    problem = debugger.set_break(file, line, cond=f"{where} == {before}")
    if problem:
        raise RuntimeError(problem)
    debugger.reset()
    debugger.botframe = frame_at(0)  # run on from here to the line
    debugger.set_continue()
    sys.settrace(debugger.trace_dispatch)
    try:
        run()
    finally:
        sys.settrace(None)
