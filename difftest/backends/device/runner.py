"""The runner of a session with a device: what takes minutes there is done as seldom as possible.

Simulators judge a case first, and one on which they fail never reaches the device. A failure of the
device is shrunk on a simulator if it fails there too. If not, it is a difference that the device
alone shows: it is reported as it is, for each step of shrinking would compile for minutes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from difftest.backends.base import Array, Backend, KernelCall, Outcome, Ran
from difftest.backends.detection import detect_sdk
from difftest.backends.device.running import NAME as DEVICE
from difftest.backends.device.selftest import Guard
from difftest.backends.sdk import has_simulator, sdk_simulator
from difftest.harness.case import Case
from difftest.harness.failures import DifferentialFailure
from difftest.harness.questions import Reference
from difftest.harness.recipes import Integers, Random, Recipe
from difftest.harness.report import Reproduction
from difftest.harness.rounding import is_float, ulp
from difftest.harness.runner import Runner, make_call
from difftest.harness.signature import home_of
from difftest.harness.spec import KernelSpec
from difftest.harness.verdict import Inconclusive, Match, Mismatch, OneSided, Verdict, is_failure

EXTRA_DRAWS = 2
"""Further data for each case on the device, in the same shapes: the kernel is compiled already."""
_SEEDS = (1001, 2002)


class DeviceRunner(Runner):
    """Runs cases on simulators, then on the device.

    Parameters
    ----------
    backends : those that were asked for, the device among them.
    arbiter : a simulator that was not asked for; it is asked when the device fails.
    exact, beside : see :class:`Runner`.
    """

    def __init__(
        self,
        backends: tuple[Backend, ...],
        arbiter: Backend | None = None,
        *,
        exact: bool = True,
        beside: Callable[[KernelCall], Ran | str] | None = None,
    ) -> None:
        super().__init__(backends, exact=exact, beside=beside)
        self.device = next(backend for backend in backends if backend.name == DEVICE)
        self._arbiter = arbiter
        self._guard = Guard()
        self._shrinking_on: tuple[Backend, ...] = ()
        self._difference: tuple[Case, Difference] | None = None

    @property
    def simulators(self) -> tuple[Backend, ...]:
        """The backends but the device."""
        return tuple(backend for backend in self.backends if backend.name != DEVICE)

    def start(self, again: Reproduction | None) -> None:
        """Begin a test: forget what the test before it found."""
        super().start(again)
        self._shrinking_on = ()
        self._difference = None
        rest = getattr(self.device, "rest", None)
        if rest is not None:
            rest()  # a module may be patched between two tests

    def check(
        self, spec: KernelSpec, case: Case, reference: Reference | Exception | None = None
    ) -> dict[str, Verdict]:
        """Compare the case, and more data in its shapes, with the reference.

        What is known of the ``reference`` is of the case alone, and asked anew for all of them.

        Raises
        ------
        DifferentialFailure : a backend is wrong.
        Difference : the device is wrong where no simulator is.
        BrokenReferenceError : the reference is wrong.
        """
        __tracebackhide__ = True
        if self._difference is not None:
            found_in, difference = self._difference
            if case != found_in:
                return {DEVICE: Inconclusive("not run: nothing shrinks on the device")}
            raise difference
        self.outputs = {}
        verdicts: dict[str, Verdict] = {}
        failure: DifferentialFailure | None = None
        for drawn in _draws(spec, case):
            verdicts, failure = self._judge(spec, drawn)
            if failure is not None:
                break
        if isinstance(failure, Difference):
            self._difference = case, failure
        if failure is not None:
            raise failure
        return verdicts

    def _judge(
        self, spec: KernelSpec, case: Case
    ) -> tuple[dict[str, Verdict], DifferentialFailure | None]:
        """The verdicts on one case, and what to raise for them."""
        inputs = spec.inputs_of(case)
        reference = self.reference(spec, case, inputs)
        simulators = self._shrinking_on or self.simulators
        verdicts: dict[str, Verdict] = {}
        outcomes: dict[str, Outcome] = {}
        for backend in simulators:
            self._run(backend, spec, case, reference, verdicts, outcomes)
        if any(map(is_failure, verdicts.values())):
            self._shrinking_on = simulators
            return verdicts, self._failure(spec, case, verdicts)
        if self._shrinking_on or self.device not in self.backends:
            return verdicts, None
        self._run(self.device, spec, case, reference, verdicts, outcomes)
        if not is_failure(verdicts[DEVICE]):
            return verdicts, None
        log = str(getattr(self.device, "log", ""))
        if not simulators and self._arbiter is not None:
            self._run(self._arbiter, spec, case, reference, verdicts, outcomes)
            if is_failure(verdicts[self._arbiter.name]):
                self._shrinking_on = (self._arbiter,)
                return verdicts, self._failure(spec, case, verdicts)
        beside = self.beside(make_call(spec, case, inputs)) if self.beside else "nobody asked it"
        distances = _distances(reference, {"embedded": beside, **outcomes})
        if log:
            distances += f"\n  log:\n{textwrap.indent(log, '    ')}"
        return verdicts, Difference(spec, case, verdicts, self.again, distances)

    def _run(
        self,
        backend: Backend,
        spec: KernelSpec,
        case: Case,
        reference: Reference | Exception,
        verdicts: dict[str, Verdict],
        outcomes: dict[str, Outcome],
    ) -> None:
        """Run one backend, judge and count it."""
        outcome = self.with_exact_run(
            spec,
            case,
            backend,
            self.settings_of(spec, case),
            backend.run(replace(make_call(spec, case, spec.inputs_of(case)), inspect=True)),
        )
        verdict = self.judged(spec, case, reference, outcome)
        if isinstance(outcome, Ran):
            self.outputs[backend.name] = outcome.outputs
            self.note_hazards(spec, case, reference, outcome.findings)
        is_device = backend is self.device
        if is_device and isinstance(outcome, Ran) and isinstance(reference, Reference):
            name = f"{spec.name} {sorted(spec.parameters_of(case.values).items())}"
            verdict = guarded(verdict, self._guard.suspect(name, outcome.outputs, reference.values))
        self.tally.homes[spec.name] = home_of(spec.kernel)
        self.tally.count(spec.name, backend.name, verdict)
        verdicts[backend.name] = verdict
        outcomes[backend.name] = outcome

    def _failure(
        self, spec: KernelSpec, case: Case, verdicts: dict[str, Verdict]
    ) -> DifferentialFailure:
        failure = DifferentialFailure(spec, case, verdicts, self.again)
        failure.__cause__ = next(
            (one.error for one in verdicts.values() if isinstance(one, OneSided)), None
        )
        return failure


def arbiter_for(backends: tuple[Backend, ...]) -> Backend | None:
    """The SDK's simulator, where it is installed and no simulator was asked for."""
    sdk = detect_sdk()
    asked = any(backend.name != DEVICE for backend in backends)
    return None if asked or not has_simulator(sdk) else sdk_simulator(sdk)


