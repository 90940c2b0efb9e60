"""Access patterns, each operation against NumPy's on an array of the elements' numbers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from difftest.simulator.pattern import Pattern, contiguous_strides

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)


@st.composite
def patterns(draw, max_dims=4):
    axes = draw(
        st.lists(st.tuples(st.integers(1, 5), st.integers(-7, 7)), max_size=max_dims)
    )
    shape = tuple(n for n, _ in axes)
    strides = tuple(s for _, s in axes)
    return Pattern(draw(st.integers(-3, 40)), shape, strides)


def numbers(pattern):
    """The number of each element that a pattern names."""
    places = np.array(pattern.offset)
    for size, stride in zip(pattern.shape, pattern.strides, strict=True):
        places = np.add.outer(places, np.arange(size) * stride)
    return places


@given(SHAPES)
def test_all_of_a_tensor_is_numpys_order(shape):
    array = np.empty(shape, np.int16)
    assert tuple(2 * stride for stride in contiguous_strides(shape)) == array.strides
    whole = Pattern.whole(shape)
    assert_array_equal(numbers(whole), np.arange(array.size).reshape(shape))
    assert whole.is_whole(array.size)
    assert not whole.is_whole(array.size + 1)


@given(patterns())
def test_the_properties_of_a_pattern_match_its_elements(pattern):
    places = numbers(pattern)
    assert pattern.size == places.size
    assert pattern.extent() == (places.min(), places.max())
    assert pattern.repeats() == (len(np.unique(places)) < places.size)
    first = places - pattern.offset
    assert pattern.in_order() == (first.ravel().tolist() == list(range(places.size)))


@given(patterns(), st.integers(1, 60))
def test_a_pattern_fits_what_has_all_its_elements(pattern, size):
    places = numbers(pattern)
    assert pattern.fits(size) == bool((places >= 0).all() and (places < size).all())


@given(st.data(), patterns())
def test_permuted_and_expanded_patterns_select_as_numpy_does(data, pattern):
    places = numbers(pattern)
    ndim = places.ndim
    order = tuple(data.draw(st.permutations(range(ndim))))
    assert_array_equal(numbers(pattern.permute(order)), places.transpose(order))
    at = data.draw(st.integers(0, ndim))
    assert_array_equal(numbers(pattern.expand(at)), np.expand_dims(places, at))
    if not ndim:
        return
    axis = data.draw(st.integers(0, ndim - 1))
    size = places.shape[axis]
    start = data.draw(st.integers(0, size - 1))
    step = data.draw(st.integers(1, 3))
    count = data.draw(st.integers(1, -(-(size - start) // step)))
    lead = (slice(None),) * axis
    same = places[(*lead, slice(start, start + (count - 1) * step + 1, step))]
    assert_array_equal(numbers(pattern.slice(axis, start, count, step)), same)
    assert_array_equal(numbers(pattern.select(axis, start)), places[(*lead, start)])


@given(patterns(max_dims=3), SHAPES)
def test_broadcast_is_numpys(pattern, shape):
    try:
        same = np.broadcast_to(numbers(pattern), shape)
    except ValueError:
        assert pattern.broadcast_to(shape) is None
    else:
        assert_array_equal(numbers(pattern.broadcast_to(shape)), same)


@given(st.data(), patterns(max_dims=3))
def test_reshape_is_numpys_where_that_needs_no_copy(data, pattern):
    left = pattern.size
    wanted = []
    for _ in range(data.draw(st.integers(0, 3))):
        size = data.draw(
            st.sampled_from([k for k in range(1, left + 1) if left % k == 0])
        )
        wanted.append(size)
        left //= size
    wanted.append(left)
    memory = np.arange(400, dtype=np.int64)
    view = np.ndarray(
        pattern.shape,
        memory.dtype,
        memory,
        (200 + pattern.offset) * 8,
        [8 * stride for stride in pattern.strides],
    )
    moved = view.reshape(wanted)
    reshaped = pattern.reshape(tuple(wanted))
    assert (reshaped is None) == (not np.may_share_memory(moved, view))
    if reshaped is not None:
        assert reshaped.shape == tuple(wanted)
        assert_array_equal(numbers(reshaped), numbers(pattern).reshape(wanted))


@given(patterns(), st.sampled_from([2, 4]))
def test_coarser_elements_are_whole_and_aligned(pattern, parts):
    coarser = pattern.coarser(parts)
    places = numbers(pattern)
    last = places.shape[-1] if places.ndim else 1
    legal = last % parts == 0 and bool((np.diff(places) == 1).all())
    legal = legal and bool((places[..., ::parts] % parts == 0).all())
    assert (coarser is not None) == legal
    if coarser is not None:
        assert_array_equal(numbers(coarser), places[..., ::parts] // parts)
