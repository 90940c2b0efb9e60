"""The tracer of the lines and branches that run in the author's code.

Coverage, campaigns and verdicts trace branches (:class:`BranchTracer`). Replays and mutants trace
lines (:func:`trace_code`).

From Python 3.12 on ``sys.monitoring`` traces, together with any debugger or coverage tool. A
function is traced until all its branches are covered, so the cost soon falls to zero.

Older Pythons use ``sys.settrace`` if no other tool traces. It makes every call of any function
slower, so the simulator turns it off within itself.
"""

from __future__ import annotations

import contextlib
import inspect
import opcode
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from difftest.simulator.errors import frame_at
from difftest.support.tracebacks import is_installed, is_library
from difftest.testing.harness.coverage import (
    ITERATIONS,
    OUTCOMES,
    Branch,
    Coverage,
    branches_of,
)

_MONITORING: Any = getattr(sys, "monitoring", None)
_TOOL = "difftest"
_AFTERWARDS = os.path.join("difftest", "analysis", "inspection", "inspector.py")
"""The file that inspects a launch after the kernel has run: the trace stops there."""
FREE_TOOLS = (5, 4)
"""Tool ids of ``sys.monitoring``: the optimizers' id, and an id without a name (HypoFuzz's)."""


@contextlib.contextmanager
def _traced(function: Any) -> Iterator[None]:
    """Install a function of ``sys.settrace`` in this thread, and in the threads that it starts."""
    before = sys.gettrace()
    sys.settrace(function)
    threading.settrace(function)
    try:
        yield
    finally:
        if sys.gettrace() is function:  # else a breakpoint has started a debugger
            sys.settrace(before)
        threading.settrace(before)


@contextlib.contextmanager
def trace_code(
    wanted: Callable[[CodeType], bool], callback: Callable[[FrameType], Any]
) -> Iterator[None]:
    """Call ``callback`` within the block at each line and return of wanted code, in any thread."""

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        return line if wanted(frame.f_code) else None

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event in ("line", "return"):
            callback(frame)
        return line

    with _traced(begin):
        yield


class BranchTrace:
    """The ``branches`` and the outcomes (``covered``) of one run, as in :class:`Coverage`."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self.kernel = kernel
        self.codes = set[int]()
        """The ``id`` of each code object that has branches."""
        self.branches: set[tuple[str, int, bool]] = set()
        self.covered: set[tuple[str, int, int]] = set()
        self._frames: dict[int, tuple[dict[int, Branch], dict[int, int]]] = {}
        """By the ``id`` of a frame: its branches, and its state. The state has the current line at
        key 0, and the number of iterations so far at the line of each loop."""

    def start(self, frame: FrameType) -> None:
        """Note that a function begins."""
        branches = branches_of(frame.f_code)
        file = frame.f_code.co_filename
        self.codes.add(id(frame.f_code))
        self.branches.update(
            (file, branch.line, branch.loops) for branch in branches.values()
        )
        # kept, as a lookup at each line is slow
        self._frames[id(frame)] = branches, {0: 0}

    def line(self, frame: FrameType, line: int) -> None:
        """Note the next line of a function; 0 if the function returns."""
        if id(frame) not in self._frames:
            return  # it began before the trace
        branches, state = self._frames[id(frame)]
        before = state[0]
        state[0] = line
        left = branches.get(before)
        entered = branches.get(line)
        if left is not None and left is not entered:
            outcome = _outcome(left, line, state)
            if outcome < len(ITERATIONS):
                self.covered.add((frame.f_code.co_filename, left.line, outcome))
        if (
            entered is not None
            and entered.loops
            and not entered.line <= before < entered.body.stop
        ):
            state[entered.line] = 0
        if not line:
            del self._frames[id(frame)]


def _outcome(branch: Branch, line: int, state: dict[int, int]) -> int:
    """Return the outcome of a branch after which ``line`` runs, and count a loop's iterations."""
    leaves = line not in branch.body
    if not branch.loops:
        return int(leaves)
    outcome = len(ITERATIONS) if leaves else state.get(branch.line, 0)
    state[branch.line] = outcome + 1
    return outcome


