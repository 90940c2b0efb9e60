"""The table of docs/how-to/tune.md: `python -m benchmarks.tuning`. All times are predicted.

Each search begins at the worst corner of its grid, so that it has to find its way.
"""

import warnings
from collections import Counter

from difftest.simulator.entry.install import embedded
from difftest.tools.scale.axes import Axes, parse_axes
from difftest.tools.scale.sweep import microseconds, point_text
from difftest.tools.scale.tune import AGREES, SLOWER, Tuner, run_tuner

LAYER = {"c_in": 128, "c_out": 128, "filter_size": 3, "pool_size": 2, "batch": 1}
SEARCHES = (
    (
        "test_vector_add:test_vector_add_stream",
        ("FREE_DIM=1,2,5,10,20,50,100,125,200,250,400,500,1000,2000",),
        {"n": 256_000},
        8,
    ),
    (
        "test_matmul:test_nki_matmul_tiled_with_other_tiles",
        ("TILE_M=32,64,128", "TILE_K=32,64,128", "TILE_N=64,128,256,512"),
        {"M": 512, "K": 512, "N": 1024},
        14,
    ),
    (
        "test_transpose:test_matrix_transpose_in_several_panels",
        ("PANEL_BYTES=512..32768", "STORE_TILES=1,2,3,4,6,8"),
        {"M": 1024, "N": 1024},
        14,
    ),
    (
        "test_conv2d:test_fused_conv2d_maxpool_in_small_tiles",
        ("BLOCK_BYTES=128..32768", "TILE_WINDOWS=1,4,16,64,128,None"),
        {**LAYER, "width": 66, "height": 66},
        14,
    ),
)
HEAD = "| kernel, case | start | found | place | the kernel's own | looked at, scheduled, judged |"


def searched(name, texts, case, trials):
    """A row of the table."""
    module, _, test = name.partition(":")
    spec = getattr(
        __import__(f"tests.kernels.{module}", fromlist=[test]), test
    ).difftest.spec
    tuner = Tuner(spec, Axes(parse_axes(texts), {**case, "kernel": "nki"}))
    *_, place = run_tuner(tuner, {}, trials, exhaustive=True)
    first = tuner.ladder[0]
    best = tuner.ladder[-1]
    own = tuner.own()
    counts = Counter(one.status for one in tuner.attempts)
    looked = len(tuner.attempts)
    scheduled = counts[SLOWER] + counts[AGREES]
    cells = (
        f"`{test.removeprefix('test_')}`, {point_text(case, list(case))}",
        at(first),
        at(best),
        place.removeprefix("place ").partition(" points")[0],
        at(own),
        f"{looked} of {len(tuner.axes)}, {scheduled}, {counts[AGREES]}",
    )
    return f"| {' | '.join(cells)} |"


def at(attempt):
    point = point_text(attempt.point, list(attempt.point))
    return f"{point}: {microseconds(attempt.latency_us)} us"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(HEAD, "|---" * 6 + "|", sep="\n")
    with embedded():
        for search in SEARCHES:
            print(searched(*search), flush=True)
