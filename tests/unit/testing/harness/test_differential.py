"""The two questions asked apart, on kernels of a few lines."""

import numpy as np
import pytest

from difftest.simulator.entry.install import embedded
from difftest.simulator.exact.run import ExactOutput, ExactRun
from difftest.testing.backends.base import Completed
from difftest.testing.backends.embedded import (
    EmbeddedSimulator,
    PlainSimulator,
    run_embedded,
)
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Fill, Integers, Ones, Random
from difftest.testing.contract.spec import Input, KernelSpec
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness import differential
from difftest.testing.harness.explanation import describe_mismatch
from difftest.testing.harness.failures import BrokenReferenceError, DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Inconclusive, Match
from tests.every import every
from tests.unit.standin import PlainBackend

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
    import nki as today
    import nki.isa as today_isa
    import nki.language as today_nl

SHAPE = {"P": 64, "N": 96}


def spec_of(kernel, reference, **arguments):
    return KernelSpec(
        kernel=kernel,
        reference=reference,
        domain={name: (size,) for name, size in SHAPE.items()},
        inputs={"x": "P N"},
        **arguments,
    )


def checked(kernel, reference, data=None, dtype="float32", **arguments):
    """The verdict of one case, and the runner."""
    spec = spec_of(kernel, reference, dtypes=(dtype,), **arguments)
    runner = Runner((EmbeddedSimulator(),))
    (verdict,) = runner.check(
        spec, Case(SHAPE, dtype, {"x": data or Random(3)})
    ).values()
    return verdict, runner


def failure(*arguments, **keywords):
    with pytest.raises(DifferentialFailure) as caught:
        checked(*arguments, **keywords)
    return caught.value.verdicts["embedded"], str(caught.value)


def made_of(compute):
    """A kernel that stores what ``compute`` makes of its tile."""

    @nki.jit
    def kernel(x):
        made = compute(nl.load(x))
        out = nl.ndarray(made.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, made)
        return out

    return kernel


def wide(function):
    return lambda x: function(x.astype(np.float64))


third = made_of(lambda x: nl.multiply(x, 1 / 3))


def test_a_correct_kernel_matches_in_all_elements():
    verdict, _ = checked(third, wide(lambda x: x / 3))
    assert verdict == Match(elements=64 * 96, exact=False)


def test_outputs_without_rounding_agree_bit_for_bit():
    verdict, _ = checked(
        made_of(lambda x: nl.add(x, x)), wide(lambda x: 2 * x), Integers(0, bound=4)
    )
    assert verdict == Match(elements=64 * 96, exact=True)


def test_a_subnormal_of_float32_may_be_0():
    """x / (1 + exp(-x)) overflows on its way to -3e-40, and on its way to -2e-37 too."""

    def swish(x):
        return nl.divide(x, nl.add(nl.exp(nl.negative(x)), 1.0))

    reference = wide(lambda x: x / (1 + np.exp(-x)))
    verdict, _ = checked(made_of(swish), reference, Fill(-95.5))
    assert verdict == Match(elements=64 * 96, exact=False)
    verdict, text = failure(made_of(swish), reference, Fill(-88.9))
    assert verdict.question == "arithmetic"
    assert "overflows float32" in text


def test_an_error_far_below_a_rounding_is_one_of_the_algorithm():
    """1/3 instead of 0.33333333343 differs by 3e-10, a hundredth of a rounding into float32."""
    verdict, text = failure(third, wide(lambda x: x * 0.33333333343))
    assert verdict.question == "algorithm"
    assert "the algorithm differs: without rounding too" in text
    assert "ULP of float32" in text


def test_a_report_shows_the_kernels_own_number_and_the_exact_one():
    """In bfloat16 the kernel gives 0.333984 for 0.3333 and for a third."""
    nearly = made_of(lambda x: nl.multiply(x, 0.3333))
    verdict, text = failure(nearly, wide(lambda x: x / 3), Ones(), dtype="bfloat16")
    assert (verdict.question, verdict.hidden) == ("algorithm", True)
    assert (verdict.first.got, verdict.first.exact) == ("0.333984", "0.3333")
    assert "got 0.333984, expected 0.3333333333333333" in text
    assert "unrounded:   0.3333 is the kernel's value without rounding" in text
    assert "rounding hides the difference" in text
    assert "the error is 0.0171 ULP of bfloat16" in text


def test_a_number_that_is_wrong_as_given_has_no_unrounded_line():
    """Also a failure of the algorithm, where rounding has changed nothing."""
    verdict, text = failure(
        made_of(lambda x: nl.multiply(x, 2.0)), wide(lambda x: x), Ones()
    )
    assert (verdict.question, verdict.hidden, verdict.first.exact) == (
        "algorithm",
        False,
        "",
    )
    assert "got 2.0, expected 1.0" in text
    assert "unrounded" not in text


