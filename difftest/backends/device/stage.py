"""The hardware stage: latency thresholds, what was measured and what the model predicts.

The limits are data (``difftest/course/assignment.py``), the decision is a comparison, and a
prediction is never taken for a measurement: without a device the result is "not measured".
"""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from difftest.backends.base import Array, KernelCall
from difftest.backends.device.embedding import call_embedded
from difftest.backends.device.measurements import (
    Record,
    Steady,
    append,
    digest_of,
    measure_steadily,
    measured_p99,
)
from difftest.backends.device.timers import Timer
from difftest.course.assignment import (
    FILTER,
    ITERATIONS,
    PERFORMANCE_BATCH,
    PERFORMANCE_CHANNELS,
    TRANSPOSE_SIDE,
    TRANSPOSE_US,
    WARMUP,
    PerformanceTest,
    performance_tests,
)

Kernel = Callable[..., Any]
Load = Callable[[], Kernel]
"""Imports the kernel, with whatever stands for ``neuronxcc`` at that moment."""

FULL, RELAXED, MISSED, NOT_MEASURED = "full", "relaxed", "missed", "not measured"


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Limits of a kernel's p99 latency on one NeuronCore. Times in microseconds.

    Attributes
    ----------
    shapes : of the kernel's arrays, in order.
    strict : whether a latency at the limit misses it.
    source : who says so.
    """

    name: str
    kernel: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    parameters: Mapping[str, Any]
    relaxed_us: float
    full_us: float
    source: str
    strict: bool = False

    def result(self, p99_us: float) -> str:
        """Which limit a latency meets: "full", "relaxed" or "missed"."""
        if self._within(p99_us, self.full_us):
            return FULL
        return RELAXED if self._within(p99_us, self.relaxed_us) else MISSED

    def _within(self, p99_us: float, limit: float) -> bool:
        return p99_us < limit if self.strict else p99_us <= limit

    def arrays(self) -> tuple[Array, ...]:
        """Random inputs, the same each time."""
        random = np.random.default_rng(0)
        return tuple(
            random.standard_normal(shape, dtype=np.float32).astype(self.dtype)
            for shape in self.shapes
        )

    def call(self, kernel: Kernel) -> KernelCall:
        return KernelCall(kernel=kernel, inputs=self.arrays(), parameters=dict(self.parameters))


def _convolution(test: PerformanceTest) -> Threshold:
    channels = PERFORMANCE_CHANNELS
    return Threshold(
        name=test.name,
        kernel="fused_conv2d_maxpool",
        shapes=(
            (PERFORMANCE_BATCH, channels, *test.image),
            (channels, channels, FILTER, FILTER),
            (channels,),
        ),
        dtype=test.dtype,
        parameters={"pool_size": test.pool_size},
        relaxed_us=test.relaxed_us,
        full_us=test.full_us,
        source="the course's assignment, Part 2",
    )


CONVOLUTIONS = tuple(map(_convolution, performance_tests(max_pool=True)))
TRANSPOSE = Threshold(
    name=f"{TRANSPOSE_SIDE}x{TRANSPOSE_SIDE}, float32, transpose",
    kernel="matrix_transpose",
    shapes=((TRANSPOSE_SIDE, TRANSPOSE_SIDE),),
    dtype="float32",
    parameters={},
    relaxed_us=TRANSPOSE_US,
    full_us=TRANSPOSE_US,
    source="the course's assignment, Part 1",
    strict=True,
)


@dataclass(frozen=True)
class Predicted:
    """What the timing model says, microseconds: p99 latency, and the Tensor Engine's part alone.

    Attributes
    ----------
    low, high : between them a device's latency would lie, nine times of ten.
    caution : what to know before it is believed; may be empty.
    """

    p99: float
    tensor_bound: float
    low: float
    high: float
    caution: str = ""


@dataclass(frozen=True)
class StageResult:
    """One threshold: what was measured, if anything was, and what was predicted, if it could be.

    Attributes
    ----------
    unpredicted : why there is no prediction.
    before : p99 of the last measurement of this threshold by the same metric in the history.
    """

    threshold: Threshold
    steady: Steady | None
    predicted: Predicted | None
    unpredicted: str = ""
    before: float | None = None

    @property
    def result(self) -> str:
        """One of "full", "relaxed", "missed" and "not measured"; a prediction decides nothing."""
        if self.steady is None:
            return NOT_MEASURED
        return self.threshold.result(self.steady.latency.p99)

    def lines(self) -> list[str]:
        """The result for people.

        The numbers of this example show the form; they were not measured.

        >>> from difftest.backends.device.measurements import MeasuredLatency
        >>> limit = next(one for one in CONVOLUTIONS if one.name == "224x224, float16, no pool")
        >>> latency = MeasuredLatency("nc_latency of nki.benchmark", {99: 930.0}, 5, 20)
        >>> steady, predicted = Steady(latency, 0.002, 3), Predicted(952.1, 739.3, 880, 1110)
        >>> for line in StageResult(limit, steady, predicted, before=941.0).lines():
        ...     print(line)
        224x224, float16, no pool: full
          measured:     p99 930.0 us (nc_latency of nki.benchmark, 5 + 20 executions)
          predicted:    p99 952.1 us, from 880.0 to 1,110.0 us (by the timing model, not measured)
          limits:       1365 us relaxed, 1002 us full (the course's assignment, Part 2)
          tensor bound: 739.3 us
          before:       941.0 us, now -1.2%
          noise:        spread 0.2% over 3 rounds
        """
        limit = self.threshold
        rows = [("measured", self._measured()), ("predicted", self._predicted())]
        limits = f"{limit.relaxed_us:g} us relaxed, {limit.full_us:g} us full ({limit.source})"
        rows.append(("limits", limits))
        if self.predicted is not None:
            if self.predicted.caution:
                rows.append(("caution", self.predicted.caution))
            rows.append(("tensor bound", f"{self.predicted.tensor_bound:,.1f} us"))
        if self.steady is not None:
            rows += self._compared(self.steady)
        return [f"{limit.name}: {self.result}", *(f"  {name + ':':<13} {t}" for name, t in rows)]

    def to_json(self) -> dict[str, Any]:
        """The result as plain data; a prediction is always under the key "predicted"."""
        latency = self.steady.latency if self.steady else None
        return {
            "test": self.threshold.name,
            "result": self.result,
            "relaxed_us": self.threshold.relaxed_us,
            "full_us": self.threshold.full_us,
            "measured": {
                "p99_us": latency.p99,
                "percentiles_us": {str(k): value for k, value in latency.percentiles.items()},
                "metric": latency.metric,
                "spread": self.steady.spread,
                "quiet": self.steady.quiet,
                "before_us": self.before,
            }
            if latency and self.steady
            else None,
            "predicted": {
                "p99_us": self.predicted.p99,
                "interval_us": [self.predicted.low, self.predicted.high],
                "caution": self.predicted.caution,
                "tensor_bound_us": self.predicted.tensor_bound,
            }
            if self.predicted
            else None,
        }

    def _measured(self) -> str:
        if self.steady is None:
            return "nothing: this needs a device"
        latency = self.steady.latency
        how = f"{latency.metric}, {latency.warmup} + {latency.iterations} executions"
        return f"p99 {latency.p99:,.1f} us ({how})"

    def _predicted(self) -> str:
        if self.predicted is None:
            return f"nothing: {self.unpredicted}"
        one = self.predicted
        times = f"p99 {one.p99:,.1f} us, from {one.low:,.1f} to {one.high:,.1f} us"
        return f"{times} (by the timing model, not measured)"

    def _compared(self, steady: Steady) -> list[tuple[str, str]]:
        noise = f"spread {steady.spread:.1%} over {steady.rounds} rounds"
        if not steady.quiet:
            noise += ": NOT under 1 %, so that small differences mean nothing"
        rows = [("noise", noise)]
        if self.before is not None:
            change = steady.latency.p99 / self.before - 1
            rows.insert(0, ("before", f"{self.before:,.1f} us, now {change:+.1%}"))
        return rows


def predict_threshold(threshold: Threshold, load: Load) -> tuple[Predicted | None, str]:
    """The prediction, or why there is none; made in a process where ``neuronxcc`` is embedded."""
    try:
        return call_embedded(_predict, threshold, load), ""
    except Exception as error:  # whatever keeps the model from it is why it says nothing
        return None, f"{type(error).__name__}: {error}"


def _predict(threshold: Threshold, load: Load) -> Predicted:
    from difftest.simulator import TRN2, launch
    from difftest.timing import predict
    from difftest.timing.roofline import roofline

    call = threshold.call(load())
    trace = launch(call.kernel, call.inputs, dict(call.parameters), machine=TRN2).trace
    prediction = predict(trace, TRN2, dge=True)
    return Predicted(
        prediction.get_latency_percentile(99),
        roofline(prediction).tensor_bound,
        *prediction.latency_interval,
        prediction.caution,
    )


def run_threshold(
    threshold: Threshold, load: Load, timer: Timer | None, history: Path | None = None
) -> StageResult:
    """Measure one threshold if there is a timer, and predict it in any case.

    Parameters
    ----------
    history : where earlier measurements are.

    Raises
    ------
    DeviceError, InfrastructureError : it could not be measured.
    """
    steady = None
    if timer is not None:
        call = threshold.call(load())
        steady = measure_steadily(lambda: timer.measure(call, warmup=WARMUP, iterations=ITERATIONS))
    predicted, why = predict_threshold(threshold, load)
    before = None
    if steady and history:  # like is compared with like
        before = measured_p99(history, threshold.name, metric=steady.latency.metric)
    return StageResult(threshold, steady, predicted, why, before)


def keep(result: StageResult, history: Path, kernel_file: Path, machine: Mapping[str, str]) -> None:
    """Add a measurement to the history; what was not measured is not kept.

    Raises
    ------
    HistoryError : the file cannot be read as a history.
    """
    if result.steady is None:
        return
    limit, latency = result.threshold, result.steady.latency
    append(
        history,
        Record(
            test=limit.name,
            source=digest_of(kernel_file),
            when=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            metric=latency.metric,
            p99=latency.p99,
            percentiles={str(rank): value for rank, value in latency.percentiles.items()},
            spread=result.steady.spread,
            rounds=result.steady.rounds,
            predicted=result.predicted.p99 if result.predicted else None,
            relaxed=limit.relaxed_us,
            full=limit.full_us,
            machine={**machine, "host": platform.node()},
        ),
    )


def exit_code(results: Sequence[StageResult]) -> int:
    """0 if all meet at least the relaxed limit, 1 if one misses it, 3 if one was not measured."""
    found = {one.result for one in results}
    if NOT_MEASURED in found or not found:
        return 3
    return 1 if MISSED in found else 0
