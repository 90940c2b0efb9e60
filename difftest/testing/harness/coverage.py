"""Which branches and loops of the kernels' own code no case took: a bug there would not be seen.

A fork is an ``if`` or a loop whose body stands on lines of its own, so that the lines that run tell
what happened there. Conditional expressions and comprehensions are none. Watched is a kernel's own
code: its file, its package, and what else is no library.

From Python 3.12 on ``sys.monitoring`` tells, beside any debugger or coverage tool. A function whose
forks have shown all that they can is watched no longer, so that a session soon pays nothing.

Before that there is ``sys.settrace``, where nobody else traces. Every call of any function costs
then, so that the simulator turns it off within itself.
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

TURNS = ("it never ran", "never a second turn", "never a third turn")
BRANCHES = ("never true", "never false")
SAYINGS = {True: TURNS, False: BRANCHES}
"""What is said of what loops and made no turn, or one, or two; and of a branch that was always
passed over, or always taken."""
_MONITORING: Any = getattr(sys, "monitoring", None)
_TOOL = "difftest"
_AFTERWARDS = os.path.join("difftest", "inspection", "inspector.py")
"""What looks at a launch when the kernel has run."""
FREE_TOOLS = (5, 4)
"""Ids of ``sys.monitoring``: that of optimizers, and one that has no name, which HypoFuzz takes."""


class Branch(NamedTuple):
    """An ``if`` or a loop: the line where it begins, and those of its body."""

    line: int
    body: range
    loops: bool


def branches_of(code: CodeType) -> dict[int, Branch]:
    """The forks of a function, by each line of their heads."""
    return _forks_at(code.co_filename, code)


@functools.cache
def _forks_at(file: str, code: CodeType) -> dict[int, Branch]:
    """With the file, for code that is equal in two files."""
    lines = {line for *_, line in code.co_lines() if line is not None}
    return {line: fork for line, fork in _forks_in(file).items() if line in lines}


@functools.cache
def _forks_in(file: str) -> dict[int, Branch]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    forks: dict[int, Branch] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.While, ast.For)) and not _is_settled(node):
            head = node.iter if isinstance(node, ast.For) else node.test
            last = head.end_lineno or head.lineno
            body = range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
            if body.start > last:
                fork = Branch(node.lineno, body, not isinstance(node, ast.If))
                forks.update(dict.fromkeys(range(node.lineno, last + 1), fork))
    return forks


def _is_settled(node: ast.If | ast.While | ast.For) -> bool:
    """Whether no case has a say: a loop over constants, or a refusal, which rejections demand."""
    if isinstance(node, ast.For):
        parts = node.iter.args if isinstance(node.iter, ast.Call) else [node.iter]
        is_row = isinstance(node.iter, (ast.Tuple, ast.List))
        return is_row or (bool(parts) and all(isinstance(part, ast.Constant) for part in parts))
    return isinstance(node.test, ast.Constant) or isinstance(node.body[-1], ast.Raise)


@dataclass
class Coverage:
    """What cases did at the forks of the code that they ran: facts, each a row of a table.

    ``forks`` are (file, line, whether it loops, kernel that ran its function); what is ``done`` is
    (file, line, index of ``BRANCHES`` or ``TURNS``) and not to be said of it; ``unknown`` says why
    nothing is known of some cases; what was ``tried`` at a branch is (file, line, how far from its
    condition, in words).
    """

    branches: set[tuple[str, int, bool, str]] = field(default_factory=set)
    done: set[tuple[str, int, int]] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    tried: set[tuple[str, int, int, str]] = field(default_factory=set)

    def add_function(self, kernel: str, forks: Collection[tuple[str, int, bool]]) -> None:
        """A kernel ran functions with these forks."""
        self.branches.update((*fork, kernel) for fork in forks)

    def merge(self, other: Coverage, names: Mapping[str, str] | None = None) -> None:
        """Add what other cases did, with other names for some kernels."""
        forks = {(*fork, (names or {}).get(kernel, kernel)) for *fork, kernel in other.branches}
        for name, facts in vars(self).items():
            facts.update({**vars(other), "forks": forks}[name])

    def to_list(self) -> list[Any]:
        """What travels as JSON; :func:`coverage_from_list` takes it."""
        return [sorted(facts) for facts in vars(self).values()]


def coverage_from_list(document: list[Any]) -> Coverage:
    """What :meth:`Coverage.to_list` wrote."""
    tables: list[Any] = [{r if isinstance(r, str) else tuple(r) for r in rows} for rows in document]
    return Coverage(*tables)


class UncoveredBranch(NamedTuple):
    """What no case did at a fork: the first thing that never happened there.

    ``kernels`` ran its function; ``file`` is from the working directory, ``source`` the line;
    ``tried`` is what came nearest to a branch, where that is known.
    """

    file: str
    line: int
    kernels: tuple[str, ...]
    what: str
    source: str
    tried: str = ""


def uncovered_branches(coverage: Coverage) -> list[UncoveredBranch]:
    """What no case did, by file and line. Of a loop without a second turn a third is not said."""
    from difftest.simulator.errors import relative_path  # a run without a backend is spared NumPy

    ran = defaultdict[Any, list[str]](list)
    places = list[UncoveredBranch]()
    tried = {tuple(at): text for *at, _, text in sorted(coverage.tried, reverse=True)}
    for *fork, kernel in sorted(coverage.branches):
        ran[tuple(fork)].append(kernel)
    for (file, line, loops), kernels in ran.items():
        texts = enumerate(SAYINGS[loops])
        left = [text for what, text in texts if (file, line, what) not in coverage.done]
        source = linecache.getline(file, line).strip()
        for what in left[: 1 if loops else None]:
            nearest = "" if loops else tried.get((file, line), "")
            places.append(
                UncoveredBranch(relative_path(file), line, tuple(kernels), what, source, nearest)
            )
    return places


class BranchTrace:
    """What one run of a kernel did: ``forks`` and what is ``done`` as :class:`Coverage` has it."""

    def __init__(self, kernel: Callable[..., Any]) -> None:
        # by ``id``, those that have forks
        self.kernel = kernel
        self.codes = set[int]()
        self.branches: set[tuple[str, int, bool]] = set()
        self.done: set[tuple[str, int, int]] = set()
        self._frames: dict[int, tuple[dict[int, Branch], dict[int, int]]] = {}
        """By ``id`` their forks, and at 0 the line that runs, at a loop's line its turns so far."""

    def start(self, frame: FrameType) -> None:
        """A function begins."""
        forks = branches_of(frame.f_code)
        file = frame.f_code.co_filename
        self.codes.add(id(frame.f_code))
        self.branches.update((file, fork.line, fork.loops) for fork in forks.values())
        self._frames[id(frame)] = forks, {0: 0}  # to ask for them at each line takes longer

    def line(self, frame: FrameType, line: int) -> None:
        """A line of a function is about to run; 0 where it returns."""
        if id(frame) not in self._frames:
            return  # it began before anybody watched
        forks, state = self._frames[id(frame)]
        before = state[0]
        state[0] = line
        left = forks.get(before)
        fork = forks.get(line)
        if left is not None and left is not fork:
            what = 0 if line in left.body else 1
            if left.loops:
                what = len(TURNS) if what else state.get(left.line, 0)
                state[left.line] = what + 1
            if what < len(TURNS):
                self.done.add((frame.f_code.co_filename, left.line, what))
        if fork is not None and fork.loops and not fork.line <= before < fork.body.stop:
            state[fork.line] = 0
        if not line:
            del self._frames[id(frame)]


