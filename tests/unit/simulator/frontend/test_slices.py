import inspect

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import NkiError, launch
from difftest.simulator.frontend.arguments import DynamicSlice, SliceOrNone
from difftest.simulator.frontend.classic import language as nl
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


@every("plain", [False, True])
def test_the_classic_ds_is_made_by_the_mode_that_runs(plain):
    def kernel(x):
        out = nl.ndarray((4, 2), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x[:, nl.ds(start=1, size=2)]))
        return out

    data = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert_array_equal(launch(kernel, [data], plain=plain).outputs[0], data[:, 1:3])
    assert list(inspect.signature(nl.ds).parameters) == ["start", "size"]
