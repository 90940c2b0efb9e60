"""The process in which a kernel's Python runs: it loads one kernel and answers requests.

A :class:`~difftest.tools.verdict.fork_server.Sandbox` starts it as an isolated Python in an empty
folder. It ends when the judge closes the pipe. It answers each request with one frame:

- ``load``: the signature, functions and constants of the kernel's file;
- ``trace``: the tape of a launch (:mod:`difftest.simulator.tape_json`), or how it failed;
- ``coverage``: the branches that the kernel took.

The kernel can import its own files, NKI, and a list of further names. The worker runs the files'
text that the judge has read and checked, and reads no file itself.

The branches of statements come from the tracer that all tools share
(:mod:`difftest.testing.harness.tracer`). Conditions in expressions need :func:`instrument`, because
a tracer does not see them all. ``sys.monitoring`` reports a branch only where the bytecode jumps:
it misses ``start=(k == 0)``, whose value a kernel passes on. Before Python 3.12 there are no branch
events, and neither version reports the value that a comparison gave.
"""

from __future__ import annotations

import ast
import inspect
import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Set
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import numpy as np

from difftest.simulator.core import SINGLE_TURN
from difftest.simulator.dtypes import NKI_NAMES
from difftest.simulator.entry.install import embedded
from difftest.simulator.errors import (
    KernelExit,
    NkiError,
    recording_errors,
    set_to,
)
from difftest.simulator.frontend.launchable import as_launchable
from difftest.simulator.launch_listeners import recording_tapes
from difftest.simulator.tape_json import TapeFormatError, check_size, tape_to_json
from difftest.support.signature import signature_of
from difftest.support.tracebacks import without_files
from difftest.testing.backends.base import Completed, KernelCall, poisoned_array
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.harness.coverage import Coverage, coverage_from_list
from difftest.testing.harness.tracer import BranchTracer
from difftest.testing.host.naming import function_in, is_function
from difftest.tools.verdict.confinement import confine
from difftest.tools.verdict.sources import SourceFile
from difftest.tools.verdict.wire import (
    Frame,
    array_of,
    decode_value,
    is_plain,
    receive,
    send,
)
from difftest.tools.verdict.world.guard import MARK
from difftest.tools.verdict.world.loader import CandidateModules
from difftest.tools.verdict.world.refusal import (
    C_CODE_KEEPS_TRACEBACKS,
    INTERNAL,
    STATE,
    Absent,
    OutsideLanguageError,
    is_special,
)


def instrument(tree: ast.Module, file: str) -> ast.Module:
    """Instrument the conditions in a function's expressions so that they record their truth."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.Lambda))
    ]
    nodes = {node for function in functions for node in ast.walk(function)}
    conditions = _conditions(nodes)
    for node in nodes:
        if isinstance(node, ast.Match):
            _record_cases(node, file)
    for node in nodes:
        _record_conditions(node, conditions, file)
    return ast.fix_missing_locations(tree)


def _conditions(nodes: Set[ast.AST]) -> set[ast.AST]:
    """Return the expressions that decide which other expressions run.

    The condition of a statement is not among them: the lines that run show its result.
    """
    conditions: set[ast.AST] = set()
    parts: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.Compare):
            conditions.add(node)
        elif isinstance(node, ast.comprehension):
            conditions.update(node.ifs)
        elif isinstance(node, ast.IfExp):
            conditions.add(node.test)
        elif isinstance(node, (ast.If, ast.While, ast.Assert)):
            parts.update(ast.walk(node.test))
        elif isinstance(node, ast.BoolOp) and _may_be_mask(node):
            # No call may come between the comparisons of a mask.
            conditions.add(node)
            parts.update(node.values)
        elif isinstance(node, ast.BoolOp):
            conditions.update(node.values[:-1])
    return conditions - parts


def _may_be_mask(node: ast.BoolOp) -> bool:
    """Return whether an expression joins comparisons alone."""
    return {type(value) for value in node.values} == {ast.Compare}


def _record_cases(node: ast.Match, file: str) -> None:
    """Let the guard of each case record whether the case is taken.

    The subject records a false for each case first, as a pattern that fails runs no guard.
    """
    cases = [case for case in node.cases if not isinstance(case.body[-1], ast.Raise)]
    untaken: list[ast.expr] = [
        _recorded(ast.Constant(False), case.pattern, file) for case in cases
    ]
    for case in cases:
        case.guard = _recorded(case.guard or ast.Constant(True), case.pattern, file)
    all_of = ast.Tuple([*untaken, node.subject], ast.Load())
    node.subject = ast.Subscript(all_of, ast.Constant(-1), ast.Load())


def _record_conditions(node: ast.AST, conditions: Set[ast.AST], file: str) -> None:
    """Let the conditions among the fields of a node record their truth."""

    def recorded(value: Any) -> Any:
        if isinstance(value, ast.expr) and value in conditions:
            return _recorded(value, value, file)
        return value

    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            setattr(node, name, [recorded(each) for each in value])
        else:
            setattr(node, name, recorded(value))


def _recorded(node: ast.expr, at: ast.expr | ast.pattern, file: str) -> ast.expr:
    """Return a call that records the truth of an expression, and returns its value."""
    place = [ast.Constant(part) for part in (file, at.lineno, at.col_offset)]
    call = ast.Call(ast.Name(MARK, ast.Load()), [node, *place], [])
    return ast.copy_location(call, at)


_IMPORTS = "let the kernel need no module but those that the language has"
_MESSAGES = (NkiError, AssertionError, KernelExit, TapeFormatError)
"""The errors whose text says enough without a traceback."""
SHOWN = 2_000
"""The characters of an error that a worker sends."""
SHOWN_LINE = 200
"""The characters of the first line of an error that a worker sends."""


class DiscardedOutput(io.TextIOBase):
    """The standard output of a kernel: characters are counted and discarded."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, text: str) -> int:
        self.count += len(text)
        return len(text)


