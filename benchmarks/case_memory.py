"""A case with an input and an output of 128 MB, for its peak memory."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np

from difftest import Input, Uniform, kernel_test

ROWS = 8192
COLUMNS = 4096


@nki.jit
def scaled(x):
    """out = 1.5 * x + 1, in tiles of 128 rows."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in nl.affine_range(rows // 128):
        tile = nl.load(x[first * 128 : (first + 1) * 128, 0:columns])
        nl.store(out[first * 128 : (first + 1) * 128, 0:columns], tile * 1.5 + 1.0)
    return out


def reference(x):
    """Return 1.5 * x + 1 in float64."""
    return x.astype(np.float64) * 1.5 + 1.0


@kernel_test(
    kernel=scaled,
    reference=reference,
    domain={"R": [ROWS], "N": [COLUMNS]},
    inputs={"x": Input("R N", data=Uniform(1))},
    dtypes=("float32",),
)
def test_scaled(case):
    """Check a case; only the benchmark runs it."""
    case.check()
