import numpy as np

from difftest.tools.course.assignment import (
    PERFORMANCE,
    TRANSPOSE,
    correctness_tests,
    performance_tests,
)
from tests.every import every


def test_points_add_up_to_the_guidelines():
    assert sum(test.points for test in correctness_tests(max_pool=True)) == 10
    assert sum(test.points for test in correctness_tests(max_pool=False)) == 7.5
    scored = performance_tests(max_pool=True)
    assert sum(test.points for test in scored if not test.extra_credit) == 50
    assert sum(test.points for test in scored if test.extra_credit) == 5
    assert sum(test.points for test in performance_tests(max_pool=False)) == 35 + 2.5


def test_order_is_easy_to_hard():
    names = [test.name for test in correctness_tests(max_pool=True)]
    assert names == [
        "small images",
        "small images, bias",
        "small images, bias, max pool",
        "large images",
        "large images, bias",
        "large images, bias, max pool",
    ]
    assert [len(test.channels) for test in correctness_tests(max_pool=True)] == [
        4,
        4,
        4,
        1,
        1,
        1,
    ]


def just_over(limit):
    return np.nextafter(limit, np.inf)


@every("test", PERFORMANCE)
def test_points_at_and_just_over_each_limit(test):
    """None between the limits where there is one alone."""
    assert test.points_for(test.full_us) == test.points
    assert test.points_for(test.relaxed_us) == test.points * (
        0.95 if test.relaxed_us > test.full_us else 1
    )
    assert test.result(just_over(test.full_us)) != "full"
    assert test.points_for(just_over(test.relaxed_us)) == 0


def test_the_transpose_must_be_under_its_limit():
    assert TRANSPOSE.result(np.nextafter(700, 0)) == "full"
    assert TRANSPOSE.result(700) == "missed"


@every(
    "image, dtype, limits",
    [
        ((224, 224), "float32", (4964, 4596)),
        ((224, 224), "float16", (1365, 1002)),
        ((32, 16), "float32", (110, 110)),
        ((32, 16), "float16", (84, 84)),
    ],
)
def test_limits_and_arrays_are_the_courses_with_and_without_pooling(
    image, dtype, limits
):
    tests = [
        test
        for test in PERFORMANCE
        if test.name.startswith(f"{image[0]}x{image[1]}, {dtype}")
    ]
    assert [test.pool_size for test in tests] == [1, 2]
    assert [(test.relaxed_us, test.full_us) for test in tests] == [limits] * 2
    for test in tests:
        assert (test.shapes, test.dtype) == (
            ((1, 256, *image), (256, 256, 3, 3), (256,)),
            dtype,
        )


def test_the_arrays_are_the_same_each_time():
    test = PERFORMANCE[-1]
    for array, other in zip(test.arguments(), test.arguments(), strict=True):
        assert array.dtype == np.float16
        assert np.array_equal(array, other)
