import pytest

from difftest.backends.device.latency import (
    PERCENTILES,
    MeasuredLatency,
    latency_of,
    measure_steadily,
)
from tests.every import every


def test_each_percentile_is_a_duration_that_was_measured():
    latency = latency_of([float(one) for one in range(1, 21)], "device time", warmup=5)
    assert latency.p99 == 20, "of twenty, the ninety-ninth percentile is the longest"
    assert latency.percentiles[50] == 11
    assert (latency.percentiles[0], latency.percentiles[100]) == (1, 20)
    assert set(latency.percentiles) == set(PERCENTILES)
    assert (latency.warmup, latency.iterations) == (5, 20)


@every("durations", [[], [1.0, 0.0], [-1.0], [float("nan")], [float("inf")]])
def test_what_is_no_duration_is_an_error(durations):
    with pytest.raises(ValueError, match="accepted: positive numbers"):
        latency_of(durations, "device time", warmup=5)


def measured(*p99s):
    """A measurement whose rounds give these p99s, the last one again and again."""
    left = list(p99s)
    made = []

    def measure():
        value = left.pop(0) if len(left) > 1 else left[0]
        made.append(value)
        return MeasuredLatency("device time", {99: float(value)}, 5, 20)

    steady = measure_steadily(measure)
    return steady, made


def test_three_rounds_that_agree_are_enough():
    steady, made = measured(100, 100.5, 100.2)
    assert len(made) == steady.rounds == 3
    assert steady.latency.p99 == 100.2
    assert steady.quiet
    assert steady.spread == pytest.approx(0.5 / 100.2)


def test_noise_is_waited_out():
    steady, made = measured(150, 130, 101, 100, 100.5)
    assert made == [150, 130, 101, 100, 100.5]
    assert steady.quiet


def test_noise_that_stays_is_said_to():
    left = [100.0, 200.0] * 9
    steady = measure_steadily(lambda: MeasuredLatency("device time", {99: left.pop()}, 5, 20))
    assert steady.rounds == 9
    assert not steady.quiet


@every("third, quiet", [(100.9, True), (101.1, False)])
def test_one_per_cent_decides(third, quiet):
    values = [100.0, 100.5, third] * 3
    steady = measure_steadily(lambda: MeasuredLatency("device time", {99: values.pop(0)}, 5, 20))
    assert steady.quiet is quiet