def test_random_data_show_a_wrong_number_of_the_kernels_own():
    """In the sizes that failed; of another kind of failure they show none."""
    nearly = made_of(lambda x: nl.multiply(x, 0.7001))
    runner = Runner((EmbeddedSimulator(),))
    spec = spec_of(nearly, wide(lambda x: x * 0.7), dtypes=("bfloat16",))

    def run(case):
        runner.check(spec, case)

    with pytest.raises(DifferentialFailure) as caught:
        run(Case(SHAPE, "bfloat16", {"x": Ones()}))
    assert caught.value.verdict.hidden
    shown = caught.value.in_own_dtype(run)
    assert not shown.verdict.hidden
    assert shown.case.data["x"].is_random
    assert shown.in_own_dtype(run) is shown

    def refuse(case):
        raise ValueError

    caught.value.history.visible = None
    assert caught.value.in_own_dtype(refuse) is caught.value


def test_a_case_with_wrong_numbers_of_the_kernels_own_is_reported():
    """The failure with the fewest elements is kept."""
    nearly = made_of(lambda x: nl.multiply(x, 0.7001))
    runner = Runner((EmbeddedSimulator(),))
    spec = spec_of(nearly, wide(lambda x: x * 0.7), dtypes=("bfloat16",))
    failures = []
    for data in (Random(5), Ones()):
        with pytest.raises(DifferentialFailure) as caught:
            runner.check(spec, Case(SHAPE, "bfloat16", {"x": data}))
        failures.append(caught.value)
    visible, hidden = failures
    assert [one.verdict.hidden for one in failures] == [False, True]
    told = hidden.in_own_dtype(lambda case: runner.check(spec, case))
    assert told.case == visible.case


def beside_a_third(scale):
    """A kernel of two columns: the fifth plus 0, and the second times ``scale``."""

    def compute(x):
        out = nl.ndarray((SHAPE["P"], 2), nl.float32)
        out[:, 0:1] = nl.add(x[:, 5:6], nl.subtract(x[:, 0:1], x[:, 1:2]))
        out[:, 1:2] = nl.multiply(x[:, 2:3], scale)
        return out

    return made_of(compute)


@wide
def absorbed(x):
    """Float64's digits of the fifth column next to 2**30, and a third of the second."""
    lost = (x[:, 5:6] + x[:, 0:1]) - x[:, 1:2]
    return np.concatenate([lost, x[:, 2:3] / 3], axis=1)


ABSORBED = Fill(2.0**30, ((5, 1e-12),))


def test_a_reference_rounds_in_float64_too():
    """1e-12 + 2**30 - 2**30 is 0 to it, and the kernel is right that it is 1e-12."""
    verdict, _ = checked(beside_a_third(1 / 3), absorbed, ABSORBED)
    assert isinstance(verdict, Match)


def test_digits_that_a_reference_loses_excuse_no_other_element():
    verdict, _ = failure(beside_a_third(1 / 3 + 1e-10), absorbed, ABSORBED)
    assert verdict.question == "algorithm"
    assert verdict.first.index == (0, 1)
    assert verdict.wrong == SHAPE["P"]


def test_digits_that_a_reference_loses_excuse_no_more_than_these():
    """A difference of a millionth of what float64 has rounded is not float64's."""
    half = wide(lambda x: absorbed(x) + np.array([2.0**30 * 1e-6, 0.0]))
    verdict, _ = failure(beside_a_third(1 / 3), half, ABSORBED)
    assert (verdict.question, verdict.first.index) == ("algorithm", (0, 0))


def test_a_reference_rounds_in_a_rounded_decision_too():
    """Both questions are then judged together."""

    def compute(x):
        third = nl.subtract(
            nl.multiply(x[:, 2:3], 1 / 3), nl.multiply(x[:, 3:4], 1 / 3)
        )
        none = nl.multiply(nl.greater(third, 0), 0.0)
        made = nl.add(x[:, 5:6], nl.subtract(x[:, 0:1], x[:, 1:2]))
        return nl.where(nl.greater(third, 1e9), none, made)

    reference = wide(lambda x: (x[:, 5:6] + x[:, 0:1]) - x[:, 1:2])
    verdict, runner = checked(made_of(compute), reference, ABSORBED)
    assert isinstance(verdict, Match)
    assert runner.tally.doubts


def test_a_reference_that_computes_in_float32_is_evaluated_in_float64():
    verdict, _ = checked(third, lambda x: x * np.float32(0.5) / 3 * 2)
    assert isinstance(verdict, Match)


def test_a_reference_that_cannot_but_round_is_met_within_its_rounding():
    verdict, _ = checked(third, lambda x: np.float32(x) / np.float32(3))
    assert isinstance(verdict, Match)
    verdict, _ = failure(third, lambda x: np.float32(x) / np.float32(3.00001))
    assert verdict.question == "algorithm"


def test_a_rounding_that_no_input_or_output_has():
    narrow = made_of(lambda x: nl.multiply(x, 1 / 3, dtype=nl.bfloat16))
    verdict, text = failure(narrow, wide(lambda x: x / 3))
    assert verdict.question == "arithmetic"
    assert "tensor_scalar lost most digits" in text
    assert "is rounded into bfloat16" in text
    assert isinstance(
        checked(narrow, wide(lambda x: x / 3), dtype="bfloat16")[0], Match
    )
    assert isinstance(
        checked(narrow, wide(lambda x: x / 3), accumulation="bfloat16")[0], Match
    )
    # finer than bfloat16, and ends at 6e-8
    small = made_of(lambda x: nl.copy(x, dtype=nl.float16))
    _, text = failure(small, wide(lambda x: x), Fill(1e-9), dtype="bfloat16")
    assert "is rounded into float16" in text


