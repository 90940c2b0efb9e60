import re

import numpy as np
import pytest

from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Fill, Ones, Random
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.harness.differential import evaluate_reference
from tests.every import every
from tests.unit.standin import add_spec


def expect_one(spec, a=None, b=None, dtype="float32"):
    case = Case({"n": 4}, dtype, {"a": a or Ones(), "b": b or Ones()})
    (expected,) = evaluate_reference(spec, case).bounds
    return expected


def error_of(expected):
    """Half the width of the bound, in roundoffs of float32."""
    return (expected.high.astype(np.float64) - expected.low) / 2 * 2**24


def test_values_are_float64_and_the_dtype_is_the_cases():
    expected = expect_one(add_spec(dtypes=("bfloat16",)), dtype="bfloat16")
    assert expected.value.dtype == np.float64
    assert expected.value.tolist() == [2, 2, 2, 2]
    assert expected.dtype == np.dtype("bfloat16")


def test_the_spec_may_say_the_outputs_dtype():
    assert expect_one(add_spec(output_dtype="float16")).dtype == np.dtype("float16")


def test_data_movement_alone_is_exact():
    assert expect_one(add_spec(reduction=0), Random(1), Random(2)).exact
    assert not expect_one(add_spec()).exact


def test_the_probabilistic_bound_needs_random_data_everywhere():
    spec = add_spec(reduction=10_000)  # at random their errors add up to some hundreds
    assert error_of(expect_one(spec, Random(0), Random(1))).max() < 4_000
    assert error_of(expect_one(spec, Random(0), Fill(0.1))).max() > 4_000


def test_the_magnitude_is_the_reference_over_absolute_values():
    expected = expect_one(add_spec(), Fill(-3.5), Fill(3.0))
    assert expected.value.tolist() == [-0.5] * 4
    assert error_of(expected) == pytest.approx([6.5] * 4, abs=0.5)


def test_the_magnitude_is_never_below_the_value():
    """A difference of absolute values would claim that a - b with a = -b is free of error."""
    expected = expect_one(add_spec(reference=lambda a, b: a - b), Fill(-3.5), Fill(3.5))
    # a unit of 7 is 8 roundoffs
    assert error_of(expected) == pytest.approx([7] * 4, abs=1)


def test_the_spec_may_give_the_magnitude():
    spec = add_spec(reference=lambda a, b: a - b, magnitude=lambda a, b: a + b)
    assert error_of(expect_one(spec, Fill(3.5), Fill(3.0))) == pytest.approx(
        [6.5] * 4, abs=0.5
    )


VALUES = "among its values; accepted: sums of absolute values"


@every(
    "magnitude, message",
    [
        (
            lambda a, b: (a + b)[:2],
            "received shapes [(2,)]; accepted: those of the reference, [(4",
        ),
        (lambda a, b: -(a + b), f"<lambda> returned -7 {VALUES}"),
        (lambda a, b: (a + b) * np.nan, f"<lambda> returned nan {VALUES}"),
    ],
)
def test_a_magnitude_that_is_none_is_an_error(magnitude, message):
    with pytest.raises(SpecError, match=re.escape(f"magnitude: {message}")):
        expect_one(add_spec(magnitude=magnitude), Fill(3.5), Fill(3.5))


def test_the_reference_gets_the_parameters_that_it_has():
    spec = add_spec(
        kernel=lambda a, b, n: None,
        parameters=("n",),
        reference=lambda a, b, n: a * n + b,
    )
    assert expect_one(spec).value.tolist() == [5] * 4


def test_each_output_has_bounds_of_its_own():
    spec = add_spec(reference=lambda a, b: (a + b, a - b))
    case = Case({"n": 2}, "float32", {"a": Ones(), "b": Ones()})
    first, second = evaluate_reference(spec, case).bounds
    assert first.value.tolist() == [2, 2]
    assert second.value.tolist() == [0, 0]
