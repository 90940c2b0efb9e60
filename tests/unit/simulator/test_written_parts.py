"""The parts of a tensor that are written, against a plane with a code for each element."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from difftest.simulator import UnwrittenError, launch
from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.memory import DEFINED, UNTOUCHED, UNWRITTEN, Storage
from difftest.simulator.pattern import Pattern
from difftest.simulator.trace import Allocation, Space
from difftest.simulator.written_parts import (
    MOST_PARTS,
    contains,
    elements_of,
    joined,
    part_of,
    volume,
    with_part,
)
from tests.every import every

SIZE = 60
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)


@st.composite
def parts(draw):
    length = draw(st.integers(1, 6))
    count = draw(st.integers(1, 5))
    step = draw(st.integers(length + 1, 12)) if count > 1 else 0
    start = draw(st.integers(0, SIZE - length - step * (count - 1)))
    return start, length, step, count


def members(part):
    return set(elements_of(part).elements().ravel().tolist())


def plane_of(shape, pattern):
    plane = np.zeros(int(np.prod(shape)), np.bool_)
    plane[pattern.elements()] = True
    return plane


@st.composite
def slices(draw, size):
    """Slices of an axis, forwards or backwards, with an element or more."""
    first = draw(st.integers(0, size - 1))
    step = draw(st.sampled_from([*range(1, size + 1), *range(-size, 0)]))
    last = size - 1 if step > 0 else 0
    count = draw(st.integers(1, (last - first) // step + 1))
    end = first + count * step
    return slice(first, None if end < 0 else end, step)


def patterns(shape):
    """Patterns of a NumPy index of a tensor, with axes in any order."""

    @st.composite
    def draw_pattern(draw):
        numbers = np.arange(np.prod(shape)).reshape(shape)
        removed = draw(
            st.sets(st.sampled_from(range(len(shape))), max_size=len(shape) - 1)
        )
        index = [
            draw(st.integers(0, size - 1)) if axis in removed else draw(slices(size))
            for axis, size in enumerate(shape)
        ]
        part = numbers[tuple(index)]
        part = part.transpose(draw(st.permutations(range(part.ndim))))
        strides = tuple(stride // numbers.itemsize for stride in part.strides)
        return Pattern(int(part.ravel()[0]), part.shape, strides)

    return draw_pattern()


@given(parts(), parts())
def test_a_joined_part_has_the_elements_of_both(one, other):
    union = joined(one, other)
    assert union == joined(other, one)
    if union is not None:
        assert members(union) == members(one) | members(other)
        assert union[1] * union[3] == len(members(union))


@given(st.lists(parts(), max_size=12))
def test_parts_have_the_elements_of_all_that_were_added(added):
    held = ()
    for part in added:
        held = with_part(held, part)
        assert part is held[-1] or members(part) <= members(held[-1])
    assert set().union(*map(members, held)) == set().union(*map(members, added))
    assert volume(held) >= len(set().union(*map(members, added)))


@given(st.data())
def test_the_part_of_a_pattern(data):
    shape = data.draw(SHAPES)
    pattern = data.draw(patterns(shape))
    part = part_of(pattern)
    if part is not None:
        assert_array_equal(plane_of(shape, elements_of(part)), plane_of(shape, pattern))
        assert part[1] * part[3] == pattern.size


@given(st.data())
def test_a_part_contains_no_pattern_that_leaves_it(data):
    shape = data.draw(SHAPES)
    pattern = data.draw(patterns(shape))
    part = part_of(data.draw(patterns(shape)))
    assume(part is not None)
    inside = set(pattern.elements().ravel().tolist()) <= members(part)
    if contains(part, pattern):
        assert inside
    elif part[3] == 1:
        assert not inside


@every(
    "order",
    [
        "rows",
        "rows backwards",
        "columns",
        "blocks by rows",
        "blocks by columns",
        "blocks of planes",
    ],
)
def test_tiles_in_order_need_no_codes(order):
    shape = (2, 6, 8)
    tensor = storage(shape)
    numbers = np.arange(96).reshape(shape)
    rows = [numbers[b, r : r + 2] for b in range(2) for r in (0, 2, 4)]
    corners = {
        "blocks by rows": ((0, 0), (0, 4), (3, 0), (3, 4)),
        "blocks by columns": ((0, 0), (3, 0), (0, 4), (3, 4)),
    }
    blocks = {
        name: [numbers[b, r : r + 3, c : c + 4] for b in range(2) for r, c in places]
        for name, places in corners.items()
    }
    tiles = {
        "rows": rows,
        "rows backwards": rows[::-1],
        "columns": [numbers[:, :, c] for c in range(8)],
        "blocks of planes": [numbers[:, r : r + 2, :] for r in (2, 0, 4)],
        **blocks,
    }[order]
    for tile in tiles:
        assert tensor.validity is not None
        strides = tuple(stride // numbers.itemsize for stride in tile.strides)
        tensor.mark(Pattern(int(tile.ravel()[0]), tile.shape, strides), DEFINED)
        gaps = tensor.validity
        assert gaps is None or gaps.codes is None
    assert tensor.validity is None


def storage(shape):
    allocation = Allocation(0, Space.SBUF, shape, FLOAT32, 0, None)
    return Storage(allocation, np.empty(shape, np.float32))


def test_parts_that_overlap_may_leave_elements_unwritten():
    """Two rows and a column have as many elements as the tensor, one of them twice."""
    tensor = storage((3, 3))
    tensor.mark(Pattern(0, (2, 3), (3, 1)), DEFINED)
    tensor.mark(Pattern(0, (3, 1), (3, 1)), DEFINED)
    codes = tensor.codes(Pattern.whole((3, 3)))
    assert_array_equal(np.argwhere(codes == UNWRITTEN), [[2, 1], [2, 2]])
    tensor.mark(Pattern(7, (2,), (1,)), DEFINED)
    assert tensor.validity is None


def test_many_parts_become_codes():
    tensor = storage((100,))
    for length in range(1, MOST_PARTS + 2):
        tensor.mark(Pattern(10 * length, (length,), (1,)), DEFINED)
        assert (tensor.validity.parts is None) == (length > MOST_PARTS)
    assert UNTOUCHED.parts == ()


@given(st.data())
def test_parts_give_the_codes_of_a_plane(data):
    """Reads between writes take the codes of any pattern, whether parts or a plane hold them."""
    shape = data.draw(SHAPES)
    tensor = storage(shape)
    written = np.zeros(int(np.prod(shape)), np.bool_)
    for _ in range(data.draw(st.integers(1, 8))):
        pattern = data.draw(patterns(shape))
        if data.draw(st.booleans()):
            tensor.mark(pattern, DEFINED)
            written |= plane_of(shape, pattern)
        else:
            codes = tensor.codes(pattern)
            expected = np.where(written[pattern.elements()], DEFINED, UNWRITTEN)
            if codes is None:
                assert not expected.any()
            else:
                assert_array_equal(codes, expected)
        assert (tensor.validity is None) == written.all()


# -- what a kernel sees ----------------------------------------------------------------------------


def test_a_tensor_that_is_written_in_part_has_poison_elsewhere():
    @jit
    def kernel(x):
        out = nl.ndarray((4, 6), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((2, 3), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=out[1:3, 2:5], src=tile)
        return out

    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    result = launch(kernel, (x,))
    (out,) = result.outputs
    (missing,) = result.unwritten
    expected = np.ones((4, 6), np.bool_)
    expected[1:3, 2:5] = False
    assert_array_equal(missing, expected)
    assert_array_equal(out[~missing].reshape(2, 3), x)
    assert set(out[missing].tobytes()) == {0xA5}


def test_a_read_of_unwritten_elements_between_two_writes_is_an_error():
    """The error names the first tensor, from which the elements were copied."""

    @jit
    def kernel(x):
        half = nl.ndarray((4, 6), dtype=x.dtype, buffer=nl.private_hbm)
        out = nl.ndarray((4, 6), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=half[0:2, :], src=x)
        nisa.dma_copy(dst=out[0:3, :], src=half[0:3, :])
        nisa.dma_copy(dst=half[2:4, :], src=x)
        nisa.dma_copy(dst=out[3:4, :], src=half[3:4, :])
        return out

    x = np.ones((2, 6), np.float32)
    with pytest.raises(UnwrittenError, match=r"they came from \[2:4, 0:6\]"):
        launch(kernel, (x,))
