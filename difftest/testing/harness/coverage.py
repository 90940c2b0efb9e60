"""Coverage of the branches and loops in the kernels' own code, where bugs would stay hidden.

A branch is an ``if`` or a loop with a body on its own lines. So the lines that run show which way
was taken. Conditional expressions and comprehensions do not count. The kernel's own code is traced:
its file, its package, and all other code outside libraries.

From Python 3.12 on ``sys.monitoring`` traces, together with any debugger or coverage tool. A
function is traced until all its branches are covered, so the cost soon falls to zero.

Older Pythons use ``sys.settrace`` if no other tool traces. It makes every call of any function
slower, so the simulator turns it off within itself.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import linecache
import opcode
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple

from difftest.support.tracebacks import is_installed, is_library

ITERATIONS = ("it never ran", "never a second iteration", "never a third iteration")
BRANCHES = ("never true", "never false")
EXPRESSION = "its condition never changes"
"""The text for a conditional expression that came out alike in all cases."""
SAYINGS = {True: ITERATIONS, False: BRANCHES}
"""The texts for a missed outcome, by whether it is a loop: iterations, or the sides of a branch."""
_MONITORING: Any = getattr(sys, "monitoring", None)
_TOOL = "difftest"
_AFTERWARDS = os.path.join("difftest", "analysis", "inspection", "inspector.py")
"""The file that inspects a launch after the kernel has run: the trace stops there."""
FREE_TOOLS = (5, 4)
"""Ids of ``sys.monitoring``: the one of optimizers, and one without a name, which HypoFuzz uses."""


class Branch(NamedTuple):
    """An ``if`` or a loop: its first line, and the lines of its body."""

    line: int
    body: range
    loops: bool


def branches_of(code: CodeType) -> dict[int, Branch]:
    """Return the branches of a function, by each line of their heads."""
    return _branches_at(code.co_filename, code)


@functools.cache
def _branches_at(file: str, code: CodeType) -> dict[int, Branch]:
    """Return the branches of a function in a file: equal code may be in two files."""
    lines = {line for *_, line in code.co_lines() if line is not None}
    return {
        line: branch for line, branch in _branches_in(file).items() if line in lines
    }


@functools.cache
def _branches_in(file: str) -> dict[int, Branch]:
    """Return all branches in a file, by each line of their heads."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    branches: dict[int, Branch] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.For)) and not _is_constant(node):
            head = node.iter if isinstance(node, ast.For) else node.test
            last = head.end_lineno or head.lineno
            body = range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
            if body.start > last:
                branch = Branch(node.lineno, body, not isinstance(node, ast.If))
                branches.update(dict.fromkeys(range(node.lineno, last + 1), branch))
    return branches


def _is_constant(node: ast.If | ast.While | ast.For) -> bool:
    """Return whether a branch does not depend on the case.

    It is a loop over constants, a constant condition, or a check that raises. Rejections test
    checks.
    """
    if isinstance(node, ast.For):
        parts = node.iter.args if isinstance(node.iter, ast.Call) else [node.iter]
        is_row = isinstance(node.iter, (ast.Tuple, ast.List))
        return is_row or (
            bool(parts) and all(isinstance(part, ast.Constant) for part in parts)
        )
    return isinstance(node.test, ast.Constant) or isinstance(node.body[-1], ast.Raise)


@dataclass
class Coverage:
    """The branches in the code that cases ran, and the outcomes that they covered.

    Attributes
    ----------
    branches : (file, line, whether it loops, kernel that ran its function).
    done : covered outcomes: (file, line, index into ``BRANCHES`` or ``ITERATIONS``).
    unknown : reasons why some cases were not traced.
    tried : the nearest values at a branch: (file, line, distance from the condition, text).
    expressions : lines with a conditional expression that few sizes decide otherwise: (file, line,
        kernel, the nearest values, or an empty text if a case had such sizes).
    """

    branches: set[tuple[str, int, bool, str]] = field(default_factory=set)
    done: set[tuple[str, int, int]] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    tried: set[tuple[str, int, int, str]] = field(default_factory=set)
    expressions: set[tuple[str, int, str, str]] = field(default_factory=set)

    def add_function(
        self, kernel: str, branches: Collection[tuple[str, int, bool]]
    ) -> None:
        """Add the branches of functions that a kernel ran."""
        self.branches.update((*branch, kernel) for branch in branches)

    def merge(self, other: Coverage, names: Mapping[str, str] | None = None) -> None:
        """Add the coverage of other cases, with other names for some kernels."""
        forks = {
            (*fork, (names or {}).get(kernel, kernel))
            for *fork, kernel in other.branches
        }
        for name, facts in vars(self).items():
            facts.update({**vars(other), "branches": forks}[name])

    def to_list(self) -> list[Any]:
        """Return the coverage as lists for JSON; :func:`coverage_from_list` reads them."""
        return [sorted(facts) for facts in vars(self).values()]


