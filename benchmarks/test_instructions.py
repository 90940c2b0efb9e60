"""The CPU time of a recorded instruction on one element, against one that is only run.

Each ratio is the median of runs in pairs, one after the other, so that it holds if a computer's
speed drifts. To compare two versions of difftest, run it in a checkout of each.
"""

import statistics
import time

import numpy as np
import pytest

from difftest.simulator import launch

PAIRS = 9
COUNT = 2000
ONE = np.ones((1, 1), np.float32)


def cases():
    """By name: how many instructions a launch has, and the launch."""
    from benchmarks import tiny

    rows = np.ones((4, COUNT // 8), np.float32)
    square = np.ones((16, 16), np.float32)
    return {
        "recorded": (COUNT, lambda: launch(tiny.additions, (ONE, COUNT))),
        "today, recorded": (COUNT, lambda: launch(tiny.todays_additions, (ONE, COUNT))),
        "exact": (COUNT, lambda: launch(tiny.additions, (ONE, COUNT), exact=True)),
        "load": (COUNT // 2, lambda: launch(tiny.loads, (rows,))),
        "product": (COUNT // 2, lambda: launch(tiny.products, (square, COUNT // 2))),
        "today, product": (COUNT, lambda: launch(tiny.todays_products, (ONE, COUNT))),
    }


def seconds(run):
    start = time.process_time()
    run()
    return time.process_time() - start


@pytest.mark.parametrize(
    "name",
    ["recorded", "today, recorded", "exact", "load", "product", "today, product"],
)
def test_an_instruction_beside_one_that_is_only_run(name, capsys):
    from benchmarks import tiny

    count, run = cases()[name]
    ratios = []
    for _ in range(PAIRS + 1):  # the first warms up
        bare = (
            seconds(lambda: launch(tiny.additions, (ONE, COUNT), record=False)) / COUNT
        )
        ratios.append(seconds(run) / count / bare)
    with capsys.disabled():
        print(
            f"\n{name}: {statistics.median(ratios[1:]):.2f} times an addition that is only run"
        )
