import gc
import sys
import traceback

import numpy as np
import pytest

from difftest.simulator import Trace
from difftest.testing.backends.base import Completed, Crashed, Rejected, Unsupported
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Fill, Ones, Zeros
from difftest.testing.contract.spec import Rejection
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.harness.bound_case import BoundCase
from difftest.testing.harness.explanation import KEPT
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    DifferentialFailure,
    NotRejectedError,
)
from difftest.testing.harness.judging import verdict_on
from difftest.testing.harness.kernel_calls import make_call
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.tally import Counts
from difftest.testing.harness.verdict import (
    BothRejected,
    Inconclusive,
    Match,
    Mismatch,
    OneSided,
)
from tests.every import every
from tests.unit.standin import PlainBackend, add, add_spec, broken_add

CASE = Case({"n": 4}, "float32", {"a": Ones(), "b": Zeros()})
ERROR = AssertionError("n must be even")


def runner(*names):
    return Runner(tuple(PlainBackend(name) for name in names or ("plain",)))


def refusing_add(a, b):
    raise ERROR


class Breaks:
    name = description = "breaks"

    def run(self, call):
        return Crashed(RuntimeError("segment"))


def test_a_right_kernel_matches_on_each_backend():
    plain = runner("first", "second")
    verdicts = plain.check(add_spec(), CASE)
    assert verdicts == {"first": Match(4, exact=False), "second": Match(4, exact=False)}
    assert plain.tally.rows["add", "first"] == Counts(cases=1, elements=4)


def test_a_wrong_kernel_fails_and_the_failure_carries_spec_case_and_verdicts():
    spec = add_spec(broken_add)
    with pytest.raises(DifferentialFailure) as caught:
        runner().check(spec, CASE)
    assert (caught.value.spec, caught.value.case) == (spec, CASE)
    assert isinstance(caught.value.verdicts["plain"], Mismatch)
    assert "broken_add disagrees with its reference" in str(caught.value)


def test_all_backends_run_even_if_the_first_fails():
    plain = Runner((Breaks(), PlainBackend()))
    with pytest.raises(DifferentialFailure) as caught:
        plain.check(add_spec(), CASE)
    assert list(caught.value.verdicts) == ["breaks", "plain"]
    assert isinstance(caught.value.verdicts["plain"], Match)
    assert "disagrees with its reference on breaks" in str(caught.value)


def test_backends_do_not_share_arrays():
    def add_in_place(a, b):
        a += b
        return a

    a_twice = Case({"n": 4}, "float32", {"a": Ones(), "b": Ones()})
    with pytest.raises(DifferentialFailure) as caught:
        runner("first", "second").check(add_spec(add_in_place), a_twice)
    said = (
        "the kernel overwrites its input a: 4 of 4 elements, the first at [0]. A kernel writes "
        "only to arguments that outputs= names. If the write is intended, leave inputs= as it is "
        "and pass outputs={'a': 'n'}"
    )
    assert [one.message for one in caught.value.verdicts.values()] == [said, said]
    assert said in str(caught.value)


def test_an_array_written_in_place_is_an_output():
    def into(a, b, result):
        result[...] = a + b

    spec = add_spec(into, outputs={"result": "n"})
    assert runner().check(spec, CASE) == {"plain": Match(4, exact=False)}


def test_nan_in_an_input_is_no_change_of_it():
    spec = add_spec(nonfinite=True)
    case = Case({"n": 4}, "float32", {"a": Fill(float("nan")), "b": Ones()})
    assert runner().check(spec, case)["plain"].nonfinite == 4


def test_a_refusal_of_the_kernel_alone_is_a_failure_that_ends_in_the_kernel():
    with pytest.raises(DifferentialFailure, match="n must be even") as caught:
        runner().check(add_spec(refusing_add), CASE)
    assert caught.value.__cause__ is None
    caught.value.end_in_kernel()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "refusing_add"
    assert [frame.name for frame in frames].count("check") == 1


def test_the_report_of_a_recursive_kernel_has_its_last_frames_alone():
    def turn(left):
        return turn(left - 1) if left else 1 / 0

    with pytest.raises(DifferentialFailure) as caught:
        runner().check(add_spec(lambda a, b: turn(40)), CASE)
    caught.value.end_in_kernel()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-4:] == ["<lambda>", "turn", "turn", "turn"]


@every("leave", [pytest.skip, sys.exit])
@every("role", ["kernel", "reference"])
def test_nobody_leaves_a_test_quietly(leave, role):
    def leaving(a, b):
        leave("today")

    with pytest.raises((DifferentialFailure, BrokenReferenceError), match="crashed"):
        runner().check(add_spec(**{role: leaving}), CASE)


def test_a_kernel_that_skips_refuses_nothing():
    def leaving(a, b):
        pytest.skip("today")

    with pytest.raises(NotRejectedError, match="crashed: Skipped: today"):
        runner().check_rejection(add_spec(leaving), Rejection({"n": 9}, match="today"))


def test_an_interrupt_is_the_users():
    def interrupted(a, b):
        raise KeyboardInterrupt

    for role in ("kernel", "reference"):
        with pytest.raises(KeyboardInterrupt):
            runner().check(add_spec(**{role: interrupted}), CASE)


def test_a_spec_error_is_not_taken_for_a_refusal_of_the_reference():
    with pytest.raises(SpecError):
        runner().check(add_spec(refusing_add, magnitude=lambda a, b: a[:1]), CASE)


