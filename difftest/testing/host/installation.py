"""The embedded modules with the timing model, as commands and the plugin install them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from difftest.simulator import Machine, Trace
from difftest.simulator.entry.install import embedded
from difftest.simulator.errors import not_modelled

if TYPE_CHECKING:
    from difftest.timing import Prediction


def embedded_with_predictions(level: str | None = None) -> embedded:
    """Return the embedded modules at a level of NKI; their `nki.benchmark` predicts latencies."""
    return embedded(predictor=predict_latency, level=level)


class PredictedLaunch:
    """The predicted latency of a launch in microseconds; unknown costs are errors."""

    def __init__(self, prediction: Prediction) -> None:
        self.prediction = prediction

    def get_latency_percentile(self, percentile: int) -> float:
        """Return a percentile of the predicted latency in microseconds."""
        self._need_costs()
        return self.prediction.get_latency_percentile(percentile)

    def get_interval(self) -> tuple[float, float]:
        """Return the interval in microseconds that holds a device's latency nine times of ten."""
        self._need_costs()
        return self.prediction.latency_interval

    @property
    def caution(self) -> str:
        """A warning on the accuracy of the prediction; empty if most costs were measured."""
        return self.prediction.caution

    def _need_costs(self) -> None:
        if unknown := self.prediction.describe_unknown():
            raise not_modelled("the latency of this kernel", unknown)

    def profile(self) -> Mapping[str, object]:
        """Return the predicted profile, like `difftest profile --json` but without its advice."""
        from difftest.timing.report import Report, as_mapping

        return as_mapping(Report(self.prediction))


def predict_latency(trace: Trace, machine: Machine, dge: bool) -> PredictedLaunch:
    """Predict the latency of a launch; the first call imports the timing model.

    Raises
    ------
    NotModelledError : the trace is empty, or the machine has no timing data.
    """
    from difftest.timing import UnknownCostError, predict

    if not len(trace):
        raise not_modelled(
            "the latency of a kernel without instructions", "an empty trace"
        )
    try:
        return PredictedLaunch(predict(trace, machine, dge=dge))
    except UnknownCostError as error:
        raise not_modelled(
            f"the latency of kernels on {machine.name}", str(error)
        ) from None
