"""The backend that runs a candidate: its worker says what it asks of the machine, and we do that.

The worker never sees the data that count. It runs the kernel on :mod:`~difftest.verdict.backend`,
and sends the tape of that launch (:mod:`difftest.simulator.tape`). The tape is replayed here, on
the data of the case, by the ordinary simulator: exact run, detectors and trace are those of any
launch. What a kernel computed in Python stands on the tape as a number, of the wrong data.
"""

from __future__ import annotations

import dataclasses
import linecache
import os
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from difftest.backends.base import Crashed, KernelCall, Outcome, Ran, Rejected, Unsupported
from difftest.backends.embedded import EmbeddedSimulator
from difftest.harness.case import Case
from difftest.simulator.dtypes import BOOL, INTEGERS, Array, is_float, name_of
from difftest.simulator.replay import ReplayError, replayed
from difftest.simulator.tape import Tape
from difftest.simulator.tape_json import TapeFormatError, tape_from_json
from difftest.verdict.nursery import Sandbox
from difftest.verdict.outcome import Outcome as Judged
from difftest.verdict.wire import Frame, WorkerEnd, form_of


class Shown(Enum):
    """How much of the data of a case a kernel's Python is shown."""

    NOTHING = "nothing"
    """Other floats, and other integers within the bounds of those that there are."""
    INTEGERS = "integers"
    """Other floats. Registers that are loaded from integers hold what they will."""
    ALL = "all"
    """The data themselves: registers follow what the kernel computes from floats."""


def decoys(arrays: tuple[Array, ...], shown: Shown, seed: int) -> tuple[Array, ...]:
    """Arrays of the same shapes and dtypes; their own memory."""
    random = np.random.default_rng(seed)

    def other(array: Array) -> Array:
        if shown is Shown.ALL or not array.size:
            return array.copy()
        if is_float(array.dtype):
            values = random.uniform(0.5, 2.0, array.shape) * random.choice((-1, 1), array.shape)
            return values.astype(np.float32).astype(array.dtype)
        if shown is Shown.NOTHING and array.dtype in (*INTEGERS, BOOL):
            return _integers(array, random)
        return array.copy()

    return tuple(map(other, arrays))


def _integers(array: Array, random: np.random.Generator) -> Array:
    """Others within the bounds of those that there are; of a single value a few more."""
    low, high = int(array.min()), int(array.max())
    most = 1 if array.dtype == BOOL else int(np.iinfo(array.dtype).max)
    high = min(high + 3 * (low == high), most)
    low -= low == high  # the largest that there is, and True
    return random.integers(low, high, array.shape, array.dtype, endpoint=True)


def near(arrays: tuple[Array, ...], *, integers: bool, share: float) -> tuple[Array, ...]:
    """Arrays of which about a share of the elements are others, of the same size and bounds.

    Registers that hold some elements may well hold the same of these, and do where the integers
    are left as they are.
    """
    random = np.random.default_rng()
    integers = integers or not any(is_float(array.dtype) for array in arrays)

    def partly(array: Array) -> Array:
        changed = array.copy()
        chosen = random.random(array.shape) < share
        if is_float(array.dtype):
            wide, factors = array.astype(np.float64), random.uniform(0.5, 2.0, array.shape)
            with np.errstate(over="ignore", invalid="ignore"):
                others = np.where(wide == 0, factors, wide * factors).astype(np.float32)
                changed[chosen] = others.astype(array.dtype)[chosen]
        elif integers and array.dtype in (*INTEGERS, BOOL) and array.size:
            changed[chosen] = _integers(array, random)[chosen]
        return changed

    return tuple(map(partly, arrays))


def reseeded(case: Case, seed: int) -> Case:
    """The case with random data of the same kinds from other seeds.

    Hidden weights of a fixed recipe are others then, and so are the data of a spec's examples.
    """
    data: dict[str, Any] = dict(case.data)
    for name, recipe in data.items():
        own = getattr(recipe, "seed", None)
        if own is not None:
            mixed = np.random.default_rng((seed, own)).integers(2**16)
            data[name] = dataclasses.replace(recipe, seed=int(mixed))
    return dataclasses.replace(case, data=data)


_HOW: dict[str, Callable[[BaseException], Outcome]] = {
    "rejected": Rejected,
    "unsupported": Unsupported,
    "crashed": Crashed,
}
_NAME = re.compile(r'(?<=\["name",)"(?:[^"\\]|\\.)*"')
"""A tensor's own name on a tape: it may be another in each run, and changes no instruction."""
_KEPT = 64  # tapes that are kept, by the shapes of their calls


class KernelFailure(Exception):
    """What a kernel raised in its worker: its text, and whether a rule of the machine raised it."""

    is_rule = False


class CheatError(Exception):
    """What a kernel gives back is not of its instructions and the data."""

    outcome = Judged.CHEATS


