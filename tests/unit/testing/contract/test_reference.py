"""The rights of a reference: read its arguments, and reject a case by its own check."""

import math
import re

import numpy as np
import pytest

from difftest.testing.backends.base import Completed
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Fill, Ones
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.harness.failures import BrokenReferenceError, DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import BothRejected, Match
from tests.every import every
from tests.unit.standin import PlainBackend, add_reference, add_spec

CASE = Case({"n": 4}, "float32", {"x": Fill(-1.0)})


def forgetful_relu(x):
    """Broken: it returns its argument."""
    return x.copy()


def relu_spec(reference, kernel=forgetful_relu, **changes):
    fields = {
        "kernel": kernel,
        "reference": reference,
        "domain": {"n": (4,)},
        "inputs": {"x": "n"},
    }
    return KernelSpec(**{**fields, **changes})


def broken(spec, case=CASE):
    """The error of a check whose reference is wrong."""
    with pytest.raises(BrokenReferenceError) as caught:
        Runner((PlainBackend(),)).check(spec, case)
    return caught.value


def relu_by_out(x):
    return np.maximum(x, 0, out=x)


def relu_by_assignment(x):
    x[x < 0] = 0
    return x


def relu_by_operator(x):
    x *= x > 0
    return x


def relu_of_a_view(x):
    view = x.reshape(2, 2).T
    view.clip(0, None, out=view)
    return x


@every("reference", [relu_by_out, relu_by_assignment, relu_by_operator, relu_of_a_view])
def test_a_reference_that_works_in_place_fails_the_test_and_is_named(reference):
    error = broken(relu_spec(reference))
    text = str(error)
    assert f"the reference {reference.__name__} wrote to its argument x" in text
    assert "rule:        a reference only reads its arguments" in text
    assert "remedy:      work on a copy, x = x.copy(), or compute a new array" in text


def test_the_failure_shows_the_case_and_the_line_of_the_reference():
    error = broken(relu_spec(relu_by_out))
    text = str(error)
    assert "case:        n=4, float32" in text
    assert "x:           (4,) Fill(value=-1.0, overrides=())" in text
    assert "received:    values that differ from those passed" in text
    assert re.search(r"where: +\S*test_reference.py:\d+: def relu_by_out\(x\):", text)
    assert (error.spec.reference, error.case) == (relu_by_out, CASE)


def test_every_argument_that_was_written_is_named():
    def reference(a, b):
        a += 1
        b += a
        return b

    error = broken(
        add_spec(reference=reference),
        Case({"n": 2}, "float32", {"a": Ones(), "b": Ones()}),
    )
    assert "wrote to its arguments a, b\n" in str(error)


def test_arrays_within_a_parameter_are_only_read_too():
    def kernel(x, weights): ...

    def reference(x, weights):
        weights[0][1][0] = 3
        return x

    nested = [(1, np.ones(2))]
    spec = relu_spec(
        reference,
        kernel,
        domain={"n": (4,), "weights": (nested,)},
        parameters=("weights",),
    )
    case = Case({"n": 4, "weights": nested}, "float32", {"x": Ones()})
    assert "wrote to its argument weights" in str(broken(spec, case))
    assert nested[0][1].tolist() == [1, 1]


def test_the_second_call_of_a_reference_only_reads_too():
    """The reference over absolute values."""

    def reference(x):
        if (x >= 0).all():
            x += 1
        return x

    assert "wrote to its argument x" in str(broken(relu_spec(reference)))


def test_a_magnitude_that_writes_is_named():
    def magnitude(x):
        x += 1
        return x

    spec = relu_spec(lambda x: x, magnitude=magnitude)
    assert "the magnitude magnitude wrote to its argument x" in str(broken(spec))


@every("reference", [lambda x: x, lambda x: x[:], lambda x: x.reshape(2, 2).ravel()])
def test_a_reference_may_return_an_argument_or_a_view_of_it(reference):
    runner = Runner((PlainBackend(),))
    verdicts = runner.check(relu_spec(reference), CASE)
    assert verdicts["plain"] == Match(4, exact=False)


def test_backends_do_not_share_parameters():
    seen = []

    class Recording(PlainBackend):
        def run(self, call):
            seen.append(list(call.parameters["shifts"]))
            call.parameters["shifts"].append(1)
            return Completed((call.inputs[0],))

    spec = relu_spec(
        lambda x: x,
        lambda x, shifts: x,
        domain={"n": (4,), "shifts": ([],)},
        parameters=("shifts",),
    )
    case = Case({"n": 4, "shifts": []}, "float32", {"x": Ones()})
    Runner((Recording("first"), Recording("second"))).check(spec, case)
    assert seen == [[], []]


