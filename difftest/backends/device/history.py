"""What was measured on devices, in a JSON file that later runs compare with."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HISTORY = "DIFFTEST_HISTORY"
_USUAL = Path(".difftest") / "performance.json"
MEASURED = "measured"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One result of the hardware stage. Times in microseconds.

    Attributes
    ----------
    kind : always "measured": predictions are not kept.
    test : the threshold's name.
    source : digest of the kernel's file.
    when : UTC, ISO 8601.
    metric : what was measured, and by what.
    p99, percentiles, spread, rounds, quiet : see ``latency``.
    predicted, tensor_bound : of the timing model; None if it has none.
    relaxed, full : the limits.
    machine : the device, the core, the SDK.
    """

    test: str
    kernel: str
    source: str
    when: str
    metric: str
    p99: float
    percentiles: dict[str, float]
    spread: float
    rounds: int
    quiet: bool
    predicted: float | None
    tensor_bound: float | None
    relaxed: float
    full: float
    machine: dict[str, str]
    kind: str = MEASURED


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
        return [Record(**one) for one in document["records"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{file} is not a history of measurements: {error}") from None


def append(file: Path, record: Record) -> None:
    """Add a record; whoever reads meanwhile sees the file before or after.

    Raises
    ------
    HistoryError : the file cannot be read as a history.
    """
    import fcntl  # here, for grading reads histories on computers that have no flock

    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file.with_name(f"{file.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        records = [asdict(one) for one in [*read_history(file), record]]
        _replace(file, {"records": records})


def _replace(file: Path, document: dict[str, Any]) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as unfinished:
            json.dump(document, unfinished, indent=1)
            unfinished.flush()
            os.fsync(unfinished.fileno())
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def latest(
    records: list[Record], *, test: str, source: str | None = None, metric: str | None = None
) -> Record | None:
    """The last measurement of a test; of the kernel file with this digest, by this metric."""
    return next(
        (
            record
            for record in reversed(records)
            if record.kind == MEASURED
            and record.test == test
            and source in (None, record.source)
            and metric in (None, record.metric)
        ),
        None,
    )


def measured_p99(kernel_file: Path, test: str, history: Path | None = None) -> float | None:
    """The p99 latency that was measured for exactly this file, microseconds; None if none was.

    Parameters
    ----------
    test : the name of a threshold, as ``assignment.PerformanceTest.name``.

    Raises
    ------
    HistoryError : the history cannot be read.
    """
    records = read_history(history or history_file())
    record = latest(records, test=test, source=digest_of(kernel_file)) if records else None
    return record.p99 if record else None
