"""Points of a sweep on one worker of Dask and on two: `python -m benchmarks.sweeps`.

Workers have collected the test before the clock starts. Ratios of wall time in one run, in pairs
one after the other: run it on an idle machine of two cores or more.
"""

import contextlib
import statistics
import time
import warnings
from pathlib import Path

import distributed

from difftest.tools.scale.axes import Axes, parse_axes
from difftest.tools.scale.engine import SweepSetup, judge_on_dask

TEST = f"{Path(__file__).parents[1]}/tests/kernels/test_vector_add.py::test_vector_add_stream"
GRID = "FREE_DIM=10,20,50,100"
ELEMENTS = 12_800
PAIRS = 3
POINTS = 24


def points():
    axes = Axes(
        parse_axes([GRID, "dtype=float32,float16,bfloat16", "machine=trn1,trn2"]),
        {"n": ELEMENTS},
    )
    found = list(axes.points())
    return [found[n % len(found)] for n in range(POINTS)]


def seconds(results):
    began = time.perf_counter()
    assert len(list(results)) == POINTS
    return time.perf_counter() - began


def measured():
    """The ratio of points that two workers and one worker complete, for each pair of runs."""
    orders = SweepSetup(TEST, 3, 60.0)
    taken = {1: [], 2: []}
    with contextlib.ExitStack() as after:
        clusters = [
            after.enter_context(
                distributed.LocalCluster(
                    n_workers=count, threads_per_worker=1, dashboard_address=None
                )
            )
            for count in taken
        ]
        for _ in range(PAIRS + 1):
            for times, cluster in zip(taken.values(), clusters, strict=True):
                address = cluster.scheduler_address
                times.append(seconds(judge_on_dask(orders, points(), address)))
    # the first warms up
    return [one / two for one, two in zip(*taken.values(), strict=True)][1:]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    ratios = measured()
    each = ", ".join(f"{one:.2f}" for one in ratios)
    print(
        f"2 workers beside 1: {statistics.median(ratios):.2f} times the points a second ({each})"
    )
