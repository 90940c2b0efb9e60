"""Functions of nl on [128, 1], against nisa.tensor_tensor into an existing tile, in float32.

A function of nl makes a tile for its result. Integers are rounded, and looked at for the numbers
that float32 cannot hold. The ratios compare runs in turn, in CPU time.
"""

import statistics
import time

import numpy as np
import pytest

from difftest.simulator import launch

PAIRS = 9
KERNELS = ("additions", "scalings", "sums", "todays_additions", "instructions")


def seconds(kernel, tile):
    start = time.process_time()
    launch(kernel, (tile,))
    return time.process_time() - start


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", KERNELS)
def test_small_tiles(name, dtype, capsys):
    from benchmarks import small_tiles

    kernel = getattr(small_tiles, name)
    tile = np.ones((128, 1), dtype)
    float32 = np.ones((128, 1), np.float32)
    each = []
    ratios = []
    for _ in range(PAIRS + 1):  # the first warms up
        bare = seconds(small_tiles.instructions, float32)
        taken = seconds(kernel, tile)
        ratios.append(taken / bare)
        each.append(1e6 * taken / small_tiles.COUNT)
    with capsys.disabled():
        print(
            f"\n{name}, {dtype}: {statistics.median(ratios[1:]):.2f} times nisa's, "
            f"{min(each):.1f} us"
        )
