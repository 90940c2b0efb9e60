"""The process in which a kernel's Python runs: it loads one kernel, and runs it on what comes.

It is started by :class:`~difftest.verdict.sandbox.Sandbox`, as an isolated Python in an empty
folder, and ends when the judge closes the pipe. It answers each request with one frame:

``load``
    FILE.py:KERNEL -> its signature, dialect and the other names of its file; or why it has none.
``trace``
    arrays and parameters -> what the kernel asks of the machine on them, a tape
    (:mod:`difftest.simulator.tape_json`); or how the kernel failed.
``coverage``
    -> the branches and loops that it took so far.

Nothing it says is believed without a check: a kernel can say anything in its own process.
"""

from __future__ import annotations

import inspect
import io
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any, BinaryIO

import click

from difftest.backends.base import KernelCall, Ran, poisoned
from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.coverage import Coverage
from difftest.harness.signature import signature_of
from difftest.harness.watching import Watch
from difftest.host.loading import load_kernel
from difftest.host.naming import is_function
from difftest.simulator.dtypes import NKI_NAMES
from difftest.simulator.errors import KernelExit, NkiError
from difftest.simulator.frontend.install import embedded
from difftest.simulator.frontend.launchable import as_launchable
from difftest.simulator.tape import taping
from difftest.simulator.tape_json import tape_to_json
from difftest.verdict.confinement import Hook, limit, without_network
from difftest.verdict.landlock import writes_only_in
from difftest.verdict.wire import Frame, array_of, read_frame, write_frame

SHOWN = 2_000
"""Characters of an error that travel."""
FRAMES = 6
"""The innermost of an error that travel."""


class Printed(io.TextIOBase):
    """Standard output of a kernel: counted, and forgotten."""

    def __init__(self) -> None:
        self.count = 0

    def write(self, text: str) -> int:
        self.count += len(text)
        return len(text)


class Service:
    """What a worker knows: a kernel, and who watches it."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.printed = Printed()
        self.kernel: Any = None
        self.watch = Watch()
        self.taken = Coverage()
        self.known = {*sys.modules}
        self.parts = parts_of_package()

    def answer(self, frame: Frame) -> Frame:
        """What comes of a request; whatever a kernel raises is part of it."""
        request = frame.header.get("request")
        try:
            if request == "load":
                found = self.load(**frame.header["kernel"])
            elif request == "trace":
                found = self.trace(frame)
            else:
                found = Frame({"how": "told", "coverage": self.taken.to_list()}, [])
        except BaseException as error:  # SystemExit and KeyboardInterrupt of the kernel's own, too
            found = Frame(failure(error), [])
        if any(space.get(name) is not part for space, name, part in self.parts):
            self.hook.denied["changes difftest, which simulates it"] = None
        header = {
            **found.header,
            "denied": [*self.hook.denied],
            "named": [*self.hook.named],
            "printed": self.printed.count,
            "modules": self.modules(),
        }
        return Frame(header, found.blobs)

    def modules(self) -> list[str]:
        """The files of the modules that the kernel has imported."""
        new = (sys.modules[name] for name in sys.modules.keys() - self.known)
        files = (getattr(module, "__file__", None) for module in new)
        return sorted(os.path.realpath(file) for file in files if isinstance(file, str))

    def load(self, file: str, name: str) -> Frame:
        """Import a kernel's file; what the judge may know of it."""
        self.hook.forget()
        try:
            self.kernel = load_kernel(f"{file}:{name}")
        except click.UsageError as error:
            return Frame({"how": "usage", "error": error.message}, [])
        except click.ClickException as error:
            how = "memory" if isinstance(error.__context__, MemoryError) else "crashed"
            return Frame({"how": how, "error": error.message[-SHOWN:]}, [])
        places = {getattr(one, "__file__", None): one for one in [*sys.modules.values()]}
        module = next(one for at, one in places.items() if at and os.path.realpath(at) == file)
        return Frame({"how": "loaded", **described(self.kernel, vars(module))}, [])

    def trace(self, frame: Frame) -> Frame:
        """Run the kernel once, on what the frame has: its tape."""
        given = frame.header["call"]
        forms, blobs = given["inputs"], frame.blobs
        inputs = tuple(array_of(form, blob) for form, blob in zip(forms, blobs, strict=True))
        call = KernelCall(
            kernel=self.kernel,
            inputs=inputs,
            outputs=tuple(poisoned(tuple(s), NKI_NAMES[name]) for s, name in given["outputs"]),
            parameters=given["parameters"],
            grid=tuple(given["grid"]),
            machine=given["machine"],
            names=tuple(given["names"]),
        )
        with self.watch.call(self.kernel) as seen, taping() as tapes:
            outcome = EmbeddedSimulator().run(call)
        if not isinstance(outcome, Ran):
            return Frame(failure(outcome.error, type(outcome).__name__.lower()), [])
        self.watch.learn(self.kernel, seen)
        seen.tell(given["name"], self.taken)
        changed = [
            one.tobytes() != blob and not any(one is other for other in outcome.written)
            for one, blob in zip(inputs, blobs, strict=True)
        ]
        return Frame({"how": "ran", "changed": changed}, [tape_to_json(tapes[-1]).encode()])


