"""Views of another dtype, and patterns made by hand: against NumPy's own on the same bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from difftest.simulator import OutOfBoundsError, ShapeError
from difftest.simulator.dtypes import (
    BOOL,
    DTYPES,
    FLOAT16,
    FLOAT32,
    TFLOAT32,
    from_bits,
    to_bits,
)
from difftest.simulator.instructions.gate import write
from difftest.simulator.memory import UNTOUCHED
from difftest.simulator.pattern import Pattern
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space
from tests.every import every
from tests.unit.simulator.stored import stored

UINT8 = np.dtype(np.uint8)
UINT16 = np.dtype(np.uint16)
SBUF = Space.SBUF
HBM = Space.SHARED_HBM
NUMPYS = [dtype for dtype in DTYPES if dtype not in (TFLOAT32, BOOL)]


def on_chip(values, dtype, written=True):
    """A tile of SBUF that an instruction has written: floats are held as float32."""
    values = np.asarray(values)
    held = stored(
        np.zeros(values.shape, np.float32 if dtype.kind not in "iu" else dtype), SBUF
    )
    storage = held._storage
    storage.dtype = storage.allocation.dtype = dtype
    storage.validity = UNTOUCHED
    tile = Tile._whole(storage)
    if written:
        write(tile, values)
    return tile


@given(st.sampled_from(NUMPYS), st.sampled_from(NUMPYS), st.sampled_from([SBUF, HBM]))
def test_the_same_bits_as_another_dtype(old, new, space):
    values = (np.arange(24) % 11 - 3 * (old.kind != "u")).reshape(2, 12).astype(old)
    tile = stored(values) if space is HBM else on_chip(values, old)
    view = tile._reinterpret(new)
    same = values.view(new)
    assert (view.shape, view.dtype) == (same.shape, new)
    assert_array_equal(to_bits(view._read(), new).view(UINT8), same.view(UINT8))
    assert_array_equal(view._values(), from_bits(same, new))
    # it still has its values
    assert_array_equal(tile._values(), from_bits(values, old))


REFUSED = [
    ("a step", lambda t: t[:, ::2]._reinterpret(UINT8)),
    ("half an element", lambda t: t._reinterpret(UINT8)[:, 0:6]._reinterpret(FLOAT32)),
    ("from the middle", lambda t: t._reinterpret(UINT8)[:, 2:6]._reinterpret(FLOAT32)),
    ("repeated elements", lambda t: t[:, 0:1].broadcast_to((4, 6))._reinterpret(UINT8)),
    ("partitions alone", lambda t: t[:, 0]._reinterpret(UINT8)),
]


@every("use", [row[1] for row in REFUSED])
def test_views_that_no_pattern_can_name(use):
    with pytest.raises(
        ShapeError, match="a view of another element size scales"
    ) as caught:
        use(stored(np.zeros((4, 6), np.float32), SBUF))
    assert "bytes an element" in caught.value.received


def test_rows_that_hold_no_whole_number_of_wider_elements():
    """Three float16 in a row are six bytes: the second row begins in the middle of a float32."""
    tile = stored(np.zeros((4, 3), FLOAT16), HBM)
    assert tile[0:1, 0:2]._reinterpret(FLOAT32).shape == (1, 1)
    with pytest.raises(ShapeError, match="scales the last dimension"):
        tile[:, 0:2]._reinterpret(FLOAT32)


@given(st.data())
def test_the_written_bytes_after_any_writes_by_any_dtype(data):
    tile = on_chip(np.zeros((2, 8)), FLOAT16, written=False)
    expected = np.zeros((2, 16), np.bool_)
    for _ in range(data.draw(st.integers(1, 5))):
        dtype = data.draw(st.sampled_from([UINT8, UINT16, FLOAT16, FLOAT32]))
        view = tile._reinterpret(dtype)
        same = expected.reshape(2, -1, dtype.itemsize)
        start = data.draw(st.integers(0, view.shape[1] - 1))
        stop = data.draw(st.integers(start + 1, view.shape[1]))
        row = data.draw(st.sampled_from([slice(0, 1), slice(1, 2), slice(None)]))
        where = None
        if data.draw(st.booleans()):
            where = np.array(data.draw(st.lists(st.booleans(), min_size=8, max_size=8)))
            where = np.resize(where, same[row, start:stop].shape[:2])
        write(view[row, start:stop], np.zeros((1, 1), np.float32), where)
        same[row, start:stop] |= True if where is None else where[..., None]
    for dtype in (UINT8, UINT16, FLOAT32):
        missing = tile._reinterpret(dtype)._unwritten()
        shaped = ~expected.reshape(2, -1, dtype.itemsize).all(axis=-1)
        assert_array_equal(
            np.zeros_like(shaped) if missing is None else missing, shaped
        )


def test_masked_memory_that_was_written_in_part_is_poison_where_it_was_not():
    tile = on_chip(np.zeros((1, 4)), FLOAT16, written=False)
    write(tile._reinterpret(UINT8)[:, 0:3], np.zeros((1, 3), np.uint8))
    tile._storage.leave_out()
    nan = np.array([np.nan], FLOAT16).view(UINT8)
    assert tile._reinterpret(UINT8)._read().tolist() == [
        [0, 0, 0, *nan[1:], *nan, *nan]
    ]


# -- patterns made by hand -------------------------------------------------------------------------

WHOLE = np.arange(60, dtype=np.float32).reshape(4, 15)


@every(
    "space, shape, strides, offset",
    [
        (HBM, (3, 2), (7, 2), 5),
        (HBM, (2, 3, 4), (0, 20, 1), 0),
        (HBM, (60,), (1,), 0),
        (HBM, (4,), (-1,), 3),
        (HBM, (2, 15), (45, 1), 0),
        (SBUF, (4, 15), (15, 1), 0),
        (SBUF, (2, 3, 5), (15, 1, 3), 15),
        (SBUF, (4, 2, 4), (15, 0, 4), 2),
        (SBUF, (1, 15), (15, 1), 45),
        (Space.PSUM, (3, 5), (15, -3), 12 + 15),
    ],
)
def test_a_pattern_names_elements_of_the_tensor(space, shape, strides, offset):
    tile = stored(WHOLE, space)
    # not of the part that it is
    made = tile[1:3, 2:5]._with_pattern(Pattern(offset, shape, strides))
    same = np.lib.stride_tricks.as_strided(
        WHOLE.ravel()[offset:], shape, [4 * stride for stride in strides]
    )
    assert_array_equal(made._read(), same)
    assert made._storage is tile._storage
    assert made._tile_shape() == (
        shape if space is not HBM or len(shape) > 1 else (*shape, 1)
    )


BY_HAND = [
    (
        HBM,
        (3, 20),
        (20, 1),
        1,
        OutOfBoundsError,
        "elements 1 to 60 of t [4, 15] float32",
    ),
    (HBM, (2,), (-1,), 0, OutOfBoundsError, "elements -1 to 0"),
    (SBUF, (4, 2), (15, 1), 15, OutOfBoundsError, "partitions 1 to 4 of"),
    (SBUF, (1, 2), (15, 1), -1, OutOfBoundsError, "partitions -1 to -1"),
    (SBUF, (4, 15), (15, 1), 1, OutOfBoundsError, "elements 1 to 15 of a partition"),
    (SBUF, (4, 3), (15, -1), 1, OutOfBoundsError, "elements -1 to 1 of a partition"),
]


@every("space, shape, strides, offset, error, received", BY_HAND)
def test_an_invalid_pattern_raises(space, shape, strides, offset, error, received):
    with pytest.raises(error) as caught:
        stored(WHOLE, space)._with_pattern(Pattern(offset, shape, strides))
    assert received in caught.value.received


def test_a_pattern_needs_whole_elements_in_each_partition():
    with pytest.raises(ShapeError, match="whole float32 elements"):
        stored(np.zeros((4, 3), FLOAT16), SBUF)._with_pattern(
            Pattern(0, (4, 1), (1, 1)), FLOAT32
        )
    blocks = stored(np.zeros((2, 4, 3), np.float32), SBUF, partition_axis=1)
    with pytest.raises(ShapeError, match="without block dimensions"):
        blocks._with_pattern(Pattern(0, (4, 3), (3, 1)))
