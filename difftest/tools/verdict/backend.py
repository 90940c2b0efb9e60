"""The backend that runs a candidate: a worker records its instructions, this process replays them.

The worker never sees the data of the case. It runs the kernel on dummy arrays, and sends the tape
of that launch (:mod:`difftest.simulator.tape`). The ordinary simulator replays the tape here on
the data of the case, with the usual exact run, detectors and trace. A value that the kernel
computed in Python is a number on the tape, and that number comes from the dummy data.
"""

from __future__ import annotations

import builtins
import dataclasses
import linecache
import os
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np

from difftest.simulator.dtypes import BOOL, INTEGERS, Array, dtype_name, is_float
from difftest.simulator.replay import ReplayError, replay_tape
from difftest.simulator.tape import Tape
from difftest.simulator.tape_json import TapeFormatError, tape_from_json
from difftest.testing.backends.base import (
    Crashed,
    KernelCall,
    Outcome,
    Rejected,
    Unsupported,
)
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.tools.verdict.call_parts import are_equal_except_names, change_names
from difftest.tools.verdict.device_loops import (
    described_call,
    difference_of_runs,
    difference_of_turns,
    has_device_loop,
    kept_turn,
    left_loop,
    unpredicted_turn,
)
from difftest.tools.verdict.fork_server import Sandbox
from difftest.tools.verdict.outcome import Outcome as Judged
from difftest.tools.verdict.wire import (
    WorkerEnd,
    array_header,
    one_line,
    own_words,
    violation_of,
)


class Disclosure(Enum):
    """The share of a case's data that a kernel's Python receives."""

    NOTHING = "nothing"
    """Dummy floats, and dummy integers within the bounds of the case's integers."""
    INTEGERS = "integers"
    """Dummy floats, and the case's integers. Registers loaded from integers have true values."""
    ALL = "all"
    """The case's data: registers follow the values that the kernel computes from floats."""


def dummy_inputs(
    arrays: tuple[Array, ...], shown: Disclosure, share: float = 1.0
) -> tuple[Array, ...]:
    """Return arrays of the same shapes and dtypes; ``share`` is the part of integers to replace."""
    random = np.random.default_rng()

    def dummy(array: Array) -> Array:
        if shown is Disclosure.ALL or not array.size:
            return array.copy()
        if is_float(array.dtype):
            values = random.random(array.shape, np.float32) * 3 - 1.5
            values += np.copysign(np.float32(0.5), values)
            return values.astype(array.dtype, copy=False)
        if shown is Disclosure.NOTHING and array.dtype in (*INTEGERS, BOOL):
            return np.where(
                random.random(array.shape) < share, _integers(array, random), array
            )
        return array.copy()

    return tuple(map(dummy, arrays))


def _integers(array: Array, random: np.random.Generator) -> Array:
    """Return random integers within an array's bounds, or in a wider range if all are equal."""
    low = int(array.min())
    high = int(array.max())
    most = 1 if array.dtype == BOOL else int(np.iinfo(array.dtype).max)
    high = min(high + 3 * (low == high), most)
    low -= low == high  # no larger value exists: widen the range below
    return random.integers(low, high, array.shape, array.dtype, endpoint=True)


def _shares(arrays: tuple[Array, ...], shown: Disclosure) -> list[float]:
    """Return the shares of integers to replace, the largest first."""
    has_integers = any(array.dtype in (*INTEGERS, BOOL) for array in arrays)
    if shown is not Disclosure.NOTHING or not has_integers:
        return [1.0]
    return [2.0**-attempt for attempt in range(_TRIES)]


