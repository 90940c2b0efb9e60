import pytest

from difftest.course.assignment import PERFORMANCE, correctness_tests, performance_tests
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
    assert [len(test.channels) for test in correctness_tests(max_pool=True)] == [4, 4, 4, 1, 1, 1]


@every("test", PERFORMANCE)
def test_points_at_under_and_over_each_limit(test):
    assert test.points_for(test.full_us) == test.points
    just_over = test.points_for(test.full_us + 0.01)
    relaxed = test.relaxed_us > test.full_us
    assert just_over == pytest.approx(test.points * 0.95 if relaxed else 0.0)
    assert test.points_for(test.relaxed_us) > 0
    assert test.points_for(test.relaxed_us + 0.01) == 0
