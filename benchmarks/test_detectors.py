"""The cost of the search for hazards, against the simulation that made the trace.

The ratios compare launches in pairs, in CPU time, so they hold if a computer's speed drifts.
"""

import contextlib
import statistics
import time

import numpy as np
import pytest

from difftest.analysis.inspection import Inspector
from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.simulator.launch_listeners import listening

PAIRS = 9
AIM = 1.2
"""The largest ratio of CPU times, inspected launch to recorded launch."""

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


MATRICES = normal(1024, 1024), normal(1024, 1024)
IMAGES = normal(2, 128, 34, 18), normal(128, 128, 3, 3), normal(128)
VECTORS = normal(256), normal(256)
SMALL_IMAGE = normal(1, 128, 6, 6), normal(128, 128, 3, 3), normal(128)


def kernels():
    """Return kernels of both dialects with their inputs, by name."""
    with embedded():
        from benchmarks import dialects
        from kernels.classic import conv2d as classic
        from kernels.classic import transpose
        from kernels.classic import vector_add as classic_add
        from kernels.classic.conv2d_ladder import baseline, halo_tiles
        from kernels.nki import conv2d as todays
        from kernels.nki import vector_add as todays_add

    return {
        "matmul, classic": (dialects.matmul_classic, MATRICES, {}),
        "matmul, today's": (dialects.matmul_today, MATRICES, {}),
        "conv2d, classic": (classic.fused_conv2d_maxpool, IMAGES, {"pool_size": 2}),
        "conv2d, today's": (todays.fused_conv2d_maxpool, IMAGES, {"pool_size": 2}),
        "transpose": (transpose.matrix_transpose, MATRICES[:1], {}),
        # little data for each instruction: the inspection weighs most
        "tiles of 1 element, classic": (
            classic_add.vector_add_tiled,
            VECTORS,
            {"ROW_CHUNK": 1},
        ),
        "tiles of 1 element, today's": (
            todays_add.vector_add_tiled,
            VECTORS,
            {"ROW_CHUNK": 1},
        ),
        "transpose by tiles": (transpose.transpose_by_tiles, MATRICES[:1], {}),
        "conv2d baseline, 6 x 6": (baseline.conv2d_baseline, SMALL_IMAGE, {}),
        "conv2d halo tiles, 6 x 6": (halo_tiles.conv2d_halo_tiles, SMALL_IMAGE, {}),
    }


def seconds(kernel, arrays, keywords, witness, **options):
    """The CPU time of a launch."""
    start = time.process_time()
    with listening(witness) if witness else contextlib.nullcontext():
        launch(kernel, arrays, keywords, **options)
    return time.process_time() - start


@pytest.mark.parametrize("name", kernels())
def test_a_launch_that_is_looked_at(name, capsys):
    call = kernels()[name]
    seconds(*call, Inspector())  # warms up
    over = {"recorded": {}, "not recorded": {"record": False}, "exact": {"exact": True}}
    ratios = {}
    for what, options in over.items():
        pairs = []
        for _ in range(PAIRS):
            looked = seconds(*call, Inspector(), **options)
            pairs.append(looked / seconds(*call, None, **options))
        ratios[what] = statistics.median(pairs)
    events = len(launch(*call).trace)
    shown = ", ".join(f"{ratio:.2f} of one {what}" for what, ratio in ratios.items())
    with capsys.disabled():
        print(
            f"\n{name}: {events} instructions; a launch that is looked at takes {shown}"
        )
    assert ratios["recorded"] <= AIM