def test_a_long_sum_in_the_operands_own_dtype():
    def summed(x):
        total = nl.zeros((64, 1), nl.bfloat16)
        for column in range(96):
            total = nl.add(total, x[:, column : column + 1], dtype=nl.bfloat16)
        return total

    reference = wide(lambda x: x.sum(axis=1, keepdims=True))
    verdict, text = failure(made_of(summed), reference, Fill(0.7), dtype="bfloat16")
    assert verdict.question == "arithmetic"
    assert "a running sum is rounded into bfloat16 again and again" in text


def test_a_report_has_the_number_and_the_size_of_the_terms_of_the_bound():
    """A long sum in float32, and a result that a rounding into bfloat16 spoils."""

    def summed(x):
        return nl.multiply(nl.sum(x, axis=1, keepdims=True), 1 / 3, dtype=nl.bfloat16)

    reference = wide(lambda x: x.sum(axis=1, keepdims=True) / 3)
    verdict, _ = failure(made_of(summed), reference, Fill(0.7))
    (line,) = [line for line in verdict.how if "adds most to the bound" in line]
    assert line.startswith(
        "tensor_reduce(add) adds most to the bound at test_differential.py:"
    )
    assert line.endswith("of its largest value, 67.2, of 96 terms, in 1 run")


def test_a_sum_in_the_registers_has_as_many_terms_as_elements():
    def summed(x):
        total = nl.ndarray((64, 1), nl.float32)
        nisa.activation_reduce(np.exp, x, reduce_op=np.add, reduce_res=total)
        return nl.multiply(total, 1 / 3, dtype=nl.bfloat16)

    reference = wide(lambda x: np.exp(x).sum(axis=1, keepdims=True) / 3)
    verdict, _ = failure(made_of(summed), reference, Fill(0.7))
    assert any("of 96 terms" in line for line in verdict.how)


def test_overflow_is_the_arithmetics_and_is_named():
    verdict, _ = failure(
        made_of(lambda x: nl.divide(nl.exp(x), nl.exp(x))),
        wide(lambda x: 0 * x + 1),
        Fill(1.0, ((5, 100.0),)),
    )
    assert (verdict.question, verdict.kind) == ("arithmetic", "nan")
    assert verdict.how[0].startswith(
        "activation(exp) overflows float32 at test_differential.py:"
    )
    assert verdict.how[0].endswith(
        "rounding it is 2.69e+43 of 100, and the largest is 3.4028e+38"
    )


def test_an_overflow_names_the_tile_that_is_too_narrow():
    def summed(x):
        total = nl.zeros((96, 96), nl.float16, buffer=nl.psum)
        total += nisa.nc_matmul(x, x)
        return nl.multiply(total, 1 / 4096)

    verdict, _ = failure(made_of(summed), wide(lambda x: x.T @ x / 4096), Fill(200.0))
    assert verdict.kind == "infinity"
    assert verdict.how[0].startswith(
        "nc_matmul overflows float16 in PSUM at test_differential.py:"
    )
    assert "2.56e+06" in verdict.how[0]
    assert "of 200" not in verdict.how[0]


def test_data_that_overflow_the_reference_are_reported():
    def products(x):
        return nisa.tensor_tensor_scan(x, x, 1.0, np.multiply, np.multiply)

    def reference(x):
        with np.errstate(over="ignore"):
            return np.cumprod(x * x, axis=1)

    verdict, runner = checked(made_of(products), wide(reference), Fill(1e30))
    assert isinstance(verdict, Inconclusive)
    said = "the data do it: the inputs are finite, and the reference is beyond float32's 3.4028e+38"
    assert said in verdict.reason
    assert said in next(iter(runner.tally.reasons))
    zero = Fill(1e3, ((50, 0.0),))  # inf * 0 is NaN in float32, and 0 without rounding
    wrong, _ = failure(made_of(products), wide(reference), zero)
    assert (wrong.question, wrong.kind) == ("arithmetic", "nan")
    assert said in wrong.how[0]
    saturated = made_of(lambda x: nl.minimum(products(x), 3e38))
    wrong, text = failure(saturated, wide(reference), zero)
    assert wrong.question == "algorithm"  # which is the kernel's
    assert "the data do it" not in text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_float32_weights_that_are_made_of_their_bfloat16_copy_are_wrong(dtype):
    @nki.jit
    def kernel(x):
        third_part = nl.multiply(nl.load(x), 1 / 3, dtype=dtype)
        copy = nl.ndarray(x.shape, nl.bfloat16, buffer=nl.shared_hbm)
        weights = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(copy, third_part)
        nl.store(weights, third_part)
        return copy, weights

    reference = wide(lambda x: (x / 3, x / 3))
    more = {"output_dtype": ("bfloat16", "float32")}
    if dtype == "float32":
        verdict, _ = checked(kernel, reference, **more)
        assert isinstance(verdict, Match)
        return
    verdict, text = failure(kernel, reference, **more)
    assert verdict.question == "arithmetic"
    assert "an output has that dtype, but a wider output depends on the result" in text


