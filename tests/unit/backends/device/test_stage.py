import json
from dataclasses import replace

import numpy as np
import pytest

from difftest.backends.device.stage import CONVOLUTIONS, TRANSPOSE, measure_threshold
from difftest.course.assignment import PERFORMANCE, TRANSPOSE_US
from tests.every import every


@every("threshold", CONVOLUTIONS)
def test_each_limit_decides_at_just_under_and_just_over(threshold):
    full, relaxed = threshold.full_us, threshold.relaxed_us

    def below(limit):
        return np.nextafter(limit, 0)

    def above(limit):
        return np.nextafter(limit, np.inf)

    assert threshold.result(below(full)) == "full"
    assert threshold.result(full) == "full"
    assert threshold.result(above(full)) == ("relaxed" if relaxed > full else "missed")
    assert threshold.result(below(relaxed)) == ("relaxed" if relaxed > full else "full")
    assert threshold.result(relaxed) == ("relaxed" if relaxed > full else "full")
    assert threshold.result(above(relaxed)) == "missed"


def test_the_transpose_must_be_under_its_limit():
    assert TRANSPOSE.result(np.nextafter(TRANSPOSE_US, 0)) == "full"
    assert TRANSPOSE.result(TRANSPOSE_US) == "missed"
    assert TRANSPOSE.result(np.nextafter(TRANSPOSE_US, np.inf)) == "missed"


@every(
    "image, dtype, limits",
    [
        ((224, 224), "float32", (4964, 4596)),
        ((224, 224), "float16", (1365, 1002)),
        ((32, 16), "float32", (110, 110)),
        ((32, 16), "float16", (84, 84)),
    ],
)
def test_the_limits_are_the_courses_with_and_without_pooling(image, dtype, limits):
    name = f"{image[0]}x{image[1]}, {dtype}"
    found = [one for one in CONVOLUTIONS if one.name.startswith(name)]
    assert [one.parameters["pool_size"] for one in found] == [1, 2]
    assert [(one.relaxed_us, one.full_us) for one in found] == [limits] * 2


def test_the_arrays_are_those_of_the_course_and_the_same_each_time():
    limit = next(one for one in CONVOLUTIONS if one.name == "32x16, float16, max pool")
    inputs, again = limit.inputs(), limit.inputs()
    assert [one.shape for one in inputs] == [(1, 256, 32, 16), (256, 256, 3, 3), (256,)]
    assert {one.dtype for one in inputs} == {np.dtype("float16")}
    assert all(np.array_equal(one, other) for one, other in zip(inputs, again, strict=True))


def test_a_threshold_decides_as_the_points_do():
    for test, threshold in zip(PERFORMANCE, CONVOLUTIONS, strict=True):
        for p99 in (test.full_us, test.relaxed_us, test.relaxed_us + 1):
            share = test.points_for(p99) / test.points
            assert {"full": 1, "relaxed": 0.95, "missed": 0}[threshold.result(p99)] == share


class Timer:
    """Measures what it is told, the last one again and again."""

    metric = "device time"

    def __init__(self, *p99s):
        self.left = list(p99s)

    def p99(self, call, *, warmup, iterations):
        assert (warmup, iterations) == (5, 20), "the course's"
        assert [array.shape for array in call.inputs] == [(8, 4)]
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


def measured(*p99s):
    return measure_threshold(
        replace(TRANSPOSE, inputs=lambda: (np.ones((8, 4)),)), len, Timer(*p99s)
    )


def test_three_rounds_that_agree_are_enough():
    result = measured(100, 100.5, 100.2, 900)
    assert (result.p99_us, result.rounds) == (100.2, 3)
    assert result.spread == pytest.approx(0.5 / 100.2)
    assert result.lines() == [
        "4096x4096, float32, transpose: full",
        "  measured: p99 100.2 us (device time)",
        "  limits:   700 us relaxed, 700 us full (the course's assignment, Part 1)",
        "  noise:    spread 0.5% over 3 rounds",
    ]
    assert json.loads(json.dumps(result.to_json()))["p99_us"] == 100.2


@every("third, rounds", [(100.9, 3), (101.1, 4)])
def test_one_per_cent_decides(third, rounds):
    assert measured(100.0, 100.5, third, third, third).rounds == rounds


def test_noise_that_stays_is_said_to():
    result = measured(*[100.0, 200.0] * 9)
    assert result.rounds == 9
    assert "NOT under 1 %" in result.lines()[-1]
