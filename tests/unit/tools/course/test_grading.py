import numpy as np
import pytest

from difftest.simulator.entry.install import embedded
from difftest.testing.backends.device.thresholds import PerformanceTest
from difftest.tools.course import grading
from difftest.tools.course.assignment import CorrectnessTest
from difftest.tools.course.grading import (
    correctness_points,
    grade_correctness,
    predict_p99,
)
from tests.every import every
from tests.unit import student

PAIR = ((128, 128),)


def _test(name, *, image=(6, 6), channels=PAIR, bias=True, pool_size=1, points=2.5):
    return CorrectnessTest(
        name=name,
        image=image,
        channels=channels,
        bias=bias,
        pool_size=pool_size,
        points=points,
    )


PLAIN = _test("plain", bias=False)
BIASED = _test("bias")
POOLED = _test("pool", image=(6, 8), channels=PAIR * 2, pool_size=2)
TESTS = (PLAIN, BIASED, POOLED)
SMALL = _test("small images, bias", points=0)
LARGER = (
    _test("larger", image=(6, 8), bias=False),
    _test("larger, bias", image=(6, 8)),
)


@pytest.fixture
def graded(tmp_path):
    def grade(source, tests=TESTS):
        file = tmp_path / "conv2d.py"
        file.write_text(source)
        with embedded():
            return list(grade_correctness(student.load(file), tests, seed=42))

    return grade


def test_a_right_kernel_earns_every_point(graded):
    results = graded(student.SOURCE)
    assert [result.test.name for result in results] == ["plain", "bias", "pool", "pool"]
    assert [result.failure for result in results] == [None] * 4
    assert correctness_points(results) == 7.5


@every(
    "source, failing, points",
    [
        (student.WITHOUT_BIAS, ["bias", "pool", "pool"], 2.5),
        (student.SWAPPED_TAPS, ["plain", "bias", "pool", "pool"], 0.0),
    ],
)
def test_a_wrong_kernel_loses_the_tests_it_fails(graded, source, failing, points):
    results = graded(source)
    assert [result.test.name for result in results if not result.passed] == failing
    assert correctness_points(results) == points
    failure = next(result.failure for result in results if not result.passed)
    assert "elements are wrong, first [" in failure
    assert "got" in failure
    assert "expected" in failure


def test_small_images_tell_of_a_missing_bias_before_large_ones_run(graded):
    results = graded(student.WITHOUT_BIAS, (PLAIN, SMALL, *LARGER))
    failures = {
        result.test.name: result.failure for result in results if not result.passed
    }
    assert "elements are wrong" in failures.pop("small images, bias")
    assert failures == {"larger, bias": "each case of smaller images failed"}
    assert correctness_points(results) == 5.0


def test_a_case_without_points_takes_no_draw_of_the_course(graded, monkeypatch):
    monkeypatch.setattr(
        grading,
        "_run_case",
        lambda kernel, reference, case, pool: str(case.X.ravel()[0]),
    )
    drawn = {
        result.test: result.failure
        for result in graded(student.SOURCE, (PLAIN, SMALL, POOLED))
    }
    del drawn[SMALL]
    assert drawn == {
        result.test: result.failure
        for result in graded(student.SOURCE, (PLAIN, POOLED))
    }


def test_one_failing_case_costs_the_whole_test(graded):
    results = graded(student.SOURCE)
    broken = [*results[:-1], type(results[-1])(POOLED, results[-1].case, "wrong")]
    assert correctness_points(broken) == 5.0


def test_a_rejection_by_the_hardware_fails_the_case_with_its_reason(graded):
    (result,) = graded(student.TOO_WIDE, (PLAIN,))
    assert "the partition size of a tile is at most 128" in result.failure
    assert "conv2d.py" in result.failure


def test_an_exception_of_the_kernel_fails_the_case(graded):
    (result,) = graded(student.RAISING, (PLAIN,))
    assert result.failure == "the kernel raised KeyError: 'bias'"


def test_the_data_match_the_starter_code():
    """np.random.seed(42); X, W, bias = rand(...), rand(...), rand(...), as the harness draws."""
    np.random.seed(42)
    want = [
        np.random.rand(*shape) for shape in ((4, 128, 6, 6), (128, 128, 3, 3), (128,))
    ]
    ((_, *got),) = BIASED.cases(np.random.RandomState(42))
    for expected, array in zip(want, got, strict=True):
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, expected.astype(np.float32))


def test_a_prediction_comes_from_the_timing_model(tmp_path):
    small = PerformanceTest(
        name="small",
        shapes=((1, 128, 6, 6), (128, 128, 3, 3), (128,)),
        dtype="float16",
        pool_size=2,
        points=1.0,
        relaxed_us=1.0,
        full_us=1.0,
    )
    file = tmp_path / "conv2d.py"
    file.write_text(student.SOURCE)
    with embedded():
        kernel = student.load(file)
        predicted = predict_p99(kernel, small)
        # a few dozen instructions
        assert 5 < predicted.low < predicted.p99 < predicted.high < 500