class WorkerService:
    """The state of a worker: the kernel, its coverage and its output."""

    def __init__(self) -> None:
        self.printed = DiscardedOutput()
        self.kernel: Callable[[], Any] = lambda: None
        self.lasting: Any = None
        """The kernel of modules that keep their state between runs."""
        self.watch = BranchTracer()
        self.taken = Coverage()
        self.ways: dict[tuple[str, int], dict[int, set[int]]] = {}
        """Line -> column of each condition there -> the truth values that it had."""

    def answer(self, frame: Frame) -> Frame:
        """Return the answer to a request; an error of the kernel becomes part of the answer."""
        request = frame.header.get("request")
        STATE.refused = None
        try:
            if request == "load":
                answer = self.load(frame)
            elif request == "trace":
                answer = self.trace(frame)
            else:
                answer = Frame(
                    {"how": "covered", "coverage": self.covered().to_list()}, []
                )
        # SystemExit and KeyboardInterrupt of the kernel's own, too
        except BaseException as error:
            answer = Frame(failure(error), [])
        if STATE.refused is not None:
            answer = Frame(outside(STATE.refused), [])
        return Frame({**answer.header, "printed": self.printed.count}, answer.blobs)

    def covered(self) -> Coverage:
        """Return the coverage; expressions on one line count only truth values that all had."""
        taken = coverage_from_list(self.taken.to_list())
        loops = {fork[:2] for fork in taken.branches if fork[2]}
        for place, ways in self.ways.items():
            if place not in loops:  # none begins there, too
                fork = {fact for fact in taken.covered if fact[:2] == place}
                sets = [{(*place, what) for what in did} for did in ways.values()]
                taken.add_function("", [(*place, False)])
                if fork:
                    sets.append(fork)
                taken.covered = taken.covered - fork | set.intersection(*sets)
        return taken

    def load(self, frame: Frame) -> Frame:
        """Run a candidate's files, and return the description of its kernel."""
        header = frame.header
        sources = [
            SourceFile(name, file, is_package, text)
            for (name, file, is_package), text in zip(
                header["modules"], frame.blobs, strict=True
            )
        ]
        self.ways = {}
        world = CandidateModules(
            sources,
            header["allowed"],
            self.printed.write,
            instrument,
            {MARK: self.record_way},
            header["faults"],
        )
        name = header["name"]
        file = sources[0].file
        module = world.first()
        found = vars(module).get(name)
        if type(found) is Absent:
            return Frame(
                outside(OutsideLanguageError(f"{found!r}", _IMPORTS, file, 1)), []
            )
        self.kernel = lambda: function_in(plain_module(world.first()), name, file)
        try:
            kernel = self.lasting = function_in(plain_module(module), name, file)
        except LookupError as error:
            return Frame({"how": "usage", "error": str(error)}, [])
        described = describe_kernel(kernel, vars(world.modules[sources[0].name]))
        return Frame({"how": "loaded", **described, "asked": sorted(STATE.asked)}, [])

    def record_way(self, test: Any, file: str, line: int, column: int) -> Any:
        """Return a condition's value, and record its truth unless it is an array or a tensor."""
        is_tensor = type(test).__module__.startswith("difftest.")
        if not is_tensor and not isinstance(test, (np.ndarray, Absent)):
            place = self.ways.setdefault((file, line), {})
            place.setdefault(column, set()).add(int(not test))
        return test

    def trace(self, frame: Frame) -> Frame:
        """Run the kernel on the inputs of a request, and return its tape, or how it failed."""
        fields = frame.header["call"]
        forms = fields["inputs"]
        blobs = frame.blobs
        inputs = tuple(
            array_of(form, blob) for form, blob in zip(forms, blobs, strict=True)
        )
        STATE.begin_run(is_inverted=fields["is_inverted"])
        kernel = self.kernel() if fields["anew"] else self.lasting
        STATE.begin_kernel()
        call = KernelCall(
            kernel=kernel,
            inputs=inputs,
            outputs=tuple(
                poisoned_array(tuple(s), NKI_NAMES[name])
                for s, name in fields["outputs"]
            ),
            parameters={
                name: decode_value(of) for name, of in fields["parameters"].items()
            },
            grid=tuple(fields["grid"]),
            machine=fields["machine"],
            names=tuple(fields["names"]),
        )
        with (
            set_to(SINGLE_TURN, fields["single_turn"]),
            self.watch.call(kernel) as seen,
            recording_tapes() as tapes,
            recording_errors() as errors,
        ):
            outcome = EmbeddedSimulator().run(call)
        if not isinstance(outcome, Completed):
            return Frame(failure(outcome.error, type(outcome).__name__.lower()), [])
        if (swallowed := swallowed_error(errors)) is not None:
            return Frame(failure(swallowed, "rejected"), [])
        self.watch.record(seen, fields["name"], self.taken)
        text = tape_to_json(tapes[-1])
        try:
            check_size(text)
        except TapeFormatError as error:
            return Frame(failure(error, "unsupported"), [])
        return Frame({"how": "ran"}, [text.encode()])


