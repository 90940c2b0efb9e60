"""Compare the elements that regions share, by the map and by its short cut, with a count."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from difftest.analysis.detectors.element_map import ElementMap, are_disjoint
from difftest.simulator.trace import Allocation, Region, Space
from tests.every import every


def tensor(*shape, dtype=np.float32):
    return Allocation(0, Space.SHARED_HBM, shape, np.dtype(dtype), 0, None)


def elements(region):
    """The flat elements that a region touches."""
    steps = [
        np.arange(size) * stride
        for size, stride in zip(region.shape, region.strides, strict=True)
    ]
    return {region.offset + int(sum(at)) for at in itertools.product(*steps)}


@st.composite
def owned_regions(draw):
    """A tensor, and boxes, strided parts and backward parts of it, with owners."""
    whole = tensor(*draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    strides = [
        int(np.prod(whole.shape[axis + 1 :])) for axis in range(len(whole.shape))
    ]
    owned = []
    for _ in range(draw(st.integers(1, 4))):
        offset = 0
        shape = []
        steps = []
        for size, stride in zip(whole.shape, strides, strict=True):
            first = draw(st.integers(0, size - 1))
            count = draw(st.integers(1, size - first))
            step = draw(st.sampled_from([1, 1, 2])) if count > 1 else 1
            count = (count + step - 1) // step
            backward = draw(st.booleans())
            offset += (first + (count - 1) * step if backward else first) * stride
            shape.append(count)
            steps.append(-step * stride if backward else step * stride)
        if draw(st.integers(0, 3)) == 0:  # a piece of the tensor as one line
            offset = draw(st.integers(0, strides[0] * whole.shape[0] - 1))
            shape = [draw(st.integers(1, strides[0] * whole.shape[0] - offset))]
            steps = [1]
        owned.append(
            (draw(st.integers(0, 2)), Region(whole, offset, tuple(shape), tuple(steps)))
        )
    return whole, owned


@given(owned_regions())
def test_regions_reported_as_disjoint_are_disjoint(drawn):
    whole, owned = drawn
    if are_disjoint(whole, owned):
        for (owner, one), (other, region) in itertools.combinations(owned, 2):
            assert owner == other or not elements(one) & elements(region)


@given(owned_regions())
def test_a_canvas_has_exactly_the_elements_of_a_region(drawn):
    whole, owned = drawn
    regions = [region for _, region in owned]
    element_map = ElementMap([whole], regions)
    for painted in regions:
        cells = element_map.filled(0)
        element_map.write(cells, painted, 1)
        for other in regions:
            seen = element_map.read(cells, other) == 1
            shared = elements(painted) & elements(other)
            assert seen.any() == bool(shared)
            if shared:
                at = element_map.element(other, np.asarray(seen))
                assert int(np.ravel_multi_index(at, whole.shape)) in shared


ROWS = tensor(8, 6)
CUBE = tensor(4, 4, 6)


def rows(first, last):
    return Region(ROWS, first * 6, (last - first, 6), (6, 1))


def tile(row, column):
    return Region(ROWS, row * 6 + column, (2, 3), (6, 1))


@every(
    "owned",
    [
        [(0, rows(0, 2)), (1, rows(2, 8))],
        [(1, rows(4, 8)), (0, rows(0, 4))],
        [(0, rows(0, 4)), (0, rows(1, 2)), (1, rows(4, 8))],
        [(4 * r + c, tile(r, c)) for r in (0, 2, 4, 6) for c in (0, 3)],
        [(c, Region(ROWS, c, (5, 8, 3), (0, 6, 1))) for c in (0, 3)],
    ],
)
def test_the_short_cut_sees_pieces_and_grids(owned):
    """Without it each large output that is stored tile by tile would have an element map."""
    assert are_disjoint(ROWS, owned)


@every(
    "owned",
    [
        [(0, rows(0, 3)), (1, rows(2, 8))],
        [(0, rows(0, 6)), (0, rows(1, 2)), (1, rows(4, 8))],
        [(0, tile(0, 0)), (1, tile(0, 0))],
        [(0, tile(0, 0)), (1, tile(1, 0))],
        [(0, Region(ROWS, 5, (6,), (-1,))), (1, rows(0, 1))],
        [(0, Region(ROWS, 0, (7,), (1,))), (1, Region(ROWS, 6, (6,), (1,)))],
        [(0, Region(ROWS, 0, (7,), (1,))), (1, Region(ROWS, 6, (7,), (1,)))],
        [(0, Region(ROWS, 0, (3, 2, 3), (6, 6, 1))), (1, tile(2, 0))],
    ],
)
def test_the_short_cut_finds_no_overlap_that_is_not_there(owned):
    assert not are_disjoint(ROWS, owned)


@every(
    "line, cells",
    [
        (Region(CUBE, 0, (96,), (1,)), (1, 1, 1)),
        (Region(CUBE, 24, (48,), (1,)), (3, 1, 1)),
        (Region(CUBE, 24, (2, 24), (24, 1)), (3, 1, 1)),
        (Region(CUBE, 30, (6,), (1,)), (3, 3, 1)),
        (Region(CUBE, 30, (24,), (1,)), (96,)),
        (Region(CUBE, 24, (30,), (1,)), (96,)),
    ],
)
def test_a_box_that_is_walked_as_one_line_has_no_cell_for_each_element(line, cells):
    """A scatter that may write anywhere has such a region: nki-library's moe_cte has 168."""
    element_map = ElementMap([CUBE], [line])
    assert element_map.shape == cells
    assert element_map.read(element_map.filled(1), line).all()


def test_an_axis_of_one_element_has_the_stride_of_the_one_before():
    whole = tensor(8, 1, 6)
    parts = [Region(whole, column, (8, 1, 3), (6, 6, 1)) for column in (0, 3)]
    assert are_disjoint(whole, enumerate(parts))
    assert are_disjoint(
        whole, enumerate(Region(whole, one.offset, (8, 3), (6, 1)) for one in parts)
    )


def test_a_tensor_with_views_of_other_dtypes_has_no_finding():
    seen = tensor(8, 6)
    seen.viewed = True
    assert not are_disjoint(seen, [(0, rows(0, 2)), (1, rows(2, 8))])