def coverage_from_list(document: list[Any]) -> Coverage:
    """Return the coverage that :meth:`Coverage.to_list` wrote."""
    tables: list[Any] = [
        {r if isinstance(r, str) else tuple(r) for r in rows} for rows in document
    ]
    return Coverage(*tables)


class UncoveredBranch(NamedTuple):
    """A branch that no case took.

    Attributes
    ----------
    file, line : its place; the file is relative to the working directory.
    kernels : the kernels that ran its function.
    what : the outcome that never happened.
    source : the text of its line.
    tried : the values that came nearest to its condition; empty if unknown.
    """

    file: str
    line: int
    kernels: tuple[str, ...]
    what: str
    source: str
    tried: str = ""


def uncovered_branches(coverage: Coverage) -> list[UncoveredBranch]:
    """Return the outcomes that no case took, by file and line; for a loop only the first."""
    from difftest.simulator.errors import (
        relative_path,
    )  # a run without a backend needs no NumPy

    ran = defaultdict[Any, list[str]](list)
    places = list[UncoveredBranch]()
    tried = {tuple(at): text for *at, _, text in sorted(coverage.tried, reverse=True)}
    for *branch, kernel in sorted(coverage.branches):
        ran[tuple(branch)].append(kernel)
    for (file, line, loops), kernels in ran.items():
        texts = enumerate(SAYINGS[loops])
        left = [text for what, text in texts if (file, line, what) not in coverage.done]
        source = linecache.getline(file, line).strip()
        for what in left[: 1 if loops else None]:
            nearest = tried.get((file, line), "")
            places.append(
                UncoveredBranch(
                    relative_path(file), line, tuple(kernels), what, source, nearest
                )
            )
    return [*places, *_undecided_expressions(coverage)]


def _undecided_expressions(coverage: Coverage) -> Iterator[UncoveredBranch]:
    """Yield the conditional expressions that came out alike in all cases."""
    from difftest.simulator.errors import relative_path

    by_line = defaultdict[tuple[str, int], dict[str, str]](dict)
    for file, line, kernel, nearest in sorted(coverage.expressions, reverse=True):
        by_line[file, line][kernel] = nearest  # an empty text comes last
    for (file, line), by_kernel in sorted(by_line.items()):
        if all(by_kernel.values()):
            source = linecache.getline(file, line).strip()
            nearest = next(iter(by_kernel.values()))
            yield UncoveredBranch(
                *(relative_path(file), line, tuple(by_kernel), EXPRESSION),
                *(source, nearest),
            )


