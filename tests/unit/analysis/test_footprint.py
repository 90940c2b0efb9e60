import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from difftest.analysis.footprint import footprint
from difftest.simulator.trace import Allocation, Region, Space

SHAPE = (4, 5, 6)
TILE = Allocation(0, Space.SBUF, SHAPE, np.dtype("float32"), 0, None)
BLOCKS = Allocation(1, Space.SBUF, SHAPE, np.dtype("float32"), 1, None)
FLAT = Allocation(2, Space.SHARED_HBM, SHAPE, np.dtype("float32"), 0, None)


def axis(size):
    """A slice of an axis: first element, how many, step."""

    def fitting(first):
        return st.integers(1, 3).flatmap(
            lambda step: st.tuples(
                st.just(first),
                st.integers(1, (size - 1 - first) // step + 1),
                st.just(step),
            )
        )

    return st.integers(0, size - 1).flatmap(fitting)


slices = st.tuples(*map(axis, SHAPE))


def region(allocation, chosen):
    steps = (30, 6, 1)
    offset = sum(
        first * step for (first, _, _), step in zip(chosen, steps, strict=True)
    )
    strides = tuple(by * step for (_, _, by), step in zip(chosen, steps, strict=True))
    return Region(allocation, offset, tuple(count for _, count, _ in chosen), strides)


def members(one):
    """The elements of a region, one by one."""
    grid = np.indices(one.shape).reshape(len(one.shape), -1).T
    return {one.offset + int(index @ np.array(one.strides)) for index in grid}


@given(st.sampled_from([TILE, FLAT]), slices, slices)
def test_overlap_is_a_shared_element(allocation, one, other):
    left = region(allocation, one)
    right = region(allocation, other)
    shared = bool(members(left) & members(right))
    found = footprint(left).overlaps(footprint(right))
    # A step over partitions is taken as all of them between: more dependences, never fewer.
    exact = allocation is FLAT or one[0][2] == other[0][2] == 1
    assert found == shared if exact else found >= shared


@given(slices, slices)
def test_blocks_before_the_partition_axis_lie_apart(one, other):
    left = region(BLOCKS, one)
    right = region(BLOCKS, other)
    if members(left) & members(right):
        assert footprint(left).overlaps(footprint(right))


@given(st.sampled_from([TILE, FLAT]), slices, slices)
def test_covering_is_having_every_element(allocation, one, other):
    left = region(allocation, one)
    right = region(allocation, other)
    if one[0][2] == other[0][2] == 1 and footprint(left).covers(footprint(right)):
        assert members(left) >= members(right)


def test_partitions_may_be_walked_downwards():
    tile = Allocation(0, Space.SBUF, (128, 8), np.dtype("float32"), 0, None)
    backwards = footprint(Region(tile, 127 * 8, (64, 8), (-8, 1)))
    assert (backwards.first, backwards.last) == (64, 128)
    assert backwards.overlaps(footprint(Region(tile, 64 * 8, (1, 8), (8, 1))))
    assert not backwards.overlaps(footprint(Region(tile, 63 * 8, (1, 8), (8, 1))))


def test_interleaved_patterns_do_not_overlap():
    tile = Allocation(0, Space.SBUF, (128, 8), np.dtype("float32"), 0, None)
    even, odd = (footprint(Region(tile, i, (128, 4), (8, 2))) for i in (0, 1))
    assert not even.overlaps(odd)
    assert even.overlaps(even)
