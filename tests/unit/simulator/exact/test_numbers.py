"""Numbers with bounds as array-likes: unknown functions raise, and no bound gets lost."""

import itertools
from functools import partial

import numpy as np
import pytest

from difftest.simulator.dtypes import BFLOAT16, FLOAT32
from difftest.simulator.exact.bounded import UNIT, Bounded, number
from difftest.simulator.exact.numbers import (
    ARITHMETIC,
    Numbers,
    chosen_from,
    matrix_product,
)
from difftest.simulator.exact.run import ExactSettings, Shadow
from difftest.simulator.instructions.alu import ALU_OPS, activated
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
def test_the_error_names_the_function_without_a_rule(name):
    with pytest.raises(TypeError) as caught:
        UNKNOWN[name](numbers(1.0, 2.0))
    assert str(caught.value) == f"{name} has no rule for Numbers"


@every(
    "lose",
    [np.asarray, np.zeros(2).__iadd__, lambda x: np.zeros((2, 2)).__setitem__(0, x)],
)
def test_no_bound_is_lost_in_silence(lose):
    """An array that takes numbers would hold their values alone."""
    with pytest.raises(TypeError, match=r"plain array|np\.add"):
        lose(numbers(1.0, 2.0))


def test_places_that_are_not_sure_are_a_doubt():
    """Integers name elements; floats are rounded where they are written."""
    unsure = numbers(1.0, 2.0)
    sure = numbers(1.0, 2.0, error=0.0)
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
    assert (held.dtype, held.sums, held.adds, held.partial) == (
        FLOAT32,
        0,
        False,
        False,
    )


def test_integers_are_computed_in_the_operands_order():
    """Without a rounding, and what leaves the dtype comes back at its other end, as the machine
    has it: its values are taken for exact ones, so no bound shows this."""
    left = numbers(5.0)
    right = numbers(3.0)
    op = ALU_OPS["subtract"]
    made = in_integers(left, right, op, np.dtype(np.int32)).held
    assert (made.value.tolist(), made.error.tolist()) == ([2], [1])
    none = in_integers(left, left, op, np.dtype(np.uint32)).held
    assert (none.value.tolist(), none.error.tolist()) == ([0], [2**32 - 1])
    least = Numbers(left.run, Bounded(np.array([-(2.0**31)])))
    most = in_integers(
        least, Numbers(left.run, number(1.0)), op, np.dtype(np.int32)
    ).held
    assert (most.value.tolist(), most.error) == ([2**31 - 1], None)


def test_a_result_without_rounding_keeps_its_dtype():
    """The result of two operands of one dtype keeps it."""
    narrow, wide = (Bounded(np.ones(1), None, dtype) for dtype in (BFLOAT16, FLOAT32))
    where = partial(chosen_from, True, None)
    for chosen in (ARITHMETIC[np.maximum], ARITHMETIC[np.minimum], where):
        assert chosen(narrow, narrow).dtype == BFLOAT16
        assert chosen(narrow, wide).dtype == FLOAT32


def test_places_of_rounded_values_are_a_doubt():
    unsure = numbers(1.0, 3.0, 2.0)
    places = np.argsort(unsure[None, :], axis=1, kind="stable").held
    assert (places.value.tolist(), places.error.tolist()) == ([[0, 2, 1]], [[2, 2, 2]])
    assert [doubt.lost for doubt in unsure.run.doubts.values()] == [False]


def test_places_of_values_whose_bounds_do_not_overlap_are_sure():
    sure = numbers(1.0, 3.0, 2.0, error=0.25)
    places = np.argsort(sure[None, :], axis=1, kind="stable").held
    assert (places.value.tolist(), places.error) == ([[0, 2, 1]], None)
    some = numbers(5.0, 1.0, 3.0, 3.1, error=0.25)
    places = np.argsort(some[None, :], axis=1, kind="stable").held
    assert places.error.tolist() == [[0, 1, 1, 0]]
    assert not sure.run.doubts


