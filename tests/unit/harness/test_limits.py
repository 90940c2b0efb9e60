"""What a call leaves behind: random states of any generator are compared, and put back."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from difftest.harness.limits import within_limits


@pytest.fixture(params=[np.random.MT19937, np.random.PCG64])
def generator(request):
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(request.param(7))
    yield
    np.random.set_bit_generator(before)


@pytest.mark.usefixtures("generator")
def test_a_random_state_that_a_call_changes_is_told_whatever_its_generator():
    before = np.random.get_state(legacy=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        within_limits(lambda: None, "quiet")
    with pytest.warns(UserWarning, match="drawing changed NumPy's random state, put back"):
        within_limits(np.random.random, "drawing")
    np.testing.assert_equal(np.random.get_state(legacy=False), before)


def test_a_number_kept_for_later_is_part_of_the_state():
    """A normally distributed number leaves a second one, which stands beside the generator."""
    state = np.random.get_state(legacy=False)
    np.random.randn()
    with pytest.warns(UserWarning, match="drawing changed NumPy's random state, put back"):
        within_limits(np.random.randn, "drawing")
    assert np.random.get_state(legacy=False)["has_gauss"]
    np.random.set_state(state)
