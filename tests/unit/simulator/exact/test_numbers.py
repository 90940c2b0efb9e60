"""Numbers with bounds as array-likes: what they do not know is loud, and no bound gets lost."""

from __future__ import annotations

import numpy as np
import pytest

from difftest.simulator.exact.bounded import Bounded
from difftest.simulator.exact.numbers import Numbers
from difftest.simulator.exact.run import ExactSettings, Shadow
from difftest.simulator.instructions.alu import ALU_OPS, activated, rsqrt
from difftest.simulator.instructions.elementwise import in_integers
from difftest.simulator.lifted import made_like, step
from tests.every import every


def numbers(*values, error=0.5):
    value = np.array(values, np.float64)
    return Numbers(Shadow(ExactSettings()), Bounded(value, np.full(value.shape, error)))


def unheard_of(values):
    return values


UNKNOWN = {
    "np.arctan2": lambda x: np.arctan2(x, x),
    "np.divide.reduce": lambda x: np.divide.reduce(x, axis=0),
    "np.add (accumulate with axis)": lambda x: np.add.accumulate(x, axis=0),
    "np.add (__call__ with out)": lambda x: np.add(x, x, out=np.zeros(2)),
    "cumsum": np.cumsum,
    "unheard_of": step(unheard_of),
}


@every("name", UNKNOWN)
def test_what_has_no_rule_is_named(name):
    with pytest.raises(TypeError) as caught:
        UNKNOWN[name](numbers(1.0, 2.0))
    assert str(caught.value) == f"{name} has no rule for Numbers"


@every("lose", [np.asarray, np.zeros(2).__iadd__, lambda x: np.zeros((2, 2)).__setitem__(0, x)])
def test_no_bound_is_lost_in_silence(lose):
    """An array that takes numbers would hold their values alone."""
    with pytest.raises(TypeError, match=r"plain array|np\.add"):
        lose(numbers(1.0, 2.0))


def test_places_that_are_not_sure_are_a_doubt():
    """Integers name elements; floats are rounded where they are written."""
    unsure, sure = numbers(1.0, 2.0), numbers(1.0, 2.0, error=0.0)
    assert unsure.astype(np.float32) is unsure
    assert sure.astype(np.int64).tolist() == unsure.astype(np.int64).tolist() == [1, 2]
    (doubt,) = unsure.run.doubts.values()
    assert doubt.lost
    assert not sure.run.doubts


def test_an_array_that_is_filled_in_keeps_the_bounds():
    filled = made_like(numbers(1.0), (2, 2))
    filled[:, 0] = numbers(3.0, 4.0, error=0.25)
    filled[:, 1] = np.array([5.0, 6.0])
    held = filled.reshape(4).held
    assert held.value.tolist() == [3, 5, 4, 6]
    assert held.error.tolist() == [0.25, 0, 0.25, 0]
    filled[:, 1][...] = 7.0
    assert filled[0].held.error.tolist() == [0.25, 0]


def test_integers_are_computed_in_the_operands_order():
    """The machine's values are taken for exact ones of integers, so no bound shows this."""
    left, right = numbers(5.0), numbers(3.0)
    made = in_integers(left, right, ALU_OPS["subtract"], np.dtype(np.int32))
    assert made.held.value.tolist() == [2]


def test_places_of_rounded_values_are_a_doubt():
    unsure = numbers(1.0, 3.0, 2.0)
    assert np.argsort(unsure, axis=0, kind="stable").tolist() == [0, 2, 1]
    assert [doubt.lost for doubt in unsure.run.doubts.values()] == [False]


def test_a_decision_in_doubt_has_a_bound_that_holds_both():
    """Of numbers that may be 0: drawn ones hardly ever are."""
    unsure, sure = numbers(0.25, 2.0), numbers(1.0, 1.0, error=0.0)
    for made, value, error in (
        (activated(unsure, "sign"), [1, 1], [2, 0]),
        (ALU_OPS["logical_xor"].compute(unsure, sure), [0, 0], [1, 0]),
        (np.where(unsure, np.full(2, 10.0), np.full(2, 3.0)), [10, 10], [7, 0]),
    ):
        assert made.held.value.tolist() == value
        assert made.held.error.tolist() == error


def test_a_root_below_has_the_bound_of_its_nearer_end():
    held = rsqrt(numbers(4.0, error=1.0)).held
    assert held.value.tolist() == [0.5]
    assert 3**-0.5 - 0.5 <= held.error[0] < 0.078
