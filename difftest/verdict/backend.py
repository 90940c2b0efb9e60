"""The backend that runs a candidate: its worker traces it, and what comes back is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from difftest.backends.base import Crashed, KernelCall, Outcome, Ran, Rejected, Unsupported
from difftest.simulator.dtypes import Array, name_of
from difftest.simulator.trace import Trace
from difftest.simulator.trace_json import TraceFormatError, trace_from_json
from difftest.verdict.outcome import Outcome as Judged
from difftest.verdict.sandbox import Sandbox, WorkerEnd
from difftest.verdict.wire import Frame, WireError, array_of, form_of

_HOW: dict[str, Callable[[BaseException], Outcome]] = {
    "rejected": Rejected,
    "unsupported": Unsupported,
    "crashed": Crashed,
}


class KernelFailure(Exception):
    """What a kernel raised in its worker: its text, and whether a rule of the machine raised it."""

    is_rule = False


class CheatError(Exception):
    """A kernel does what no kernel needs, or what it gives back is not of its instructions.

    Attributes
    ----------
    what : the id of the check that found it.
    """

    def __init__(self, what: str, text: str) -> None:
        super().__init__(text)
        self.what = what


class CandidateBackend:
    """Runs the kernel that a worker has loaded, on the data of each call.

    Attributes
    ----------
    named : what the kernel was seen to do in its worker and may do, in words.
    printed : characters that it has printed.
    """

    name = "embedded"
    description = "the embedded simulator, of a kernel in a process of its own"

    def __init__(self, worker: Sandbox) -> None:
        self.worker = worker
        self.named: tuple[str, ...] = ()
        self.printed = 0

    def run(self, call: KernelCall) -> Outcome:
        """Trace the kernel on the call, and give what its instructions compute.

        Raises
        ------
        CheatError : the kernel does what no kernel needs.
        WorkerEnd : it has no process any more.
        """
        answer = self.ask(call, call.inputs)
        how = answer.header.get("how")
        if how == "ran":
            return self._ran(call, answer)
        if how == "memory":
            raise WorkerEnd(Judged.OUT_OF_MEMORY, "it takes more memory than it is given")
        return _HOW.get(str(how), Crashed)(_error(answer.header))

    def ask(self, call: KernelCall, inputs: tuple[Array, ...]) -> Frame:
        """The answer to a call with these inputs in the place of its own."""
        header = {
            "name": str(getattr(call.kernel, "__name__", "")),
            "inputs": [form_of(one) for one in inputs],
            "outputs": [form_of(one) for one in call.outputs],
            "parameters": dict(call.parameters),
            "grid": list(call.grid),
            "machine": call.machine,
            "names": list(call.names),
        }
        blobs = [one.tobytes() for one in inputs]
        answer = self.worker.ask({"request": "trace", "call": header}, blobs)
        self.note(answer.header)
        return answer

    def note(self, header: Mapping[str, Any]) -> None:
        """Keep what the worker saw its kernel do.

        Raises
        ------
        CheatError : it did what no kernel needs.
        """
        self.named = tuple(map(str, header.get("named", ())))
        self.printed = max(self.printed, int(header.get("printed", 0)))
        for what in header.get("denied", ()):
            raise CheatError("forbidden", f"it {what}")
        if any(header.get("changed", ())):
            raise CheatError("host-write", "its Python writes to an input, by no instruction")

    def _ran(self, call: KernelCall, answer: Frame) -> Outcome:
        trace, outputs, masks = result_of(answer)
        if call.outputs:
            for own, array in zip(call.outputs, outputs, strict=False):
                own[...] = array
            outputs = call.outputs
        return Ran(outputs, masks, trace if call.record else None)


def result_of(answer: Frame) -> tuple[Trace, tuple[Array, ...], tuple[Array | None, ...]]:
    """The trace, the outputs and their masks in an answer.

    Raises
    ------
    WorkerEnd : it has none: the worker breaks the protocol.
    """
    try:
        text, *blobs = answer.blobs
        trace = trace_from_json(text.decode())
        forms = list(answer.header["outputs"])
        masks = list(answer.header["unwritten"])
        arrays = [array_of(form, blob) for form, blob in zip(forms, blobs, strict=False)]
        rest = iter(blobs[len(forms) :])
        gaps = tuple(None if form is None else array_of(form, next(rest)) for form in masks)
    except (TraceFormatError, WireError, ValueError, KeyError, TypeError, StopIteration) as error:
        said = f"its process answers with no run: {error!s:.200}"
        raise WorkerEnd(Judged.CRASHED, said) from None
    return trace, tuple(arrays), gaps


def _error(header: Mapping[str, Any]) -> KernelFailure:
    """An error of the name and the text that travelled."""
    kind = str(header.get("kind", ""))
    made = type(kind, (KernelFailure,), {}) if kind.isidentifier() else KernelFailure
    error: KernelFailure = made(str(header.get("error", "")))
    error.is_rule = bool(header.get("is_rule"))
    return error


def shape_of(call: KernelCall) -> str:
    """What two calls share whose instructions are the same, unless the kernel follows data."""
    arrays = [(one.shape, name_of(one.dtype)) for one in (*call.inputs, *call.outputs)]
    return repr((arrays, sorted(call.parameters.items()), call.grid, call.machine))
