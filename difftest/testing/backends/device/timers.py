"""Timers of kernels on a device, for each generation of the SDK.

Classic: ``nki.benchmark`` (its outputs are undefined and are ignored). Newer: nrtpy from SDK 2.32
in its own environment, or ``neuron-explorer capture``. They measure different times, and each
result names its metric. The code follows AWS's public documentation and has not run on a device.

Measurements are compared with latency thresholds, which are data (``thresholds.py``). Predictions
of the timing model do not count here: `difftest grade` and `difftest profile` show them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from difftest.support.annotations import signature_shown
from difftest.testing.backends.base import BackendMissingError, Completed, KernelCall
from difftest.testing.backends.device.core import (
    ARTIFACTS,
    Device,
    DeviceError,
    device_backend,
    keep_neffs,
)
from difftest.testing.backends.device.thresholds import (
    ITERATIONS,
    WARMUP,
    PerformanceTest,
)
from difftest.testing.backends.sdk import CLASSIC, function_of, with_grid

NRTPY_PYTHON = "DIFFTEST_NRTPY_PYTHON"
TOOLS: tuple[str, ...] = ("neuron-explorer", "neuron-profile")
"""The second is the first one's name before SDK 2.32; their ``capture`` is the same."""
_TOTAL_TIME = re.compile(r'"total_time":\s*(\d[\d.eE+-]*)')
"""The total time in seconds. Its place in a summary differs by version; the first counts."""
_HOST = Path(__file__).with_name("nrtpy_host.py")
_LIBRARIES = "/opt/aws/neuron/lib"
"""The folder of the runtime library, which nrtpy needs (AWS's page "Get started with nrtpy")."""


class Timer(Protocol):
    """A timer of one kernel's latency; ``metric`` names the quantity and the tool."""

    metric: str

    def p99(self, call: KernelCall, *, warmup: int, iterations: int) -> float:
        """Return the p99 latency on the call's inputs in microseconds, or raise a DeviceError."""


class ClassicTimer:
    """A timer by ``nki.benchmark``: latency on the NeuronCore without the host, on own inputs."""

    metric = "nc_latency of nki.benchmark"

    def __init__(self, device: Device) -> None:
        self._sdk: Any = device.detection.module
        self._core = device.core

    def p99(self, call: KernelCall, *, warmup: int, iterations: int) -> float:
        def job() -> float:
            timed = self._sdk.benchmark(warmup=warmup, iters=iterations)(
                with_grid(call)
            )
            timed(*call.inputs, **call.parameters)
            return float(timed.benchmark_result.nc_latency.get_latency_percentile(99))

        try:
            return float(self._core.run(object(), job))
        finally:
            self._core.stop()