@functools.cache
def expression_lines(file: str) -> frozenset[int]:
    """Return the lines of a file that hold the condition of a conditional expression."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return frozenset()
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.IfExp)]
    lines = {
        line
        for test in tests
        for line in range(test.lineno, (test.end_lineno or test.lineno) + 1)
    }
    return frozenset(lines - _branches_in(file).keys())


class BranchTrace:
    """The ``branches`` and the covered outcomes (``done``) of one run, as in :class:`Coverage`."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        self.kernel = kernel
        self.codes = set[int]()
        """The ``id`` of each code object that has branches."""
        self.branches: set[tuple[str, int, bool]] = set()
        self.done: set[tuple[str, int, int]] = set()
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
        self._frames[id(frame)] = (
            branches,
            {0: 0},
        )  # kept, as a lookup at each line is slow

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
            outcome = 0 if line in left.body else 1
            if left.loops:
                outcome = len(ITERATIONS) if outcome else state.get(left.line, 0)
                state[left.line] = outcome + 1
            if outcome < len(ITERATIONS):
                self.done.add((frame.f_code.co_filename, left.line, outcome))
        if (
            entered is not None
            and entered.loops
            and not entered.line <= before < entered.body.stop
        ):
            state[entered.line] = 0
        if not line:
            del self._frames[id(frame)]


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
        self._seen: BranchTrace | None = None
        self._tool: int | None = None

    @contextlib.contextmanager
    def call(self, kernel: Callable[..., Any]) -> Iterator[BranchTrace]:
        """Trace the calls within the block."""
        self._seen = seen = BranchTrace(kernel)
        home = str(getattr(kernel, "__module__", ""))
        root = home.partition(".")[
            0
        ]  # the kernel's own package counts, installed or not
        file = getattr(sys.modules.get(home), "__file__", None)
        if root not in self._homes and is_installed(file or ""):
            self._homes.add(root)
            if self._tool is not None:
                self._monitor.restart_events()
        if self._monitor is not None and self._tool is None:
            self._install()
        try:
            with contextlib.nullcontext() if self._monitor else self._tracing(seen):
                yield seen
        finally:
            self._seen = None

    def record(self, seen: BranchTrace, kernel: str, coverage: Coverage) -> None:
        """Add the trace of a case, and stop tracing functions whose outcomes are all covered."""
        coverage.add_function(kernel, seen.branches)
        coverage.done |= seen.done
        self._ran.setdefault(id(seen.kernel), (seen.kernel, set()))[1].update(
            seen.codes
        )
        for code, left in self._left.values():
            if left:
                left -= seen.done
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

    def _start(self, frame: FrameType, seen: BranchTrace) -> None:
        """Note that a function begins, and trace its lines."""
        code = frame.f_code
        file = frame.f_code.co_filename
        if id(code) not in self._left:
            outcomes = {
                (file, branch.line, outcome)
                for branch in branches_of(code).values()
                for outcome in range(len(SAYINGS[branch.loops]))
            }
            self._left[id(code)] = code, outcomes
            if self._tool is not None:
                events = self._monitor.events
                self._monitor.set_local_events(
                    self._tool, code, events.LINE | events.PY_RETURN
                )
        seen.start(frame)

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

    def _on_start(self, code: CodeType, offset: int) -> Any:
        if not self._is_own(frame := sys._getframe(1)):
            return self._monitor.DISABLE
        if self._seen is not None:
            self._start(frame, self._seen)
        return None

    def _on_event(self, code: CodeType, line: int, *returned: object) -> None:
        if self._seen is not None:
            self._seen.line(sys._getframe(1), 0 if returned else line)

    @contextlib.contextmanager
    def _tracing(self, seen: BranchTrace) -> Iterator[None]:
        """Trace by ``sys.settrace`` within the block.

        A kernel whose outcomes are all covered runs untraced: a trace slows down every call.
        """
        _, codes = self._ran.get(id(seen.kernel), (None, None))
        shown = codes is not None and not any(self._left[at][1] for at in codes)
        if shown or sys.gettrace() is not None:
            if not shown:
                self.unknown = (
                    "a debugger or a coverage tool traces; from Python 3.12 on both can"
                )
            yield
            return

        def local(frame: FrameType, event: str, _: object) -> Any:
            if event == "line":
                seen.line(frame, frame.f_lineno)
            elif event == "return":
                at = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
                if not frame.f_code.co_flags & inspect.CO_GENERATOR or at.startswith(
                    "RETURN_"
                ):
                    seen.line(frame, 0)
            return local

        def start(frame: FrameType, event: str, _: object) -> Any:
            if not self._is_own(frame):
                if frame.f_code.co_filename.endswith(_AFTERWARDS):
                    sys.settrace(None)
                return None
            if (
                frame.f_lineno == frame.f_code.co_firstlineno
            ):  # else a generator resumes
                self._start(frame, seen)
            return local

        start.of_kernels = True  # type: ignore[attr-defined] # the simulator pauses such traces
        sys.settrace(start)
        threading.settrace(start)
        try:
            yield
        finally:
            if (
                sys.gettrace() is start
            ):  # a breakpoint in the kernel may have started a debugger
                sys.settrace(None)
            threading.settrace(None)
