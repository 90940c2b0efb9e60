"""Ten bugs with a smallest case that can be derived, and the page that shows them."""

import pytest

from tests.every import every
from tests.kernels.budget import NIGHTLY, half
from tests.meta.ten_bugs import BUGS, PAGE, page

SEEDS = range(5 if NIGHTLY else 1)
SHRUNK = half(range(len(BUGS)))


@pytest.fixture(scope="module")
def failures():
    """The smallest failure of each bug by its number, for each seed."""
    return [{number: BUGS[number].after(seed) for number in SHRUNK} for seed in SEEDS]


@every("number", SHRUNK)
def test_the_smallest_case_is_the_known_one(failures, number):
    values, dtype = BUGS[number].smallest
    for found in failures:
        assert (found[number].case.values, found[number].case.dtype) == (values, dtype)


def test_the_page_has_the_reports():
    assert page() == PAGE.read_text(encoding="utf-8"), "python -m tests.meta.ten_bugs"


def test_most_of_them_pass_an_example():
    assert sum(bug.before() == "passes" for bug in BUGS) >= 5