def test_without_an_exact_run_the_report_asks_for_the_number_of_roundings():
    summed = made_of(lambda x: nl.sum(x, axis=1, keepdims=True))
    reference = wide(lambda x: x.sum(axis=1, keepdims=True))
    said = "without an exact run: reduction=None allows one rounding of float32; pass the number"
    verdict, text = failure(summed, reference, exact=False)
    assert verdict.how[0].startswith(said)
    assert 'such as reduction="K" for a sum of K terms' in text
    right, _ = checked(summed, reference, exact=False, reduction="N")
    assert isinstance(right, Match)
    doubled = wide(lambda x: 2 * x.sum(axis=1, keepdims=True))
    for more in ({}, {"exact": False, "reduction": "N"}):
        wrong, _ = failure(summed, doubled, **more)
        assert not any(said in line for line in wrong.how)


@pytest.mark.parametrize(
    ("places", "found"),
    [
        (range(1, 96), True),
        (range(96), False),
        (lambda N: sizes(0, N - 97), True),  # this case is outside its domain
    ],
)
def test_a_parameter_that_may_be_0_is_no_size_of_a_tile(places, found):
    """The last column is wrong: a place, or what is left after one tile of 95."""

    @nki.jit
    def kernel(x, at):
        tile = nl.load(x)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        nl.store(out[:, at : at + 1], nl.multiply(tile[:, at : at + 1], 2))
        return out

    spec = KernelSpec(
        kernel=kernel,
        reference=lambda x, at: x,
        domain={"P": (64,), "N": (96,), "at": places},
        inputs={"x": "P N"},
        parameters=("at",),
    )
    case = Case({**SHAPE, "at": 95}, "float32", {"x": Random(3)})
    with pytest.raises(DifferentialFailure) as caught:
        Runner((EmbeddedSimulator(),)).check(spec, case)
    verdict = caught.value.verdicts["embedded"]
    text = "\n".join(describe_mismatch(spec, case, verdict))
    assert ("whole tiles of 95" in text) is found


def test_no_loss_is_named_where_the_value_without_rounding_is_as_wrong():
    """A quantization by the scale in place of its inverse gives 0, at any precision."""

    def quantized(factor):
        @nki.jit
        def kernel(x):
            tile = nl.load(x)
            size = nl.max(nl.abs(tile), axis=1, keepdims=True)
            scale = nl.multiply(size, 1 / 127)
            out = nl.ndarray(x.shape, nl.int8, buffer=nl.shared_hbm)
            nl.store(out, nl.multiply(tile, factor(scale), dtype=nl.int8))
            return out

        return kernel

    def reference(x):
        return np.rint(x / (np.abs(x).max(axis=1, keepdims=True) / 127))

    verdict, _ = checked(
        quantized(nl.reciprocal), wide(reference), Fill(1.0), output_dtype="int8"
    )
    assert isinstance(verdict, Match)
    wrong, _ = failure(
        quantized(lambda scale: scale), wide(reference), Fill(1.0), output_dtype="int8"
    )
    assert wrong.first.got == "0"
    assert not any("lost most digits" in line for line in wrong.how)
    assert not any("adds most to the bound" in line for line in wrong.how)


LEAST = -3.4028235e38
"""The smallest float32, as AWS's page on range_select writes it: no float32 has these digits."""


def replaced_by_a_constant(x):
    largest = nisa.max8(src=x)
    return nisa.nc_match_replace8(data=x, vals=largest, imm=0.1)


def filled_with_the_least(x):
    zero = nl.zeros((64, 1), nl.float32)
    return nisa.range_select(
        on_true_tile=x,
        comp_op0=np.greater_equal,
        comp_op1=np.less,
        bound0=zero,
        bound1=nl.add(zero, 3.0),
        on_false_value=LEAST,
    )


@today.jit
def filled_with_the_least_today(x):
    tile, low, high = (
        today_nl.ndarray(shape, today_nl.float32, buffer=today_nl.sbuf)
        for shape in (x.shape, (64, 1), (64, 1))
    )
    today_isa.dma_copy(dst=tile, src=x)
    today_isa.memset(dst=low, value=0.0)
    today_isa.memset(dst=high, value=3.0)
    today_isa.range_select(
        dst=tile,
        on_true_tile=tile,
        comp_op0=today_nl.greater_equal,
        comp_op1=today_nl.less,
        bound0=low,
        bound1=high,
        on_false_value=LEAST,
    )
    out = today_nl.ndarray(x.shape, x.dtype, buffer=today_nl.shared_hbm)
    today_isa.dma_copy(dst=out, src=tile)
    return out


def with_the_largest_replaced(x):
    places = np.argsort(-x, axis=1, kind="stable")[:, :8]
    after = x.copy()
    np.put_along_axis(after, places, 0.1, axis=1)
    return after