class Difference(DifferentialFailure):
    """The device disagrees with the reference where no simulator does."""

    def __init__(
        self,
        spec: KernelSpec,
        case: Case,
        verdicts: dict[str, Verdict],
        again: Reproduction | None,
        distances: str,
    ) -> None:
        super().__init__(spec, case, verdicts, again)
        self._distances = distances

    def __str__(self) -> str:
        passing = [name for name, verdict in self.verdicts.items() if isinstance(verdict, Match)]
        who = f"{' and '.join(passing)} agrees" if passing else "no simulator was there to ask"
        return (
            f"{super().__str__()}\n"
            f"  device only: {who}; not shrunk, for each step would compile\n"
            f"{self._distances}"
        )


def guarded(verdict: Verdict, suspicion: str | None) -> Verdict:
    """The verdict with what the guard suspects: whatever it is, it is a failure then."""
    if suspicion is None:
        return verdict
    if isinstance(verdict, Mismatch):
        return replace(verdict, message=f"{verdict.message}; {suspicion}")
    return Mismatch(kind="guard", output=None, message=suspicion)


def _draws(spec: KernelSpec, case: Case) -> Sequence[Case]:
    """The case, and the same one with other random data."""

    def recipe(name: str, seed: int) -> Recipe:
        if spec.input(name).data is not None:
            return case.data[name]
        return Random(seed) if is_float(np.dtype(case.dtype_of(name))) else Integers(seed, 8)

    others = [
        {name: recipe(name, seed + number) for number, name in enumerate(spec.inputs)}
        for seed in _SEEDS
    ]
    return [case, *(replace(case, data=data) for data in others[:EXTRA_DRAWS])]


def _distances(reference: Reference | Exception, outcomes: Mapping[str, Outcome | str]) -> str:
    """How far each who ran the kernel is from the reference, which is computed in float64."""
    if isinstance(reference, Exception):
        return "  float64:     no distances, for the reference refuses the case"
    lines = ["  float64:     largest distance, in units in the last place of the output's dtype"]
    for name, outcome in outcomes.items():
        if isinstance(outcome, str):
            told = f"did not run, {outcome}"
        elif not isinstance(outcome, Ran):
            told = f"failed: {type(outcome.error).__name__}"
        elif [o.shape for o in outcome.outputs] != [value.shape for value in reference.values]:
            told = "its outputs have other shapes"
        else:
            pairs = zip(outcome.outputs, reference.values, strict=True)
            told = f"{max(_ulps_apart(output, right) for output, right in pairs):.3g}"
        lines.append(f"    {name}: {told}")
    return "\n".join(lines)


def _ulps_apart(output: Array, right: Array) -> float:
    """The largest difference; infinite where NaN stands alone."""
    value = output.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(value - right) / ulp(right, output.dtype).astype(np.float64)
    apart = np.where((value == right) | (np.isnan(value) & np.isnan(right)), 0.0, apart)
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0))
