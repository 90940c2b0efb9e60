"""Writing: the function that stores all results."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, ShapeError, launch
from difftest.simulator.entry import kernel as nki
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions.gate import write
from difftest.simulator.pattern import Pattern
from difftest.simulator.trace import Space
from tests.every import every
from tests.unit.simulator.on_tiles import normal, on_tiles
from tests.unit.simulator.stored import stored


def tile(*shape):
    return stored(np.zeros(shape, np.float32), Space.SBUF)


def test_a_write_broadcasts_rounds_and_marks():
    target = stored(np.zeros((3, 4), np.int8), Space.SBUF, written=False)
    write(target[0:2], np.array([[1.5, 2.5, -200, 3]], np.float32))
    assert target._storage.data[:2].tolist() == [[2, 2, -128, 3]] * 2
    assert target._unwritten().sum() == 4
    write(
        target[2:3], np.array([[7, 8, 9, 10]]), np.array([[True, False, True, False]])
    )
    assert target._storage.data[2].tolist() == [7, 0, 9, 0]
    assert target._unwritten().sum() == 2


def test_an_element_that_is_named_more_than_once_is_given_one_value():
    """By a broadcast view, and by indices whose steps overlap: the order of writing is nobody's."""
    target = tile(4, 7)
    row = np.arange(7, dtype=np.float32)
    i, j = np.mgrid[0:4, 0:4]
    for view, same in (
        (tile(4, 1).broadcast_to((4, 3)), np.full((4, 3), 5, np.float32)),
        (
            target._with_pattern(Pattern(0, (4, 4, 4), (7, 1, 1))),
            np.stack([row[i + j]] * 4),
        ),
    ):
        write(view, same)
        assert_array_equal(view._elements(), same)
        other = same.copy()
        other.flat[1] += 1
        with pytest.raises(
            ShapeError, match="names an element more than once gives it one value"
        ):
            write(view, other)
        write(view, other, other == same)
        assert_array_equal(view._elements(), same)


def test_a_result_fills_its_destination_partition_by_partition():
    """[2, 4] in [2, 3, 4] repeats along axis 1: NumPy would take its partitions for that axis."""
    target = tile(2, 3, 4)
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    write(target, values)
    assert_array_equal(target._elements(), np.stack([values] * 3, axis=1))
    write(tile(4, 6), np.ones((4, 2, 3), np.float32))
    for wrong in (
        np.ones((6, 4)),
        np.ones((4, 5)),
        np.ones((3, 1)),
        np.ones((4, 2, 3, 1, 2)),
    ):
        with pytest.raises(ShapeError, match="its destination's shape") as caught:
            write(tile(4, 6), wrong.astype(np.float32))
        assert (
            f"values of shape {list(wrong.shape)} for t [4, 6]" in caught.value.received
        )


def test_a_result_does_not_share_its_memory_with_an_operand():
    """An instruction's array may become the tensor's data, unless another owner has it."""

    def compute(x):
        copied = nl.copy(x)
        doubled = nl.multiply(x, 1.0)
        x[0:1] = nl.full((1, 3), 9, nl.float32)
        return copied, doubled, x

    data = normal(2, 3)
    copied, doubled, changed = on_tiles(compute, data)
    assert_array_equal(copied, data)
    assert_array_equal(doubled, data)
    assert changed[0].tolist() == [9, 9, 9]


TABLE = normal(10, 6)
INDEX = np.array([[7], [0], [7], [9]], np.int32)


@every("write", ["gather", "scatter"])
def test_indices_do_not_lead_around_an_immutable_parameter(write):
    @nki.jit
    def kernel(table, index):
        named = table[nl.load(index), nl.arange(6)[None, :]]
        if write == "scatter":
            nl.store(named, nl.zeros((4, 6), nl.float32))
        else:
            nisa.dma_copy(dst=table[0:4], src=named)

    with pytest.raises(NkiError, match="a kernel does not write to its parameters"):
        launch(kernel, [TABLE, INDEX])
