"""Each mistake is recognised by its values, and similar values are not."""

from types import SimpleNamespace

import ml_dtypes
import numpy as np

from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Random, Zeros
from difftest.testing.harness.compare import (
    compare,
    expected_with_roundings,
    expected_within,
)
from difftest.testing.harness.explanation import (
    CaseHistory,
    describe_mismatch,
    last_tile,
    one_dtype,
)
from difftest.testing.harness.failures import DifferentialFailure
from tests.every import every
from tests.unit.standin import add_spec

RNG = np.random.default_rng(0)
F32 = np.dtype("float32")
A, B = RNG.standard_normal((2, 6, 6)).astype(F32)
BATCH = RNG.standard_normal((4, 3, 5)).astype(F32)
ROW = RNG.standard_normal(6).astype(F32)


def said(got, reference, **inputs):
    """Return the lines on outputs that differ from the reference of these inputs."""
    value = reference(**inputs).astype(np.float64)
    bound = expected_with_roundings(value, got.dtype, np.abs(value), (4, F32))
    return describe_mismatch(*spec_and_case(reference, inputs), compare([bound], [got]))


def spec_and_case(reference, inputs):
    """Return the requested part of them."""
    spec = SimpleNamespace(
        reference=reference, parameters_of=lambda values: {}, inputs=inputs
    )
    spec.inputs_by_name = lambda case: inputs
    return spec, SimpleNamespace(values={})


def same(x):
    return x


def product(x, y):
    return x.astype(np.float64) @ y.astype(np.float64)


def total(x, y, bias):
    return product(x, y) + bias


def changed(array, at, value):
    copy = array.copy()
    copy[at] = value
    return copy


NARROW = A.astype(ml_dtypes.bfloat16).astype(F32)
SHIFTED = changed(A, np.s_[:, 1:], A[:, :-1])


@every(
    "start, got, reference, inputs",
    [
        ("all zero", np.zeros_like(A), same, {"x": A}),
        ("all zero", changed(A, np.s_[2:], 0), same, {"x": A}),
        (
            "rounding only: at most 2.5 times",
            np.float32(A * (1 + 2**-21)),
            same,
            {"x": A},
        ),
        ("rounding only: each wrong element is a bfloat16", NARROW, same, {"x": A}),
        ("transposed: axes 0 and 1", A.T.copy(), same, {"x": A}),
        ("transposed: axes 0 and 1", BATCH[0].T.reshape(3, 5), same, {"x": BATCH[0]}),
        ("reversed along axis 1", A[:, ::-1].copy(), same, {"x": A}),
        (
            "shifted by one along axis 1: [i] has what belongs at [i - 1]",
            SHIFTED,
            same,
            {"x": A},
        ),
        (
            "shifted by one along axis 0: [i] has what belongs at [i + 1]",
            changed(A, np.s_[:-1], A[1:]),
            same,
            {"x": A},
        ),
        ("scaled: each wrong element is 2 times", np.float32(2 * A), same, {"x": A}),
        ("scaled: each wrong element is -1 times", -A, same, {"x": A}),
        (
            "scaled: each wrong element is 1.0001",
            np.float32(A * 1.0001),
            same,
            {"x": A},
        ),
        (
            "a missing term: as if bias were all 0",
            np.float32(product(A, B)),
            total,
            {"x": A, "y": B, "bias": ROW},
        ),
        (
            "a missing factor: as if y were all 1",
            A,
            lambda x, y: x * y,
            {"x": A, "y": B},
        ),
        (
            "a wrong sign: as if y were negative",
            A - B,
            lambda x, y: x + y,
            {"x": A, "y": B},
        ),
        (
            "a missing last term: as if x had not the last of axis 1",
            np.float32(product(A[:, :-1], B[:-1])),
            product,
            {"x": A, "y": B},
        ),
    ],
)
def test_a_planted_mistake_is_named(start, got, reference, inputs):
    texts = said(np.asarray(got), reference, **inputs)
    assert texts, "nothing was said"
    assert texts[0].startswith(start), texts