def test_a_decision_in_doubt_has_a_bound_that_holds_both():
    """The numbers may be 0, which drawn numbers hardly ever may."""
    unsure = numbers(0.25, 2.0)
    sure = numbers(1.0, 1.0, error=0.0)
    half = numbers(0.25, 0.0, error=[0.5, 0.0])
    near_one = Numbers(unsure.run, number(1 + 2.0**-30))
    for made, value, error in (
        (activated(unsure, "sign"), [1, 1], [2, 0]),
        (near_one != 1, 1, 1),
        (ALU_OPS["logical_xor"].compute(unsure, sure), [0, 0], [1, 0]),
        (np.where(half, numbers(10.0, 10.0), np.full(2, 3.0)), [10, 3], [7.5, 0]),
    ):
        assert made.held.value.tolist() == value
        assert made.held.error.tolist() == error


def product_of(values):
    """Return the product of the first half of the values and the second half."""
    left = values[: len(values) // 2]
    right = values[len(values) // 2 :]
    if not isinstance(values, Numbers):
        return left @ right
    made = matrix_product(values.run, left[:, None].held, right[:, None].held)
    return Numbers(values.run, made)[0, 0]


REDUCTIONS = {
    **{name: getattr(np, name).reduce for name in ("add", "subtract", "multiply")},
    **{name: getattr(np, name).reduce for name in ("maximum", "minimum")},
    "second smallest": lambda values: np.sort(values, axis=0)[1],
    "product": product_of,
}


@every("name", REDUCTIONS)
def test_a_reduction_has_the_bound_that_its_terms_make(name):
    """The bound is the largest result at the terms' ends, plus the roundings."""
    values = np.array([3.0, -0.5, 2.25, 0.125])
    errors = np.array([0.5, 0.25, 0.0, 0.125])
    terms = Numbers(Shadow(ExactSettings()), Bounded(values, errors))
    held = REDUCTIONS[name](terms).held
    reduce = REDUCTIONS[name]
    ends = itertools.product(*zip(values - errors, values + errors, strict=True))
    most = max(abs(reduce(np.array(end)) - held.value) for end in ends)
    size = np.abs(values) + errors
    wide = size.prod() if name == "multiply" else size.sum() * size.max()
    assert held.value == reduce(values)
    assert most <= held.error <= most + 4.1 * UNIT * wide


@every(
    "name, values",
    [
        ("add", [2.0**23, 2.0**23]),
        ("add", [0.1]),
        ("multiply", [2.0**12, 2.0**12]),
        ("product", [2.0**11, 2.0**12]),
        ("maximum", [0.1, 0.3]),
    ],
)
def test_sums_that_round_in_no_order_are_exact(name, values):
    """Sums and products of integers up to 2**24, and not beyond."""
    run = Shadow(ExactSettings())
    reduce = REDUCTIONS[name]
    assert reduce(Numbers(run, Bounded(np.array(values)))).held.error is None
    if len(values) > 1 and name != "maximum":
        for more in (np.array(values) + 0.5, np.array(values) * 2 + 1):
            held = reduce(Numbers(run, Bounded(more))).held
            assert abs(np.float32(held.value) - held.value) <= held.error
            assert held.error > 0


@every("remainder", [np.mod, np.fmod])
def test_a_remainder_is_within_its_bound_whichever_multiple_is_taken(remainder):
    values = np.arange(-40, 41) / 8.0
    left = numbers(*values, error=0.125)
    right = numbers(2.0, error=0.25)
    held = remainder(left, right).held
    for low, high in itertools.product(
        (-0.125, 0.0, 0.0625, 0.125), (-0.25, 0.0, 0.25)
    ):
        off = np.abs(remainder(values + low, 2.0 + high) - held.value)
        assert (off <= held.error).all()
    assert held.error.min() < 0.2
    assert [doubt.lost for doubt in left.run.doubts.values()] == [False]
