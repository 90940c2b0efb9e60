"""Kernels on the leased NeuronCore, each in the core's own process."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

from difftest.backends.base import (
    SLIPS,
    Array,
    Crashed,
    KernelCall,
    Outcome,
    Ran,
    Rejected,
    as_outputs,
    still_poisoned,
)
from difftest.backends.device.core import Failure, NeuronCore
from difftest.backends.device.entries import Entry
from difftest.backends.sdk import outputs_of

NAME = "device"


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
        call = replace(self._call, inputs=inputs, outputs=outputs, parameters=parameters)
        args, kwargs = call.arguments()
        returned = self._runnable(*args, **kwargs)
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