@every(
    "got, reference, inputs",
    [
        # Zeros are right in all but one place, where there is another number.
        (changed(A * 0, (0, 0), 7.0), same, {"x": A}),
        # As small as an error of float16, but the values do not fit a narrower dtype.
        (np.float32(A * (1 + 1e-3 * np.sign(B))), same, {"x": A}),
        # Transposed, reversed, shifted, but for one element.
        (changed(A.T, (0, 3), 7.0), same, {"x": A}),
        (changed(A[:, ::-1], (0, 3), 7.0), same, {"x": A}),
        (changed(SHIFTED, (0, 3), 7.0), same, {"x": A}),
        # Factors of two kinds; a bias that is half present; a product without most of its terms.
        (np.float32(A * np.where(B > 0, 2, 3)), same, {"x": A}),
        (np.float32(product(A, B) + ROW / 2), total, {"x": A, "y": B, "bias": ROW}),
        (np.float32(product(A[:, ::3], B[::3])), product, {"x": A, "y": B}),
        # NaN tells nothing.
        (A * np.nan, same, {"x": A}),
    ],
)
def test_values_near_a_mistake_are_not_recognised(got, reference, inputs):
    assert said(np.asarray(got), reference, **inputs) == ()


def test_an_exact_run_that_differs_has_not_rounded():
    """However small the difference is: the algorithm is wrong, and no input is missing."""
    off = np.nextafter(A, F32.type(np.inf))
    value = A.astype(np.float64)
    for question, text in (
        ("arithmetic", "rounding only: at most 1 times"),
        ("algorithm", ""),
    ):
        verdict = compare([expected_within(value, F32, 0.0, question)], [off])
        (content, *_) = *describe_mismatch(*spec_and_case(same, {"x": A}), verdict), ""
        assert content.startswith(text)
        assert bool(content) == bool(text)


def test_few_values_tell_nothing():
    eye = np.eye(2, 2, 1, dtype=F32)  # transposed, shifted, reversed: who knows
    assert said(eye.T.copy(), same, x=eye) == ()


@every(
    "shape, wrong, text",
    [
        ((200, 64), np.s_[128:], "the last tile: axis 0 from 128 on"),
        (
            (64, 1030),
            np.s_[:, 1024:],
            "the last tile: axis 1 from 1024 on, after whole tiles of 5",
        ),
        (
            (20, 8),
            np.s_[16:],
            "the last tile: axis 0 from 16 on, after whole tiles of 4",
        ),
        ((20, 8), np.s_[15:], ""),  # no tile begins there
        ((300, 8), np.s_[128:], ""),  # two tiles of 128, the last whole
        ((200, 8), np.s_[128:190], ""),
        ((200, 8), np.s_[:], ""),
    ],
)
def test_errors_in_the_last_tile_alone_are_named(shape, wrong, text):
    mask = np.zeros(shape, bool)
    mask[wrong] = True
    found = last_tile(mask, [4])
    assert found.startswith(text)
    assert bool(found) == bool(text)


def case(n, dtype="float32", recipe=None):
    return Case({"n": n}, dtype, {"a": recipe or Zeros(), "b": Zeros()})


def test_a_dtype_that_alone_fails_is_named():
    half = case(4, "float16")
    assert one_dtype(half, [case(4)], [half]) == (
        "one dtype: no case in float16 agrees, and all do in float32"
    )
    assert one_dtype(half, [case(4), case(1, "float16")], [half]) == ""
    assert one_dtype(half, [case(4)], [half, case(9)]) == ""
    assert one_dtype(half, [], [half]) == ""


def test_the_report_describes_the_largest_failing_case():
    spec = add_spec(domain={"n": range(1, 99)})
    small = case(2)
    large = Case({"n": 64}, "float32", {"a": Random(1), "b": Random(2)})
    verdicts = []
    for one in (small, large):
        a, b = spec.inputs_of(one)
        value = (a + b).astype(np.float64)
        bound = expected_with_roundings(value, F32, np.abs(value), (1, F32))
        verdicts.append(compare([bound], [np.float32(a + (b == 0))]))
    history = CaseHistory(spec)
    for one, verdict in zip((large, small), reversed(verdicts), strict=True):
        history.add_failure(one, "embedded", verdict)
    failure = DifferentialFailure(spec, small, {"embedded": verdicts[0]}, None)
    assert "looks like" not in str(failure)
    failure = DifferentialFailure(spec, small, {"embedded": verdicts[0]}, None)
    failure.history = history
    assert (
        "  looks like:  a missing term: as if b were all 0 (in n=64, which fails too)"
        in str(failure).splitlines()
    )