def wrong_type_on_purpose(x):
    raise TypeError("x is complex")


def not_implemented(x):
    raise NotImplementedError


def refusing_kernel(x):
    raise AssertionError("not x")


CRASHES = [
    lambda x: x / (0 // 0),
    lambda x: x.tolist()[9],
    lambda x: x + "1",
    lambda x: no_such_name,  # noqa: F821
    lambda x: x.no_such_attribute,
    lambda x: x + np.ones(3),
    lambda x: np.linalg.cholesky(x),  # in NumPy's own Python
    lambda x: math.comb(-1, int("one")),  # and in the standard library
    wrong_type_on_purpose,
    not_implemented,
]


@every("reference", CRASHES)
def test_a_crash_of_the_reference_is_no_refusal_although_the_kernel_refuses(reference):
    error = broken(relu_spec(reference, refusing_kernel))
    text = str(error)
    assert f"the reference {reference.__name__} crashed" in text
    assert "a reference rejects a case by an assert, or by raising ValueError" in text
    assert re.search(r"where: +\S*test_reference.py:\d+: ", text)
    assert error.__cause__.__traceback__ is not None


def refuses_by_assert(x):
    assert x.size > 4, "x is too short"
    return x


def refuses_by_value_error(x):
    with np.errstate(all="ignore"):
        if x.size <= 4:
            raise ValueError("x is too short")
    return x


def refuses_in_a_function_of_its_own(x):
    return refuses_by_value_error(x)


def refuses_for_a_reason(x):
    try:
        return x.reshape(3)
    except ValueError as error:
        raise ValueError("x has three elements") from error


REFUSALS = [
    refuses_by_assert,
    refuses_by_value_error,
    refuses_in_a_function_of_its_own,
    refuses_for_a_reason,
]


@every("reference", REFUSALS)
def test_a_check_of_the_reference_is_a_refusal(reference):
    verdict = Runner((PlainBackend(),)).check(
        relu_spec(reference, refusing_kernel), CASE
    )["plain"]
    assert isinstance(verdict, BothRejected)
    assert isinstance(verdict.reference_error, (AssertionError, ValueError))


@every("reference", REFUSALS)
def test_a_refusal_of_the_reference_alone_is_a_failure(reference):
    with pytest.raises(
        DifferentialFailure, match="only the reference rejects the case"
    ):
        Runner((PlainBackend(),)).check(relu_spec(reference), CASE)


def test_a_reference_that_rejects_absolute_values_needs_a_magnitude():
    def reference(x):
        assert (x < 0).all(), "x is negative"
        return x

    message = (
        "magnitude: the reference reference rejects the absolute values of inputs that "
        "the reference accepts, AssertionError: x is negative"
    )
    with pytest.raises(SpecError, match=re.escape(message)):
        Runner((PlainBackend(),)).check(relu_spec(reference), CASE)


@every(
    "returned, what",
    [
        (None, "NoneType"),
        ("four", "str"),
        ([[1.0], [1.0, 2.0]], "list"),
        (np.ones(4, complex), "an array of complex128"),
        ((np.ones(4), None), "NoneType"),
    ],
)
def test_a_reference_returns_arrays_of_real_numbers(returned, what):
    text = str(broken(relu_spec(lambda x: returned)))
    assert "the reference <lambda> returned no array of real numbers" in text
    assert f"received:    {what}" in text


class Compiled:
    """A function without a signature: it gets the arrays by position."""

    @property
    def __signature__(self):
        raise ValueError("no signature")

    def __call__(self, *arrays):
        return add_reference(*arrays)


def minus(a, b):
    return a - b


@every(
    "changes",
    [
        # by name where the names agree
        {
            "kernel": minus,
            "reference": lambda b, a: a - b,
        },
        {"kernel": minus, "reference": lambda first, second: first - second},
        {
            "kernel": lambda a, b, n: a * n + b,
            "parameters": ("n",),
            "reference": lambda n, a, b: a * n + b,
        },
        *(
            {"reference": one}
            for one in (Compiled(), lambda *arrays: minus(*arrays) + 2, np.add)
        ),
    ],
)
def test_a_reference_gets_its_arrays_by_name_or_by_position(changes):
    case = Case({"n": 3}, "float32", {"a": Fill(5.0), "b": Ones()})
    spec = add_spec(**changes)
    assert Runner((PlainBackend(),)).check(spec, case)["plain"] == Match(3, exact=False)
