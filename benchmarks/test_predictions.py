"""The cost of predicting a kernel's time, against the simulation that made its trace.

Kernels of tiny instructions are the worst case: their simulation has little data to move. Times are
CPU time; the ratio of pairs of runs holds where a computer's speed drifts.
"""

import statistics
import time
import tracemalloc
from functools import partial

import numpy as np
import pytest

from difftest.simulator import TRN1, TRN2, launch
from difftest.simulator.entry.install import embedded
from difftest.timing import predict
from difftest.timing.advice import advise
from difftest.timing.report import Report

PAIRS = 3
AIM = 1.0
"""The largest ratio of CPU times, prediction to simulation."""
INTERVAL = 1.5
"""The largest ratio of CPU times, interval with other compilers to prediction."""
BYTES = 1500
"""The most bytes of memory for each instruction of a prediction, including its timeline."""


def kernels():
    """Return kernels with their inputs, by name."""
    with embedded():
        from benchmarks import tiny

    small = np.ones((1, 4), np.float32)
    return {
        "element-wise loads": (
            tiny.loads,
            [np.ones((80, tiny.COLUMNS), np.float32)],
            {},
        ),
        "additions, classic": (tiny.additions, [small], {"count": 20_000}),
        "additions, today's": (tiny.todays_additions, [small], {"count": 20_000}),
        "products": (tiny.products, [np.ones((4, 4), np.float32)], {"count": 10_000}),
    }


def seconds(call):
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


@pytest.mark.parametrize("machine", [TRN2, TRN1], ids=lambda machine: machine.name)
@pytest.mark.parametrize("name", kernels())
def test_a_prediction_takes_no_longer_than_the_simulation(name, machine, capsys):
    kernel, arrays, keywords = kernels()[name]
    ratios = []
    further = []
    for _ in range(PAIRS):
        simulating, launched = seconds(
            lambda: launch(kernel, arrays, keywords, machine=machine)
        )
        predicting, prediction = seconds(
            partial(predict, launched.trace, machine, dge=True)
        )
        widening, _ = seconds(partial(getattr, prediction, "latency_interval"))
        ratios.append(predicting / simulating)
        further.append(widening / predicting)
    del prediction
    ratio = statistics.median(ratios)
    interval = statistics.median(further)
    events = len(launched.trace)
    with capsys.disabled():
        print(
            f"\n{name}, {machine.name}: {events} instructions; a prediction takes {ratio:.2f} of "
            f"a simulation, its interval {interval:.2f} of a prediction"
        )
    assert ratio <= AIM
    assert interval <= INTERVAL


@pytest.mark.parametrize("name", kernels())
def test_memory_grows_with_the_instructions(name, capsys):
    kernel, arrays, keywords = kernels()[name]
    trace = launch(kernel, arrays, keywords).trace
    tracemalloc.start()
    predict(trace, TRN2, dge=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each = peak / len(trace)
    with capsys.disabled():
        print(f"\n{name}: {each:,.0f} bytes for each of {len(trace)} instructions")
    assert each <= BYTES


@pytest.mark.parametrize("dialect", ["classic", "today's"])
def test_a_whole_profile_grows_straight(dialect, capsys):
    """Print the cost of everything that ``difftest profile`` does after the simulation."""
    kernel, arrays, keywords = kernels()[f"additions, {dialect}"]
    each = {}
    for count in (20_000, 100_000):
        simulating, launched = seconds(
            lambda count=count: launch(kernel, arrays, {**keywords, "count": count})
        )
        profiling, _ = seconds(partial(profiled, launched.trace))
        events = len(launched.trace)
        each[count] = 1e6 * profiling / events
        with capsys.disabled():
            print(
                f"\nadditions, {dialect}: {events} instructions; a profile takes "
                f"{profiling / simulating:.2f} of a simulation, {each[count]:.0f} us each"
            )
    with capsys.disabled():
        print(f"  growth: {each[100_000] / each[20_000]:.2f} times the cost of each")


def profiled(trace):
    """Return a prediction with all that a profile asks of it."""
    prediction = predict(trace, TRN2, dge=True)
    advise(prediction.schedule)
    _ = prediction.latency_interval
    return Report(prediction)
