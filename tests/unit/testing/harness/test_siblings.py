import numpy as np
import pytest

from difftest.testing.backends.base import DialectError
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Iota, Ones
from difftest.testing.contract.spec import Rejection
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.harness import decorated, decorator
from difftest.testing.harness.bound_case import (
    BoundCase,
    kernel_titles,
    runnable,
    specs_by_kernel,
)
from difftest.testing.harness.failures import DifferentialFailure, NotRejectedError
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.tally import Counts
from tests.every import every
from tests.unit.standin import PlainBackend, add, add_spec

CASE = Case({"n": 4}, "float32", {"a": Ones(), "b": Iota()})


def also_add(a, b):
    return b + a


def without_last(a, b):
    result = add(a, b)
    result[-1] = -1
    return result


def one_more(a, b):
    return add(a, b) + 1


def spec_of(*kernels, **changed):
    return add_spec(kernels[0], others=kernels[1:], **changed)


def checked(spec, *backends):
    runner = Runner(backends or (PlainBackend("plain"),))
    bound = BoundCase(spec, CASE, runner)
    bound.check()
    return runner, bound.verdicts


def test_each_kernel_runs_each_case_and_equal_bits_are_counted():
    runner, verdicts = checked(spec_of(add, also_add))
    assert list(verdicts) == ["add on plain", "also_add on plain"]
    assert {kernel for kernel, _ in runner.tally.rows} == {"add", "also_add"}
    assert runner.tally.agreements == {
        ("add", "also_add", "plain"): Counts(cases=1, exact=1)
    }


@every("kernels", [(add, without_last), (without_last, add)])
def test_a_wrong_kernel_is_found_at_any_place_and_the_other_is_cleared(kernels):
    with pytest.raises(DifferentialFailure) as caught:
        checked(spec_of(*kernels))
    text = str(caught.value)
    assert text.startswith("without_last disagrees with its reference")
    assert "beside:      add agrees with the reference" in text


def test_the_bits_of_a_kernel_that_agrees_need_no_exact_run_of_another():
    """Three cases show a wrong algorithm though its bits do not; other bits do."""
    asked = []

    def at_last_wrong(a, b):
        return one_more(a, b) if len(a) > 4 else add(a, b)

    class Backend(PlainBackend):
        def run(self, call):
            asked.append((call.kernel.__name__, call.exact is not None))
            return super().run(call)

    runner = Runner((Backend("plain"),))
    spec = spec_of(add, at_last_wrong)
    for n in (1, 2, 3, 4):
        BoundCase(spec, Case({"n": n}, "float32", CASE.data), runner).check()
    each = [("add", True), ("at_last_wrong", True)]
    assert asked == [*each, *each, *each, ("add", True), ("at_last_wrong", False)]
    with pytest.raises(DifferentialFailure, match="at_last_wrong disagrees"):
        BoundCase(spec, Case({"n": 5}, "float32", CASE.data), runner).check()
    assert asked[-2:] == [("at_last_wrong", False), ("at_last_wrong", True)]


def test_unwritten_elements_are_not_right_by_the_bits_of_another_kernel():
    """Nothing wrote the NaN that is right there."""

    class Backend(PlainBackend):
        def run(self, call):
            ran = super().run(call)
            skips = call.kernel is also_add and len(call.inputs[0]) == 4
            mask = np.ones(ran.outputs[0].shape, bool) if skips else None
            return ran._replace(unwritten=(mask,))

    runner = Runner((Backend("plain"),))
    spec = spec_of(add, also_add)
    for n in (1, 2, 3):
        BoundCase(spec, Case({"n": n}, "float32", CASE.data), runner).check()
    with pytest.raises(DifferentialFailure, match="also_add disagrees"):
        BoundCase(spec, Case({"n": 4}, "float32", CASE.data), runner).check()


def test_kernels_that_are_wrong_alike_point_to_the_reference():
    with pytest.raises(
        DifferentialFailure, match=r"same bits: look at the reference and the spec"
    ):
        checked(spec_of(add, also_add, reference=lambda a, b: np.float64(a) + b + 1))


def test_kernels_with_different_errors_are_distinguished():
    with pytest.raises(
        DifferentialFailure, match="one_more is wrong too, and its outputs differ"
    ):
        checked(spec_of(without_last, one_more))


