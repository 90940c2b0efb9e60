"""The NeuronCore, through the entry points that each generation of the SDK has for NumPy arrays.

Classic: ``neuronxcc.nki.baremetal`` (tag v2.26.0). Newer: a kernel of ``nki.jit`` called with NumPy
arrays (tag v2.32.0; from SDK 2.29). Written from AWS's public documentation. **Neither has run on a
device**: none is at hand where this project is developed.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any, Protocol

from difftest.backends.base import (
    SLIPS,
    Array,
    Backend,
    BackendMissingError,
    Crashed,
    KernelCall,
    Outcome,
    Ran,
    Rejected,
    as_outputs,
    still_poisoned,
)
from difftest.backends.detection import CLASSIC, NEWER, SETUP_GUIDE, Sdk, detect_sdk
from difftest.backends.device.core import Failure, NeuronCore
from difftest.backends.device.settings import NRTPY_PYTHON, SettingError, read_settings
from difftest.backends.dialect import ByDialect
from difftest.backends.sdk import launched, outputs_of

NAME = "device"
DEVICE_NODES = Path("/dev")
"""Where the Neuron driver shows each device, as ``neuron0``, ``neuron1`` and so on."""


def find_devices() -> tuple[str, ...]:
    """The Neuron devices that the driver shows."""
    return tuple(sorted(str(node) for node in DEVICE_NODES.glob("neuron[0-9]*")))


class Entry(Protocol):
    """How one generation compiles and runs a kernel on NumPy arrays, in the core's process."""

    dialect: str
    description: str

    def runnable(self, call: KernelCall) -> Callable[..., Any]:
        """A function of the arrays and parameters that runs the kernel."""

    def lnc(self, call: KernelCall) -> int | None:
        """Physical cores in the kernel's logical one; None where the SDK sees to it."""


class ClassicEntry:
    """``neuronxcc.nki.baremetal(kernel)``: compiles and runs; NumPy arrays in and out."""

    dialect = CLASSIC
    description = "nki.baremetal"

    def __init__(self, sdk: Sdk) -> None:
        baremetal = sdk.classic.function("baremetal")
        assert baremetal is not None, "entries() makes this where there is a baremetal"
        self._baremetal = baremetal

    def runnable(self, call: KernelCall) -> Callable[..., Any]:
        runnable: Callable[..., Any] = self._baremetal(launched(call))
        return runnable

    def lnc(self, call: KernelCall) -> int | None:
        return None


class NewerEntry:
    """A kernel of ``nki.jit``, called with NumPy arrays: "compiles and executes standalone"."""

    dialect = NEWER
    description = "nki.jit with NumPy arrays"

    def __init__(self, sdk: Sdk) -> None:
        jit = sdk.newer.function("jit")
        assert jit is not None, "entries() makes this where there is a jit"
        self._jit = jit

    def runnable(self, call: KernelCall) -> Callable[..., Any]:
        if isinstance(call.kernel, FunctionType):
            call = replace(call, kernel=self._jit(call.kernel))
        return launched(call)

    def lnc(self, call: KernelCall) -> int | None:
        """What stands in ``kernel[lnc]``, 1 without brackets; the runtime must agree."""
        return math.prod(call.grid)


class Device:
    """Runs kernels of one generation on the leased NeuronCore.

    A known-good and a known-wrong kernel run before the first; see ``backends/device/selftest.py``.
    """

    name = NAME

    def __init__(self, entry: Entry, core: NeuronCore, description: str) -> None:
        self.description = description
        self.entry = entry
        self.core = core
        self._trusted = False
        self._refused: Exception | None = None

    def run(self, call: KernelCall) -> Outcome:
        """Compile the kernel and run it; what its contract or the compiler raises is a refusal.

        Raises
        ------
        InfrastructureError : the device failed, not the kernel.
        NoCoreError : no NeuronCore is free.
        UntrustedDeviceError : the kernels whose result is known did not come out as they must.
        """
        if self._refused is not None:
            raise self._refused
        if not self._trusted:
            from difftest.backends.device.selftest import UntrustedDeviceError, check_device

            try:
                check_device(self)
            except UntrustedDeviceError as error:
                self._refused = error  # it compiles for minutes: once is enough
                raise
            self._trusted = True
        return self.run_untrusted(call)

    def run_untrusted(self, call: KernelCall) -> Outcome:
        """Run the kernel, whether the device is known to be right or not."""
        job = _Job(self.entry, call)
        arguments = call.inputs, call.outputs, call.parameters
        result = self.core.run(job.key, job, *arguments, lnc=self.entry.lnc(call))
        return outcome_of(call, result)

    @property
    def log(self) -> str:
        """What the compiler and the runtime wrote at the last run."""
        return self.core.log

    def close(self) -> None:
        """End the process on the core and give the core back; a later run starts anew."""
        self.core.release()


