"""Kernels on the leased NeuronCore, each in the core's own process."""

from __future__ import annotations

from collections.abc import Callable
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
from difftest.backends.device.selftest import UntrustedDeviceError, check_device
from difftest.backends.device.worker import WorkerDiedError, WorkerHungError
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
        self._refused: UntrustedDeviceError | None = None

    def run(self, call: KernelCall) -> Outcome:
        """Compile the kernel and run it; what its contract or the compiler raises is a refusal.

        Raises
        ------
        InfrastructureError : the device failed, not the kernel.
        NoCoreError : no NeuronCore is free.
        UntrustedDeviceError : the kernels whose result is known did not come out as they must.
        """
        self.check()
        return self._run(call)

    def check(self) -> None:
        """Run the kernels whose result is known; once, for they compile for minutes."""
        if self._refused is not None:
            raise self._refused
        if not self._trusted:
            try:
                check_device(self._run, self.entry.dialect)
            except UntrustedDeviceError as error:
                self._refused = error
                raise
            self._trusted = True

    def _run(self, call: KernelCall) -> Outcome:
        job = _Job(self.entry, call)
        arguments = call.inputs, call.outputs, call.parameters
        return outcome_of(call, self.core.run(job.key, job, *arguments, lnc=self.entry.lnc(call)))

    @property
    def log(self) -> str:
        """What the compiler and the runtime wrote at the last run."""
        return self.core.log

    def rest(self) -> None:
        """End the process on the core: what runs next sees this process's modules as they are."""
        self.core.stop()

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
    def key(self) -> tuple[Any, ...]:
        """What the kernel is compiled for: the process is kept for more data in these shapes."""
        call = self._call
        arrays = [(array.shape, str(array.dtype)) for array in (*call.inputs, *call.outputs)]
        return self._entry, call.kernel, call.grid, repr(sorted(call.parameters.items())), arrays

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
        broke = (*SLIPS, WorkerDiedError, WorkerHungError)
        at_run_time = result.fault is not None and result.fault.number is not None
        if isinstance(result.cause, broke) or at_run_time:
            return Crashed(result.error)
        return Rejected(result.error)
    written, returned = result
    for ours, theirs in zip(call.outputs, written, strict=True):
        ours[...] = theirs
    outputs = outputs_of(call, returned)
    return Ran(outputs, tuple(map(still_poisoned, outputs)) if call.outputs else ())