def with_the_rest_filled(x, number=LEAST):
    return np.where(np.arange(x.shape[1]) < 3, x, number)


def with_the_rest_filled_by_its_float32(x):
    return with_the_rest_filled(x, float(np.finfo(np.float32).min))


@every(
    "kernel, reference",
    [
        (made_of(replaced_by_a_constant), with_the_largest_replaced),
        (made_of(filled_with_the_least), with_the_rest_filled),
        (filled_with_the_least_today, with_the_rest_filled),
        (filled_with_the_least_today, with_the_rest_filled_by_its_float32),
    ],
)
def test_a_constant_that_no_float32_holds_may_be_rounded(kernel, reference):
    verdict, _ = checked(kernel, wide(reference))
    assert isinstance(verdict, Match)


def test_another_number_than_the_largest_is_wrong():
    def smaller(x):
        return with_the_rest_filled(x, LEAST * (1 - 2.0**-23))

    verdict, _ = failure(filled_with_the_least_today, wide(smaller))
    assert (verdict.kind, verdict.question) == ("value", "algorithm")


def test_nan_that_the_spec_does_not_name_is_reported_with_the_remedy():
    spread = made_of(lambda x: nl.multiply(x, 0))
    data = Fill(1.0, ((50, np.nan),))
    said = "x holds NaN or infinities, which are drawn if a reference only moves data"
    zero = wide(np.zeros_like)
    wrong, text = failure(spread, zero, data)
    assert wrong.how[0].startswith(said)
    assert "pass data= of finite numbers for x" in text
    named, _ = failure(spread, zero, data, nonfinite=True)
    assert not any(said in line for line in named.how)
    finite, _ = failure(made_of(lambda x: nl.add(x, np.nan)), zero, Fill(1.0))
    assert finite.kind == "nan"
    assert not any(said in line for line in finite.how)


def test_nan_against_nan_decides_no_case():
    """Wrong by a factor of 3, and NaN everywhere; with and without an exact run."""
    tripled = made_of(lambda x: nl.multiply(nl.multiply(x, 3), float("nan")))
    reference = wide(lambda x: x * float("nan"))
    for arguments in ({}, {"exact": False}, {"reduction": 2}):
        verdict, runner = checked(tripled, reference, **arguments)
        assert isinstance(verdict, Inconclusive)
        assert "NaN against NaN proves nothing" in runner.tally.nothing_compared
    half = wide(lambda x: np.where(x > 0, np.nan, x))
    kept = made_of(lambda x: nl.where(nl.greater(x, 0), float("nan"), x))
    verdict, runner = checked(kept, half)
    assert verdict.elements + verdict.nonfinite == 64 * 96
    assert 0 < verdict.nonfinite < 64 * 96
    assert runner.tally.rows["kernel", "embedded"].nonfinite == verdict.nonfinite
    assert not runner.tally.nothing_compared


def test_no_digit_left_tells_nothing():
    def cancelled(x):
        return nl.subtract(nl.multiply(nl.add(x, 3e9), 1 / 3), 1e9)

    verdict, runner = checked(made_of(cancelled), wide(lambda x: x / 3))
    assert isinstance(verdict, Inconclusive)
    assert runner.tally.reasons


def softmax_of(least):
    """Attend to the first ``least`` columns: the others are hidden by scores of -1e30."""

    def shares(x):
        hidden = nisa.iota(nl.arange(SHAPE["N"])[None, :], dtype=nl.float32)
        scores = nl.add(x, nl.multiply(nl.greater_equal(hidden, float(least)), -1e30))
        powers = nl.exp(nl.subtract(scores, nl.max(scores, axis=1, keepdims=True)))
        return nl.divide(powers, nl.sum(powers, axis=1, keepdims=True))

    return made_of(shares)


@wide
def softmax_of_one(x):
    return np.eye(1, SHAPE["N"]) + 0 * x


def test_a_wrong_kernel_cannot_excuse_itself():
    """Where all scores are -1e30, each of its digits is unsure; the reference's digits are sure."""
    verdict, _ = checked(softmax_of(1), softmax_of_one)
    assert isinstance(verdict, Match)
    verdict, text = failure(softmax_of(0), softmax_of_one)
    assert (verdict.kind, verdict.question) == ("value", "algorithm")
    assert "first wrong: out[0, 0]" in text


def test_a_zero_that_float64_does_not_meet_has_no_digit_to_lose():
    """The mean of 49 ones is not 1 in float64 either, where 1/49 is rounded."""

    def spread(x):
        mean = nl.multiply(nl.sum(x, axis=1, keepdims=True), 1 / 49)
        centred = nisa.tensor_scalar(x, np.subtract, mean)
        return nl.sum(nl.multiply(centred, centred), axis=1, keepdims=True)

    reference = wide(
        lambda x: ((x - x[:, :49].mean(1, keepdims=True)) ** 2).sum(1, keepdims=True)
    )
    verdict, _ = checked(
        made_of(lambda x: spread(x[:, 0:49])), lambda x: reference(x[:, :49]), Ones()
    )
    assert isinstance(verdict, Match)


