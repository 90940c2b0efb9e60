import pytest

from difftest.backends.device.measurements import (
    PERCENTILES,
    HistoryError,
    MeasuredLatency,
    Record,
    append,
    digest_of,
    history_file,
    latency_of,
    measure_steadily,
    measured_p99,
    read_history,
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


TEST = "224x224, float16, no pool"


def record(**changes):
    fields = {
        "test": TEST,
        "source": "abc",
        "when": "2026-01-01T00:00:00+00:00",
        "metric": "device time",
        "p99": 930.0,
        "percentiles": {"99": 930.0},
        "spread": 0.001,
        "rounds": 3,
        "predicted": 950.0,
        "relaxed": 1365.0,
        "full": 1002.0,
        "machine": {"core": "0"},
    }
    return Record(**{**fields, **changes})


def test_what_is_appended_is_read_again_in_order(tmp_path):
    file = tmp_path / "deep" / "history.json"
    for p99 in (3.0, 1.0, 2.0):
        append(file, record(p99=p99))
    assert [one.p99 for one in read_history(file)] == [3, 1, 2]
    assert measured_p99(file, TEST) == 2
    assert list(file.parent.iterdir()) == [file]


@every("text", ["", "{", "[]", "{}", '{"records": [{"p99": 1}]}'])
def test_a_file_that_is_none_is_an_error_and_stays_as_it_is(tmp_path, text):
    file = tmp_path / "history.json"
    file.write_text(text)
    with pytest.raises(HistoryError, match=r"history\.json is not a history"):
        append(file, record())
    assert file.read_text() == text


def test_the_grade_takes_the_measurement_of_exactly_this_file(tmp_path):
    file, kernel = tmp_path / "history.json", tmp_path / "conv2d.py"
    kernel.write_text("version = 1")
    assert measured_p99(file, TEST, kernel_file=kernel) is None, "without a history"
    append(file, record(source=digest_of(kernel), p99=900.0))
    append(file, record(source="another file", p99=100.0))
    append(file, record(source=digest_of(kernel), test="another test", p99=50.0))
    assert measured_p99(file, TEST, kernel_file=kernel) == 900
    kernel.write_text("version = 2")
    assert measured_p99(file, TEST, kernel_file=kernel) is None


def test_like_is_compared_with_like(tmp_path):
    file = tmp_path / "history.json"
    append(file, record(p99=100.0))
    append(file, record(p99=120.0, metric="total_time of a profile"))
    assert measured_p99(file, TEST, metric="device time") == 100


def test_the_file_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("DIFFTEST_HISTORY", str(tmp_path / "mine.json"))
    assert history_file() == tmp_path / "mine.json"
