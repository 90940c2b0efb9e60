"""What times a kernel on a device, for each generation of the SDK.

Classic: ``nki.benchmark`` (its outputs are undefined and are not looked at). Newer: nrtpy from SDK
2.32 in its own environment, or ``neuron-explorer capture``. They measure different things, and each
result names which. Written from AWS's public documentation; none has run on a device.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from difftest.backends.base import BackendMissingError, KernelCall
from difftest.backends.detection import CLASSIC, Sdk, detect_sdk
from difftest.backends.device.backend import device_backend
from difftest.backends.device.cache import CompileCache, cache_folder
from difftest.backends.device.core import DeviceError, Failure, NeuronCore
from difftest.backends.device.handover import HandedOver, named_inputs, prepare_artifacts
from difftest.backends.device.latency import PERCENTILES, MeasuredLatency, latency_of
from difftest.backends.device.running import Device
from difftest.backends.device.selftest import check_device
from difftest.backends.device.settings import NRTPY_PYTHON
from difftest.backends.dialect import dialect_of
from difftest.backends.sdk import launched

TOOLS = ("neuron-explorer", "neuron-profile")
"""The second is the first one's name before SDK 2.32; their ``capture`` is the same."""


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
            return {one: float(latency.get_latency_percentile(one)) for one in PERCENTILES}

        result = self._core.run(object(), job)
        self._core.stop()
        if isinstance(result, Failure):
            raise DeviceError(f"nki.benchmark failed: {result.error}") from result.cause
        percentiles: Mapping[int, float] = result
        return MeasuredLatency(self.metric, percentiles, warmup, iterations)


class NrtpyTimer:
    """nrtpy's ``benchmark`` in mode "device": time of each execution on the NeuronCore."""

    metric = "device time of nrtpy"

    def __init__(self, device: HandedOver) -> None:
        self._device = device

    def measure(self, call: KernelCall, *, warmup: int, iterations: int) -> MeasuredLatency:
        try:
            durations = self._device.benchmark(call, warmup=warmup, iterations=iterations)
        except Exception as error:  # nrtpy's, the runtime's or its process's
            raise DeviceError(f"nrtpy: {type(error).__name__}: {error}") from error
        return latency_of(durations, self.metric, warmup=warmup)


class CaptureTimer:
    """``neuron-explorer capture``, once for each iteration: ``total_time`` of the profile.

    Each capture executes the kernel twice and profiles the second, as AWS's guide has it.
    """

    metric = "total_time of a profile"

    def __init__(self, tool: str, device: HandedOver) -> None:
        self._tool = tool
        self._device = device

    def measure(self, call: KernelCall, *, warmup: int, iterations: int) -> MeasuredLatency:
        neff = self._device.neff(call)
        if neff is None:
            raise DeviceError("there is no NEFF to profile: NKI_ARTIFACTS_DIR left none")
        self._device.core.stop()
        seconds = [self._capture(neff, call) for _ in range(iterations)]
        return latency_of([one * 1e6 for one in seconds], self.metric, warmup=1)

    def _capture(self, neff: Path, call: KernelCall) -> float:
        """Seconds of one execution."""
        with tempfile.TemporaryDirectory(prefix="difftest-capture-") as folder:
            inputs: list[str] = []
            for name, array in named_inputs(call).items():
                path = f"{folder}/{name}.npy"
                np.save(path, array)
                inputs += [name, path]
            session = f"{folder}/profile.ntff"
            self._call("capture", "-n", str(neff), "-s", session, "--profile-nth-exec=2", *inputs)
            written = sorted(Path(folder).glob("profile*.ntff"))
            if not written:
                raise DeviceError(f"{self._tool} capture wrote no profile")
            summary = self._call(
                "view", "-n", str(neff), "-s", str(written[0]), "--output-format", "summary-json"
            )
        try:
            return _total_time(json.loads(summary))
        except (ValueError, KeyError, TypeError):
            raise DeviceError(f"{self._tool} view shows no total_time: {summary[:200]}") from None

    def _call(self, *arguments: str) -> str:
        core = self._device.core
        try:
            done = subprocess.run(
                [self._tool, *arguments],
                env={**_environment(), **core.environment(lnc=1)},
                capture_output=True,
                text=True,
                timeout=core.settings.timeout,
            )
        except subprocess.TimeoutExpired:
            raise DeviceError(
                f"{self._tool} {arguments[0]}: no answer within {core.settings.timeout:g} s"
            ) from None
        if done.returncode:
            raise DeviceError(
                f"{self._tool} {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout


def _environment() -> dict[str, str]:
    """The variables of this process, and a HOME: the tool fails without one."""
    return {"HOME": tempfile.gettempdir(), **os.environ}


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
    if isinstance(summary, list):
        for one in summary:
            try:
                return _total_time(one)
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
    kernel = load()
    device = backend.backend_for(dialect_of(kernel))
    if not isinstance(device, Device):
        raise BackendMissingError(
            f"the kernel is written for {dialect_of(kernel)} NKI, which does not run here:\n"
            f"  found:  {sdk.found}"
        )
    timer = find_timer(sdk, device)
    try:
        check_device(device)
    except BaseException:
        device.close()
        raise
    machine = {"device": device.description, "core": str(device.core.index), **sdk.versions}
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
    if isinstance(device, HandedOver):
        return NrtpyTimer(device)
    tool = next(filter(None, map(shutil.which, TOOLS)), None)
    if tool is None or not prepare_artifacts():
        raise BackendMissingError(
            "nothing can time a kernel of the newer SDK here.\n"
            f"  found:  no {NRTPY_PYTHON}, no {' and no '.join(TOOLS)}\n"
            "  remedy: with SDK 2.32, an environment with nrtpy (docs/how-to/measure-latency.md);\n"
            "          before, aws-neuronx-tools, and NKI_ARTIFACTS_DIR set to an empty folder"
        )
    cache = CompileCache(cache_folder())
    return CaptureTimer(
        tool, HandedOver(device.entry, device.core, device.description, cache, sdk.versions)
    )