def test_two_kernels_of_one_name_are_distinguished():
    def other():
        def add(a, b):
            return a + b

        add.__module__ = "elsewhere"
        return add

    assert kernel_titles((add, also_add)) == ("add", "also_add")
    assert kernel_titles((add, other())) == (
        f"add ({add.__module__})",
        "add (elsewhere)",
    )
    assert kernel_titles((add, add)) == ("add (1)", "add (2)")
    assert kernel_titles((add, also_add, add)) == ("add (1)", "also_add", "add (2)")


class Chooses(PlainBackend):
    """Runs kernels of some names only, as an SDK runs kernels of its dialect."""

    def __init__(self, name, *taken):
        super().__init__(name)
        self.taken = taken

    def refusal(self, kernel):
        return (
            None
            if kernel.__name__ in self.taken
            else DialectError("of another dialect")
        )


def test_a_backend_gets_the_kernels_that_it_runs():
    one = Chooses("one", "also_add")
    both = PlainBackend("both")
    runner, _ = checked(spec_of(add, also_add), one, both)
    assert set(runner.tally.rows) == {
        ("add", "both"),
        ("also_add", "one"),
        ("also_add", "both"),
    }
    assert runner.backends == (one, both)


def test_a_kernel_that_one_backend_runs_is_left_out_on_the_others():
    """A test of one kernel and of several identical ones."""
    one = Chooses("one", "add")
    none = Chooses("none")
    both = PlainBackend("both")
    runner, _ = checked(spec_of(add), one, none, both)
    assert set(runner.tally.rows) == {("add", "one"), ("add", "both")}
    runner, _ = checked(spec_of(add, also_add), one, none)
    assert set(runner.tally.rows) == {("add", "one")}


def test_backends_that_run_none_get_the_first_and_say_why():
    none = Chooses("none")
    found = [
        (one.name, backends)
        for one, backends in runnable(spec_of(add, also_add), (none,))
    ]
    assert found == [("add", (none,))]


def test_each_kernel_must_fit_the_contract():
    def of_one(a):
        return a

    with pytest.raises(SpecError, match="of_one"):
        spec_of(add, of_one)


def test_a_kernel_or_several():
    rest = {"reference": add, "domain": {"n": (1,)}, "inputs": {"a": "n", "b": "n"}}
    for given, said in (({}, "neither"), ({"kernel": add, "kernels": (add,)}, "both")):
        with pytest.raises(SpecError, match=f"kernel, kernels: received {said}"):
            decorator.kernel_test(**given, **rest)


def test_each_kernel_must_reject_the_calls_that_the_contract_rejects():
    def checks(a, b):
        assert a.shape == b.shape, "shapes differ"
        return a + b

    rejection = Rejection({"n": 1}, match="differ", shapes={"b": (2,)})
    spec = spec_of(checks, also_add, rejects=(rejection,))
    test = decorator.decorate(spec, lambda case: case.check())
    found = getattr(test, decorated.ATTRIBUTE)
    runner = Runner((PlainBackend("plain"),))
    with pytest.raises(NotRejectedError, match="also_add must reject n="):
        found.check_rejection(rejection=rejection, difftest_runner=runner)
    assert runner.tally.rows["checks", "plain"].rejections == 1


@every(
    "changed, message",
    [
        ({"lnc": "cores"}, "lnc: received the name 'cores'"),
        ({"lnc": 0}, "lnc"),
        ({"lnc": 2, "grid": (2,)}, "received both lnc and grid"),
        (
            {"machine": "trn9"},
            "machine: received 'trn9'; accepted: one of trn1, trn2, trn3",
        ),
    ],
)
def test_cores_and_generations_that_are_none(changed, message):
    with pytest.raises(SpecError, match=message):
        add_spec(**changed)


def test_cores_and_generations_are_drawn_like_any_size():
    spec = add_spec(
        domain={"cores": (1, 2), "generation": ("trn2", "trn3"), "n": (4,)},
        lnc="cores",
        machine="generation",
    )
    values = {"cores": 2, "generation": "trn3", "n": 4}
    assert (spec.grid_of(values), spec.machine_of(values)) == ((2,), "trn3")
    assert specs_by_kernel(spec) == (spec,)
