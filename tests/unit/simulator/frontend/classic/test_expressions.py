"""Index expressions and masks: NumPy's arithmetic on the same grids is the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, ShapeError
from difftest.simulator.frontend.classic.expressions import (
    IndexExpression,
    Mask,
    MGridMaker,
    arange,
)
from tests.every import every

mgrid = MGridMaker()
SMALL = st.integers(-5, 5)


@st.composite
def grids(draw):
    """An axis of nl.arange or nl.mgrid, and NumPy's equal."""
    rows = draw(st.integers(1, 4))
    columns = draw(st.integers(1, 4))
    start = draw(st.integers(0, 6))
    step = draw(st.integers(1, 3))
    stop = start + columns * step
    return draw(
        st.sampled_from(
            [
                (arange(rows)[:, None], np.arange(rows)[:, None]),
                (
                    arange(start, stop, step)[None, :],
                    np.arange(start, stop, step)[None, :],
                ),
                (mgrid[0:4, start:stop:step].x, np.mgrid[0:4, start:stop:step][1]),
                (mgrid[0:4, 0:columns].p, np.mgrid[0:4, 0:columns][0]),
            ]
        )
    )


OPERATIONS = {
    "index + n": lambda i, n: i + n,
    "n + index": lambda i, n: n + i,
    "index - n": lambda i, n: i - n,
    "n - index": lambda i, n: n - i,
    "index * n": lambda i, n: i * n,
    "n * index": lambda i, n: n * i,
    "np.int64 * index": lambda i, n: np.int64(n) * i,
    "np.int64 - index": lambda i, n: np.int64(n) - i,
    "-index": lambda i, n: -i,
    "[..., None]": lambda i, n: i[..., None],
    "[None]": lambda i, n: i[None],
    "[:]": lambda i, n: i[:],
}


@st.composite
def expressions(draw):
    index, array = draw(grids())
    for name in draw(st.lists(st.sampled_from(sorted(OPERATIONS)), max_size=4)):
        number = draw(SMALL)
        if array.ndim < 4 or "None" not in name:
            index = OPERATIONS[name](index, number)
            array = OPERATIONS[name](array, number)
    return index, array


@given(expressions())
def test_index_expressions_have_the_values_of_numpy(expression):
    index, array = expression
    assert isinstance(index, IndexExpression)
    assert (index.shape, index.ndim) == (array.shape, array.ndim)
    assert_array_equal(index.array(), array)


@given(expressions(), expressions())
def test_two_expressions_add_and_subtract_as_they_broadcast(first, second):
    (i, a), (j, b) = first, second
    try:
        total = a + b
    except ValueError:
        with pytest.raises(ShapeError, match="index expressions must have shapes"):
            i + j
        return
    assert_array_equal((i + j).array(), total)
    assert_array_equal((i - j).array(), a - b)


COMPARISONS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
}


@given(
    grids(),
    SMALL,
    st.sampled_from(sorted(COMPARISONS)),
    st.sampled_from(sorted(COMPARISONS)),
)
def test_masks_are_conjunctions_of_comparisons(grid, number, first, second):
    index, array = grid
    compare = COMPARISONS[first]
    other = COMPARISONS[second]
    mask = compare(index, number) & other(2 * index, 7)
    expected = compare(array, number) & other(2 * array, 7)
    assert mask.shape == array.shape
    assert_array_equal(mask.array(array.shape), expected)
    assert_array_equal(
        compare(number, index).array(array.shape), compare(number, array)
    )


def test_a_mask_broadcasts_to_its_instruction():
    assert (arange(4)[:, None] < 2).array((4, 3)).sum() == 6
    with pytest.raises(ShapeError, match="mask must broadcast to the shape") as caught:
        (arange(4)[:, None] < 2).array((5, 3))
    assert caught.value.received == "mask of shape (4, 1), instruction of shape (5, 3)"


@every("condition", [True, np.True_])
def test_a_loops_condition_joins_a_mask(condition):
    mask = arange(4)[None, :] < 2
    assert isinstance(condition & mask, Mask)
    assert isinstance(mask & condition, Mask)
    assert (mask & (not condition)) is False


def test_a_grid_has_as_many_axes_as_dimensions():
    with pytest.raises(AttributeError, match="a grid of 2 dimensions has p, x, not y"):
        _ = mgrid[0:3, 0:4].y


REFUSED = [
    ("a product", lambda i: i * i, "the product of two indices"),
    ("//", lambda i: i // 2, "//"),
    ("%", lambda i: i % 2, "%"),
    ("!=", lambda i: i != 2, "!="),
    ("a condition", lambda i: bool(i), "used as a condition"),
    ("not", lambda i: not i, "used as a condition"),
    ("a mask as a condition", lambda i: (i < 2) and True, "a mask used as a condition"),
    ("'or' of masks", lambda i: (i < 2) or (i > 3), "a mask used as a condition"),
    (
        "a joined right side",
        lambda i: i < 2 and (i > 0) & (i < 4),
        "a mask used as a condition",
    ),
    (
        "'if' of two masks",
        lambda i: 1 if i < 2 and i > 0 else 0,
        "a mask used as a condition",
    ),
    ("a chained comparison", lambda i: 0 < i < 3, "a mask used as a condition"),
    ("| of masks", lambda i: (i < 2) | (i > 3), "| between masks"),
    ("assignment", lambda i: i.__setitem__((0, 1), 3), "an assignment to the result"),
    ("an integer between brackets", lambda i: i[0], "0 on an index of shape (4, 1)"),
    ("a slice between brackets", lambda i: i[0:2], "on an index of shape (4, 1)"),
    ("a tuple of too many", lambda i: i[:, :, :], "on an index of shape (4, 1)"),
    ("arange of a float", lambda i: arange(1.5), "nl.arange with 1.5 (float)"),
    ("arange of nothing", lambda i: arange(), "no argument"),
    ("arange of 0", lambda i: arange(0), "0"),
    ("arange with step 0", lambda i: arange(0, 4, 0), "0, 4, 0"),
    (
        "mgrid with a complex step",
        lambda i: mgrid[0:2:2j],
        "nl.mgrid with 2j (complex)",
    ),
    ("mgrid without an end", lambda i: mgrid[0:], "nl.mgrid with None (NoneType)"),
    ("mgrid of integers", lambda i: mgrid[3, 4], "3"),
    ("an empty mgrid", lambda i: mgrid[0:4, 3:3], "3, 3, 1"),
]


@every("use, received", [row[1:] for row in REFUSED])
def test_an_expression_that_is_not_affine_is_rejected(use, received):
    with pytest.raises(NkiError) as caught:
        use(arange(4)[:, None])
    assert received in caught.value.received


@every(
    "operation",
    [
        lambda i: i + 1.5,
        lambda i: "x" - i,
        lambda i: i * None,
        lambda i: 1.5 * i,
        lambda i: (i < 2) & 3,
    ],
)
def test_other_types_are_pythons_to_refuse(operation):
    with pytest.raises(TypeError, match="unsupported operand"):
        operation(arange(4))
