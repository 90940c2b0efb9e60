"""The embedded modules with the timing model in place: what commands and the plugin install."""

from __future__ import annotations

from difftest.simulator import Machine, Trace
from difftest.simulator.frontend.benchmark import Latency
from difftest.simulator.frontend.install import embedded


def embedded_with_predictions(level: str | None = None) -> embedded:
    """The embedded modules, whose `nki.benchmark` predicts latencies, at a level of NKI."""
    return embedded(predictor=predict_latency, level=level)


def predict_latency(trace: Trace, machine: Machine, dge: bool) -> Latency:
    """Predict the latency of a launch; the timing model is imported when it is first asked."""
    from difftest.timing import predict

    return predict(trace, machine, dge=dge)
