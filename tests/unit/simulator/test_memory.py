import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from difftest.simulator import TRN1, TRN2, LimitError
from difftest.simulator.capacity import check_tensor_size
from difftest.simulator.dtypes import (
    FLOAT16,
    FLOAT32,
    as_dtype,
    from_bits,
    storage_dtype,
)
from difftest.simulator.memory import (
    DEFINED,
    UNWRITTEN,
    Storage,
    pattern_view,
    poison_array,
)
from difftest.simulator.pattern import Pattern
from difftest.simulator.trace import Allocation, Space
from tests.every import every

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)


def storage(shape, dtype=FLOAT32, space=Space.SBUF):
    allocation = Allocation(0, space, shape, dtype, 0, None)
    return Storage(allocation, np.empty(shape, storage_dtype(dtype)))


@given(st.data())
def test_a_pattern_names_the_elements_that_numpy_indexing_names(data):
    array = np.arange(60, dtype=np.float32).reshape(
        data.draw(st.permutations((3, 4, 5)))
    )
    key = data.draw(hnp.basic_indices(array.shape, allow_ellipsis=False))
    part = array[key]
    if not isinstance(part, np.ndarray) or part.size == 0:
        return
    offset = (
        part.__array_interface__["data"][0] - array.__array_interface__["data"][0]
    ) // 4
    strides = tuple(stride // 4 for stride in part.strides)
    view = pattern_view(array, Pattern(offset, part.shape, strides), array.dtype)
    assert_array_equal(view, part, strict=True)
    assert np.shares_memory(view, array)


@given(st.data())
def test_the_written_mask_after_any_writes(data):
    shape = data.draw(SHAPES)
    tensor = storage(shape)
    expected = np.zeros(shape, np.bool_)
    for _ in range(data.draw(st.integers(1, 4))):
        key = data.draw(hnp.basic_indices(shape, allow_ellipsis=False))
        part = expected[key]
        if not isinstance(part, np.ndarray) or part.size == 0:
            continue
        start = (
            part.__array_interface__["data"][0]
            - expected.__array_interface__["data"][0]
        )
        where = data.draw(st.none() | hnp.arrays(np.bool_, part.shape))
        tensor.mark(Pattern(start, part.shape, part.strides), DEFINED, where)
        part |= True if where is None else where
    codes = tensor.codes(Pattern.whole(shape))
    assert_array_equal(
        np.zeros(shape, np.bool_) if codes is None else codes == UNWRITTEN, ~expected
    )
    assert (tensor.validity is None) == expected.all()


def test_a_whole_write_needs_no_mask():
    tensor = storage((4, 5))
    tensor.mark(Pattern(0, (4, 5), (5, 1)), DEFINED)
    assert tensor.validity is None
    tensor.mark(Pattern(0, (2, 5), (5, 1)), DEFINED)
    assert tensor.validity is None


@every(
    "dtype",
    ["float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "tfloat32"],
)
def test_poison_of_floats_is_nan(dtype):
    for shape in ((2, 3), ()):
        array = poison_array(shape, as_dtype(dtype))
        assert array.shape == shape
        assert array.dtype == as_dtype(dtype)
        assert np.isnan(from_bits(array, array.dtype)).all()


@every("dtype", ["int8", "uint16", "int32", "uint32"])
def test_poison_of_integers_is_a_pattern(dtype):
    for shape in ((2, 3), ()):
        array = poison_array(shape, as_dtype(dtype))
        assert (array.shape, array.dtype) == (shape, as_dtype(dtype))
        assert set(array.tobytes()) == {0xA5}


def allocation(shape, dtype=FLOAT32, space=Space.SBUF, axis=0):
    return Allocation(3, space, shape, dtype, axis, None, "tile")


@every(
    "fits, axis, machine",
    [
        (allocation((128, 53248)), 0, TRN2),  # (224 - 16) KiB / 4
        (allocation((128, 45056)), 0, TRN1),  # (192 - 16) KiB / 4
        (allocation((128, 106496), FLOAT16), 0, TRN2),
        (allocation((128, 4096), space=Space.PSUM), 0, TRN2),
        # blocks lie side by side or in turn
        (
            allocation((64, 128, 2048), axis=1),
            1,
            TRN2,
        ),
        (allocation((1, 53248)), 0, TRN2),
    ],
)
def test_a_tensor_may_fill_its_memory_but_no_more(fits, axis, machine):
    check_tensor_size(fits, axis, machine)
    *rest, last = fits.shape
    larger = allocation((*rest, 200_000), fits.dtype, fits.space, fits.partition_axis)
    one_more = allocation(
        (*rest, last + 1), fits.dtype, fits.space, fits.partition_axis
    )
    if axis == 0:
        with pytest.raises(LimitError, match="fits the bytes"):
            check_tensor_size(one_more, axis, machine)
    with pytest.raises(LimitError, match="fits the bytes"):
        check_tensor_size(larger, axis, machine)
