"""nc_n_gather and nonzero_with_count (nki.isa at v2.32.0)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.testing import assert_array_equal

from difftest.simulator import launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.gather import nc_n_gather, nonzero_with_count
from tests.every import every
from tests.unit.simulator.on_tiles import integers, normal, on_tiles

# -- nc_n_gather -----------------------------------------------------------------------------------


@every("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
def test_nc_n_gather_takes_the_free_axes_as_one(dtype):
    data = normal(7, 4, 5).astype(dtype)
    places = integers(7, 3, 2, low=0, high=20, dtype=np.uint32)
    new, existing = on_tiles(
        lambda x, k: (
            gate.issue(nc_n_gather, (x, k)),
            gate.issue(nc_n_gather, (x, k), dst=nl.ndarray((7, 6), x.dtype)),
        ),
        *(data, places),
    )
    expected = np.take_along_axis(data.reshape(7, 20), places.reshape(7, 6).astype(np.int64), 1)
    assert_array_equal(new, expected.reshape(7, 3, 2), strict=True)
    assert_array_equal(existing, expected, strict=True)


# -- nonzero_with_count ----------------------------------------------------------------------------

EXAMPLE = np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32)


def counted(src, offset=0, padding=-1, dst=None):
    out = nl.ndarray((src.shape[0], src.shape[1] + 1), nl.int32) if dst is None else dst
    return gate.issue(nonzero_with_count, (src,), (offset, padding), dst=out)


@every("dtype", [np.int32, np.float32])
def test_the_documented_example(dtype):
    result = on_tiles(lambda x: counted(x, offset=16), EXAMPLE.astype(dtype))
    assert_array_equal(result, np.array([[17, 18, 21, -1, -1, -1, -1, -1, 3]], np.int32))


def test_each_sixteenth_partition_is_read_and_written():
    """The others may even be unwritten, and keep what they hold."""

    def kernel(x):
        src = nl.ndarray((40, 8), nl.float32)
        for p in (0, 16, 32):
            src[p : p + 1] = x[p : p + 1]
        return counted(src, padding=7, dst=nl.full((40, 9), 5, nl.int32))

    data = integers(40, 8, low=0, high=2, dtype=np.float32)
    result = on_tiles(kernel, data)
    for p in range(40):
        found = np.flatnonzero(data[p])
        padded = [*found, *[7] * (8 - found.size), found.size]
        assert_array_equal(result[p], padded if p % 16 == 0 else [5] * 9)


def test_the_trace_says_that_dst_is_written_in_part():
    def kernel(x):
        out = nl.ndarray((1, 9), nl.int32, buffer=nl.shared_hbm)
        nl.store(out, counted(nl.load(x)))
        return out

    events = launch(kernel, [EXAMPLE]).trace.events
    (event,) = [event for event in events if event.opcode == "nonzero_with_count"]
    assert [(region.role, region.whole) for region in event.writes] == [("dst", False)]
