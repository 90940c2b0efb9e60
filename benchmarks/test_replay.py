"""The CPU time of a replay, against a launch of the kernel, for small runs of kernels/.

Each ratio is the median of runs in pairs, one after the other, so that it holds if a computer's
speed drifts. The last row is the share in which instructions compute, read and write. A replay
that keeps every bit cannot take less.
"""

import statistics
import time

import numpy as np
import pytest

from difftest.simulator import launch
from difftest.simulator.instructions import gate
from difftest.simulator.launch_listeners import recording_tapes
from difftest.simulator.replay import replay_tape
from difftest.simulator.tape_json import tape_from_json, tape_to_json

PAIRS = 7
NAMES = (
    "nki.softmax_rows",
    "nki.matmul_blocked",
    "nki.attention_heads",
    "nki.conv2d_baseline",
    "classic.conv2d_baseline",
    "classic.vector_add_tiled",
)


def seconds(run):
    start = time.process_time()
    run()
    return time.process_time() - start


def share_of_values(run):
    """Return the share of a launch in which values are computed, read and written."""
    taken = []

    def timed(function):
        def call(*args):
            start = time.process_time()
            try:
                return function(*args)
            finally:
                taken.append(time.process_time() - start)

        return call

    with pytest.MonkeyPatch.context() as patched:
        for part in ("_run_on_values", "_run_in_place"):
            patched.setattr(gate, part, timed(getattr(gate, part)))
        start = time.process_time()
        run()
        return sum(taken) / (time.process_time() - start)


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_beside_a_launch(name, capsys):
    from tests.unit.simulator.small_runs import RUNS, kernels_of_the_tree

    kernel = kernels_of_the_tree()[name]
    shapes, keywords = RUNS[kernel.__name__]
    args = [np.ones(shape, np.float32) for shape in shapes]
    with recording_tapes() as tapes:
        launch(kernel, args, keywords)
    text = tape_to_json(tapes[0])
    replay = replay_tape(tape_from_json(text))

    def record():
        with recording_tapes():
            launch(kernel, args, keywords)

    runs = {
        "replayed": lambda: launch(replay, args, keywords),
        "taped": record,
        "to JSON": lambda: tape_to_json(tapes[0]),
        "from JSON": lambda: tape_from_json(text),
    }
    ratios = {one: [] for one in (*runs, "values alone")}
    for _ in range(PAIRS + 1):  # the first warms up
        for one, run in runs.items():
            bare = seconds(lambda: launch(kernel, args, keywords))
            ratios[one].append(seconds(run) / bare)
        ratios["values alone"].append(
            share_of_values(lambda: launch(kernel, args, keywords))
        )
    shown = ", ".join(
        f"{one} {statistics.median(found[1:]):.2f}" for one, found in ratios.items()
    )
    with capsys.disabled():
        print(f"\n{name}, {len(tapes[0].steps)} calls, times a launch: {shown}")
