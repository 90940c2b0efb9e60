"""Indexing and views, against NumPy's own on the same arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from difftest.simulator import KernelError, OutOfBoundsError, ShapeError
from difftest.simulator.frontend.arguments import DynamicSlice as ds
from difftest.simulator.frontend.classic.expressions import MGridMaker, arange
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space
from tests.every import every
from tests.unit.simulator.stored import stored

mgrid = MGridMaker()
SPACES = [Space.SHARED_HBM, Space.PRIVATE_HBM, Space.SBUF, Space.PSUM]
shapes = st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple)


def numbered(shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@st.composite
def items(draw, size):
    """One in-bounds index of an axis: (NKI's, NumPy's)."""
    start = draw(st.integers(0, size - 1))
    stop = draw(st.integers(start + 1, size))
    kind = draw(st.sampled_from(["integer", "slice", "open", "ds"]))
    if kind == "integer":
        number = draw(st.sampled_from([start, np.int64(start)]))
        return number, number
    if kind == "ds":
        return ds(start, stop - start), slice(start, stop)
    if kind == "open":
        part = draw(
            st.sampled_from([slice(None), slice(start, None), slice(None, stop)])
        )
        return part, part
    part = slice(start, stop, draw(st.integers(1, 3)))
    return part, part


@st.composite
def basic_keys(draw, shape):
    """An in-bounds basic index of an array: (NKI's, NumPy's)."""
    given_axes = draw(st.integers(0, len(shape)))
    pairs = [draw(items(size)) for size in shape[:given_axes]]
    if draw(st.booleans()):  # an ellipsis moves the last of them to the array's end
        lead = draw(st.integers(0, given_axes))
        tail = [draw(items(size)) for size in shape[len(shape) - (given_axes - lead) :]]
        pairs = [*pairs[:lead], (..., ...), *tail]
    if draw(st.booleans()):
        pairs.insert(draw(st.integers(0, len(pairs))), (None, None))
    ours = tuple(p[0] for p in pairs)
    numpys = tuple(p[1] for p in pairs)
    if len(pairs) == 1 and draw(st.booleans()):
        return ours[0], numpys[0]
    return ours, numpys


@given(st.data(), shapes, st.sampled_from(SPACES))
def test_basic_indexing_selects_as_numpy_does(data, shape, space):
    array = numbered(shape)
    key, same = data.draw(basic_keys(shape))
    tile = stored(array, space)[key]
    assert tile.shape == np.shape(array[same])
    assert_array_equal(tile._read(), array[same])


@given(st.data(), shapes, st.sampled_from(SPACES))
def test_beyond_its_end_numpy_clips_and_nki_raises(data, shape, space):
    array = numbered(shape)
    axis = data.draw(st.integers(0, len(shape) - 1))
    size = shape[axis]
    over = data.draw(
        st.sampled_from(
            [size, -1, slice(0, size + 1), slice(-1, size), ds(1, size), ds(-1, 1)]
        )
    )
    key = (*[slice(None)] * axis, over)
    tile = stored(array, space)[key]  # a mask may still cut it back
    with pytest.raises(OutOfBoundsError) as caught:
        tile._read()
    assert (
        f"on axis {axis} of t {list(shape)} float32 in {space.value}"
        in caught.value.received
    )
    assert caught.value.limit == f"0 to {size - 1}"
    with pytest.raises(IndexError):
        tile.reshape(
            (tile.size,) if space.is_hbm else (tile.shape[0] if tile.shape else 1, -1)
        )


def test_a_part_of_a_tile_out_of_bounds():
    """Cut down again with a second index, or by a mask, it may lie inside."""
    tile = stored(numbered((4, 5)))[2:6]
    assert_array_equal(tile[0:2]._read(), numbered((4, 5))[2:4])
    assert_array_equal(tile[1, 2:4]._read(), numbered((4, 5))[3, 2:4])
    for outside in (
        lambda: tile[1:3]._read(),
        lambda: tile[0:5],
        lambda: tile.reshape((20,)),
    ):
        with pytest.raises(OutOfBoundsError, match="an access stays inside its tensor"):
            outside()


def test_a_plain_tile_is_not_indexed_with_tiles():
    index = stored(np.zeros((2, 1), np.int32), Space.SBUF)
    plain = Tile._whole(stored(numbered((4, 5)))._storage)
    with pytest.raises(
        KernelError, match="a tensor is indexed with integers, slices, None"
    ):
        plain[index, arange(5)[None, :]]


@st.composite
def affine(draw, shape):
    """In-bounds affine indices of every axis over one 2-D or 3-D grid: (NKI's, NumPy's)."""
    counts = draw(st.lists(st.integers(1, 3), min_size=2, max_size=3))
    ours = mgrid[tuple(slice(0, n) for n in counts)]
    numpys = np.mgrid[tuple(slice(0, n) for n in counts)]
    keys = []
    same = []
    for size in shape:
        steps = [draw(st.integers(-2, 2)) for _ in counts]
        reach = [step * (n - 1) for step, n in zip(steps, counts, strict=True)]
        low = sum(min(r, 0) for r in reach)
        high = sum(max(r, 0) for r in reach)
        if high - low >= size:
            steps = [0] * len(counts)
            low = 0
            high = 0
        start = draw(st.integers(-low, size - 1 - high))
        keys.append(start + sum((s * i for s, i in zip(steps, ours, strict=True)), 0))
        same.append(start + sum(s * i for s, i in zip(steps, numpys, strict=True)))
    return tuple(keys), tuple(same)


@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple))
def test_affine_indices_of_hbm(data, shape):
    array = numbered(shape)
    key, same = data.draw(affine(shape))
    tile = stored(array)[key]
    assert_array_equal(tile._read(), array[same])
    assert tile.shape == array[same].shape


@every(
    "key",
    [
        (arange(4)[:, None], arange(4)[None, :] + 2),
        (arange(4)[:, None] - 1, arange(4)[None, :]),
        (arange(4)[:, None], 5),
        (arange(4)[:, None], 3 - arange(5)[None, :]),
        (arange(4)[:, None], 2 * arange(4)[None, :]),
    ],
)
@every("space", SPACES)
def test_affine_indices_out_of_bounds(key, space):
    tile = stored(numbered((4, 5)), space)[key]
    with pytest.raises(OutOfBoundsError, match="an access stays inside its tensor"):
        tile._read()


def test_a_blocked_tensor_is_indexed_to_its_partitions():
    array = numbered((3, 4, 5))
    blocks = stored(array, Space.SBUF, partition_axis=1)
    with pytest.raises(
        ShapeError, match="first dimension of a tile is its partition dimension"
    ):
        blocks._tile_shape()
    assert blocks[1]._tile_shape() == (4, 5)
    p, x = mgrid[0:4, 0:5]
    for tile in (blocks[1], blocks[1, :, :], blocks[1, ...], blocks[1, p, x]):
        assert_array_equal(tile._read(), array[1])


@every("shape", [(3, 4, 2, 5), (3, 4, 10), (3, 4, 5, 2, 1)])
def test_reshape_of_a_blocked_tensor_keeps_blocks_and_partitions(shape):
    array = numbered((3, 4, 10))
    blocks = stored(array, Space.SBUF, partition_axis=1)
    view = blocks.reshape(shape)
    assert view._partition_axis == 1
    assert_array_equal(view[2]._read(), array.reshape(shape)[2])


@every("shape", [(4, 3, 10), (12, 10), (3, 2, 2, 10), (1, 4, 30), (120,)])
def test_reshape_of_a_blocked_tensor_does_not_move_partitions(shape):
    blocks = stored(numbered((3, 4, 10)), Space.SBUF, partition_axis=1)
    with pytest.raises(ShapeError, match="keeps its partition dimension") as caught:
        blocks.reshape(shape)
    assert caught.value.limit == "dimension 1 stays 4"


def test_reshape_of_a_slice_is_a_view_or_an_error():
    array = numbered((4, 6))
    tile = stored(array)
    assert_array_equal(tile[1:3].reshape((12,))._read(), array[1:3].reshape(12))
    with pytest.raises(ShapeError, match="its elements must be adjacent") as caught:
        tile[:, 0:3].reshape((12,))
    assert (
        caught.value.received
        == "t [4, 3] float32 in shared_hbm with strides (6, 1) to [12]"
    )


@given(st.data(), shapes, st.sampled_from(SPACES))
def test_expand_dims_adds_a_dimension_as_numpy_does(data, shape, space):
    array = numbered(shape)
    axis = data.draw(st.integers(0 if space.is_hbm else 1, len(shape)))
    for at in (axis, axis - len(shape) - 1):
        view = stored(array, space).expand_dims(at)
        assert_array_equal(view._read(), np.expand_dims(array, at))


def test_assert_shape_gives_the_tile_back():
    tile = stored(numbered((4, 5)))
    assert tile.assert_shape([4, 5]) is tile
    with pytest.raises(ShapeError) as caught:
        tile.assert_shape((4, 6))
    assert caught.value.received == repr(tile)
    assert "takes the shape [4, 6]" in str(caught.value)


def test_a_tile_has_the_length_of_its_first_dimension():
    tile = stored(numbered((4, 5)))
    assert len(tile) == 4
    assert [row.shape for row in tile] == [(5,)] * 4
    with pytest.raises(ShapeError, match="no dimension"):
        len(tile[0, 0])


SBUF = [
    ("a third index", lambda t: t[0, 0, 0], ShapeError, "[0, 0, 0] on t [4, 6]"),
    ("an empty slice", lambda t: t[2:2], ShapeError, "2:2 at axis 0 of t"),
    ("a slice to -1", lambda t: t[:, :-1], ShapeError, ":-1 at axis 1 of t"),
    ("a list", lambda t: t[[0, 1]], KernelError, "[0, 1] at axis 0"),
    ("a string", lambda t: t["a"], KernelError, "'a' at axis 0"),
    ("a float", lambda t: t[1.0], KernelError, "1.0 at axis 0"),
    (
        "partitions on the second axis",
        lambda t: t[arange(4)[None, :], arange(6)[:, None]],
        KernelError,
        "axis 0 of t [4, 6] float32 in sbuf walked with steps (0, 1)",
    ),
    (
        "partitions moved back",
        lambda t: t.broadcast_to((2, 4, 6)),
        ShapeError,
        "to [2, 4, 6]",
    ),
    ("fewer dimensions", lambda t: t.broadcast_to((6,)), ShapeError, "to [6]"),
    ("an axis before", lambda t: t.expand_dims(-3), ShapeError, "axis=-3 of t"),
]


@every("use, error, received", [row[1:] for row in SBUF])
def test_a_tile_rejects_other_operations(use, error, received):
    with pytest.raises(error) as caught:
        use(stored(numbered((4, 6)), Space.SBUF))
    assert received in caught.value.received
