import inspect
import re

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase, settings

from difftest.testing.contract.recipes import Integers, Ones, Zeros
from difftest.testing.contract.spec import Input, KernelSpec
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.explicit import case_from_json
from difftest.testing.harness import decorator
from difftest.testing.harness.bound_case import BoundCase, check_each
from difftest.testing.harness.decorator import decorate
from difftest.testing.harness.failures import DifferentialFailure, NothingComparedError
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match
from tests.every import every
from tests.unit.standin import PlainBackend, add, add_reference, add_spec, broken_add


def runner():
    return Runner((PlainBackend(),))


def run_test(function, spec=None):
    test = decorate(spec or add_spec(), function)
    few = settings(max_examples=5, phases=[Phase.generate, Phase.shrink], database=None)
    few(test)(difftest_runner=runner())


def test_a_kernel_test_runs_its_function_on_drawn_cases():
    seen = []

    def test_add(case):
        case.check()
        seen.append(case)

    run_test(test_add)
    assert len(seen) == 5
    assert isinstance(seen[0], BoundCase)
    assert seen[0].verdicts == {"plain": Match(seen[0].values["n"], exact=False)}
    assert seen[0].dtype == np.float32
    assert [array.shape for array in seen[0].inputs] == [(seen[0].values["n"],)] * 2


def test_a_kernel_test_that_compares_nothing_fails():
    def test_add(case): ...

    with pytest.raises(
        NothingComparedError, match=r"its function must call case\.check\(\)"
    ):
        run_test(test_add)
    without_backends = settings(max_examples=1, database=None)(
        decorate(add_spec(), lambda case: case.check())
    )
    with pytest.raises(NothingComparedError, match="compared nothing"):
        without_backends(difftest_runner=Runner(()))


def test_a_failure_of_a_kernel_test_is_shrunk():
    def test_add(case):
        case.check()

    with pytest.raises(DifferentialFailure) as caught:
        run_test(test_add, add_spec(broken_add, domain={"n": range(3, 9)}))
    case = caught.value.case
    assert (case.values, case.data) == ({"n": 3}, {"a": Zeros(), "b": Ones()})


@every(
    "kernel, inputs, data",
    [
        (lambda a, b: add(a, b) + a.dtype.type(1), {}, {"a": Zeros(), "b": Zeros()}),
        (lambda a, b: add(a, -b), {}, {"a": Zeros(), "b": Ones()}),
        (
            lambda a, b: add(a, b) + a.dtype.type(1),
            {"a": Input("n", data=Integers(3, 7))},
            {"a": Integers(3, 7), "b": Zeros()},
        ),
    ],
)
def test_a_failure_is_reported_on_the_simplest_data_with_that_failure(
    kernel, inputs, data
):
    """For any end of Hypothesis's shrinking, the replay fails alike."""

    def test_add(case):
        case.check()

    spec = add_spec(
        kernel, domain={"n": range(5, 9)}, inputs={"a": "n", "b": "n"} | inputs
    )
    for seed in range(4):
        test = hypothesis.seed(seed)(decorate(spec, test_add))
        both = [Phase.generate, Phase.shrink]
        random = settings(max_examples=20, phases=both, database=None)
        with pytest.raises(DifferentialFailure) as caught:
            random(test)(difftest_runner=runner())
        assert caught.value.case.data == data
        with pytest.raises(DifferentialFailure) as again:
            check_each(
                runner(), spec, case_from_json(caught.value.case.to_json(), spec)
            )
        assert again.value.headline == caught.value.headline


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def test_add(): ...",
            "test_add(); accepted: a function that takes an argument named c",
        ),
        (
            "def test_add(cases): ...",
            "test_add(cases); accepted: a function that takes an argume",
        ),
        (
            "async def test_add(case): case.check()",
            "test_add(case), which is async; accepted: def, for nothing awaits its case",
        ),
    ],
)
def test_a_function_that_cannot_be_called_on_a_case_is_refused(text, message):
    namespace = {}
    exec(text, namespace)
    with pytest.raises(SpecError, match=re.escape(f"kernel_test: received {message}")):
        decorate(add_spec(), namespace["test_add"])


def test_an_argument_that_no_spec_has_is_refused():
    with pytest.raises(
        SpecError, match=r"unexpected keyword argument 'atol'; accepted: kernel, "
    ):
        decorator.kernel_test(
            kernel=add, reference=add_reference, domain={}, inputs={}, atol=0.1
        )
    with pytest.raises(
        SpecError, match=r"received kernel, domian: missing .*; accepted: kernel, "
    ):
        decorator.kernel_test(kernel=add, domian={})


def test_the_decorator_takes_the_arguments_of_a_spec():
    taken = inspect.signature(decorator.kernel_test).parameters
    assert {"kernel", "kernels", "domain", "machine"} < set(taken)
    assert taken == inspect.signature(KernelSpec).parameters


def test_the_result_is_a_hypothesis_test_of_the_same_name():
    @decorator.kernel_test(
        kernel=add,
        reference=add_reference,
        domain={"n": (1,)},
        inputs={"a": "n", "b": "n"},
    )
    def test_sums(case):
        """Sums."""

    assert test_sums.hypothesis.inner_test
    assert (test_sums.__name__, test_sums.__doc__) == ("test_sums", "Sums.")
    assert list(inspect.signature(test_sums).parameters) == ["difftest_runner"]


def test_fixtures_are_passed_on():
    seen = []

    def test_add(number, case):
        seen.append(number)
        case.check()

    test = decorate(add_spec(), test_add)
    assert list(inspect.signature(test).parameters) == ["number", "difftest_runner"]
    settings(max_examples=1, database=None)(test)(number=3, difftest_runner=runner())
    assert seen == [3]
