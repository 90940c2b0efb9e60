"""A leased NeuronCore, the one process on it, and the kernels that run there.

Retries and timeouts are here, and who is to blame for what fails.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from difftest.backends.base import SLIPS, Array, Crashed, KernelCall, Outcome, Rejected, as_outputs
from difftest.backends.device.entries import Entry
from difftest.backends.device.faults import Blame, find_fault
from difftest.backends.device.lease import VISIBLE_CORES, CoreLease, NoCoreError
from difftest.backends.device.selftest import UntrustedDeviceError, check_device
from difftest.backends.device.settings import EXEC_TIMEOUT, Settings
from difftest.backends.sdk import ran_of
from difftest.host.worker import Worker, WorkerDiedError, WorkerHungError

NAME = "device"
LNC = "NEURON_LOGICAL_NC_CONFIG"
ATTEMPTS = 2
"""One retry, for infrastructure alone: a kernel that fails does so again, minutes later."""


class DeviceError(Exception):
    """A kernel failed on the device; the text adds what a code in it means, and the log.

    Attributes
    ----------
    cause : what it raised, or that it hung or died.
    fault : the code found in its text, or else in the log; None if there is none.
    """

    def __init__(self, text: str, cause: BaseException | None = None, log: str = "") -> None:
        self.cause, self.fault = cause, find_fault(str(cause or ""))
        # A failed assertion is the kernel's contract, whatever the log says.
        if self.fault is None and not isinstance(cause, AssertionError):
            self.fault = find_fault(log)
        hint = f"\nhint: {self.fault}" if self.fault else ""
        super().__init__(text + hint + (f"\nlog:\n{textwrap.indent(log, '  ')}" if log else ""))


class InfrastructureError(Exception):
    """The device, the driver or the runtime failed, not the kernel: nothing was learnt of it."""


class NeuronCore:
    """The core that this process uses. Nothing is leased or started before it is needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.log = ""
        """What the last job and its compiler wrote."""
        self._lease: CoreLease | None = None
        self._worker: Worker | None = None
        self._key: object = None
        self._unusable: NoCoreError | InfrastructureError | None = None

    @property
    def index(self) -> int:
        """The core's index; leases one if none is. One that was not free is not asked for again.

        Raises NoCoreError: none is free.
        """
        if self._unusable is not None:
            raise self._unusable
        if self._lease is None:
            try:
                self._lease = CoreLease()
            except NoCoreError as error:
                self._unusable = error
                raise
        return self._lease.core

    def run(
        self, key: object, function: Callable[..., Any], *arguments: Any, lnc: int | None = None
    ) -> Any:
        """What a function returns that is called in the core's process.

        Parameters
        ----------
        key : the process is used again for jobs of one key, and ended for another.
        lnc : physical cores in the kernel's logical core; None leaves that to the SDK.

        Raises
        ------
        DeviceError : the kernel failed.
        InfrastructureError : twice the fault was not the kernel's. Later jobs raise it at once.
        NoCoreError : no core is free.
        """
        for _ in range(ATTEMPTS):
            environment = self.environment(lnc)
            if self._worker is None or key != self._key:
                self.stop()
                self._worker, self._key = Worker(function, environment), key
            try:
                answer = self._worker.run(*arguments, timeout=self.settings.timeout)
                error, self.log = answer.error, answer.log
            except (WorkerHungError, WorkerDiedError) as end:
                self._worker, error, self.log = None, end, end.log
            if error is None:
                return answer.value
            failure = DeviceError(f"{type(error).__name__}: {error}", error, self.log)
            if failure.fault is None or failure.fault.blame is Blame.KERNEL:
                raise failure from error
            self.stop()
        told = f"the device failed {ATTEMPTS} times, not the kernel: {failure}"
        self._unusable = InfrastructureError(told)
        raise self._unusable from failure.cause

    def environment(self, lnc: int | None = None) -> dict[str, str]:
        """Variables for a process on this core; the LNC that a person has set stays."""
        limit = str(self.settings.exec_timeout)
        variables = {VISIBLE_CORES: str(self.index), EXEC_TIMEOUT: limit}
        return variables if lnc is None else {**variables, LNC: os.environ.get(LNC, str(lnc))}

    def stop(self) -> None:
        """End the process on the core, so that another may use it."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def release(self) -> None:
        """End the process and give the core back."""
        self.stop()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()


class Device:
    """Runs kernels of one generation on the leased NeuronCore, each in the core's own process."""

    name = NAME

    def __init__(self, entry: Entry, core: NeuronCore, description: str) -> None:
        self.description = description
        self.entry = entry
        self.core = core
        self._is_trusted = False
        self._refused: UntrustedDeviceError | None = None

    def run(self, call: KernelCall) -> Outcome:
        """Compile the kernel and run it; what its contract or the compiler raises is a refusal.

        Raises
        ------
        InfrastructureError : the device failed, not the kernel.
        NoCoreError : no NeuronCore is free.
        UntrustedDeviceError : the kernel whose result is known did not come out as it must.
        """
        self.check()
        return self._run(call)

    def check(self) -> None:
        """Run the kernel whose result is known; once, for it compiles for minutes."""
        if self._refused is not None:
            raise self._refused
        if not self._is_trusted:
            try:
                check_device(self._run, self.entry.dialect)
            except UntrustedDeviceError as error:
                self._refused = error
                raise
            self._is_trusted = True

    def _run(self, call: KernelCall) -> Outcome:
        arrays = [(array.shape, str(array.dtype)) for array in (*call.inputs, *call.outputs)]
        compiled_for = call.kernel, call.grid, repr(sorted(call.parameters.items())), arrays
        arguments = call.inputs, call.outputs, call.parameters
        key, job, lnc = (self.entry, *compiled_for), _Job(self.entry, call), self.entry.lnc(call)
        try:
            written, returned = self.core.run(key, job, *arguments, lnc=lnc)
        except DeviceError as error:
            # An error of the runtime is a crash, most others are refusals.
            broke = isinstance(error.cause, (*SLIPS, WorkerDiedError, WorkerHungError))
            at_run_time = error.fault is not None and error.fault.number is not None
            told = error if error.fault or self.log or error.cause is None else error.cause
            return Crashed(told) if broke or at_run_time else Rejected(told)
        for ours, theirs in zip(call.outputs, written, strict=True):
            ours[...] = theirs
        return ran_of(call, returned)

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

    def __call__(
        self, inputs: tuple[Array, ...], outputs: tuple[Array, ...], parameters: dict[str, Any]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The outputs passed, as they are afterwards, and what was returned."""
        if self._runnable is None:
            self._runnable = self._entry.runnable(self._call)
        call = replace(self._call, inputs=inputs, outputs=outputs, parameters=parameters)
        args, kwargs = call.arguments()
        return outputs, as_outputs(self._runnable(*args, **kwargs))