class _Job:
    """What the core's process does for one kernel; made there once, called for each run."""

    def __init__(self, entry: Entry, call: KernelCall) -> None:
        self._entry = entry
        self._call = call
        self._runnable: Callable[..., Any] | None = None

    @property
    def key(self) -> Hashable:
        """The process is kept for one kernel, and a module may be patched between two tests."""
        from difftest.backends.device.fingerprint import UnknownStateError, fingerprint

        try:
            return fingerprint(self._call, {"entry": self._entry.description})
        except UnknownStateError:
            return object()

    def __call__(
        self, inputs: tuple[Array, ...], outputs: tuple[Array, ...], parameters: dict[str, Any]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The outputs passed, as they are afterwards, and what was returned."""
        if self._runnable is None:
            self._runnable = self._entry.runnable(self._call)
        returned = self._runnable(*inputs, *outputs, **parameters)
        return outputs, as_outputs(returned)


def outcome_of(call: KernelCall, result: Any | Failure) -> Outcome:
    """The outcome of a job: an error of the runtime is a crash, most others are refusals."""
    if isinstance(result, Failure):
        from difftest.backends.device.worker import WorkerDiedError, WorkerHungError

        broke = (*SLIPS, WorkerDiedError, WorkerHungError)
        at_run_time = result.fault is not None and result.fault.code.startswith("NRT")
        if isinstance(result.cause, broke) or at_run_time:
            return Crashed(result.error)
        return Rejected(result.error)
    written, returned = result
    for ours, theirs in zip(call.outputs, written, strict=True):
        ours[...] = theirs
    outputs = outputs_of(call, returned)
    return Ran(outputs, tuple(map(still_poisoned, outputs)) if call.outputs else ())


def entries(sdk: Sdk) -> dict[str, Entry]:
    """The ways to a device that the SDK offers, by dialect."""
    found: dict[str, Entry] = {}
    if sdk.classic.function("baremetal") and not sdk.refuses_classic():
        found[CLASSIC] = ClassicEntry(sdk)
    if sdk.newer.function("jit") and sdk.newer.function("simulate"):
        found[NEWER] = NewerEntry(sdk)
    return found


def device_backend(sdk: Sdk | None = None) -> ByDialect:
    """The device through all generations found here, as one backend on one core.

    Raises
    ------
    BackendMissingError : no device, or no SDK that runs NumPy arrays on it, or an environment
        variable has a value that it does not accept.
    """
    try:
        settings = read_settings()
    except SettingError as error:
        raise BackendMissingError(str(error)) from None
    if settings.nrtpy_python is not None and shutil.which(settings.nrtpy_python) is None:
        raise BackendMissingError(
            f"{NRTPY_PYTHON}: {settings.nrtpy_python} is no program.\n"
            "  remedy: the Python of the environment that has nrtpy, or leave the variable out"
        )
    hands_over = settings.nrtpy_python is not None and _prepare_artifacts()
    devices, sdk = find_devices(), sdk or detect_sdk()
    ways = entries(sdk)
    lacks = [] if devices else [f"no Neuron device: {DEVICE_NODES} shows no neuron0"]
    lacks += [] if ways else _lacks_of_sdk(sdk)
    if lacks:
        raise BackendMissingError(
            "a Neuron device cannot be used here.\n"
            + "".join(f"  found:  {lack}\n" for lack in lacks)
            + "  remedy: run on a Trn1, Trn2 or Inf2 instance with the Neuron driver and SDK\n"
            f"          ({SETUP_GUIDE});\n"
            "          without one, --simulate runs the same tests on a simulator;\n"
            "          difftest doctor says more"
        )
    core = NeuronCore(settings)
    found = {CLASSIC: sdk.classic.found, NEWER: sdk.newer.found}
    backends: dict[str, Backend] = {
        dialect: Device(entry, core, f"{devices[0]} through {entry.description} ({found[dialect]})")
        for dialect, entry in ways.items()
    }
    newer = ways.get(NEWER)
    if hands_over and newer is not None:
        backends[NEWER] = _handed_over(newer, core, backends[NEWER].description, sdk)
    refusal = sdk.refuses_classic()
    absent = {CLASSIC: refusal or sdk.classic.found, NEWER: sdk.newer.found}
    return ByDialect(backends, absent)


def _prepare_artifacts() -> bool:
    from difftest.backends.device.handover import prepare_artifacts

    return prepare_artifacts()


def _handed_over(entry: Entry, core: NeuronCore, description: str, sdk: Sdk) -> Backend:
    """The newer device with nrtpy: where its Python is named, kernels are compiled once."""
    from difftest.backends.device.cache import CompileCache, cache_folder
    from difftest.backends.device.handover import HandedOver

    return HandedOver(entry, core, description, CompileCache(cache_folder()), sdk.versions)


def _lacks_of_sdk(sdk: Sdk) -> list[str]:
    """Why no generation found here reaches a device."""
    if sdk.classic.module is None and sdk.newer.module is None:
        return [f"no Neuron SDK: {sdk.classic.found}"]
    lacks = []
    if sdk.classic.module is not None:
        lacks.append(
            sdk.refuses_classic() or f"{sdk.classic.found}, whose neuronxcc.nki has no baremetal"
        )
    if sdk.newer.module is not None:
        lacks.append(f"{sdk.newer.found}, whose nki runs no NumPy arrays (SDK 2.29 on does)")
    return lacks
