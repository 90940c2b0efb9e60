import json
import sys

import numpy as np
import pytest

from difftest.backends.device.measurements import MeasuredLatency, Steady, read_history
from difftest.backends.device.stage import (
    CONVOLUTIONS,
    TRANSPOSE,
    Predicted,
    StageResult,
    Threshold,
    exit_code,
    keep,
    predict_threshold,
    run_threshold,
)
from difftest.course.assignment import PERFORMANCE, TRANSPOSE_US
from tests.every import every

SMALL = Threshold(
    name="small",
    kernel="matrix_transpose",
    shapes=((128, 128),),
    dtype="float32",
    parameters={},
    relaxed_us=100.0,
    full_us=50.0,
    source="this test",
)


def measured(p99, threshold=SMALL, spread=0.001, **changes):
    latency = MeasuredLatency("device time", {99: p99}, 5, 20)
    return StageResult(
        threshold, Steady(latency, spread, 3), Predicted(60.0, 10.0, 50.0, 75.0), **changes
    )


@every("threshold", CONVOLUTIONS)
def test_each_limit_decides_at_just_under_and_just_over(threshold):
    full, relaxed = threshold.full_us, threshold.relaxed_us

    def below(limit):
        return np.nextafter(limit, 0)

    def above(limit):
        return np.nextafter(limit, np.inf)

    assert threshold.result(below(full)) == "full"
    assert threshold.result(full) == "full"
    assert threshold.result(above(full)) == ("relaxed" if relaxed > full else "missed")
    assert threshold.result(below(relaxed)) == ("relaxed" if relaxed > full else "full")
    assert threshold.result(relaxed) == ("relaxed" if relaxed > full else "full")
    assert threshold.result(above(relaxed)) == "missed"


def test_the_transpose_must_be_under_its_limit():
    assert TRANSPOSE.result(np.nextafter(TRANSPOSE_US, 0)) == "full"
    assert TRANSPOSE.result(TRANSPOSE_US) == "missed"
    assert TRANSPOSE.result(np.nextafter(TRANSPOSE_US, np.inf)) == "missed"


@every(
    "image, dtype, limits",
    [
        ((224, 224), "float32", (4964, 4596)),
        ((224, 224), "float16", (1365, 1002)),
        ((32, 16), "float32", (110, 110)),
        ((32, 16), "float16", (84, 84)),
    ],
)
def test_the_limits_are_the_courses_with_and_without_pooling(image, dtype, limits):
    found = [
        one for one in CONVOLUTIONS if one.shapes[0] == (1, 256, *image) and one.dtype == dtype
    ]
    assert [one.parameters["pool_size"] for one in found] == [1, 2]
    assert [(one.relaxed_us, one.full_us) for one in found] == [limits] * 2


def test_a_threshold_decides_as_the_points_do():
    for test, threshold in zip(PERFORMANCE, CONVOLUTIONS, strict=True):
        for p99 in (test.full_us, test.relaxed_us, test.relaxed_us + 1):
            share = test.points_for(p99) / test.points
            assert {"full": 1, "relaxed": 0.95, "missed": 0}[threshold.result(p99)] == share


def test_a_result_shows_all_its_numbers():
    assert measured(40.0, before=50.0).lines() == [
        "small: full",
        "  measured:     p99 40.0 us (device time, 5 + 20 executions)",
        "  predicted:    p99 60.0 us, from 50.0 to 75.0 us (by the timing model, not measured)",
        "  limits:       100 us relaxed, 50 us full (this test)",
        "  tensor bound: 10.0 us",
        "  before:       50.0 us, now -20.0%",
        "  noise:        spread 0.1% over 3 rounds",
    ]


def test_noise_is_named():
    assert "NOT under 1 %" in measured(40.0, spread=0.02).lines()[-1]


def test_a_prediction_is_never_a_result():
    result = StageResult(SMALL, None, Predicted(1.0, 0.5, 0.9, 1.2, "rests on little"))
    assert result.result == "not measured"
    assert result.lines()[:3] == [
        "small: not measured",
        "  measured:     nothing: this needs a device",
        "  predicted:    p99 1.0 us, from 0.9 to 1.2 us (by the timing model, not measured)",
    ]
    assert "  caution:      rests on little" in result.lines()
    assert result.to_json()["measured"] is None
    assert result.to_json()["predicted"] == {
        "p99_us": 1.0,
        "interval_us": [0.9, 1.2],
        "caution": "rests on little",
        "tensor_bound_us": 0.5,
    }
    assert json.dumps(result.to_json())


def test_a_prediction_is_not_kept(tmp_path):
    keep(
        StageResult(SMALL, None, Predicted(1.0, 0.5, 0.9, 1.2, "rests on little")),
        tmp_path / "h.json",
        tmp_path,
        {},
    )
    assert not (tmp_path / "h.json").exists()


@every(
    "results, code",
    [
        ([measured(40.0), measured(90.0)], 0),
        ([measured(40.0), measured(100.1)], 1),
        ([measured(40.0), StageResult(SMALL, None, None, "why")], 3),
        ([], 3),
    ],
)
def test_the_exit_code(results, code):
    assert exit_code(results) == code


KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

@nki.jit
def matrix_transpose(a):
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(result, nisa.nc_transpose(tile))
    return result
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    (tmp_path / "small_transpose.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(str(tmp_path))

    def load():
        import importlib

        return importlib.import_module("small_transpose").matrix_transpose

    yield load
    sys.modules.pop("small_transpose", None)


def test_a_prediction_is_made_where_the_embedded_simulator_is_the_sdk(load):
    predicted, why = predict_threshold(SMALL, load)
    assert why == ""
    assert predicted.p99 > predicted.tensor_bound > 0
    assert "small_transpose" not in sys.modules, "not in this process"


def test_without_a_prediction_the_reason_stands_there():
    def failing():
        raise ImportError("no such kernel")

    result = run_threshold(SMALL, failing, None)
    assert result.predicted is None
    assert "predicted:    nothing: ImportError: no such kernel" in "\n".join(result.lines())


class Timer:
    """Takes what it is asked for and measures 40 us."""

    metric = "device time"

    def measure(self, call, *, warmup, iterations):
        assert (warmup, iterations) == (5, 20), "the course's"
        assert [array.shape for array in call.inputs] == [(128, 128)]
        return MeasuredLatency(self.metric, {99: 40.0}, warmup, iterations)


def test_measurements_are_kept_and_compared_with(load, tmp_path, monkeypatch):
    history, kernel_file = tmp_path / "history.json", tmp_path / "small_transpose.py"
    # Under an SDK the kernel loads in this process too; here nothing stands for one.
    monkeypatch.setattr(
        "difftest.backends.device.stage.predict_threshold", lambda *_: (None, "no model")
    )
    first = run_threshold(SMALL, lambda: len, Timer(), history)
    assert (first.result, first.before) == ("full", None)
    keep(first, history, kernel_file, {"core": "0"})
    assert run_threshold(SMALL, lambda: len, Timer(), history).before == 40
    monkeypatch.setattr(Timer, "metric", "another device time")
    assert run_threshold(SMALL, lambda: len, Timer(), history).before is None, "not alike"
    (record,) = read_history(history)
    assert (record.p99, record.relaxed, record.full, record.spread) == (40, 100, 50, 0)
    assert record.machine["core"] == "0"
