import numpy as np

from difftest.testing.backends.base import as_outputs, poisoned_array, still_poisoned
from tests.every import every

FLOATS = ("float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


@every("dtype", FLOATS)
def test_poisoned_floats_are_nan_and_found_again(dtype):
    array = poisoned_array((2, 3), np.dtype(dtype))
    assert np.isnan(array.astype(np.float32)).all()
    array[0, 1] = 0
    assert still_poisoned(array).tolist() == [[True, False, True], [True, True, True]]


@every("dtype", FLOATS)
def test_a_nan_that_a_kernel_computed_is_not_taken_for_poison(dtype):
    assert still_poisoned(np.full((3,), np.nan, dtype)) is None


@every("dtype", INTEGERS)
def test_poisoned_integers_are_a5_bytes(dtype):
    array = poisoned_array((2,), np.dtype(dtype))
    assert set(array.tobytes()) == {0xA5}
    assert still_poisoned(array) is None


def test_a_poisoned_bool_is_true():
    assert poisoned_array((2,), np.dtype("bool")).tolist() == [True, True]


def test_the_result_of_a_kernel_becomes_a_tuple_of_arrays():
    array = np.ones(2)
    assert as_outputs(None) == ()
    assert as_outputs(array) == (array,)
    assert [output.tolist() for output in as_outputs([array, 3])] == [[1, 1], 3]