def reseeded(case: Case, seed: int) -> Case:
    """Return the case with new seeds for its random data, one seed for each input.

    The new seeds also change weights that a spec fixes by a recipe, and the data of its examples.
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
_RUNS = "two runs on arrays of the same shapes issue different instructions"
_FOLLOWS = (
    "no register of the device decides: its Python follows the data or earlier calls"
)
_FOLLOWS_REGISTERS = (
    "its instructions follow what registers hold, which Python does not know"
)
_NOT_COMPARED = (
    "registers follow the data: whether it computes by instructions alone is open"
)
_LEFT_OPEN = (
    "its instructions follow the order of a set, hash(), id(), a clock or the log's level. Another "
    "process may issue others. Sort the set"
)
_TRACED_ONCE = "AWS's compiler traces the body of a loop on the device once"
_LEFT = "the kernel's Python leaves a loop on the device before its last turn"
_KEPT_TURN = "the variable of a loop on the device is used in another turn, or after it"
_CLASSIC = "AWS's classic compiler traces a loop once, and its turns are not alike"
_TRIES = 6  # shares of replaced integers, each half of the one before
_KEPT = 2**23  # bytes of the tapes in the cache


class KernelFailure(Exception):
    """An error of a kernel in its worker. Its text is the kernel's, and each line is marked.

    Attributes
    ----------
    is_rule : whether the kernel broke a rule of the machine.
    reason : the class and the first line of the error.
    """

    is_rule = False
    reason = ""


class CheatError(Exception):
    """A kernel's outputs do not come from its instructions and the data."""

    outcome = Judged.CHEATS