class BranchTracer:
    """A tracer of kernel calls, one at a time. ``unknown`` is the reason if it cannot trace.

    ``monitoring`` is ``sys.monitoring``. None means ``sys.settrace``, for Pythons without it.
    """

    def __init__(self, monitoring: Any = _MONITORING) -> None:
        self._monitor = monitoring
        self.unknown = ""
        self._homes: set[str] = set()
        self._left: dict[int, tuple[CodeType, set[tuple[str, int, int]]]] = {}
        """By ``id``: the code objects that ran, and their outcomes not covered yet."""
        self._ran: dict[int, tuple[Callable[..., Any], set[int]]] = {}
        """By ``id``: kernels that ran to their end, and the ids of their code objects. The key is
        an ``id`` because some kernels have no hash."""
        self._trace: BranchTrace | None = None
        self._tool: int | None = None

    @contextlib.contextmanager
    def call(self, kernel: Callable[..., Any]) -> Iterator[BranchTrace]:
        """Trace the calls within the block."""
        self._trace = trace = BranchTrace(kernel)
        home = str(getattr(kernel, "__module__", ""))
        # the kernel's own package counts, installed or not
        root = home.partition(".")[0]
        file = getattr(sys.modules.get(home), "__file__", None)
        if root not in self._homes and is_installed(file or ""):
            self._homes.add(root)
            if self._tool is not None:
                self._monitor.restart_events()
        if self._monitor is not None and self._tool is None:
            self._install()
        try:
            with contextlib.nullcontext() if self._monitor else self._tracing(trace):
                yield trace
        finally:
            self._trace = None

    def record(self, trace: BranchTrace, kernel: str, coverage: Coverage) -> None:
        """Add the trace of a case, and stop tracing functions whose outcomes are all covered."""
        coverage.add_function(kernel, trace.branches)
        coverage.covered |= trace.covered
        self._ran.setdefault(id(trace.kernel), (trace.kernel, set()))[1].update(
            trace.codes
        )
        for code, left in self._left.values():
            if left:
                left -= trace.covered
                if not left and self._tool is not None:
                    self._monitor.set_local_events(self._tool, code, 0)

    def close(self) -> None:
        """Stop tracing, and free the tool id."""
        if self._tool is not None:
            for code, _ in self._left.values():
                self._monitor.set_local_events(self._tool, code, 0)
            self._monitor.set_events(self._tool, 0)
            self._monitor.free_tool_id(self._tool)
            self._tool = None

    def _is_own(self, frame: FrameType) -> bool:
        """Return whether a frame runs the author's code with outcomes not covered yet."""
        code = frame.f_code
        file = frame.f_code.co_filename
        if id(code) in self._left:
            return bool(self._left[id(code)][1])
        if code.co_name.startswith("<") or is_library(file):
            return False
        root = str(frame.f_globals.get("__name__")).partition(".")[0]
        return (root in self._homes or not is_installed(file)) and bool(
            branches_of(code)
        )

    def _start(self, frame: FrameType, trace: BranchTrace) -> None:
        """Note that a function begins, and trace its lines."""
        code = frame.f_code
        file = frame.f_code.co_filename
        if id(code) not in self._left:
            outcomes = {
                (file, branch.line, outcome)
                for branch in branches_of(code).values()
                for outcome in range(len(OUTCOMES[branch.loops]))
            }
            self._left[id(code)] = code, outcomes
            if self._tool is not None:
                events = self._monitor.events
                self._monitor.set_local_events(
                    self._tool, code, events.LINE | events.PY_RETURN
                )
        trace.start(frame)

    def _install(self) -> None:
        """Register with ``sys.monitoring``, if a tool id is free."""
        free = [tool for tool in FREE_TOOLS if self._monitor.get_tool(tool) is None]
        if not free:
            self.unknown = "other tools take all places of sys.monitoring"
            return
        self._tool = free[0]
        events = self._monitor.events
        self._monitor.use_tool_id(self._tool, _TOOL)
        self._monitor.register_callback(self._tool, events.PY_START, self._on_start)
        self._monitor.register_callback(self._tool, events.LINE, self._on_event)
        self._monitor.register_callback(self._tool, events.PY_RETURN, self._on_event)
        self._monitor.set_events(self._tool, events.PY_START)
        # An earlier tracer has turned off functions whose outcomes it had covered.
        self._monitor.restart_events()

    def _on_start(self, code: CodeType, offset: int) -> Any:
        if not self._is_own(frame := frame_at(1)):
            return self._monitor.DISABLE
        if self._trace is not None:
            self._start(frame, self._trace)
        return None

    def _on_event(self, code: CodeType, line: int, *returned: object) -> None:
        if self._trace is not None:
            self._trace.line(frame_at(1), 0 if returned else line)

    @contextlib.contextmanager
    def _tracing(self, trace: BranchTrace) -> Iterator[None]:
        """Trace by ``sys.settrace`` within the block.

        A kernel whose outcomes are all covered runs untraced: a trace slows down every call.
        """
        if self._is_covered(trace.kernel):
            yield
            return
        if sys.gettrace() is not None:
            self.unknown = (
                "a debugger or a coverage tool traces; from Python 3.12 on both can"
            )
            yield
            return
        trace_lines = _line_tracer(trace)

        def start(frame: FrameType, event: str, _: object) -> Any:
            if not self._is_own(frame):
                if frame.f_code.co_filename.endswith(_AFTERWARDS):
                    sys.settrace(None)
                return None
            is_resumed = frame.f_lineno != frame.f_code.co_firstlineno
            if not is_resumed:  # else it is a generator
                self._start(frame, trace)
            return trace_lines

        start.of_kernels = True  # type: ignore[attr-defined] # the simulator pauses such traces
        with _traced(start):
            yield

    def _is_covered(self, kernel: Callable[..., Any]) -> bool:
        """Return whether a kernel ran to its end before, and all its outcomes are covered."""
        if id(kernel) not in self._ran:
            return False
        _, codes = self._ran[id(kernel)]
        return not any(self._left[code][1] for code in codes)


def _line_tracer(trace: BranchTrace) -> Callable[[FrameType, str, object], Any]:
    """Return the function for ``sys.settrace`` that notes the lines and returns of a frame."""

    def trace_lines(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            trace.line(frame, frame.f_lineno)
        elif event == "return" and not _is_yield(frame):
            trace.line(frame, 0)
        return trace_lines

    return trace_lines


def _is_yield(frame: FrameType) -> bool:
    """Return whether a generator that returns to its caller will go on."""
    if not frame.f_code.co_flags & inspect.CO_GENERATOR:
        return False
    instruction = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
    return not instruction.startswith("RETURN_")
