import numpy as np
import pytest
from hypothesis import given, settings

from difftest.analysis.finding import Finding, Severity
from difftest.testing.backends.base import Completed, Crashed
from difftest.testing.backends.device.selftest import ALL_ZERO, STALE
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Ones, Random, Zeros
from difftest.testing.drawing.cases import cases
from difftest.testing.harness.device_runner import DeviceOnlyFailure, DeviceRunner
from difftest.testing.harness.failures import DifferentialFailure, HazardFailure
from difftest.testing.harness.verdict import Inconclusive, Match
from tests.every import every
from tests.unit.standin import PlainBackend, add, add_spec

SPEC = add_spec()
CASE = Case({"n": 8}, "float32", {"a": Random(1), "b": Random(2)})


class Device(PlainBackend):
    """Counts its runs, and changes a kernel's output as a broken device would."""

    def __init__(self, breaks=None):
        super().__init__("device")
        self.breaks = breaks
        self.calls = []

    def run(self, call):
        self.calls.append(call)
        outcome = super().run(call)
        if self.breaks and isinstance(outcome, Completed):
            return Completed(tuple(self.breaks(one) for one in outcome.outputs))
        return outcome


def runner_of(*backends, arbiter=None):
    runner = DeviceRunner(backends, arbiter)
    runner.start(None)
    return runner


def test_the_device_runs_each_case_on_several_draws_of_data():
    device = Device()
    verdicts = runner_of(device).check(SPEC, CASE)
    assert isinstance(verdicts["device"], Match)
    inputs = [call.inputs[0] for call in device.calls]
    assert len(inputs) == 3
    assert {one.shape for one in inputs} == {(8,)}
    assert len({one.tobytes() for one in inputs}) == 3


def test_all_draws_are_counted():
    runner = runner_of(Device())
    runner.check(SPEC, CASE)
    assert runner.tally.rows["add", "device"].cases == 3
    assert runner.tally.rows["add", "device"].elements == 24


def test_a_device_gets_integer_inputs_for_an_integer_dtype():
    device = Device()
    spec = add_spec(kernel=lambda a, b: a + b, dtypes=("int32",))
    case = Case({"n": 8}, "int32", {"a": Ones(), "b": Ones()})
    runner_of(device).check(spec, case)
    assert {call.inputs[0].dtype for call in device.calls} == {np.dtype("int32")}


def wrong_from(elements):
    def kernel(a, b):
        result = add(a, b)
        return result + 1 if a.size >= elements else result

    return kernel


def test_a_case_on_which_the_simulator_fails_never_reaches_the_device():
    device = Device()
    spec = add_spec(kernel=wrong_from(3))
    with pytest.raises(DifferentialFailure) as caught:
        runner_of(PlainBackend("sdk"), device).check(spec, CASE)
    assert list(caught.value.verdicts) == ["sdk"]
    assert device.calls == []


def test_after_a_simulators_failure_nothing_of_the_test_reaches_the_device():
    device = Device()
    runner = runner_of(PlainBackend("sdk"), device)
    spec = add_spec(kernel=wrong_from(3))
    with pytest.raises(DifferentialFailure):
        runner.check(spec, CASE)
    small = Case({"n": 2}, "float32", CASE.data)
    assert list(runner.check(spec, small)) == ["sdk"], "a step of shrinking"
    assert device.calls == []


def shrunk(runner, spec):
    """The failure that Hypothesis reports."""

    @settings(max_examples=50, database=None, derandomize=True)
    @given(case=cases(spec))
    def test(case):
        runner.check(spec, case)

    with pytest.raises(DifferentialFailure) as caught:
        test()
    return caught.value


def test_a_failure_that_the_arbiter_shares_is_shrunk_there_and_not_on_the_device():
    device = Device()
    arbiter = PlainBackend("sdk")
    failure = shrunk(runner_of(device, arbiter=arbiter), add_spec(kernel=wrong_from(3)))
    assert failure.case.values == {"n": 3}
    assert not isinstance(failure, DeviceOnlyFailure)
    sizes = [call.inputs[0].size for call in device.calls]
    assert len([size for size in sizes if size >= 3]) == 1, (
        "one failure, seen once there"
    )


def test_a_failure_of_the_device_alone_is_not_shrunk():
    device = Device(lambda output: output + 1 if output.size >= 3 else output)
    failure = shrunk(runner_of(device, arbiter=PlainBackend("sdk")), SPEC)
    assert isinstance(failure, DeviceOnlyFailure)
    failing = [call for call in device.calls if call.inputs[0].size >= 3]
    assert len(failing) == 1
    assert failure.case.values["n"] == failing[0].inputs[0].size


