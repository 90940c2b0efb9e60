"""The exact run of two cores: the tiles that they exchange, and their own registers."""

import ml_dtypes
import numpy as np

from difftest.simulator import launch
from difftest.simulator.exact.run import ExactSettings
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl

A = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
NARROW = ExactSettings(dtypes=("bfloat16",))


def swapped(a, whole):
    """Each core rounds its row to bfloat16 and sends it, all of it or the first half."""
    me = nl.program_id(0)
    out = nl.ndarray((2, 8), nl.float32, buffer=nl.shared_hbm)
    mine = nl.ndarray((1, 8), nl.bfloat16)
    other = nl.zeros((1, 8), nl.bfloat16)
    nisa.dma_copy(mine, a[me : me + 1])
    size = 8 if whole else 4
    nisa.sendrecv(mine[:, 0:size], other[:, 0:size], 1 - me, 1 - me, 0)
    nisa.memset(mine, 0.0)
    nisa.dma_copy(out[me : me + 1], other)
    return out


def test_rounded_values_arrive_with_their_exact_values():
    result = launch(swapped, [A, True], grid=(2,), exact=NARROW)
    run = result.exact
    assert run.has_meaning
    assert not run.doubts
    (output,) = run.outputs
    np.testing.assert_array_equal(output.value, A[::-1].astype(np.float64))
    rounded = A[::-1].astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(result.outputs[0], rounded)
    assert (rounded != A[::-1]).any()
    assert (np.abs(rounded - output.value) <= output.error).all()


def test_a_part_that_arrives_leaves_the_rest():
    (output,) = launch(swapped, [A, False], grid=(2,), exact=NARROW).exact.outputs
    np.testing.assert_array_equal(output.value[:, 0:4], A[::-1, 0:4])
    assert (output.value[:, 4:] == 0).all()


def test_values_that_are_exact_arrive_so():
    whole = np.arange(16, dtype=np.float32).reshape(2, 8)
    (output,) = launch(swapped, [whole, True], grid=(2,), exact=NARROW).exact.outputs
    np.testing.assert_array_equal(output.value, whole[::-1])