class _NeffTimer:
    """A timer of compiled kernels. It keeps the last NEFF, which is measured several times."""

    def __init__(self, tool: str, device: Device) -> None:
        self._tool = tool
        self._device = device
        self._compiled: tuple[KernelCall, str] | None = None

    def neff(self, call: KernelCall) -> str:
        """Return the path of the kernel's NEFF after a device run, or raise a DeviceError."""
        if self._compiled is None or self._compiled[0] is not call:
            artifacts = Path(os.environ[ARTIFACTS])
            for old in artifacts.rglob("*.neff"):
                old.unlink()
            outcome = self._device.run(call)
            self._device.core.stop()  # the compiler's process holds the core
            if not isinstance(outcome, Completed):
                raise DeviceError(str(outcome.error)) from outcome.error
            neffs = sorted(artifacts.rglob("*.neff"))
            if len(neffs) != 1:
                raise DeviceError(
                    f"one NEFF is needed to time a kernel: {ARTIFACTS} has {len(neffs)}"
                )
            self._compiled = call, str(neffs[0])
        return self._compiled[1]

    def call_tool(self, *arguments: str, **variables: str) -> str:
        """Run the tool on the core, and return its output."""
        core = self._device.core
        what = f"{Path(self._tool).name} {Path(arguments[0]).name}"
        home = {"HOME": tempfile.gettempdir()}  # neuron-explorer fails without one
        environment = {**home, **os.environ, **core.environment(lnc=1), **variables}
        try:
            done = subprocess.run(
                [self._tool, *arguments],
                env=environment,
                capture_output=True,
                text=True,
                timeout=core.seconds,
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(f"{what}: no answer within {core.seconds:g} s") from None
        if done.returncode:
            raise DeviceError(
                f"{what} ended with {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout


class NrtpyTimer(_NeffTimer):
    """A timer by nrtpy's ``benchmark`` in mode "device": each execution's time on the core."""

    metric = "device time of nrtpy"

    def p99(self, call: KernelCall, *, warmup: int, iterations: int) -> float:
        neff = self.neff(call)
        core = str(self._device.core.index)
        libraries = [_LIBRARIES, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        with tempfile.TemporaryDirectory(prefix="difftest-nrtpy-") as folder:
            _write_inputs(call, folder)
            printed = self.call_tool(
                str(_HOST),
                neff,
                core,
                folder,
                str(warmup),
                str(iterations),
                LD_LIBRARY_PATH=os.pathsep.join(libraries),
            )
        answer = json.loads(printed)
        if "error" in answer:
            raise DeviceError(f"nrtpy: {answer['error']}")
        # A NEFF of several parts has an event for each, so there may be more than iterations.
        return p99_of([milliseconds * 1e3 for milliseconds in answer["durations_ms"]])


class CaptureTimer(_NeffTimer):
    """A timer by ``neuron-explorer capture``: ``total_time`` of a profile for each iteration.

    Each capture executes the kernel twice and profiles the second, as AWS's guide has it.
    """

    metric = "total_time of a profile"

    def p99(self, call: KernelCall, *, warmup: int, iterations: int) -> float:
        neff = self.neff(call)
        return p99_of([self._capture(neff, call) * 1e6 for _ in range(iterations)])

    def _capture(self, neff: str, call: KernelCall) -> float:
        """Return the seconds of one execution."""
        with tempfile.TemporaryDirectory(prefix="difftest-capture-") as folder:
            session = f"{folder}/profile.ntff"
            inputs = _write_inputs(call, folder)
            self.call_tool(
                "capture", "-n", neff, "-s", session, "--profile-nth-exec=2", *inputs
            )
            written = sorted(map(str, Path(folder).glob("profile*.ntff")))
            if not written:
                raise DeviceError(f"{self._tool} capture wrote no profile")
            shown = ("-s", written[0], "--output-format", "summary-json")
            summary = self.call_tool("view", "-n", neff, *shown)
        time = _TOTAL_TIME.search(summary)
        if time is None:
            raise DeviceError(f"{self._tool} view shows no total_time: {summary[:200]}")
        return float(time[1])


def p99_of(durations: list[float]) -> float:
    """Return the 99th percentile of durations in microseconds: the next higher duration."""
    if not durations or not all(0 < duration < float("inf") for duration in durations):
        raise DeviceError(
            f"durations: received {durations}; accepted: positive numbers"
        )
    return float(np.percentile(durations, 99, method="higher"))


def _write_inputs(call: KernelCall, folder: str) -> list[str]:
    """Write the arrays as files, and return their names and paths in turn.

    The names are the kernel's parameters, as in a NEFF (nrtpy's tutorials). Arrays of dtypes that
    plain NumPy lacks are written as their bits.
    """
    function = function_of(call.kernel)
    if function is None:
        raise DeviceError(
            "the kernel is not a function: the names of its NEFF's inputs are unknown"
        )
    words: list[str] = []
    names = call.names or tuple(signature_shown(function).parameters)
    for name, array in zip(names, map(np.ascontiguousarray, call.inputs), strict=False):
        words += [name, f"{folder}/{name}.npy"]
        is_plain = array.dtype.kind in "fiub"
        np.save(
            words[-1], array if is_plain else array.view(f"u{array.dtype.itemsize}")
        )
    return words


@contextlib.contextmanager
def open_timer(load: Callable[[], Callable[..., Any]]) -> Iterator[Timer]:
    """Yield a timer for one dialect on a device that passed its self-test.

    ``load`` imports a kernel of that dialect, after the device was found.

    Raises
    ------
    BackendMissingError : there is no device, or no timer for such kernels.
    """
    devices = device_backend()
    try:
        device = devices.backend_for(load())
        timer = find_timer(device)
        device.check()
        yield timer
    finally:
        devices.close()


def find_timer(device: Device) -> Timer:
    """Return a timer for the device's generation, or raise an error that names what to install."""
    if device.detection.dialect == CLASSIC:
        if lack := device.detection.lack("benchmark"):
            raise BackendMissingError(
                f"nothing can time a classic kernel here.\n  found:  {lack}"
            )
        return ClassicTimer(device)
    python = os.environ.get(NRTPY_PYTHON)
    programs = TOOLS
    missing = " and no ".join(TOOLS)
    if python:
        programs = (python,)
        missing = f"program {python}, which {NRTPY_PYTHON} names"
    tool = next(filter(None, map(shutil.which, programs)), None)
    if tool is None or not keep_neffs():
        raise BackendMissingError(
            "nothing can time a kernel of the newer SDK here.\n"
            f"  found:  no {missing}\n"
            "  remedy: with SDK 2.32, an environment with nrtpy (docs/how-to/measure-latency.md);\n"
            f"          before, aws-neuronx-tools, and {ARTIFACTS} set to an empty folder"
        )
    return NrtpyTimer(tool, device) if python else CaptureTimer(tool, device)


QUIET_SPREAD = 0.01
ROUNDS = 3
MOST_ROUNDS = 9


@dataclass(frozen=True)
class StageResult:
    """The measurements of one test's kernel.

    Attributes
    ----------
    p99_us : the median of the last rounds, microseconds.
    metric : the measured quantity and the tool.
    spread : the largest less the smallest of the last rounds, relative to the median.
    rounds : the number of rounds.
    """

    test: PerformanceTest
    p99_us: float
    metric: str
    spread: float
    rounds: int

    @property
    def result(self) -> str:
        """The limit that is met: "full", "relaxed" or "missed"."""
        return self.test.result(self.p99_us)

    def lines(self) -> list[str]:
        """Return the result as lines of text.

        The numbers of this example show the form; they were not measured.

        >>> from difftest.tools.course.assignment import PERFORMANCE
        >>> result = StageResult(PERFORMANCE[1], 930.0, "nc_latency of nki.benchmark", 0.002, 3)
        >>> for line in result.lines():
        ...     print(line)
        224x224, float16, no pool: full
          measured: p99 930.0 us (nc_latency of nki.benchmark)
          limits:   1365 us relaxed, 1002 us full (the course's assignment)
          noise:    spread 0.2% over 3 rounds
        """
        test = self.test
        noise = f"spread {self.spread:.1%} over {self.rounds} rounds"
        if self.spread >= QUIET_SPREAD:
            noise += ": NOT under 1 %, so that small differences mean nothing"
        return [
            f"{test.name}: {self.result}",
            f"  measured: p99 {self.p99_us:,.1f} us ({self.metric})",
            f"  limits:   {test.relaxed_us:g} us relaxed, {test.full_us:g} us full "
            "(the course's assignment)",
            f"  noise:    {noise}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        limits = {"relaxed_us": self.test.relaxed_us, "full_us": self.test.full_us}
        return {**vars(self), "test": self.test.name, "result": self.result, **limits}


def measure_stage(
    test: PerformanceTest, kernel: Callable[..., Any], timer: Timer
) -> StageResult:
    """Measure until the p99 of three rounds in a row agree, in at most nine rounds."""
    parameters = {"pool_size": test.pool_size} if test.pool_size else {}
    call = KernelCall(kernel=kernel, inputs=test.arguments(), parameters=parameters)
    rounds: list[float] = []
    while True:
        rounds.append(timer.p99(call, warmup=WARMUP, iterations=ITERATIONS))
        last = sorted(rounds[-ROUNDS:])
        middle = statistics.median_low(last)
        spread = (last[-1] - last[0]) / middle
        if len(rounds) >= ROUNDS and (
            spread < QUIET_SPREAD or len(rounds) >= MOST_ROUNDS
        ):
            return StageResult(test, middle, timer.metric, spread, len(rounds))