def test_after_a_difference_other_cases_are_steps_of_shrinking_and_not_run():
    device = Device(lambda output: output + 1)
    runner = runner_of(device)
    with pytest.raises(DeviceOnlyFailure):
        runner.check(SPEC, CASE)
    small = Case({"n": 1}, "float32", CASE.data)
    assert isinstance(runner.check(SPEC, small)["device"], Inconclusive)
    assert len(device.calls) == 1


def test_the_next_test_starts_fresh():
    device = Device(lambda output: output + 1)
    runner = runner_of(device)
    for _ in range(2):
        with pytest.raises(DeviceOnlyFailure):
            runner.check(SPEC, CASE)
    assert len(device.calls) == 1
    runner.start(None)
    with pytest.raises(DeviceOnlyFailure):
        runner.check(SPEC, CASE)
    assert len(device.calls) == 2


def test_a_difference_names_the_agreeing_backends():
    device = Device(lambda output: output + np.float32(1))
    with pytest.raises(DeviceOnlyFailure) as caught:
        runner_of(device, arbiter=PlainBackend("sdk")).check(SPEC, CASE)
    text = str(caught.value)
    assert "add disagrees with its reference on device" in text
    assert "  device only: sdk agrees; not shrunk, for each step would compile" in text


def test_the_log_of_a_wrong_kernel_is_shown():
    device = Device(lambda output: output + 1)
    device.log = "neuronx-cc: warning\nmore of it"
    with pytest.raises(DeviceOnlyFailure) as caught:
        runner_of(device).check(SPEC, CASE)
    assert str(caught.value).endswith("  log:\n    neuronx-cc: warning\n    more of it")


def test_without_a_simulator_the_report_states_that():
    with pytest.raises(
        DeviceOnlyFailure, match="device only: no simulator was there to ask"
    ):
        runner_of(Device(lambda output: output + 1)).check(SPEC, CASE)


def test_a_device_that_breaks_down_is_a_difference():
    class Broken(Device):
        def run(self, call):
            return Crashed(RuntimeError("NRT_EXEC_OOB(1006)"))

    with pytest.raises(DeviceOnlyFailure, match=r"NRT_EXEC_OOB\(1006\)"):
        runner_of(Broken(), arbiter=PlainBackend("sdk")).check(SPEC, CASE)


@every(
    "breaks, suspicion",
    [
        (np.zeros_like, ALL_ZERO),
        (lambda output: np.arange(1, 9, dtype=np.float32), None),
    ],
)
def test_a_suspicion_is_in_the_failure(breaks, suspicion):
    with pytest.raises(DeviceOnlyFailure) as caught:
        runner_of(Device(breaks)).check(SPEC, CASE)
    assert (ALL_ZERO in str(caught.value)) is (suspicion is not None)


def test_an_output_that_never_changes_is_found_although_the_first_is_right():
    first = []

    def stale(output):
        first.append(output)
        return first[0]

    with pytest.raises(DeviceOnlyFailure) as caught:
        runner_of(Device(stale)).check(SPEC, CASE)
    assert STALE in str(caught.value)


def test_zeros_that_are_right_are_right():
    case = Case({"n": 8}, "float32", {"a": Zeros(), "b": Zeros()})
    assert runner_of(Device()).check(SPEC, case)["device"] == Match(8, exact=False)


def test_suspicious_outputs_fail_although_the_comparison_decides_nothing():
    """A bound so wide that zeros lie within it."""
    spec = add_spec(reduction=lambda n: 10**9)
    runner = runner_of(Device(np.zeros_like))
    with pytest.raises(DeviceOnlyFailure):
        runner.check(spec, CASE)


HAZARD = Finding(
    id="program-race",
    severity=Severity.ERROR,
    happened="program 1 writes what program 0 writes too",
    rule="programs run at once",
    locations=(),
    remedy="a barrier",
)


class Looked(PlainBackend):
    """A simulator that finds a hazard in each run that is to be looked at."""

    def run(self, call):
        outcome = super().run(call)
        return outcome._replace(findings=(HAZARD,)) if call.inspect else outcome


@every("beside", [True, False])
def test_hazards_come_from_a_simulators_run_of_the_case(beside):
    """The device's own run shows no findings; a simulator's run does, requested or as a helper."""
    looked = Looked("embedded")
    if beside:
        runner = DeviceRunner((Device(),), beside=looked.run)
        runner.start(None)
    else:
        runner = runner_of(looked, Device())
    runner.check(SPEC, CASE)
    assert [one for *_, one in runner.hazards.values()] == [HAZARD]
    with pytest.raises(
        HazardFailure, match="program 1 writes what program 0 writes too"
    ):
        runner.check_hazards()
