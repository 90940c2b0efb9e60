"""The backend that runs a candidate: its worker says what it asks of the machine, and we do that.

The worker never sees the data that count. It runs the kernel on
:mod:`~difftest.tools.verdict.backend`, and sends the tape of that launch
(:mod:`difftest.simulator.tape`). The tape is replayed here, on the data of the case, by the
ordinary simulator: exact run, detectors and trace are those of any launch. What a kernel computed
in Python stands on the tape as a number, of the wrong data.
"""

from __future__ import annotations

import dataclasses
import linecache
import os
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, INTEGERS, Array, dtype_name, is_float
from difftest.simulator.replay import ReplayError, replay_tape
from difftest.simulator.tape import Tape
from difftest.simulator.tape_json import TapeFormatError, tape_from_json, tape_to_json
from difftest.simulator.trace import LoopKind
from difftest.testing.backends.base import Crashed, KernelCall, Outcome, Rejected, Unsupported
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.harness.case import Case
from difftest.tools.verdict.fork_server import Sandbox
from difftest.tools.verdict.outcome import Outcome as Judged
from difftest.tools.verdict.wire import WorkerEnd, array_header


class Disclosure(Enum):
    """How much of the data of a case a kernel's Python is shown."""

    NOTHING = "nothing"
    """Other floats, and other integers within the bounds of those that there are."""
    INTEGERS = "integers"
    """Other floats. Registers that are loaded from integers hold what they will."""
    ALL = "all"
    """The data themselves: registers follow what the kernel computes from floats."""


def decoys(arrays: tuple[Array, ...], shown: Disclosure, share: float = 1.0) -> tuple[Array, ...]:
    """Arrays of the same shapes and dtypes; of integers that are not shown a share is others."""
    random = np.random.default_rng()

    def other(array: Array) -> Array:
        if shown is Disclosure.ALL or not array.size:
            return array.copy()
        if is_float(array.dtype):
            values = random.uniform(0.5, 2.0, array.shape) * random.choice((-1, 1), array.shape)
            return values.astype(np.float32).astype(array.dtype)
        if shown is Disclosure.NOTHING and array.dtype in (*INTEGERS, BOOL):
            return np.where(random.random(array.shape) < share, _integers(array, random), array)
        return array.copy()

    return tuple(map(other, arrays))


def _integers(array: Array, random: np.random.Generator) -> Array:
    """Others within the bounds of those that there are; of a single value a few more."""
    low = int(array.min())
    high = int(array.max())
    most = 1 if array.dtype == BOOL else int(np.iinfo(array.dtype).max)
    high = min(high + 3 * (low == high), most)
    low -= low == high  # the largest that there is, and True
    return random.integers(low, high, array.shape, array.dtype, endpoint=True)


def reseeded(case: Case, seed: int) -> Case:
    """The case with random data of the same kinds from other seeds, for each input its own.

    Hidden weights of a fixed recipe are others then, and so are the data of a spec's examples.
    """
    data: dict[str, Any] = dict(case.data)
    for place, (name, recipe) in enumerate(data.items()):
        own = getattr(recipe, "seed", None)
        if own is not None:
            mixed = np.random.default_rng((seed, own, place)).integers(2**16)
            data[name] = dataclasses.replace(recipe, seed=int(mixed))
    return dataclasses.replace(case, data=data)


