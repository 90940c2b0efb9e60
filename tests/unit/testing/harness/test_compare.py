import ml_dtypes
import numpy as np

from difftest.simulator.exact.run import ExactOutput
from difftest.support.rounding import unit_roundoff
from difftest.testing.harness.compare import compare, expected_with_roundings
from difftest.testing.harness.differential import _arithmetic
from difftest.testing.harness.verdict import Inconclusive, Match, Mismatch
from tests.every import every

FLOAT32 = np.dtype("float32")


def expected(value, dtype="float32", reduction=1, accumulation="float32"):
    value = np.asarray(value, np.float64)
    return expected_with_roundings(
        value, np.dtype(dtype), np.abs(value), (reduction, np.dtype(accumulation))
    )


def compare_one(value, got, unwritten=(), **how):
    return compare([expected(value, **how)], [got], unwritten)


def float32(*values):
    return np.array(values, np.float32)


def test_equal_arrays_match_and_their_elements_are_counted():
    assert compare_one([1, 2, 3], float32(1, 2, 3)) == Match(elements=3, exact=False)
    assert compare_one([1, 2], float32(1, 2), reduction=0) == Match(
        elements=2, exact=True
    )


def test_elements_of_all_outputs_are_counted():
    verdict = compare(
        [expected([1.0]), expected([[2.0, 3.0]])], [float32(1), float32(2, 3)[None]]
    )
    assert verdict == Match(elements=3, exact=False)


def test_number_of_outputs_comes_first():
    verdict = compare([expected([1.0])], [])
    assert verdict.kind == "outputs"
    assert verdict.message == "the kernel returned no arrays, the reference 1"


def test_the_verdict_names_the_wrong_output():
    right = float32(1)
    narrow = np.ones(1, np.float16)
    both = [expected([1.0]), expected([1.0])]
    dtype = compare(both, [right, narrow])
    shape = compare(both, [right, float32(1, 1)])
    assert dtype.message.startswith(
        "the kernel's dtype of output 1 is float16, expected is"
    )
    assert (
        shape.message == "the kernel's shape of output 1 is (2,), the reference's (1,)"
    )


HALF = [np.array([False, True])]


@every(
    "value, got, how, kind, message",
    [
        (
            [1, 2],
            np.ones((2, 1), np.float16),
            {},
            "shape",
            "the kernel's shape is (2, 1), the reference's (2,)",
        ),
        (
            [1, 2],
            np.array([5, 6], np.float64),
            {},
            "dtype",
            "the kernel's dtype is float64, expected is float32 (see output_dtype=)",
        ),
        # a value that only a cast would make right is not cast
        ([1.0], np.array([1.0], ml_dtypes.bfloat16), {"dtype": "float16"}, "dtype", ""),
        (np.zeros(0), np.zeros(0, np.float32), {}, "empty", ""),
        ([1, 2], float32(np.nan, np.nan), {"unwritten": HALF}, "unwritten", ""),
        ([1.0], float32(np.inf), {}, "infinity", ""),
        ([np.inf], float32(1.0), {}, "infinity", ""),
        ([np.inf], float32(-np.inf), {}, "infinity", ""),
        ([1e60], float32(3e38), {}, "infinity", ""),
        ([1e6, 1], np.array([65504, 1], "f2"), {"dtype": "float16"}, "infinity", ""),
    ],
)
def test_the_first_failed_check_is_reported(value, got, how, kind, message):
    """The shape, the dtype (strict), unwritten elements, and elements that are not finite."""
    verdict = compare_one(value, got, **how)
    assert verdict.kind == kind
    assert verdict.message.startswith(message)


def test_comparing_nothing_fails():
    assert compare([], []).kind == "empty"


def test_unwritten_elements_fail_even_with_the_right_value():
    mask = np.array([False, False, True])
    verdict = compare_one([1, 2, 3], float32(1, 2, 3), [mask])
    assert verdict.kind == "unwritten"
    assert verdict.first.index == (2,)
    assert verdict.first.got == "never written"


@every("value, got", [(1.0, np.nan), (np.nan, 1.0)])
def test_nan_must_be_where_the_reference_has_it(value, got):
    verdict = compare_one([0.0, value], float32(0, got))
    assert (verdict.kind, verdict.first.index) == ("nan", (1,))
    assert verdict.first.error == "not finite"


def test_nan_comes_before_values():
    verdict = compare_one([0.0, 0.0], float32(5, np.nan))
    assert (verdict.kind, verdict.first.index, verdict.wrong) == ("nan", (1,), 2)