def parts_of_package() -> list[tuple[Mapping[str, Any], str, Any]]:
    """Where each function of this package stands: who changes one shows another kernel."""
    ours = [one for name, one in sys.modules.items() if name.partition(".")[0] == "difftest"]
    spaces: list[Mapping[str, Any]] = [vars(module) for module in ours]
    classes = {one for space in spaces for one in space.values() if isinstance(one, type)}
    spaces += [vars(one) for one in classes if one.__module__.startswith("difftest.")]
    return [(space, name, one) for space in spaces for name, one in space.items() if callable(one)]


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
    own = {name: one for name, one in names.items() if not name.startswith("__")}
    return {
        "dialect": as_launchable(kernel).dialect,
        "signature": parameters_of(kernel),
        "functions": {name: parameters_of(one) for name, one in own.items() if is_function(one)},
        "constants": {name: one for name, one in own.items() if is_plain(one)},
    }


def parameters_of(function: Any) -> list[list[Any]] | None:
    """Of each parameter its name, its kind, and its default in a list that JSON has."""
    shown = signature_of(function)
    rows = shown.parameters.values() if shown is not None else ()
    return None if shown is None else [[one.name, one.kind.name, _default(one)] for one in rows]


def _default(one: inspect.Parameter) -> list[Any] | None:
    if one.default is one.empty:
        return None
    return [one.default] if is_plain(one.default) else []


def is_plain(value: Any) -> bool:
    """Whether JSON has a value as it is."""
    return value is None or type(value) in (int, float, str, bool)


def private_streams() -> tuple[BinaryIO, BinaryIO]:
    """The pipes to the judge, taken from where a kernel's own reads and prints would go."""
    streams = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    return streams


def confined(settings: Mapping[str, Any]) -> tuple[Hook, list[str]]:
    """Limit this process and hook it; the limits that the system does not have."""
    folder = settings["folder"]
    os.chdir(folder)
    os.environ.update(HOME=folder, TMPDIR=folder)
    missing = [] if without_network() else ["network"]
    missing += [] if writes_only_in(folder) else ["writing"]
    missing += limit(settings["memory"], settings["file_size"])
    sys.path[:] = [*sys.path, *settings["path"]]
    return Hook(folder, tuple(settings["secret"])), missing


def serve() -> None:
    """Answer until the judge has no more to ask."""
    sys.dont_write_bytecode = True
    reader, writer = private_streams()
    first = read_frame(reader)
    if first is None:
        return
    hook, missing = confined(first.header)
    with embedded():
        service = Service(hook)
        sys.stdout = sys.stderr = service.printed
        sys.addaudithook(hook)
        write_frame(writer, {"how": "ready", "missing": missing})
        while (frame := read_frame(reader)) is not None:
            answer = service.answer(frame)
            write_frame(writer, answer.header, answer.blobs)
