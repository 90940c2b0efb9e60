"""The runner of a session with a device. It compiles, which takes minutes, as rarely as possible.

Simulators judge a case first. A case on which they fail never runs on the device. A failure of the
device is shrunk on a simulator if it fails there too. Otherwise only the device shows it. Then it
is reported without shrinking, because each step would compile for minutes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from difftest.support.rounding import is_float_dtype
from difftest.testing.backends.base import (
    Backend,
    BackendMissingError,
    Completed,
    KernelCall,
    Outcome,
)
from difftest.testing.backends.device.core import NAME as DEVICE
from difftest.testing.backends.device.selftest import Guard
from difftest.testing.backends.sdk import refusal_of, sdk_simulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Integers, Random, Recipe
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.differential import ReferenceResult
from difftest.testing.harness.failures import DifferentialFailure, Reproduction
from difftest.testing.harness.runner import Runner, Trial
from difftest.testing.harness.verdict import (
    Inconclusive,
    Match,
    Mismatch,
    Verdict,
    is_failure,
)

_SEEDS = (1001, 2002)
"""Seeds of further data for each case. The shapes stay, so the kernel is compiled already."""


class DeviceRunner(Runner):
    """A runner that runs cases on simulators, then on the device, which is among ``backends``.

    The ``arbiter`` is a simulator that is not among the backends. It runs when the device fails.
    """

    def __init__(
        self,
        backends: tuple[Backend, ...],
        arbiter: Backend | None = None,
        *,
        exact: bool = True,
        beside: Callable[[KernelCall], Completed | str] | None = None,
    ) -> None:
        super().__init__(backends, exact=exact, beside=beside)
        self.device = next(backend for backend in backends if backend.name == DEVICE)
        self._arbiter = arbiter
        self._guard = Guard()
        self._shrinking_on: tuple[Backend, ...] = ()
        self._difference: DeviceOnlyFailure | None = None

    @property
    def may_repeat(self) -> bool:
        """Return whether simulators alone run the failing case; a device compiles too long."""
        return bool(self._shrinking_on)

    def start(self, reproduction: Reproduction | None) -> None:
        """Begin a test: reset the results of the test before."""
        super().start(reproduction)
        self._shrinking_on = ()
        self._difference = None
        rest = getattr(self.device, "rest", None)
        if rest is not None:
            rest()  # a test may patch a module before the next one runs

    def check(
        self,
        spec: KernelSpec,
        case: Case,
        reference: ReferenceResult | Exception | None = None,
    ) -> dict[str, Verdict]:
        """Compare the case, and more data in its shapes, with the reference.

        ``reference`` is ignored: the reference runs for each of the data.

        Raises
        ------
        DeviceOnlyFailure : the device is wrong, and no simulator is.
        DifferentialFailure : a simulator is wrong.
        """
        __tracebackhide__ = True
        if self._difference is not None:
            if case != self._difference.drawn:
                return {DEVICE: Inconclusive("not run: nothing shrinks on the device")}
            raise self._difference
        verdicts: dict[str, Verdict] = {}
        try:
            for drawn in _draws(spec, case):
                verdicts = self._check(self.begin(spec, drawn))
        except DeviceOnlyFailure as difference:
            self._difference = difference
            difference.drawn = case
            raise
        return verdicts

    def _check(self, trial: Trial) -> dict[str, Verdict]:
        """Check one case: on simulators, then on the device, and on the arbiter if that fails."""
        __tracebackhide__ = True
        others = tuple(backend for backend in self.backends if backend.name != DEVICE)
        simulators = self._shrinking_on or others
        verdicts = [self.run_backend(trial, backend) for backend in simulators]
        if any(map(is_failure, verdicts)):
            self._shrinking_on = simulators
        elif not self._shrinking_on and self.device in self.backends:
            self._check_on_device(trial, None if simulators else self._arbiter)
        return self.conclude(trial)

    def _check_on_device(self, trial: Trial, arbiter: Backend | None) -> None:
        """Check one case on the device, and on the arbiter if the device fails."""
        is_wrong = is_failure(self.run_backend(trial, self.device))
        if not is_wrong or arbiter is None:
            return
        if refusal_of(arbiter, trial.spec.kernel) is not None:
            return
        if is_failure(self.run_backend(trial, arbiter)):
            self._shrinking_on = (arbiter,)

    def run(self, spec: KernelSpec, backend: Backend, call: KernelCall) -> Outcome:
        """Run a call without the limits of a case: a device has its own limits, and forks."""
        return backend.run(call)

    def suspected(
        self, trial: Trial, backend: Backend, call: KernelCall, ran: Completed
    ) -> Mismatch | None:
        """Return the misuse of inputs, or for a device the guard's suspicion; None without any."""
        wrong = super().suspected(trial, backend, call, ran)
        reference = trial.reference
        if wrong is not None or backend is not self.device:
            return wrong
        if not isinstance(reference, ReferenceResult):
            return None
        kernel = f"{trial.spec.name} {sorted(trial.spec.parameters_of(trial.case.values).items())}"
        suspicion = self._guard.suspect(kernel, ran.outputs, reference.values)
        if suspicion is None:
            return None
        return Mismatch(kind="guard", output=None, message=suspicion)

    def failure(self, trial: Trial) -> DifferentialFailure:
        """Return the error of a case; a DeviceOnlyFailure if only the device is wrong."""
        wrong = [name for name, entry in trial.verdicts.items() if is_failure(entry)]
        if wrong == [DEVICE]:
            return DeviceOnlyFailure(self, trial)
        return super().failure(trial)


def arbiter_for(backends: tuple[Backend, ...]) -> Backend | None:
    """Return the SDK's simulator if it is installed and no simulator is among the backends."""
    if any(backend.name != DEVICE for backend in backends):
        return None
    try:
        return sdk_simulator()
    except BackendMissingError:
        return None


class DeviceOnlyFailure(DifferentialFailure):
    """The device disagrees with the reference, and no simulator does.

    ``drawn`` is the drawn case. Its data show the difference, or further data in its shapes.
    """

    def __init__(self, runner: DeviceRunner, trial: Trial) -> None:
        super().__init__(
            trial.spec,
            trial.case,
            trial.verdicts,
            runner.reproduction,
            findings=trial.findings,
        )
        self.drawn = trial.case
        self._log = str(getattr(runner.device, "log", ""))

    def __str__(self) -> str:
        passing = [
            name
            for name, verdict in self.verdicts.items()
            if isinstance(verdict, Match)
        ]
        who = "no simulator was there to ask"
        if passing:
            who = f"{' and '.join(passing)} agrees"
        text = f"{super().__str__()}\n  device only: {who}; not shrunk, for each step would compile"
        if self._log:
            text += f"\n  log:\n{textwrap.indent(self._log, '    ')}"
        return text


def _draws(spec: KernelSpec, case: Case) -> Sequence[Case]:
    """Return the case, and the case with other random data."""

    def recipe(name: str, seed: int) -> Recipe:
        if spec.input(name).data is not None:
            return case.data[name]
        if is_float_dtype(np.dtype(case.dtype_of(name))):
            return Random(seed)
        return Integers(seed, 8)

    cases = [case]
    for seed in _SEEDS:
        data = {
            name: recipe(name, seed + number) for number, name in enumerate(spec.inputs)
        }
        cases.append(replace(case, data=data))
    return cases