@every(
    "reference, outcome, verdict",
    [
        (ERROR, Rejected(ERROR), BothRejected(ERROR, ERROR)),
        (ERROR, Completed(()), OneSided("reference", ERROR)),
        (None, Rejected(ERROR), OneSided("kernel", ERROR)),
        (None, Crashed(ERROR), OneSided("kernel", ERROR, "crashed")),
        (ERROR, Crashed(ERROR), OneSided("kernel", ERROR, "crashed")),
        (None, Crashed(ERROR, in_backend=True), OneSided("backend", ERROR, "crashed")),
        (ERROR, Crashed(ERROR, in_backend=True), OneSided("backend", ERROR, "crashed")),
        (None, Unsupported(ERROR), OneSided("backend", ERROR, "unsupported")),
        (
            ERROR,
            Unsupported(ERROR),
            Inconclusive(
                "the reference rejects the case, and the backend cannot run the kernel: "
                "AssertionError: n must be even"
            ),
        ),
    ],
)
def test_refusals_are_judged(reference, outcome, verdict):
    assert verdict_on(reference, outcome) == verdict


def test_the_memory_for_cases_does_not_grow():
    """A kilobyte for each of thousands: one object of ours too many for each case would show."""
    spec = add_spec(domain={"n": range(1, 999)})
    session = runner()
    live = []
    session.start(None)
    for n in range(2 * KEPT):
        case = Case({"n": n + 1}, "float32", {"a": Ones(), "b": Zeros()})
        BoundCase(spec, case, session).check()
        session.repeats.add(spec, case)
        if n + 1 in (KEPT, 2 * KEPT):
            gc.collect()
            homes = (str(type(one).__module__) for one in gc.get_objects())
            live.append(sum(home.startswith("difftest.") for home in homes))
    assert live[0] == live[1] > KEPT


def test_outputs_of_a_call_are_poisoned_and_have_the_outputs_dtype():
    def into(a, b, result): ...

    spec = add_spec(into, outputs={"result": "n 2"}, output_dtype="bfloat16")
    (result,) = make_call(spec, CASE).outputs
    assert (result.shape, result.dtype) == ((4, 2), np.dtype("bfloat16"))
    assert np.isnan(result).all()


def test_an_output_that_the_kernel_leaves_unwritten_fails():
    def half(a, b, result):
        result[:2] = add(a, b)[:2]

    with pytest.raises(DifferentialFailure) as caught:
        runner().check(add_spec(half, outputs={"result": "n"}), CASE)
    verdict = caught.value.verdicts["plain"]
    assert (verdict.kind, verdict.wrong, verdict.box) == ("unwritten", 2, ((2, 4),))


def even_add(a, b):
    assert len(a) % 2 == 0, "the length must be even"
    return add(a, b)


def check_rejection(kernel, match="must be even", backend=None, **changes):
    rejection = Rejection({"n": 3}, match=match, **changes)
    plain = Runner((backend or PlainBackend(),))
    plain.check_rejection(add_spec(kernel, rejects=(rejection,)), rejection)
    return plain


def test_a_demanded_rejection_is_counted():
    assert check_rejection(even_add).tally.rows["even_add", "plain"] == Counts(
        rejections=1
    )


class Lacks:
    name = description = "lacks"

    def run(self, call):
        return Unsupported(NotImplementedError("segment"))


@every(
    "kernel, told, options",
    [
        (add, "accepted it", {}),
        (even_add, "with AssertionError: the length", {"match": "partition"}),
        (even_add, "RuntimeError: segment", {"match": "segment", "backend": Breaks()}),
        (even_add, "cannot run it", {"match": "segment", "backend": Lacks()}),
    ],
)
def test_other_outcomes_than_the_rejection_fail(kernel, told, options):
    """Neither a case that is accepted, nor another reason, a crash, or what cannot be run."""
    with pytest.raises(NotRejectedError, match=told):
        check_rejection(kernel, **options)


def test_a_rejection_may_change_a_shape_and_a_dtype():
    def strict_add(a, b):
        assert a.shape == b.shape, f"lengths differ: {a.shape} {b.shape} {a.dtype}"

    check_rejection(
        strict_add, match=r"\(3,\) \(5,\) float16", shapes={"b": (5,)}, dtype="float16"
    )


class Records(PlainBackend):
    """Keeps a trace if requested."""

    def __init__(self, name):
        super().__init__(name)
        self.trace = Trace(kernel=name)

    def run(self, call):
        outcome = super().run(call)
        recorded = isinstance(outcome, Completed) and call.record
        return outcome._replace(trace=self.trace) if recorded else outcome


def test_traces_of_the_last_case_by_backend():
    first = Records("first")
    second = Records("second")
    recording = Runner((first, PlainBackend("plain"), second), record=True)
    recording.check(add_spec(), CASE)
    assert recording.traces == {"first": first.trace, "second": second.trace}
    with pytest.raises(DifferentialFailure):
        recording.check(add_spec(refusing_add), CASE)
    assert recording.traces == {}


def test_a_wrong_kernel_leaves_its_trace():
    backend = Records("one")
    recording = Runner((backend,), record=True)
    with pytest.raises(DifferentialFailure):
        recording.check(add_spec(broken_add), CASE)
    assert recording.traces == {"one": backend.trace}


def test_traces_are_recorded_on_request_only():
    quiet = Runner((Records("one"),))
    quiet.check(add_spec(), CASE)
    assert quiet.traces == {}