class BranchTracer:
    """Watches calls of kernels, one at a time; ``unknown`` says why it cannot, or is empty.

    ``monitoring`` is ``sys.monitoring``, or None for ``sys.settrace``, as in Pythons that lack it.
    """

    def __init__(self, monitoring: Any = _MONITORING) -> None:
        self._monitor = monitoring
        self.unknown = ""
        self._homes: set[str] = set()
        self._left: dict[int, tuple[CodeType, set[tuple[str, int, int]]]] = {}
        """By ``id`` the codes that ran, and what their forks have not shown."""
        self._ran: dict[int, tuple[Callable[..., Any], set[int]]] = {}
        """By ``id``, as not all have a hash, kernels that ran to their end, with their codes."""
        self._seen: BranchTrace | None = None
        self._tool: int | None = None

    @contextlib.contextmanager
    def call(self, kernel: Callable[..., Any]) -> Iterator[BranchTrace]:
        """Watch what is called within the scope."""
        self._seen = seen = BranchTrace(kernel)
        home = str(getattr(kernel, "__module__", ""))
        root = home.partition(".")[0]  # the kernel's own package counts, installed or not
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
        """Add what a case of a kernel did; functions with no more to show are left alone."""
        coverage.add_function(kernel, seen.branches)
        coverage.done |= seen.done
        self._ran.setdefault(id(seen.kernel), (seen.kernel, set()))[1].update(seen.codes)
        for code, left in self._left.values():
            if left:
                left -= seen.done
                if not left and self._tool is not None:
                    self._monitor.set_local_events(self._tool, code, 0)

    def close(self) -> None:
        """Watch no more."""
        if self._tool is not None:
            for code, _ in self._left.values():
                self._monitor.set_local_events(self._tool, code, 0)
            self._monitor.set_events(self._tool, 0)
            self._monitor.free_tool_id(self._tool)
            self._tool = None

    def _is_own(self, frame: FrameType) -> bool:
        """Whether its function is the author's, and has forks that have not shown all."""
        code = frame.f_code
        file = frame.f_code.co_filename
        if id(code) in self._left:
            return bool(self._left[id(code)][1])
        if code.co_name.startswith("<") or is_library(file):
            return False
        root = str(frame.f_globals.get("__name__")).partition(".")[0]
        return (root in self._homes or not is_installed(file)) and bool(branches_of(code))

    def _start(self, frame: FrameType, seen: BranchTrace) -> None:
        code = frame.f_code
        file = frame.f_code.co_filename
        if id(code) not in self._left:
            forks = branches_of(code).values()
            left = {(file, of.line, n) for of in forks for n in range(len(SAYINGS[of.loops]))}
            self._left[id(code)] = code, left
            if self._tool is not None:
                events = self._monitor.events
                self._monitor.set_local_events(self._tool, code, events.LINE | events.PY_RETURN)
        seen.start(frame)

    def _install(self) -> None:
        free = [tool for tool in FREE_TOOLS if self._monitor.get_tool(tool) is None]
        if not free:
            self.unknown = "other tools take all places of sys.monitoring"
            return
        self._tool, events = free[0], self._monitor.events
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
        """Every call costs while somebody traces: a kernel that has shown all goes untraced."""
        _, codes = self._ran.get(id(seen.kernel), (None, None))
        shown = codes is not None and not any(self._left[at][1] for at in codes)
        if shown or sys.gettrace() is not None:
            if not shown:
                self.unknown = "a debugger or a coverage tool traces; from Python 3.12 on both can"
            yield
            return

        def local(frame: FrameType, event: str, _: object) -> Any:
            if event == "line":
                seen.line(frame, frame.f_lineno)
            elif event == "return":
                at = opcode.opname[frame.f_code.co_code[frame.f_lasti]]
                if not frame.f_code.co_flags & inspect.CO_GENERATOR or at.startswith("RETURN_"):
                    seen.line(frame, 0)
            return local

        def start(frame: FrameType, event: str, _: object) -> Any:
            if not self._is_own(frame):
                if frame.f_code.co_filename.endswith(_AFTERWARDS):
                    sys.settrace(None)
                return None
            if frame.f_lineno == frame.f_code.co_firstlineno:  # else a generator goes on
                self._start(frame, seen)
            return local

        start.of_kernels = True  # type: ignore[attr-defined] # the simulator spares itself
        sys.settrace(start)
        threading.settrace(start)
        try:
            yield
        finally:
            if sys.gettrace() is start:  # a breakpoint in the kernel starts a debugger
                sys.settrace(None)
            threading.settrace(None)
