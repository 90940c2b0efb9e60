"""The process in which a kernel's Python runs: it loads one kernel, and runs it on what comes.

It is started by :class:`~difftest.verdict.nursery.Sandbox`, as an isolated Python in an empty
folder, and ends when the judge closes the pipe. It answers each request with one frame: of ``load``
what the kernel's file has; of ``trace`` what the kernel asks of the machine on some arrays, a tape
(:mod:`difftest.simulator.tape_json`), or how it failed; of ``coverage`` the branches that it took.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from difftest.backends.base import KernelCall, Ran, poisoned
from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.coverage import Coverage, Place, Watch, coverage_from_list
from difftest.harness.signature import signature_of
from difftest.host.naming import function_in, is_function
from difftest.simulator.dtypes import NKI_NAMES
from difftest.simulator.errors import KernelExit, NkiError
from difftest.simulator.frontend.install import embedded
from difftest.simulator.frontend.launchable import as_launchable
from difftest.simulator.tape import taping
from difftest.simulator.tape_json import tape_to_json
from difftest.verdict.closed import ClosedWorld
from difftest.verdict.language import SourceFile, is_special, own_name, plain_name
from difftest.verdict.walls import walled
from difftest.verdict.wire import Frame, array_of, is_plain, receive, send

SHOWN, FRAMES = 2_000, 6
"""Characters of an error that travel, and its innermost frames."""


class Printed(io.TextIOBase):
    """Standard output of a kernel: counted, and forgotten."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, text: str) -> int:
        self.count += len(text)
        return len(text)


class Service:
    """What a worker knows: a kernel, and who watches it."""

    def __init__(self) -> None:
        self.printed = Printed()
        self.kernel: Callable[[], Any] = lambda: None
        self.watch = Watch()
        self.taken = Coverage()
        self.ways: dict[Place, dict[int, set[int]]] = {}

    def answer(self, frame: Frame) -> Frame:
        """What comes of a request; whatever a kernel raises is part of it."""
        request = frame.header.get("request")
        try:
            if request == "load":
                answer = self.load(frame)
            elif request == "trace":
                answer = self.trace(frame)
            else:
                answer = Frame({"how": "told", "coverage": self.told().to_list()}, [])
        except BaseException as error:  # SystemExit and KeyboardInterrupt of the kernel's own, too
            answer = Frame(failure(error), [])
        return Frame({**answer.header, "printed": self.printed.count}, answer.blobs)

    def told(self) -> Coverage:
        """What was taken; of conditional expressions on a line what all of them were."""
        taken = coverage_from_list(self.taken.to_list())
        for place, ways in self.ways.items():
            if (*place, True) not in taken.forks:  # no loop begins there, too
                fork = {fact for fact in taken.done if fact[:2] == place}
                sets = [{(*place, what) for what in did} for did in ways.values()]
                taken.saw("", [(*place, False)])
                taken.done = taken.done - fork | set.intersection(*sets, *filter(None, [fork]))
        return taken

    def load(self, frame: Frame) -> Frame:
        """Run a candidate's files; what the judge may know of it."""
        header = frame.header
        sources = [
            SourceFile(name, file, is_package, text)
            for (name, file, is_package), text in zip(header["modules"], frame.blobs, strict=True)
        ]
        world = ClosedWorld(sources, header["allowed"], self.printed)
        self.ways, name, file = world.ways, own_name(header["name"]), sources[0].file
        self.kernel = lambda: function_in(world.first(), name, file)
        try:
            kernel = self.kernel()
        except LookupError as error:
            return Frame({"how": "usage", "error": str(error)}, [])
        return Frame(
            {"how": "loaded", **described(kernel, vars(world.modules[sources[0].name]))}, []
        )

    def trace(self, frame: Frame) -> Frame:
        fields = frame.header["call"]
        forms, blobs = fields["inputs"], frame.blobs
        inputs = tuple(array_of(form, blob) for form, blob in zip(forms, blobs, strict=True))
        kernel = self.kernel()
        call = KernelCall(
            kernel=kernel,
            inputs=inputs,
            outputs=tuple(poisoned(tuple(s), NKI_NAMES[name]) for s, name in fields["outputs"]),
            parameters={own_name(name): value for name, value in fields["parameters"].items()},
            grid=tuple(fields["grid"]),
            machine=fields["machine"],
            names=tuple(map(own_name, fields["names"])),
        )
        with self.watch.call(kernel) as seen, taping() as tapes:
            outcome = EmbeddedSimulator().run(call)
        if not isinstance(outcome, Ran):
            return Frame(failure(outcome.error, type(outcome).__name__.lower()), [])
        self.watch.learn(kernel, seen)
        seen.tell(fields["name"], self.taken)
        return Frame({"how": "ran"}, [tape_to_json(tapes[-1]).encode()])


def failure(error: BaseException, how: str = "crashed") -> dict[str, Any]:
    """What travels of an error: its class, its text, and whether it is a rule of the machine's."""
    if isinstance(error, MemoryError):
        how = "memory"
    text = str(error) if isinstance(error, (NkiError, AssertionError, KernelExit)) else ""
    if not text:
        lines = traceback.format_exception(error, limit=-FRAMES)
        text = "".join(lines if how != "memory" else lines[-1:]).strip()
    kind = type(error).__name__
    is_rule = isinstance(error, NkiError)
    return {"how": how, "kind": kind, "error": text[-SHOWN:], "is_rule": is_rule}


def described(kernel: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel's signature and dialect, and the names that its file has beside it."""
    own = {plain_name(name): value for name, value in names.items() if not is_special(name)}
    return {
        "dialect": as_launchable(kernel).dialect,
        "signature": parameters_of(kernel),
        "functions": {name: parameters_of(own[name]) for name in own if is_function(own[name])},
        "constants": {name: value for name, value in own.items() if is_plain(value)},
    }


def parameters_of(function: Any) -> list[list[Any]] | None:
    """Of each parameter its name, its kind, and its default in a list that JSON has."""
    if (shown := signature_of(function)) is None:
        return None
    rows = shown.parameters.values()
    return [[plain_name(row.name), row.kind.name, _default(row)] for row in rows]


def _default(parameter: inspect.Parameter) -> list[Any] | None:
    if parameter.default is parameter.empty:
        return None
    return [parameter.default] if is_plain(parameter.default) else []


def serve(way: Connection) -> None:
    """Answer until the judge has no more to ask."""
    sys.dont_write_bytecode = True
    first = receive(way)
    if first is None:
        return
    folder = first.header["folder"]
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    missing = walled(folder, first.header["memory"], first.header["seconds"])
    with embedded():
        service = Service()
        sys.stdout = sys.stderr = service.printed
        send(way, {"how": "ready", "missing": missing})
        while (frame := receive(way)) is not None:
            send(way, *service.answer(frame))
