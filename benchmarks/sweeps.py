"""Points of a sweep in one process, on one worker and on two: `python -m benchmarks.sweeps`.

Workers have collected the test before the clock starts. Ratios of wall time in one run, in pairs
one after the other: run it on an idle machine of two cores or more.
"""

import contextlib
import statistics
import time
import warnings
from pathlib import Path

from difftest.cli.collecting import with_spec
from difftest.scale.axes import Axes, parse_axes
from difftest.scale.engine import Cluster, SweepOrders, SweepTask, client_of, judged_here

TEST = f"{Path(__file__).parents[1]}/tests/kernels/test_vector_add.py::test_vector_add_stream"
GRID, ELEMENTS = "FREE_DIM=10,20,50,100", 12_800
PAIRS, POINTS = 3, 24


def points():
    axes = Axes(
        parse_axes([GRID, "dtype=float32,float16,bfloat16", "machine=trn1,trn2"]), {"n": ELEMENTS}
    )
    found = [*axes.points()]
    return [found[n % len(found)] for n in range(POINTS)]


def seconds(results):
    began = time.perf_counter()
    assert len([*results]) == POINTS
    return time.perf_counter() - began


def measured(spec, orders):
    """Seconds of each way, the median of the pairs."""
    taken = {"one process": [], "1 worker": [], "2 workers": []}
    with contextlib.ExitStack() as after:
        clients = [after.enter_context(client_of(count, None)) for count in (1, 2)]
        for turn in range(PAIRS + 1):
            tasks = [SweepTask(f"{turn}-{n}", at) for n, at in enumerate(points())]
            row = [seconds(judged_here(spec, orders, tasks))]
            row += [seconds(Cluster(client, orders).results(tasks)) for client in clients]
            for name, one in zip(taken, row, strict=True):
                taken[name] += [one] * bool(turn)  # the first turn warms up
    return {name: statistics.median(one) for name, one in taken.items()}


def main(spec):
    """The ratios, in words."""
    orders = SweepOrders(TEST, 3, 60.0)
    taken = measured(spec, orders)
    base = taken["one process"]
    ratios = ", ".join(f"{name} {base / one:.2f}" for name, one in taken.items())
    return f"{base / POINTS * 1e3:.0f} ms a point; points a second beside one process: {ratios}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(with_spec(TEST, main))