class CandidateBackend:
    """A backend that runs the kernel that a worker has loaded, on the data of each call.

    Attributes
    ----------
    doubts : reasons why the evidence of calls is weaker than it may look.
    last : the disclosure and the tape of the last call.
    unsettled : why the last call leaves open what the kernel computes; empty if it does not.
    """

    name = "embedded"
    description = "the embedded simulator, of a kernel in a process of its own"

    def __init__(self, worker: Sandbox) -> None:
        self.worker = worker
        self.printed = 0
        self.shown = dict.fromkeys(Disclosure, 0)
        self.last: tuple[Disclosure, Tape] | None = None
        self._tapes: dict[str, tuple[Tape, int]] = {}
        """Tapes and their bytes, by the shapes of their calls."""
        self._blind: list[Tape] = []
        self.doubts: set[str] = set()
        self.unsettled = ""
        self._bytes = 0
        """The bytes of the last answer of the worker."""
        self._known = 0
        """The number of calls with a tape in the cache."""

    def run(self, call: KernelCall) -> Outcome:
        """Record the kernel's instructions on dummy inputs; replay them on the call's data."""
        arrays = [(array.shape, dtype_name(array.dtype)) for array in call.arrays]
        # Calls with equal shapes execute equal instructions, unless the kernel follows the data.
        shape = repr((arrays, sorted(call.parameters.items()), call.grid, call.machine))
        self.unsettled = ""
        self._blind = []
        if shape in self._tapes:
            tape = self._tapes[shape][0]
            if (failed := self._later_failure(call, tape)) is not None:
                return failed
            self.last = Disclosure.NOTHING, tape
            ran = _replay(call, tape)
            if not isinstance(ran, Unsupported):
                return ran
        for shown in Disclosure:
            answer = self._tape(call, shown)
            if not isinstance(answer, Tape):
                ran = answer
                continue
            ran = _replay(call, answer)
            if shown is Disclosure.ALL or type(ran) is not Unsupported:
                self.shown[shown] += 1
                self.last = shown, answer
                if shown is Disclosure.NOTHING:
                    self._keep(shape, answer)
                break
        return ran

    def _later_failure(self, call: KernelCall, tape: Tape) -> Outcome | None:
        """Return how a later call of equal shapes fails; raise CheatError if it differs.

        Cached tapes save runs, so a kernel runs again at the first, second, fourth, ... such call.
        """
        self._known += 1
        if self._known.bit_count() > 1:
            return None
        failed: Outcome | None = None
        for share in _shares(call.inputs, Disclosure.NOTHING):
            inputs = dummy_inputs(call.inputs, Disclosure.NOTHING, share)
            answer = self.ask(call, inputs, anew=False)
            if isinstance(answer, str):
                _check_equal(tape, read_tape(answer))
                return None
            failed = answer
        return failed

    def _keep(self, shape: str, tape: Tape) -> None:
        """Keep a tape for calls of equal shapes; drop the oldest tapes above the limit."""
        self._tapes[shape] = tape, self._bytes
        while sum(size for _, size in self._tapes.values()) > _KEPT:
            del self._tapes[next(iter(self._tapes))]

    def _tape(self, call: KernelCall, shown: Disclosure) -> Outcome | Tape:
        """Return the tape of the kernel at a disclosure, or how the kernel failed.

        The kernel runs twice: in fresh modules, and on other data in modules that keep the state
        of earlier calls. A kernel may reject integers that do not fit together. Then fewer and
        fewer integers are replaced.
        """
        for share in _shares(call.inputs, shown):
            first = dummy_inputs(call.inputs, shown, share)
            second = dummy_inputs(call.inputs, shown, share)
            text = self.ask(call, first, anew=True, is_inverted=True)
            again = self.ask(call, second, anew=False)
            if isinstance(text, str) and isinstance(again, str):
                is_case = all(map(np.array_equal, first, call.inputs))
                is_blind = shown is Disclosure.NOTHING and not is_case
                tape = self._tape_of_runs(call, first, (text, again), is_blind)
                self._check_turns(call, first, tape)
                return tape
        return next(failed for failed in (text, again) if not isinstance(failed, str))

    def _tape_of_runs(
        self,
        call: KernelCall,
        inputs: tuple[Array, ...],
        texts: tuple[str, str],
        is_blind: bool,
    ) -> Tape:
        """Return the tape of two runs; raise CheatError if a third one differs from the second.

        The first run is inverted: sets have another order, and ``hash()``, ``id()`` and clocks give
        other numbers. If only that makes the two runs differ, the kernel does not cheat.
        """
        first, second = texts
        try:
            return self._compared(first, second, is_blind=is_blind)
        except CheatError:
            ordinary = self.ask(call, inputs, anew=True, is_inverted=False)
            if not isinstance(ordinary, str):
                raise
        tape = self._compared(ordinary, second, is_blind=is_blind)
        self.unsettled = _LEFT_OPEN
        return tape

    def _compared(self, text: str, again: str, *, is_blind: bool) -> Tape:
        """Return the tape of two runs; raise CheatError if their instructions differ.

        ``is_blind`` says whether the runs received other integers than the case's.
        """
        tape = read_tape(text)
        other = tape if text == again else read_tape(again)
        if not _has_register(tape):
            _check_equal(tape, other)
            return tape
        if is_blind:
            self._blind = [tape, other]
        for blind in self._blind:
            _check_equal(tape, blind)
        if not self._blind:
            self.unsettled = _NOT_COMPARED
        return tape

    def _check_turns(
        self, call: KernelCall, inputs: tuple[Array, ...], tape: Tape
    ) -> None:
        """Raise CheatError if turns of loops on the device ask for different instructions.

        The kernel runs once more, with one turn for each loop, as AWS's compiler runs it.
        """
        if tape.dialect == "classic" and (turn := unpredicted_turn(tape)):
            self.doubts.add(f"{_CLASSIC}: {turn}")
        if step := left_loop(tape):
            raise CheatError(f"{_LEFT}: {described_call(step)}; {_TRACED_ONCE}")
        if not has_device_loop(tape):
            return
        if step := kept_turn(tape):
            raise CheatError(f"{_KEPT_TURN}: {described_call(step)}; {_TRACED_ONCE}")
        if turn := difference_of_turns(tape):
            what = "turns of a loop issue different instructions"
            raise CheatError(f"{what}: {turn}; {_TRACED_ONCE}")
        is_inverted = self.unsettled != _LEFT_OPEN
        text = self.ask(
            call, inputs, anew=True, is_inverted=is_inverted, single_turn=True
        )
        if not isinstance(text, str):
            self.unsettled = _NOT_COMPARED
        elif difference := difference_of_runs(tape, read_tape(text)):
            what = "a run with one turn for each loop issues different instructions"
            raise CheatError(f"{what}: {difference}; {_TRACED_ONCE}")

    def ask(
        self,
        call: KernelCall,
        inputs: tuple[Array, ...],
        *,
        anew: bool,
        is_inverted: bool = False,
        single_turn: bool = False,
    ) -> str | Outcome:
        """Return the text of the tape of a run in the worker, or how the run failed.

        Parameters
        ----------
        anew : whether the kernel's files are loaded again before.
        is_inverted : whether sets, ``hash()``, ``id()`` and clocks are inverted.
        single_turn : whether each loop on the device has one turn.
        """
        header = {
            "name": str(getattr(call.kernel, "__name__", "")),
            "inputs": [array_header(array) for array in inputs],
            "outputs": [array_header(array) for array in call.outputs],
            "parameters": dict(call.parameters),
            "grid": list(call.grid),
            "machine": call.machine,
            "names": list(call.names),
            "anew": anew,
            "is_inverted": is_inverted,
            "single_turn": single_turn,
        }
        blobs = [array.tobytes() for array in inputs]
        answer = self.worker.ask({"request": "trace", "call": header}, blobs)
        self.printed = max(self.printed, int(answer.header.get("printed", 0)))
        how = answer.header.get("how")
        if how == "memory":
            raise WorkerEnd(
                Judged.OUT_OF_MEMORY, "it takes more memory than it is given"
            )
        if how == "outside":
            text = str(violation_of(answer.header))
            raise WorkerEnd(Judged.OUTSIDE_LANGUAGE, text)
        if how != "ran":
            return _HOW.get(str(how), Crashed)(_error(answer.header))
        text = b"".join(answer.blobs[:1]).decode(errors="replace")
        self._bytes = len(text)
        return text