def test_the_same_nan_and_infinities_match_and_prove_nothing():
    values = [np.nan, np.inf, -np.inf]
    one = Match(elements=1, exact=False, nonfinite=3)
    assert compare_one([*values, 2], float32(*values, 2)) == one
    assert (
        "NaN against NaN proves nothing" in compare_one(values, float32(*values)).reason
    )
    assert (
        compare([expected(values), expected([2])], [float32(*values), float32(2)])
        == one
    )


def test_overflow_of_the_outputs_dtype_is_infinity():
    got = np.array([np.inf, 1], np.float16)
    assert compare_one([1e6, 1], got, dtype="float16") == Match(1, False, nonfinite=1)


def test_an_error_at_zero_is_no_multiple_of_a_unit():
    assert compare_one([0.0], float32(0.5)).first.error == "0.5, where 0 is expected"
    assert (
        compare_one([2e-40], float32(0.5)).first.error
        == "0.5, where the least digits are"
    )


def test_values_differ_by_more_than_the_bound():
    """Where nothing rounds, one bit fails."""
    far = np.nextafter(np.float32(1), np.float32(2))
    assert isinstance(compare_one([1.0], float32(far)), Match)
    verdict = compare_one([1.0], float32(np.nextafter(far, np.float32(2))))
    assert verdict.kind == "value"
    assert verdict.message == "values differ by more than rounding explains"
    assert verdict.first.error == "2 ULP of float32"
    verdict = compare_one([1.0], float32(far), reduction=0)
    assert (
        verdict.message == "values differ, and nothing here rounds: each must be equal"
    )
    assert verdict.first.allowed == "exactly 1.0"


def test_a_mismatch_has_its_kind_place_distance_and_count():
    got = np.zeros((4, 6), np.float32)
    got[2:4, 1:3] = 1
    verdict = compare_one(np.zeros((4, 6)), got)
    assert verdict == Mismatch(
        kind="value",
        output=0,
        message="values differ by more than rounding explains",
        elements=24,
        wrong=4,
        first=verdict.first,
        box=((2, 4), (1, 3)),
        shape=(4, 6),
    )
    assert verdict.first.index == (2, 1)
    assert (verdict.first.got, verdict.first.expected) == ("1.0", "0.0")


def test_the_second_output_is_named():
    verdict = compare([expected([1.0]), expected([2.0])], [float32(1), float32(3)])
    assert verdict.output == 1


def test_integers_are_compared_shown_as_integers_and_must_be_equal():
    assert isinstance(
        compare_one([3, 4], np.array([3, 4], np.int32), dtype="int32"), Match
    )
    verdict = compare_one(
        [7, -127], np.array([7, -128], np.int8), dtype="int8", reduction=0
    )
    assert (
        verdict.message == "values differ, and these are integers: each must be equal"
    )
    assert (verdict.first.got, verdict.first.expected) == ("-128", "-127")
    assert (verdict.kind, verdict.first.error) == ("value", "1")


def test_a_bound_that_nothing_can_break_is_inconclusive():
    verdict = compare_one(
        [1.0],
        np.array([1.0], np.float16),
        dtype="float16",
        reduction=4096,
        accumulation="float16",
    )
    assert isinstance(verdict, Inconclusive)
    assert "4096 roundings into float16 may leave no digit right" in verdict.reason


def test_a_mismatch_outweighs_an_inconclusive_output():
    vague = expected([1.0], dtype="float16", reduction=4096, accumulation="float16")
    verdict = compare([vague, expected([1.0])], [np.ones(1, np.float16), float32(2)])
    assert isinstance(verdict, Mismatch)
    assert isinstance(
        compare([vague, expected([1.0])], [np.ones(1, np.float16), float32(1)]),
        Inconclusive,
    )


def test_an_output_without_dimensions_can_be_wrong():
    verdict = compare_one(1.0, np.float32(2)[...])
    assert (verdict.kind, verdict.wrong, verdict.box, verdict.first.index) == (
        "value",
        1,
        (),
        (),
    )


@every("dtype", ["bfloat16", "float16", "float32"])
def test_the_rounding_into_the_output_is_counted_once(dtype):
    """By the bound of an exact run: what rounds right lies within it, and no neighbour does."""
    dtype = np.dtype(dtype)
    unit = unit_roundoff(dtype)
    value = np.array([1 + unit / 4])
    output = ExactOutput(value, value * unit)
    for got, right in ((1, True), (1 + 2 * unit, False), (1 - 2 * unit, False)):
        verdict = _arithmetic(0, dtype, np.array([got], dtype), output)
        assert isinstance(verdict, Match) == right