def test_a_reference_that_is_0_for_all_inputs_leaves_float64_its_digits():
    """The cross-entropy of one class is 0; float64 does not meet it: log(exp(0.3)) is not 0.3."""

    def loss(x):
        return nl.subtract(nl.log(nl.exp(x)), x)

    def lost(x):
        return nl.add(nl.subtract(nl.multiply(nl.add(x, 3e29), 1 / 3), 1e29), x)

    zeros = wide(np.zeros_like)
    verdict, _ = checked(made_of(loss), zeros, Random(3, 0))
    assert isinstance(verdict, Match)
    verdict, _ = failure(made_of(lost), zeros, Random(3, 0))
    assert (verdict.kind, verdict.question) == ("value", "algorithm")


def mixed(compute, reference, narrow, data):
    """The verdict on a kernel of float32 ``x`` and a narrow ``w`` that returns float32."""

    @today.jit
    def kernel(x, w):
        tiles = [
            today_nl.ndarray(a.shape, a.dtype, buffer=today_nl.sbuf) for a in (x, w)
        ]
        for tile, array in zip(tiles, (x, w), strict=True):
            today_isa.dma_copy(tile, array)
        out = today_nl.ndarray(x.shape, today_nl.float32, buffer=today_nl.shared_hbm)
        today_isa.dma_copy(out, compute(*tiles))
        return out

    spec = KernelSpec(
        kernel=kernel,
        reference=reference,
        domain={"N": (64,)},
        inputs={"x": "N N", "w": Input("N N", dtype=narrow)},
        output_dtype="float32",
    )
    case = Case({"N": 64}, "float32", {"x": data, "w": Fill(0.3)}, {"w": narrow})
    (verdict,) = Runner((EmbeddedSimulator(),)).check(spec, case).values()
    return verdict


def in_dtype(tile, dtype):
    copy = today_nl.ndarray(tile.shape, dtype, buffer=today_nl.sbuf)
    today_isa.tensor_copy(copy, tile)
    return copy


def narrow_product(x, w):
    """A matmul of operands in the dtype of w: the Tensor Engine takes no others."""
    total = today_nl.ndarray(x.shape, today_nl.float32, buffer=today_nl.psum)
    today_isa.nc_matmul(total, in_dtype(x, w.dtype), w)
    return in_dtype(total, today_nl.float32)


def narrow_elements(x, w):
    """``x * w``: the operand and the result have the dtype of w."""
    result = today_nl.ndarray(x.shape, w.dtype, buffer=today_nl.sbuf)
    today_isa.tensor_tensor(result, in_dtype(x, w.dtype), w, op=today_nl.multiply)
    return in_dtype(result, today_nl.float32)


def in_float64(function):
    return lambda x, w: function(x.astype(np.float64), w.astype(np.float64))


@pytest.mark.parametrize(
    ("narrow", "kind"),
    [("bfloat16", Match), ("float16", Match), ("float8_e4m3", Inconclusive)],
)
def test_a_narrow_argument_excuses_the_operands_of_a_product(narrow, kind):
    """With float8 the bound leaves few digits of a float32, and the verdict says so."""
    verdict = mixed(narrow_product, in_float64(lambda x, w: x.T @ w), narrow, Fill(0.7))
    assert isinstance(verdict, kind)


@pytest.mark.parametrize("narrow", ["bfloat16", "float16", "float8_e4m3"])
def test_a_narrow_argument_excuses_no_results_wider_than_it(narrow):
    with pytest.raises(DifferentialFailure) as caught:
        mixed(narrow_elements, in_float64(lambda x, w: x * w), narrow, Random(3))
    verdict = caught.value.verdicts["embedded"]
    assert verdict.question == "arithmetic"
    said = "an input has that dtype, but no matrix product takes the result"
    assert sum(said in line for line in verdict.how) == 2


def test_random_numbers_leave_the_bound_of_the_spec():
    def dropped(x):
        return nisa.dropout(x, 0.0)

    verdict, runner = checked(made_of(dropped), wide(lambda x: x))
    assert isinstance(verdict, Match)
    (doubt,) = runner.tally.doubts
    assert "random numbers at test_differential.py:" in doubt
    assert "the bound that follows from the spec alone is used" in doubt


def test_a_rounded_value_that_decides_joins_the_questions():
    """Thirds of 1 minus a third: 0 or not, as they round."""

    def decided(x):
        rest = nl.subtract(nl.multiply(x, 1 / 3), 1 / 3)
        return nl.where(nl.greater(rest, 0), rest, 0.0)

    verdict, runner = checked(
        made_of(decided), wide(lambda x: np.maximum((x - 1) / 3, 0)), Fill(1.0)
    )
    assert isinstance(verdict, Match)
    assert any("a rounded value decides" in doubt for doubt in runner.tally.doubts)
    assert any(
        "algorithm and arithmetic are judged together" in doubt
        for doubt in runner.tally.doubts
    )


