"""nc_n_gather and nonzero_with_count (nki.isa at v2.32.0)."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_array_equal

from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.gather import nonzero_with_count
from tests.every import every
from tests.unit.simulator.on_tiles import on_tiles

# -- nonzero_with_count ----------------------------------------------------------------------------

EXAMPLE = np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32)


def counted(src, offset=0, padding=-1, dst=None):
    out = nl.ndarray((src.shape[0], src.shape[1] + 1), nl.int32) if dst is None else dst
    return gate.issue(nonzero_with_count, (src,), (offset, padding), dst=out)


@every("dtype", [np.int32, np.float32])
def test_the_documented_example(dtype):
    result = on_tiles(lambda x: counted(x, offset=16), EXAMPLE.astype(dtype))
    assert_array_equal(result, np.array([[17, 18, 21, -1, -1, -1, -1, -1, 3]], np.int32))
