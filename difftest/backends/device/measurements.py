"""Latencies that were measured on a device: percentiles, whether rounds agree, and their history.

The history is a JSON file that later runs compare with, and that grading reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
"""Those that ``nki.benchmark`` gives (AWS Neuron documentation, nki.benchmark at v2.26.0)."""
QUIET_SPREAD = 0.01
ROUNDS, MOST_ROUNDS = 3, 9
HISTORY = "DIFFTEST_HISTORY"
_USUAL = Path(".difftest") / "performance.json"


@dataclass(frozen=True)
class MeasuredLatency:
    """One measurement on a device. Times in microseconds.

    Attributes
    ----------
    metric : what was measured and by what, for it is not the same everywhere.
    percentiles : percentile -> latency.
    warmup, iterations : executions before it, and in it.
    """

    metric: str
    percentiles: Mapping[int, float]
    warmup: int
    iterations: int

    @property
    def p99(self) -> float:
        return self.percentiles[99]


def latency_of(durations: Sequence[float], metric: str, *, warmup: int) -> MeasuredLatency:
    """The percentiles of durations, microseconds; each is one of them, the next higher one.

    Raises
    ------
    ValueError : there are none, or one is no positive number.
    """
    if not durations or not all(0 < duration < float("inf") for duration in durations):
        raise ValueError(f"durations: received {list(durations)}; accepted: positive numbers")
    values = np.percentile(np.asarray(durations), PERCENTILES, method="higher")
    percentiles = dict(zip(PERCENTILES, map(float, values), strict=True))
    return MeasuredLatency(metric, percentiles, warmup, len(durations))


@dataclass(frozen=True)
class Steady:
    """Several measurements of one kernel.

    Attributes
    ----------
    latency : the one whose p99 is the middle of the last rounds.
    spread : of the p99 of the last rounds: the largest less the smallest, over the middle.
    rounds : how many were made.
    """

    latency: MeasuredLatency
    spread: float
    rounds: int

    @property
    def quiet(self) -> bool:
        """Whether the spread is small enough to believe small differences."""
        return self.spread < QUIET_SPREAD


def measure_steadily(measure: Callable[[], MeasuredLatency]) -> Steady:
    """Measure until the p99 of three rounds in a row agree, at most nine times."""
    rounds: list[MeasuredLatency] = []
    while True:
        rounds.append(measure())
        last = sorted(rounds[-ROUNDS:], key=lambda latency: latency.p99)
        middle = statistics.median_low(latency.p99 for latency in last)
        spread = (last[-1].p99 - last[0].p99) / middle if middle else float("inf")
        if len(rounds) >= ROUNDS and (spread < QUIET_SPREAD or len(rounds) >= MOST_ROUNDS):
            latency = next(latency for latency in last if latency.p99 == middle)
            return Steady(latency, spread, len(rounds))


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement of a threshold; predictions are not kept. Times in microseconds.

    Attributes
    ----------
    test : the threshold's name.
    source : digest of the kernel's file.
    when : UTC, ISO 8601.
    metric, p99, percentiles, spread, rounds : of the :class:`Steady` measurement.
    predicted : p99 of the timing model; None if it has none.
    relaxed, full : the limits.
    machine : the device, the core, the SDK.
    """

    test: str
    source: str
    when: str
    metric: str
    p99: float
    percentiles: dict[str, float]
    spread: float
    rounds: int
    predicted: float | None
    relaxed: float
    full: float
    machine: dict[str, str]


class HistoryError(ValueError):
    """The file is there and is not a history."""


def history_file() -> Path:
    """The file that the stage writes and that grading reads, unless told otherwise."""
    return Path(os.environ.get(HISTORY) or _USUAL)


def digest_of(kernel_file: Path) -> str:
    """What identifies a kernel's file: another edit of it is another kernel."""
    return hashlib.sha256(kernel_file.read_bytes()).hexdigest()


def read_history(file: Path) -> list[Record]:
    """All records, the oldest first; none if there is no file.

    Raises
    ------
    HistoryError : the file cannot be read as a history.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        return [Record(**fields) for fields in document["records"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{file} is not a history of measurements: {error}") from None


def append(file: Path, record: Record) -> None:
    """Add a record; whoever reads meanwhile sees the file before or after.

    One stage writes at a time: it runs alone.

    Raises
    ------
    HistoryError : the file cannot be read as a history.
    """
    records = [asdict(earlier) for earlier in [*read_history(file), record]]
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        unfinished.write_text(json.dumps({"records": records}, indent=1), encoding="utf-8")
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def measured_p99(
    history: Path, test: str, *, kernel_file: Path | None = None, metric: str | None = None
) -> float | None:
    """The last p99 latency of a threshold in the history, microseconds; None if there is none.

    Parameters
    ----------
    kernel_file : only what was measured of exactly this file.
    metric : only what was measured so.

    Raises
    ------
    HistoryError : the history cannot be read.
    """
    records = read_history(history)
    source = digest_of(kernel_file) if records and kernel_file else None
    p99s = [
        record.p99
        for record in records
        if record.test == test
        and source in (None, record.source)
        and metric in (None, record.metric)
    ]
    return p99s[-1] if p99s else None