def _check_equal(tape: Tape, other: Tape) -> None:
    """Raise CheatError if the instructions of two runs differ by more than values of registers."""
    if tape is other:
        return
    if not _has_register(tape):
        if not are_equal_except_names(tape, other):
            raise CheatError(f"{_RUNS}: {_first(tape, other)}; {_FOLLOWS}")
    elif difference := difference_of_runs(tape, other):
        follows = f"{_FOLLOWS_REGISTERS}: {_TRACED_ONCE}"
        raise CheatError(f"{_RUNS}: {difference}; {follows}")


def _has_register(tape: Tape) -> bool:
    """Return whether a kernel uses a value of the device: a register, or the turn of a loop."""
    return has_device_loop(tape) or any(step.call == "effect" for step in tape.steps)


def _first(tape: Tape, other: Tape) -> str:
    """Return the first difference of two tapes as a text."""
    return str(difference_of_runs(tape, other) or "tensors of other names or places")


def _replay(call: KernelCall, tape: Tape) -> Outcome:
    """Replay a tape on the data of a call; raise WorkerEnd if the tape is not valid."""
    ran = EmbeddedSimulator().run(call._replace(kernel=replay_tape(tape)))
    if isinstance(ran, Rejected) and isinstance(ran.error, ReplayError):
        raise WorkerEnd(Judged.CRASHED, f"its process answers with no run: {ran.error}")
    return ran


def read_tape(text: str) -> Tape:
    """Return the tape in a text; raise WorkerEnd if the text is not a valid tape.

    Reports print the names of tensors, so a name is one line.
    """
    try:
        tape = tape_from_json(text)
    except TapeFormatError as error:
        raise WorkerEnd(
            Judged.CRASHED, f"its process answers with no run: {error}"
        ) from None
    if "\\" in text:  # only an escape makes a name several lines
        tape.steps = [
            step._replace(
                args=change_names(step.args, one_line),
                kwargs=change_names(step.kwargs, one_line),
            )
            for step in tape.steps
        ]
    files = {place.file for step in tape.steps for place in step.stack}
    # A report would print lines of these files.
    is_foreign = any(map(os.path.exists, files - linecache.cache.keys()))
    if is_foreign or not all(map(str.isprintable, files)):
        raise WorkerEnd(
            Judged.CRASHED, "its process names lines of files that are not its own"
        )
    return tape


def _error(header: Mapping[str, Any]) -> KernelFailure:
    """Return an error with the class name and the message from a worker's answer."""
    is_rule = bool(header.get("is_rule"))
    kind = one_line(str(header.get("kind", "")))
    # A class of the candidate's own may have any name, so it stays in the marked text.
    is_known = kind.isidentifier() and (is_rule or hasattr(builtins, kind))
    failure_type = type(kind, (KernelFailure,), {}) if is_known else KernelFailure
    words = own_words(str(header.get("error", "")))
    error: KernelFailure = failure_type(f"\n{words}" if "\n" in words else words)
    error.is_rule = is_rule
    message = own_words(one_line(str(header.get("message", ""))))
    error.reason = f"{failure_type.__name__}: {message}"
    return error