def swallowed_error(errors: Iterable[NkiError]) -> NkiError | None:
    """Return the first error that was raised in a candidate's code; None without one.

    After a completed run, C code has handled it: NumPy and Python ignore some errors of the methods
    that they call.
    """
    for error in errors:
        frames = traceback.walk_tb(error.__traceback__)
        if any(frame.f_code.co_filename in STATE.files for frame, _ in frames):
            return error
        if not C_CODE_KEEPS_TRACEBACKS and (
            error.__traceback__ is None or error in STATE.rejections
        ):
            return error
    return None


def failure(error: BaseException, how: str = "crashed") -> dict[str, Any]:
    """Return an error as a header: its class, its text, and whether it is a rule of the machine."""
    if isinstance(error, MemoryError):
        how = "memory"
    is_message = isinstance(error, _MESSAGES)
    text = str(error) if is_message else ""
    if not text:
        lines = [
            line
            for line in traceback.format_exception(
                error.with_traceback(without_files(error))
            )
            if not line.lstrip(" |").startswith(INTERNAL)  # a note of the guards
        ]
        text = "".join(lines if how != "memory" else lines[-1:]).strip()
    is_rule = isinstance(error, NkiError)
    first = next(iter(str(error).splitlines()), "")
    return {
        "how": how,
        "kind": type(error).__name__,
        "message": first[:SHOWN_LINE],
        "error": text[-SHOWN:],
        "is_rule": is_rule,
    }


def outside(refused: OutsideLanguageError) -> dict[str, Any]:
    """Return a refusal as a header: its line, what was reached, and the remedy."""
    return {
        "how": "outside",
        "file": refused.file,
        "line": refused.line,
        "error": refused.what,
        "remedy": refused.remedy,
    }


def plain_module(module: ModuleType) -> ModuleType:
    """Return an ordinary module with the names of a candidate's module."""
    plain = ModuleType(module.__name__)
    vars(plain).update(own_names(vars(module)))
    return plain


def own_names(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names that a candidate's file binds."""
    return {
        name: value
        for name, value in names.items()
        if not is_special(name)
        and not name.startswith(INTERNAL)
        and type(value) is not Absent
    }


def describe_kernel(kernel: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kernel's signature and dialect, and the functions and constants of its file."""
    own = own_names(names)
    return {
        "dialect": as_launchable(kernel).dialect,
        "signature": parameters_of(kernel),
        "functions": {
            name: parameters_of(own[name]) for name in own if is_function(own[name])
        },
        "constants": {name: value for name, value in own.items() if is_plain(value)},
    }


def parameters_of(function: Any) -> list[list[Any]] | None:
    """Return the name, kind and default of each parameter; None without a signature."""
    if (shown := signature_of(function)) is None:
        return None
    rows = shown.parameters.values()
    return [[row.name, row.kind.name, _default(row)] for row in rows]


def _default(parameter: inspect.Parameter) -> list[Any] | None:
    if parameter.default is parameter.empty:
        return None
    return [parameter.default] if is_plain(parameter.default) else []


def serve_requests(connection: Connection) -> None:
    """Answer requests until the judge closes the connection."""
    sys.dont_write_bytecode = True
    first = receive(connection)
    if first is None:
        return
    folder = first.header["folder"]
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    missing = confine(folder, first.header["memory"], first.header["seconds"])
    with embedded():
        service = WorkerService()
        sys.stdout = sys.stderr = service.printed
        # the simulator's warnings are not a kernel's output
        warnings.simplefilter("ignore")
        send(connection, {"how": "ready", "missing": missing})
        while (frame := receive(connection)) is not None:
            send(connection, *service.answer(frame))
