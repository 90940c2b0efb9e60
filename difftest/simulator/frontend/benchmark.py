"""``nki.benchmark``: a latency is a device's to measure; here a timing model may predict it.

The model is not the simulator's: who installs the embedded modules hands it in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

from difftest.simulator.errors import KernelError, not_modelled
from difftest.simulator.frontend.artifacts import artifacts_of
from difftest.simulator.frontend.kernel import COMPILER, RunAs, outputs_of
from difftest.simulator.machine import Machine
from difftest.simulator.trace import Trace

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
"""Those that AWS documents for ``get_latency_percentile``."""


class Latency(Protocol):
    """A predicted latency."""

    def get_latency_percentile(self, percentile: int) -> float:
        """In microseconds."""

    def get_interval(self) -> tuple[float, float]:
        """Between which microseconds a device's latency would lie, nine times of ten."""

    @property
    def caution(self) -> str:
        """What to know before the time is believed, in words; may be empty."""

    def profile(self) -> Mapping[str, object]:
        """All that is predicted, as what JSON has."""


Predictor: TypeAlias = Callable[[Trace, Machine, bool], Latency]
"""Predicts a launch from its trace, the machine, and whether descriptors are generated on it.

It raises a NotModelledError where it cannot.
"""


class NcLatency:
    """``benchmark_result.nc_latency``: predicted percentiles, in microseconds."""

    predicted = True

    def __init__(self, latency: Latency) -> None:
        self._latency = latency

    def get_latency_percentile(self, percentile: int) -> float:
        """One of :data:`PERCENTILES`, in microseconds: predicted, not measured."""
        if percentile not in PERCENTILES:
            raise KernelError(
                "nc_latency has certain percentiles",
                happened=f"percentile {percentile!r:.40} was asked for",
                received=f"{percentile!r}",
                limit=", ".join(map(str, PERCENTILES)),
            )
        return self._latency.get_latency_percentile(percentile)

    @property
    def interval(self) -> tuple[float, float]:
        """Between which microseconds a device's latency would lie, nine times of ten: predicted."""
        return self._latency.get_interval()


class Benchmark(RunAs):
    """A kernel under ``nki.benchmark``; calling it simulates the kernel and predicts its latency.

    ``benchmark_result`` is there after a call.
    """

    where = "nki.benchmark"
    known = ("warmup", "iters", "save_neff_name", "save_trace_name", COMPILER)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.predictor is None:
            raise not_modelled(
                "nki.benchmark without a timing model",
                "a latency",
                "use difftest run, or embedded(predictor=...); a Trainium instance measures",
            )
        artifacts = artifacts_of(self.where, self.options, predicts=True)
        result = self.launched(args, kwargs, True)
        predicted = self.predicted(result.trace)
        latency = NcLatency(predicted)
        artifacts.write(result.trace, predicted.profile)
        self.benchmark_result = SimpleNamespace(nc_latency=latency)
        p50, p99 = (latency.get_latency_percentile(p) for p in (50, 99))
        low, high = latency.interval
        warning = f"\n  {predicted.caution}" if predicted.caution else ""
        print(
            f"{self.kernel.function.__name__}: predicted latency p50 {p50:,.1f} us, "
            f"p99 {p99:,.1f} us; on a device between {low:,.1f} and {high:,.1f} us "
            f"(by a timing model; nothing was measured){warning}"
        )
        return outputs_of(result)


benchmark_with = Benchmark.decorator
"""``nki.benchmark`` for modules that are installed with this predictor."""
