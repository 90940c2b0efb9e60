import numpy as np
import pytest

from difftest.simulator import NkiError
from difftest.simulator.frontend.arguments import DynamicSlice, SliceOrNone
from tests.every import every


def test_ds_keeps_integers():
    part = DynamicSlice(np.int64(3), 5)
    assert (part.start, part.size) == (3, 5)


@every("size, received", [(2.0, "nl.ds with size 2.0 (float)"), (0, "size 0")])
def test_ds_takes_a_size_of_at_least_one(size, received):
    with pytest.raises(NkiError) as caught:
        DynamicSlice(0, size)
    assert received in caught.value.received


def test_a_slice_that_may_be_empty_is_not_negative():
    assert SliceOrNone(2, 0).size == 0
    with pytest.raises(NkiError, match="selected -1 elements"):
        SliceOrNone(2, -1)
