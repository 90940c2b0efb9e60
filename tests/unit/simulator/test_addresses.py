"""Tensors that the kernel places: against a plain array of bytes that they all share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from difftest.simulator import TRN2, LimitError, ShapeError, UnwrittenError
from difftest.simulator.capacity import check_psum, placed_bytes
from difftest.simulator.core import Core
from difftest.simulator.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    INT32,
    TFLOAT32,
    to_bits,
)
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.instructions.gate import write
from difftest.simulator.trace import Allocation, Space

UINT8 = np.dtype(np.uint8)
UINT16 = np.dtype(np.uint16)
DTYPES = (FLOAT32, BFLOAT16, FLOAT16, INT32, UINT8, UINT16, TFLOAT32)


@pytest.fixture
def core():
    return Core(TRN2, (), record=True, tile=Tensor)


def placed(core, shape, dtype, address, space=Space.SBUF):
    return Tensor._whole(core.allocate(shape, dtype, space, address=address))


def bits_of(values, dtype):
    """The bytes of elements as memory holds them: as values, or as bits where tensors share."""
    bits = values if values.dtype == dtype else to_bits(values, dtype)
    return np.ascontiguousarray(bits).view(UINT8)


def test_a_write_is_known_to_all_tensors_that_share_its_bytes(core):
    first = placed(core, (2, 4), FLOAT16, (0, 0))
    write(first[:, 0:1], np.ones((2, 1), np.float32))
    second = placed(core, (2, 2), FLOAT32, (0, 4))
    with pytest.raises(
        UnwrittenError, match="reads only elements that were written"
    ) as caught:
        second._read()
    assert "2 of 4 elements" not in caught.value.received
    assert "4 of 4 elements" in caught.value.received
    write(first[:, 2:3], np.ones((2, 1), np.float32))
    # half of it was written
    assert_array_equal(second._unwritten(), [[True, True]] * 2)
    write(first[:, 3:4], np.ones((2, 1), np.float32))
    assert_array_equal(second._unwritten(), [[False, True]] * 2)
    assert_array_equal(first._unwritten(), [[False, True, False, False]] * 2)
    assert second[:, 0:1]._read().shape == (2, 1)


@given(st.data())
def test_any_tensors_and_writes(data):
    """Each byte has the value of its last writer, whichever tensor that was, live or not."""
    core = Core(TRN2, (), record=False, tile=Tensor)
    memory = np.zeros((8, 32), np.uint8)
    written = np.zeros((8, 32), np.bool_)
    tiles = []
    for step in range(data.draw(st.integers(1, 10))):
        action = data.draw(
            st.sampled_from(["place", "write", "write", "read", "forget"])
        )
        if action == "place" or not tiles:
            dtype = data.draw(st.sampled_from(DTYPES))
            first = data.draw(st.integers(0, 7))
            low = 4 * data.draw(st.integers(0, 7))
            rows = data.draw(st.integers(1, 8 - first))
            columns = data.draw(st.integers(1, (32 - low) // dtype.itemsize))
            tiles.append(placed(core, (rows, columns), dtype, (first, low)))
            continue
        number = data.draw(st.integers(0, len(tiles) - 1))
        if action == "forget":
            del tiles[number]
            continue
        tile = tiles[number]
        (rows, columns), size = tile.shape, tile.itemsize
        row = slice(data.draw(st.integers(0, rows - 1)), rows)
        column = slice(data.draw(st.integers(0, columns - 1)), columns)
        first, low = tile._storage.allocation.address
        place = (
            slice(first + row.start, first + row.stop),
            slice(low + column.start * size, low + column.stop * size),
        )
        part = tile[row, column]
        if action == "write":
            values = (
                np.arange(part.size, dtype=np.float32).reshape(part.shape) % 7 + step
            )
            write(part, values)
            memory[place] = bits_of(values, tile.dtype)
            written[place] = True
        elif written[place].all():
            bits = memory[place].copy().view(tile.dtype)
            assert_array_equal(bits_of(part._read(), tile.dtype), bits.view(UINT8))
        else:
            with pytest.raises(UnwrittenError):
                part._read()


def test_a_byte_that_is_no_bool_counts_as_true_in_a_shared_tensor(core):
    flags, bits = (placed(core, (1, 4), dtype, (0, 0)) for dtype in (BOOL, UINT8))
    write(bits, np.array([[0, 1, 2, 255]], np.uint8))
    assert flags._read().tolist() == [[False, True, True, True]]


def test_a_mask_leaves_poison_in_a_shared_tensor_where_nothing_was_written(core):
    first, second = (placed(core, (1, 4), FLOAT16, (0, 0)) for _ in range(2))
    write(first[:, 0:2], np.ones((1, 2), np.float32))
    second._storage.leave_out()
    assert_array_equal(second._values(), np.array([[1, 1, np.nan, np.nan]], np.float32))


OUTSIDE = [
    ((4, 4), (125, 0), Space.SBUF, "partitions 125 to 128, bytes 0 to 15 of each"),
    ((4, 4), (-1, 0), Space.SBUF, "partitions -1 to 2"),
    ((4, 4), (0, 208 * 1024 - 15), Space.SBUF, "bytes 212977 to 212992 of each"),
    ((4, 4), (0, -4), Space.PSUM, "bytes -4 to 11"),
    ((4, 4), (0, 16 * 1024), Space.PSUM, "bytes 16384 to 16399"),
]


@pytest.mark.parametrize(("shape", "address", "space", "received"), OUTSIDE)
def test_an_address_is_inside_its_memory(core, shape, address, space, received):
    with pytest.raises(LimitError, match="a tensor with an address fits") as caught:
        placed(core, shape, FLOAT32, address, space)
    assert received in caught.value.received
    assert core.trace.allocations == []


def test_blocks_have_no_single_address(core):
    with pytest.raises(ShapeError, match="has its partitions first"):
        core.allocate((2, 4, 4), FLOAT32, Space.SBUF, partition_axis=1, address=(0, 0))


def test_rules_see_where_a_placed_tensor_begins(core):
    tile = placed(core, (32, 512), FLOAT32, (64, 1024), Space.PSUM)
    described = tile[0:16, 0:256]._descriptor()
    assert (described.start, described.span) == (64, (1024, 2047))
    assert tile[8:16]._descriptor().start == 72
    other = placed(core, (32, 512), FLOAT32, (64, 0), Space.PSUM)
    assert tile._signature() != other._signature()
    assert placed(core, (4, 4), FLOAT32, (32, 0))._signature()[-1] == 32


def allocation(number, partitions, size, address, first=0, last=9):
    made = Allocation(
        number, Space.PSUM, (partitions, size), UINT8, 0, None, address=address
    )
    made.first = first
    made.last = last
    made.reads = 2
    return made


def test_bytes_that_several_tensors_have_count_once():
    tensors = [
        allocation(0, 128, 100, (0, 0)),
        allocation(1, 128, 100, (0, 50)),
        allocation(2, 32, 100, (32, 400)),
        allocation(3, 40, 10, (64, 0)),
        allocation(4, 128, 10, None),
    ]
    assert placed_bytes(tensors, 32) == 150 * 128 + 100 * 32


def test_tensors_that_share_fit_together_where_others_do_not():
    size = TRN2.psum_partition_bytes
    check_psum(
        TRN2, [allocation(0, 128, size, (0, 0)), allocation(1, 128, size, (0, 0))]
    )
    with pytest.raises(LimitError, match="the tensors live at one time fit psum"):
        check_psum(
            TRN2, [allocation(0, 128, size, (0, 0)), allocation(1, 128, size, None)]
        )