class CandidateBackend:
    """Runs the kernel that a worker has loaded, on the data of each call.

    ``last`` is how much its Python was shown for the last call, and what it asked for then;
    ``gave_zeros``, whether all outputs of the last call are zeros.
    """

    name = "embedded"
    description = "the embedded simulator, of a kernel in a process of its own"

    def __init__(self, worker: Sandbox) -> None:
        self.worker = worker
        self.printed = 0
        self.shown = dict.fromkeys(Shown, 0)
        self.last: tuple[Shown, Tape] | None = None
        self.gave_zeros = False
        self._tapes: dict[str, Tape] = {}

    def run(self, call: KernelCall) -> Outcome:
        """Let the kernel say what it asks of the machine, and do that on the data of the call."""
        ran = self._run(call)
        outputs = ran.outputs if isinstance(ran, Ran) else ()
        self.gave_zeros = not any(output.astype(bool).any() for output in outputs)
        return ran

    def _run(self, call: KernelCall) -> Outcome:
        arrays = [(array.shape, name_of(array.dtype)) for array in (*call.inputs, *call.outputs)]
        # Instructions of equal ones are the same, unless the kernel follows data.
        shape = repr((arrays, sorted(call.parameters.items()), call.grid, call.machine))
        if shape in self._tapes:
            self.last = Shown.NOTHING, self._tapes[shape]
            ran = _replay(call, self._tapes[shape])
            if not isinstance(ran, Unsupported):
                return ran
        for shown in Shown:
            answer = self._tape(call, shown)
            ran = _replay(call, answer) if isinstance(answer, Tape) else answer
            is_last = shown is Shown.ALL
            if isinstance(answer, Tape) and (is_last or not isinstance(ran, Unsupported)):
                self.shown[shown] += 1
                self.last = shown, answer
                if shown is Shown.NOTHING:
                    self._tapes = dict([*self._tapes.items(), (shape, answer)][-_KEPT:])
                break
        return ran

    def _tape(self, call: KernelCall, shown: Shown) -> Outcome | Tape:
        """The tape of the kernel where it is shown so much, or how it failed."""
        texts: list[str] = []
        for _ in range(2):
            inputs = decoys(call.inputs, shown, int.from_bytes(os.urandom(8), "big"))
            answer = self.ask(call, inputs)
            if answer.header.get("how") != "ran":
                return _HOW.get(str(answer.header.get("how")), Crashed)(_error(answer.header))
            texts.append(b"".join(answer.blobs[:1]).decode(errors="replace"))
        tape = _read(texts[0])
        if texts[0] == texts[1] or _NAME.sub("", texts[0]) == _NAME.sub("", texts[1]):
            return tape
        loads = any(step.call == "effect" and step.made is not None for step in tape.steps)
        if not loads or shown is Shown.ALL:
            raise CheatError(
                "two runs on other values of the same shapes ask other things of the machine, and "
                "no register of the device holds what they decide by: its Python follows the data, "
                "random numbers or addresses",
            )
        reason = f"its calls follow more of the data than {shown.value}"
        return Unsupported(KernelFailure(reason))

    def ask(self, call: KernelCall, inputs: tuple[Array, ...]) -> Frame:
        header = {
            "name": str(getattr(call.kernel, "__name__", "")),
            "inputs": [form_of(array) for array in inputs],
            "outputs": [form_of(array) for array in call.outputs],
            "parameters": dict(call.parameters),
            "grid": list(call.grid),
            "machine": call.machine,
            "names": list(call.names),
        }
        blobs = [array.tobytes() for array in inputs]
        answer = self.worker.ask({"request": "trace", "call": header}, blobs)
        self.printed = max(self.printed, int(answer.header.get("printed", 0)))
        if answer.header.get("how") == "memory":
            raise WorkerEnd(Judged.OUT_OF_MEMORY, "it takes more memory than it is given")
        return answer


def _replay(call: KernelCall, tape: Tape) -> Outcome:
    """What the calls of a tape compute on the data of a call; WorkerEnd of what is no tape."""
    outputs = tuple(output.copy() for output in call.outputs)
    ran = EmbeddedSimulator().run(call._replace(kernel=replayed(tape), outputs=outputs))
    if isinstance(ran, Rejected) and isinstance(ran.error, ReplayError):
        raise WorkerEnd(Judged.CRASHED, f"its process answers with no run: {ran.error}")
    if isinstance(ran, Ran):
        for own, array in zip(call.outputs, outputs, strict=True):
            own[...] = array
        if call.outputs:
            ran = ran._replace(outputs=call.outputs)
    return ran


def _read(text: str) -> Tape:
    """The tape in a text; WorkerEnd where it holds none."""
    try:
        tape = tape_from_json(text)
    except TapeFormatError as error:
        raise WorkerEnd(Judged.CRASHED, f"its process answers with no run: {error}") from None
    files = {place.file for step in tape.steps for place in step.stack}
    if any(map(os.path.exists, files - linecache.cache.keys())):  # they would be read
        raise WorkerEnd(Judged.CRASHED, "its process names lines of files that are not its own")
    return tape


def _error(header: Mapping[str, Any]) -> KernelFailure:
    """An error of the name and the text that travelled."""
    kind = str(header.get("kind", ""))
    failure_type = type(kind, (KernelFailure,), {}) if kind.isidentifier() else KernelFailure
    error: KernelFailure = failure_type(str(header.get("error", "")))
    error.is_rule = bool(header.get("is_rule"))
    return error