def test_a_reduction_in_the_spec_holds_too():
    """The exact run lets 96 roundings happen, the spec one."""
    total = made_of(lambda x: nl.sum(x, axis=1, keepdims=True))
    reference = wide(lambda x: x.sum(axis=1, keepdims=True))
    assert isinstance(checked(total, reference)[0], Match)
    magnitude = wide(lambda x: 1e-6 + 0 * x[:, :1])
    verdict, _ = failure(total, reference, reduction=1, magnitude=magnitude)
    assert verdict.question == ""


@pytest.mark.parametrize(
    ("magnitude", "error"),
    [
        (lambda x: x.no_such_name, BrokenReferenceError),
        (lambda x: x * np.nan, SpecError),
        (lambda x: x[:1], SpecError),
    ],
    ids=["raises", "is NaN", "has another shape"],
)
def test_a_wrong_magnitude_shows_with_any_judge(magnitude, error):
    with pytest.raises(error, match="magnitude"):
        checked(third, wide(lambda x: x / 3), magnitude=magnitude)


def test_without_an_exact_run_the_spec_is_all_there_is():
    kernel = third
    reference = wide(lambda x: x * 0.33333334)
    assert isinstance(checked(kernel, reference, exact=False, reduction=2)[0], Match)


def test_a_backend_without_an_exact_run():
    spec = spec_of(
        lambda x: x * np.float32(0.33333334), wide(lambda x: x / 3), reduction=2
    )
    case = Case(SHAPE, "float32", {"x": Random(3)})
    assert isinstance(Runner((PlainBackend(),)).check(spec, case)["plain"], Match)


class Elsewhere(PlainBackend):
    """A backend without an exact run; its machine adds ``off`` of each value."""

    def __init__(self, off=0.0):
        super().__init__("elsewhere")
        self.off = off

    def run(self, call):
        (values,) = run_embedded(call).outputs
        return Completed((values * np.float32(1 + self.off),))


def on_elsewhere(kernel, reference, beside, off=0.0):
    spec = spec_of(kernel, reference)
    runner = Runner((Elsewhere(off),), beside=beside)
    case = Case(SHAPE, "float32", {"x": Random(3)})
    return runner, lambda: runner.check(spec, case)["elsewhere"]


def several(x):
    """Four roundings, three more than a spec allows by default."""
    return nl.multiply(nl.multiply(nl.multiply(nl.multiply(x, 1 / 3), 3.3), 1 / 3), 3.3)


SEVERAL = made_of(several)
FOUR = wide(lambda x: x * (1 / 3) * 3.3 * (1 / 3) * 3.3)


def test_the_embedded_simulator_bounds_the_results_of_another_backend():
    _, check = on_elsewhere(SEVERAL, FOUR, run_embedded)
    assert check() == Match(elements=64 * 96, exact=False)
    with pytest.raises(DifferentialFailure):  # by the bound of the spec alone
        on_elsewhere(SEVERAL, FOUR, None)[1]()


def test_algorithm_and_arithmetic_of_another_backend_are_judged():
    for kernel, reference, off, question in (
        (SEVERAL, wide(lambda x: x * 1.2100001), 0.0, "algorithm"),
        (SEVERAL, FOUR, 1e-5, "arithmetic"),
        (made_of(lambda x: nl.negative(x)), wide(lambda x: -x), 2.0**-23, "arithmetic"),
    ):
        with pytest.raises(DifferentialFailure) as caught:
            on_elsewhere(kernel, reference, run_embedded, off)[1]()
        assert caught.value.verdicts["elsewhere"].question == question


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("int32", "values differ, and these are integers: each must be equal"),
        (
            "float32",
            "the arithmetic is wrong: the algorithm is correct, but values differ, and nothing "
            "here rounds: each must be equal",
        ),
    ],
)
def test_a_backend_that_is_off_by_1_where_nothing_rounds_is_not_too_coarse(
    dtype, message
):
    """A sum of integers, which float32 holds too."""

    class OffByOne(PlainBackend):
        def __init__(self):
            super().__init__("elsewhere")

        def run(self, call):
            (values,) = run_embedded(call).outputs
            return Completed((values + values.dtype.type(1),))

    spec = spec_of(
        made_of(lambda x: nl.add(x, x)), wide(lambda x: 2 * x), dtypes=(dtype,)
    )
    case = Case(SHAPE, dtype, {"x": Integers(0, bound=4)})
    runner = Runner((OffByOne(),), beside=run_embedded)
    with pytest.raises(DifferentialFailure) as caught:
        runner.check(spec, case)
    assert caught.value.verdicts["elsewhere"].message == message


def test_where_the_embedded_simulator_has_nothing_to_say_the_summary_says_so():
    runner, check = on_elsewhere(
        third, wide(lambda x: x / 3), lambda call: "no such kernel"
    )
    assert isinstance(check(), Match)
    (doubt,) = runner.tally.doubts
    assert doubt == (
        "kernel: elsewhere has none, and no such kernel: the bound that follows from the spec "
        "alone is used"
    )


def test_unwritten_elements_are_reported_first_without_roundings():
    @nki.jit
    def half(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out[:, 0:48], nl.multiply(nl.load(x)[:, 0:48], 1 / 3))
        return out

    verdict, _ = failure(half, wide(lambda x: x / 3))
    assert (verdict.kind, verdict.how) == ("unwritten", ())