_HOW: dict[str, Callable[[BaseException], Outcome]] = {
    "rejected": Rejected,
    "unsupported": Unsupported,
}
_NAME = re.compile(r'(?<=\["name",)"(?:[^"\\]|\\.)*"')
"""A tensor's own name on a tape: it may be another in each run, and changes no instruction."""
_VALUE = re.compile(r'(?<=\["DeviceValue",)\[-?\d+,"[^"]*"\]')
_NUMBER = re.compile(r'("TileForm":\[|"register )\d+')
_PLACES = re.compile(r",[^,]*,\d+,\d+,\[[\d,]*\]\](,|\]\})?$")
"""On a tape: a register's value, a number of a tensor or of a register, and what follows a call."""
_FOLLOWS = (
    "two runs on other values of the same shapes ask other things of the machine, and no register "
    "of the device holds what they decide by: its Python follows the data, earlier calls, random "
    "numbers or addresses"
)
_FOLLOWS_REGISTERS = (
    "what it asks of the machine follows what registers hold, which Python does not know on a "
    "device: it reads a loop on the device once"
)
_TRIES = 6  # of shares of integers that are others
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
    ``is_settled``, whether it was seen to ask for the same where registers hold other values.
    """

    name = "embedded"
    description = "the embedded simulator, of a kernel in a process of its own"

    def __init__(self, worker: Sandbox) -> None:
        self.worker = worker
        self.printed = 0
        self.shown = dict.fromkeys(Disclosure, 0)
        self.last: tuple[Disclosure, Tape] | None = None
        self._tapes: dict[str, Tape] = {}
        self._blind: list[Tape] = []

    def run(self, call: KernelCall) -> Outcome:
        """Let the kernel say what it asks of the machine, and do that on the data of the call."""
        arrays = [(array.shape, dtype_name(array.dtype)) for array in call.arrays]
        # Instructions of equal ones are the same, unless the kernel follows data.
        shape = repr((arrays, sorted(call.parameters.items()), call.grid, call.machine))
        self.is_settled = True
        self._blind = []
        if shape in self._tapes:
            self.last = Disclosure.NOTHING, self._tapes[shape]
            ran = _replay(call, self._tapes[shape])
            if not isinstance(ran, Unsupported):
                return ran
        for shown in Disclosure:
            answer = self._tape(call, shown)
            ran = _replay(call, answer) if isinstance(answer, Tape) else answer
            if isinstance(answer, Tape) and (
                shown is Disclosure.ALL or type(ran) is not Unsupported
            ):
                self.shown[shown] += 1
                self.last = shown, answer
                if shown is Disclosure.NOTHING:
                    self._tapes = dict([*self._tapes.items(), (shape, answer)][-_KEPT:])
                break
        return ran

    def _tape(self, call: KernelCall, shown: Disclosure) -> Outcome | Tape:
        """The tape of the kernel where it is shown so much, or how it failed.

        It runs as on its first call, and on other data as after all calls before. Where integers
        belong together others are refused: then fewer and fewer are.
        """
        shares = [1.0]
        if shown is Disclosure.NOTHING and any(a.dtype in (*INTEGERS, BOOL) for a in call.inputs):
            shares = [2.0**-turn for turn in range(_TRIES)]
        for share in shares:
            how = decoys(call.inputs, shown, share), decoys(call.inputs, shown, share)
            text, again = self.ask(call, how[0], anew=True), self.ask(call, how[1], anew=False)
            if isinstance(text, str) and isinstance(again, str):
                break
        else:
            return next(failed for failed in (text, again) if not isinstance(failed, str))
        tape, other = _read(text), _read(again)
        if all(step.call != "effect" or step.made is None for step in tape.steps):  # no register
            if text != again and _NAME.sub("", text) != _NAME.sub("", again):
                raise CheatError(_FOLLOWS)
            return tape
        if shown is Disclosure.NOTHING and not all(map(np.array_equal, how[0], call.inputs)):
            self._blind = [tape, other]
        if not all(_are_alike(tape, other) for other in self._blind):
            raise CheatError(_FOLLOWS_REGISTERS)
        self.is_settled = bool(self._blind)
        return tape

    def ask(self, call: KernelCall, inputs: tuple[Array, ...], *, anew: bool) -> str | Outcome:
        """The text of the tape of a run in the worker, or how it failed."""
        header = {
            "name": str(getattr(call.kernel, "__name__", "")),
            "inputs": [array_header(array) for array in inputs],
            "outputs": [array_header(array) for array in call.outputs],
            "parameters": dict(call.parameters),
            "grid": list(call.grid),
            "machine": call.machine,
            "names": list(call.names),
            "anew": anew,
        }
        blobs = [array.tobytes() for array in inputs]
        answer = self.worker.ask({"request": "trace", "call": header}, blobs)
        self.printed = max(self.printed, int(answer.header.get("printed", 0)))
        how = answer.header.get("how")
        if how == "memory":
            raise WorkerEnd(Judged.OUT_OF_MEMORY, "it takes more memory than it is given")
        if how != "ran":
            return _HOW.get(str(how), Crashed)(_error(answer.header))
        return b"".join(answer.blobs[:1]).decode(errors="replace")


def _are_alike(tape: Tape, other: Tape) -> bool:
    """Whether the calls of both are the same for a device, that is given a loop on it once.

    Those in loops that only one of both goes through are left out.
    """
    one = list(_given(tape))
    two = list(_given(other))
    both = {loop for around, *_ in one for loop in around}
    both &= {loop for around, *_ in two for loop in around}
    return _numbered(one, both) == _numbered(two, both)


def _numbered(calls: list[Any], both: set[Any]) -> list[Any]:
    """Those in no other loops; tensors and registers are told apart by the order of their use."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"{numbers.setdefault(match[0], len(numbers))}"

    return [(at, _NUMBER.sub(number, line)) for around, at, line in calls if around <= both]


def _given(tape: Tape) -> Iterator[tuple[set[Any], Any, str]]:
    """Calls of first turns, and outside of loops on the device, without values of registers.

    A loop there is known by its line, and by the calls outside of any before it.
    """
    text = _NAME.sub("", _VALUE.sub("", tape_to_json(tape))).partition('"steps":[\n')[2]
    outside = 0
    for step, line in zip(tape.steps, text.splitlines(), strict=True):
        turns = [turn for turn in step.loops if turn.loop.kind is LoopKind.DYNAMIC]
        outside += not turns
        if not any(turn.number for turn in turns):
            around = {(turn.loop.location, outside) for turn in turns}
            yield around, (step.stack, step.program), _PLACES.sub("", line)


def _replay(call: KernelCall, tape: Tape) -> Outcome:
    """What the calls of a tape compute on the data of a call; WorkerEnd of what is no tape."""
    ran = EmbeddedSimulator().run(call._replace(kernel=replay_tape(tape)))
    if isinstance(ran, Rejected) and isinstance(ran.error, ReplayError):
        raise WorkerEnd(Judged.CRASHED, f"its process answers with no run: {ran.error}")
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
