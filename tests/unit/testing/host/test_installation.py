"""The times that the embedded modules report when the timing model is installed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from difftest.simulator import (
    MACHINES,
    NotModelledError,
    RuleWarning,
    Trace,
    launch,
    trace_from_json,
)
from difftest.testing.host.installation import (
    embedded_with_predictions,
    predict_latency,
)
from difftest.timing import predict

with embedded_with_predictions():
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

DATA = np.ones((128, 64), np.float32)


def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


def test_the_files_of_a_benchmark_match_the_commands(tmp_path):
    neff = tmp_path / "file.neff"
    ntff = tmp_path / "profile.ntff"
    bench = nki.benchmark(doubled, save_neff_name=neff, save_trace_name=ntff)
    with pytest.warns(RuleWarning, match="can write the requested files"):
        bench(DATA)
    trace = trace_from_json(neff.read_text())
    profile = json.loads(ntff.read_text())
    expected = predict(trace, MACHINES["trn2"], dge=True)
    assert profile["nc_latency_us"]["50"] == expected.latency
    assert profile["predicted"] is True
    assert len(profile["by_line"]) == 1
    latency = bench.benchmark_result.nc_latency
    assert latency.get_latency_percentile(50) == expected.latency
    assert latency.interval == expected.latency_interval
    assert profile["interval_us"]["nc_latency"] == list(latency.interval)


def test_a_profile_with_an_unknown_cost_says_so_and_has_no_total(monkeypatch):
    trace = launch(doubled, [DATA]).trace
    predicted = predict_latency(trace, MACHINES["trn2"], True)
    monkeypatch.setattr(
        type(predicted.prediction),
        "unknown",
        property(lambda self: {"tensor_scalar": 1}),
    )
    with pytest.raises(NotModelledError, match="the latency of this kernel") as caught:
        predicted.get_latency_percentile(50)
    assert "the cost of 1 tensor_scalar is unknown on trn2" in caught.value.received
    with pytest.raises(NotModelledError, match="the latency of this kernel"):
        predicted.get_interval()
    profile = predicted.profile()
    assert profile["interval_us"] is None
    assert (profile["unknown_costs"], profile["nc_latency_us"]) == (
        {"tensor_scalar": 1},
        None,
    )


def test_a_kernel_without_instructions_has_no_latency():
    with pytest.raises(NotModelledError, match="without instructions"):
        predict_latency(Trace(), MACHINES["trn2"], True)


def test_a_machine_without_costs():
    trace = launch(doubled, [DATA]).trace
    with pytest.raises(NotModelledError, match="kernels on trn9") as caught:
        predict_latency(trace, replace(MACHINES["trn2"], name="trn9"), True)
    assert "no timing data for machine 'trn9'" in caught.value.received
