"""A student's conv2d.py, right and in several ways wrong, for the tests of grading."""

import sys

from difftest.testing.host.loading import load_kernel
from difftest.tools.course.grading import KERNEL


def load(file):
    """Load the kernel of a student's file in place of another test's kernel."""
    sys.modules.pop(file.stem, None)
    return load_kernel(f"{file}:{KERNEL}")


SOURCE = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def fused_conv2d_maxpool(X, W, bias, pool_size=1):
    batch, c_in, height, width = X.shape
    c_out, _, taps, _ = W.shape
    rows, columns = height - taps + 1, width - taps + 1
    out = nl.ndarray(
        (batch, c_out, rows // pool_size, columns // pool_size), dtype=X.dtype, buffer=nl.shared_hbm
    )
    shift = nl.load(bias)
    filters = nl.load(W)
    for b in nl.affine_range(batch):
        image = nl.load(X[b])
        total = nl.zeros((c_out, rows, columns), nl.float32, buffer=nl.psum)
        for i in range(taps):
            for j in range(taps):
                stationary = nisa.tensor_copy(nisa.nc_transpose(filters[:, :, i, j]))
                total += nisa.nc_matmul(stationary, image[:, i : i + rows, j : j + columns])
        total = nisa.tensor_scalar(total, nl.add, shift)
        if pool_size > 1:
            p, y, x, dy, dx = nl.mgrid[
                0:c_out, 0 : rows // pool_size, 0 : columns // pool_size, 0:pool_size, 0:pool_size
            ]
            window = total[p, y * pool_size + dy, x * pool_size + dx]
            total = nisa.tensor_reduce(nl.max, window, axis=[3, 4])
        nl.store(out[b], total)
    return out
"""

OUT_OF_SCOPE = SOURCE.replace(
    "    filters = nl.load(W)\n",
    "    for _ in nl.affine_range(1):\n        filters = nl.load(W)\n",
)
WITHOUT_BIAS = SOURCE.replace(
    "total = nisa.tensor_scalar(total, nl.add, shift)", "pass"
)
SWAPPED_TAPS = SOURCE.replace("filters[:, :, i, j]", "filters[:, :, j, i]")
TOO_WIDE = SOURCE.replace(
    "shift = nl.load(bias)", "shift = nl.ndarray((256, 1), nl.float32, buffer=nl.sbuf)"
)
RAISING = SOURCE.replace("shift = nl.load(bias)", "shift = {}['bias']")
OTHER_NAME = SOURCE.replace("fused_conv2d_maxpool", "conv")
