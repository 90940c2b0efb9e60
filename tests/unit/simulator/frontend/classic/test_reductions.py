"""The functions of ``nki.language`` that are made of several instructions; NumPy is the oracle."""

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import KernelError, NotModelledError, launch
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.on_tiles import on_tiles, written

HALVES = np.arange(-16, 16, dtype=np.float32).reshape(4, 8) / 4
modes = every("plain", [False, True])


@modes
def test_all_reduce_of_one_instance_is_the_tile(plain):
    def compute(x):
        return nl.all_reduce(x, op=np.add, program_axes=[0])

    assert_array_equal(on_tiles(compute, HALVES, plain=plain), HALVES)
    assert_array_equal(on_tiles(compute, HALVES, plain=plain, grid=(1,)), HALVES)
    with pytest.raises(NotModelledError, match="several instances"):
        on_tiles(compute, HALVES, plain=plain, grid=(2,))
    with pytest.raises(KernelError):
        on_tiles(
            lambda x: nl.all_reduce(x, op=np.add, program_axes=3), HALVES, plain=plain
        )


@modes
def test_static_cast_of_numbers_arrays_and_tiles(plain):
    found = []

    def kernel():
        found.append(nl.static_cast(1.7, nl.int32))
        found.append(nl.static_cast(np.float32([0.1, 2]), nl.bfloat16))
        return written(nl.static_cast(nl.full((2, 2), 3.3, nl.float32), nl.int32))

    assert_array_equal(
        launch(kernel, plain=plain).outputs[0], np.full((2, 2), 3, np.int32)
    )
    assert (found[0], found[0].dtype) == (1, np.int32)
    assert_array_equal(found[1], np.array([0.1, 2], ml_dtypes.bfloat16), strict=True)
    for odd in ("x", 2**70):
        with pytest.raises(KernelError, match="static_cast"):
            launch(lambda odd=odd: nl.static_cast(odd, nl.int32), plain=plain)


def test_finfo_gives_the_limits_of_a_dtype():
    for dtype in (np.float32, np.float16):
        assert (nl.finfo(dtype).max, nl.finfo(dtype).eps) == (
            float(np.finfo(dtype).max),
            float(np.finfo(dtype).eps),
        )
    limits = nl.finfo(nl.bfloat16)
    assert (limits.min, limits.bits) == (
        -float(ml_dtypes.finfo(ml_dtypes.bfloat16).max),
        16,
    )
    with pytest.raises(KernelError, match="takes a dtype of floats"):
        nl.finfo(nl.int32)
    assert np.isneginf(nl.bfp16.min)  # the documented bit pattern, 0xff80
