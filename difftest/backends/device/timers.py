"""What times a kernel on a device, for each generation of the SDK.

Classic: ``nki.benchmark`` (its outputs are undefined and are not looked at). Newer: nrtpy from SDK
2.32 in its own environment, or ``neuron-explorer capture``. They measure different things, and each
result names which. Written from AWS's public documentation; none has run on a device.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from difftest.backends.base import Array, BackendMissingError, KernelCall, Ran
from difftest.backends.detection import CLASSIC, Sdk, detect_sdk
from difftest.backends.device.backend import ARTIFACTS, device_backend, keep_neffs
from difftest.backends.device.core import DeviceError, Failure, NeuronCore
from difftest.backends.device.measurements import PERCENTILES, MeasuredLatency, latency_of
from difftest.backends.device.running import Device
from difftest.backends.device.settings import NRTPY_PYTHON
from difftest.backends.dialect import dialect_of, function_of
from difftest.backends.sdk import launched

TOOLS = ("neuron-explorer", "neuron-profile")
"""The second is the first one's name before SDK 2.32; their ``capture`` is the same."""
_HOST = Path(__file__).with_name("nrtpy_host.py")
_LIBRARIES = "/opt/aws/neuron/lib"
"""Where the runtime library lies, which nrtpy needs (AWS's page "Get started with nrtpy")."""


class Timer(Protocol):
    """Measures one kernel's latency."""

    def measure(self, call: KernelCall, *, warmup: int, iterations: int) -> MeasuredLatency:
        """Time the kernel on the call's inputs.

        Raises
        ------
        DeviceError, InfrastructureError : it could not be measured.
        """


class ClassicTimer:
    """``nki.benchmark``: latency on the NeuronCore, without the host. It runs on its own inputs."""

    metric = "nc_latency of nki.benchmark"

    def __init__(self, benchmark: Callable[..., Any], core: NeuronCore) -> None:
        self._benchmark = benchmark
        self._core = core

    def measure(self, call: KernelCall, *, warmup: int, iterations: int) -> MeasuredLatency:
        def job() -> dict[int, float]:
            timed = self._benchmark(warmup=warmup, iters=iterations)(launched(call))
            timed(*call.inputs, **call.parameters)
            latency = timed.benchmark_result.nc_latency
            return {rank: float(latency.get_latency_percentile(rank)) for rank in PERCENTILES}

        result = self._core.run(object(), job)
        self._core.stop()
        if isinstance(result, Failure):
            raise DeviceError(f"nki.benchmark failed: {result.error}") from result.cause
        percentiles: Mapping[int, float] = result
        return MeasuredLatency(self.metric, percentiles, warmup, iterations)