def doubled_today(writes):
    """A doubling kernel of the current dialect; before, it may rewrite its input as it is."""

    @today.jit
    def kernel(x):
        out = today_nl.ndarray(x.shape, x.dtype, buffer=today_nl.shared_hbm)
        tile = today_nl.ndarray(x.shape, x.dtype, buffer=today_nl.sbuf)
        today_isa.dma_copy(tile, x)
        if writes:
            today_isa.dma_copy(x, tile)
        today_isa.tensor_tensor(tile, tile, tile, op=today_nl.add)
        today_isa.dma_copy(out, tile)
        return out

    return kernel


@pytest.mark.parametrize(
    "backend", [EmbeddedSimulator(), PlainSimulator()], ids=["fast", "plain"]
)
def test_a_write_of_equal_values_to_an_input_is_reported(backend):
    case = Case(SHAPE, "float32", {"x": Random(3)})
    reads, writes = (
        spec_of(doubled_today(one), wide(lambda x: 2 * x)) for one in (False, True)
    )
    assert isinstance(Runner((backend,)).check(reads, case)[backend.name], Match)
    with pytest.raises(
        DifferentialFailure, match="the kernel writes to its input x, here with"
    ):
        Runner((backend,)).check(writes, case)


def test_a_reference_that_calls_the_kernel_is_an_error():
    """It agrees with itself, right or wrong. Another kernel may be a reference, if need be."""
    kernel, other = doubled_today(False), made_of(lambda x: nl.add(x, x))
    case = Case(SHAPE, "float32", {"x": Random(3)})
    for tested, asked in (
        (kernel, lambda x: kernel(x)),
        (third, lambda x: nki.simulate_kernel(third, x)),
    ):
        with pytest.raises(
            BrokenReferenceError, match=r"the reference \S+ runs the kernel"
        ):
            Runner((EmbeddedSimulator(),)).check(spec_of(tested, asked), case)
    verdicts = Runner((EmbeddedSimulator(),)).check(
        spec_of(kernel, lambda x: nki.simulate_kernel(other, x)), case
    )
    assert isinstance(verdicts["embedded"], Match)


@pytest.mark.parametrize("off", [0.0, 1e-14, 1e-11, 0.9, 1.1, np.nan])
def test_values_near_the_exact_ones_are_judged_as_others(off, monkeypatch):
    """The short way gives the verdict of the long way, also for an output without a sure digit."""
    spec = spec_of(third, wide(np.sin))
    case = Case(SHAPE, "float32", {"x": Random(3)})
    reference = differential.evaluate_reference(spec, case)
    value = reference.values[0]
    few = reference.values[0][0]
    asked = []
    for size in (0.0, 1e-9, 0.03, 0.5, 2.0, 1e9, np.inf):
        run = ExactRun(
            (ExactOutput(value * (1 + off), np.abs(value) * size),), (), (), ()
        )
        outputs = (value.astype(np.float32),)
        asked.append(
            lambda run=run, own=outputs: differential._algorithm(reference, run, own)
        )
        for dtype in map(np.dtype, ("float32", "float16", "bfloat16", "float8_e4m3")):
            for scale in (1.0, 1e-6, float(differential.float_info(dtype).max) / 2):
                error = np.abs(few * scale) * size
                exact = ExactOutput(few * scale, error)
                apart = np.where(np.isfinite(error), error, 1.0) * off
                got = differential.round_once(exact.value + apart, dtype)
                held = differential.round_once(
                    np.array([0.5, -0.0, scale, np.nan, -np.inf]), dtype
                )
                same = ExactOutput(
                    held.astype(np.float64), None if size else np.zeros(5)
                )
                for args in ((0, dtype, got, exact), (0, dtype, held, same)):
                    asked.append(lambda args=args: differential._arithmetic(*args))

    def verdicts():
        return [(type(v), getattr(v, "wrong", v)) for v in (ask() for ask in asked)]

    short = verdicts()
    monkeypatch.setattr(
        differential, "_distance", lambda values, _: np.full(values.shape, np.nan)
    )
    monkeypatch.setattr(differential, "_has_equal_bits", lambda *_: False)
    assert short == verdicts()


def test_a_number_that_the_output_holds_is_no_infinity():
    """240 is the largest float8_e4m3, also for 247; float8_e5m2 has 256 next to both."""

    def turned(x):
        out = nl.ndarray(x.shape, nl.float8_e4m3, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(nl.load(x), dtype=nl.float8_e5m2))
        return out

    reference = wide(lambda x: x)
    outputs = {"output_dtype": "float8_e4m3"}
    found = [
        failure(nki.jit(turned), reference, Fill(n), **outputs)[0]
        for n in (240.0, 247.0)
    ]
    assert {(verdict.question, verdict.kind) for verdict in found} == {
        ("arithmetic", "infinity")
    }
    verdict, _ = checked(nki.jit(turned), reference, Fill(224.0), **outputs)
    assert isinstance(verdict, Match)