class _NeffTimer:
    """A timer of compiled kernels; the last one's NEFF is kept, for it is measured in rounds."""

    def __init__(self, tool: str, device: Device) -> None:
        self._tool = tool
        self._device = device
        self._compiled: tuple[KernelCall, Path] | None = None

    def neff(self, call: KernelCall) -> Path:
        """The kernel's NEFF: a run on the device leaves it.

        Raises
        ------
        DeviceError : the kernel does not run, or leaves none.
        """
        if self._compiled is None or self._compiled[0] is not call:
            artifacts = Path(os.environ[ARTIFACTS])
            for old in artifacts.rglob("*.neff"):
                old.unlink()
            outcome = self._device.run(call)
            self._device.rest()  # the compiler's process holds the core
            if not isinstance(outcome, Ran):
                raise DeviceError(str(outcome.error)) from outcome.error
            neffs = sorted(artifacts.rglob("*.neff"))
            if len(neffs) != 1:
                raise DeviceError(f"there is no one NEFF to time: {ARTIFACTS} has {len(neffs)}")
            self._compiled = call, neffs[0]
        return self._compiled[1]

    def call_tool(self, *arguments: str, **variables: str) -> str:
        """What the tool prints, run on the core."""
        core = self._device.core
        what = f"{Path(self._tool).name} {Path(arguments[0]).name}"
        try:
            done = subprocess.run(
                [self._tool, *arguments],
                # HOME: neuron-explorer fails without one
                env={
                    "HOME": tempfile.gettempdir(),
                    **os.environ,
                    **core.environment(lnc=1),
                    **variables,
                },
                capture_output=True,
                text=True,
                timeout=core.settings.timeout,
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(f"{what}: no answer within {core.settings.timeout:g} s") from None
        if done.returncode:
            raise DeviceError(f"{what} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout


class NrtpyTimer(_NeffTimer):
    """nrtpy's ``benchmark`` in mode "device": time of each execution on the NeuronCore."""

    metric = "device time of nrtpy"

    def measure(self, call: KernelCall, *, warmup: int, iterations: int) -> MeasuredLatency:
        neff, core = str(self.neff(call)), str(self._device.core.index)
        libraries = [_LIBRARIES, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        with tempfile.TemporaryDirectory(prefix="difftest-nrtpy-") as folder:
            _write_inputs(call, folder)
            printed = self.call_tool(
                *(str(_HOST), neff, core, folder, str(warmup), str(iterations)),
                LD_LIBRARY_PATH=os.pathsep.join(libraries),
            )
        answer = json.loads(printed)
        if "error" in answer:
            raise DeviceError(f"nrtpy: {answer['error']}")
        # They may be more than asked for: a NEFF of several parts has an event for each.
        durations = [milliseconds * 1000 for milliseconds in answer["durations_ms"]]
        return latency_of(durations, self.metric, warmup=warmup)


class CaptureTimer(_NeffTimer):
    """``neuron-explorer capture``, once for each iteration: ``total_time`` of the profile.

    Each capture executes the kernel twice and profiles the second, as AWS's guide has it.
    """

    metric = "total_time of a profile"

    def measure(self, call: KernelCall, *, warmup: int, iterations: int) -> MeasuredLatency:
        neff = self.neff(call)
        seconds = [self._capture(neff, call) for _ in range(iterations)]
        return latency_of([second * 1e6 for second in seconds], self.metric, warmup=1)

    def _capture(self, neff: Path, call: KernelCall) -> float:
        """Seconds of one execution."""
        with tempfile.TemporaryDirectory(prefix="difftest-capture-") as folder:
            inputs = _write_inputs(call, folder)
            session = f"{folder}/profile.ntff"
            self.call_tool(
                *("capture", "-n", str(neff), "-s", session, "--profile-nth-exec=2", *inputs)
            )
            written = sorted(Path(folder).glob("profile*.ntff"))
            if not written:
                raise DeviceError(f"{self._tool} capture wrote no profile")
            summary = self.call_tool(
                "view", "-n", str(neff), "-s", str(written[0]), "--output-format", "summary-json"
            )
        try:
            return _total_time(json.loads(summary))
        except (ValueError, KeyError, TypeError):
            raise DeviceError(f"{self._tool} view shows no total_time: {summary[:200]}") from None


def _write_inputs(call: KernelCall, folder: str) -> Sequence[str]:
    """The arrays as files, under the names of the kernel's parameters: name, path and so on.

    A NEFF names its inputs so (nrtpy's tutorials). What plain NumPy does not know goes as its bits.
    """
    function = function_of(call.kernel)
    if function is None:
        raise DeviceError("the kernel is no function: its NEFF's inputs have no known names")
    words: list[str] = []
    names = call.names or tuple(inspect.signature(function).parameters)
    for name, array in zip(names, call.inputs, strict=False):
        words += [name, f"{folder}/{name}.npy"]
        bits: Array = np.ascontiguousarray(array)
        np.save(
            words[-1], bits if bits.dtype.kind in "fiub" else bits.view(f"u{bits.dtype.itemsize}")
        )
    return words


def _total_time(summary: Any) -> float:
    """The first ``total_time`` anywhere in a summary; its place differs between versions.

    Raises
    ------
    KeyError : there is none.
    """
    if isinstance(summary, dict):
        if "total_time" in summary:
            return float(summary["total_time"])
        summary = list(summary.values())
    for part in summary if isinstance(summary, list) else ():
        try:
            return _total_time(part)
        except KeyError:
            continue
    raise KeyError("total_time")


@dataclass(frozen=True)
class Bench:
    """A device that is known to be right, and what times kernels on it."""

    timer: Timer
    device: Device
    machine: Mapping[str, str]
    """What was measured on: the device, the core, the SDK's versions."""

    def close(self) -> None:
        """Give the core back."""
        self.device.close()


def open_bench(load: Callable[[], Callable[..., Any]]) -> Bench:
    """The device and timer for kernels of one dialect; the known kernels have run.

    Parameters
    ----------
    load : imports a kernel of that dialect, once it is known that there is a device.

    Raises
    ------
    BackendMissingError : no device, or nothing that times this dialect's kernels.
    UntrustedDeviceError, InfrastructureError, NoCoreError : the device is not to be used.
    """
    backend = device_backend()
    sdk = detect_sdk()
    dialect = dialect_of(load())
    device = backend.backend_for(dialect)
    if not isinstance(device, Device):
        raise BackendMissingError(
            f"the kernel is written for {dialect} NKI, which does not run here:\n"
            f"  found:  {sdk.found}"
        )
    timer = find_timer(sdk, device)
    try:
        device.check()
        machine = {"device": device.description, "core": str(device.core.index), **sdk.versions}
    except BaseException:
        device.close()
        raise
    return Bench(timer, device, machine)


def find_timer(sdk: Sdk, device: Device) -> Timer:
    """What can time kernels of the device's generation.

    Raises
    ------
    BackendMissingError : nothing here can; the text says what to install.
    """
    if device.entry.dialect == CLASSIC:
        benchmark = sdk.classic.function("benchmark")
        if benchmark is None:
            raise BackendMissingError(
                f"{sdk.classic.found}, whose neuronxcc.nki has no benchmark: nothing can time a "
                "classic kernel"
            )
        return ClassicTimer(benchmark, device.core)
    python = device.core.settings.nrtpy_python
    tool = next(filter(None, map(shutil.which, TOOLS)), None)
    if not keep_neffs() or (python is None and tool is None):
        raise BackendMissingError(
            "nothing can time a kernel of the newer SDK here.\n"
            f"  found:  no {NRTPY_PYTHON}, no {' and no '.join(TOOLS)}\n"
            "  remedy: with SDK 2.32, an environment with nrtpy (docs/how-to/measure-latency.md);\n"
            f"          before, aws-neuronx-tools, and {ARTIFACTS} set to an empty folder"
        )
    return NrtpyTimer(python, device) if python else CaptureTimer(str(tool), device)
