"""A leased NeuronCore and the one process on it: retries, timeouts, and who is to blame."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from difftest.backends.device.faults import Blame, Fault, find_fault
from difftest.backends.device.lease import VISIBLE_CORES, CoreLease, NoCoreError, lease_core
from difftest.backends.device.settings import EXEC_TIMEOUT, Settings
from difftest.backends.device.worker import Worker, WorkerDiedError, WorkerHungError

LNC = "NEURON_LOGICAL_NC_CONFIG"
ATTEMPTS = 2
"""One retry, for infrastructure alone: a kernel that fails does so again, minutes later."""


class DeviceError(Exception):
    """A kernel failed on the device: its error, what the code in it means, and the log."""


class InfrastructureError(Exception):
    """The device, the driver or the runtime failed, not the kernel: nothing was learnt of it."""


@dataclass(frozen=True)
class Failure:
    """A job that raised, hung or died, by the kernel's fault.

    Attributes
    ----------
    error : to show: the exception itself, or one that adds the hint and the log to it.
    cause : the exception itself.
    fault : the code found in its text or in the log.
    """

    error: BaseException
    cause: BaseException
    fault: Fault | None

    @property
    def is_infrastructure(self) -> bool:
        """Whether the kernel is not to blame."""
        return self.fault is not None and self.fault.blame is Blame.INFRASTRUCTURE


class NeuronCore:
    """The core that this process uses. Nothing is leased or started before it is needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.log = ""
        """What the last job and its compiler wrote."""
        self._lease: CoreLease | None = None
        self._worker: Worker | None = None
        self._key: Hashable = None
        self._broken: InfrastructureError | None = None
        self._unavailable: NoCoreError | None = None

    @property
    def index(self) -> int:
        """The core's index; leases one if none is.

        Raises
        ------
        NoCoreError : none is free.
        """
        if self._unavailable is not None:
            raise self._unavailable
        if self._lease is None:
            try:
                self._lease = lease_core(wait=self.settings.lease_wait)
            except NoCoreError as error:
                self._unavailable = error  # waited for once: shrinking would ask again and again
                raise
        return self._lease.core

    def run(
        self, key: Hashable, function: Callable[..., Any], *arguments: Any, lnc: int | None = None
    ) -> Any | Failure:
        """Call a function in the core's process: what it returned, or the kernel's failure.

        Parameters
        ----------
        key : the process is used again for jobs of one key, and ended for another.
        lnc : physical cores in the kernel's logical core; None leaves that to the SDK.

        Raises
        ------
        InfrastructureError : twice the fault was not the kernel's. Later jobs raise it at once.
        NoCoreError : no core is free.
        """
        if self._broken is not None:
            raise self._broken
        result: Any | Failure = None
        for _ in range(ATTEMPTS):
            result = self._try(key, function, arguments, lnc)
            if not isinstance(result, Failure) or not result.is_infrastructure:
                return result
            self.stop()
        return self.judged(result)

    def judged(self, failure: Failure) -> Failure:
        """The last failure of a job on this core, if it is the kernel's.

        Raises
        ------
        InfrastructureError : it is not. Later jobs raise it at once.
        """
        if not failure.is_infrastructure:
            return failure
        self._broken = InfrastructureError(
            f"the device failed {ATTEMPTS} times, not the kernel: {failure.error}"
        )
        raise self._broken from failure.cause

    def _try(
        self,
        key: Hashable,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        lnc: int | None,
    ) -> Any | Failure:
        worker = self._worker_for(key, function, lnc)
        try:
            answer = worker.run(*arguments, timeout=self.settings.timeout)
        except (WorkerHungError, WorkerDiedError) as error:
            self._worker = None
            self.log = error.log
            return failure_of(error, error.log)
        self.log = answer.log
        return answer.value if answer.error is None else failure_of(answer.error, answer.log)

    def _worker_for(self, key: Hashable, function: Callable[..., Any], lnc: int | None) -> Worker:
        if self._worker is None or key != self._key:
            self.stop()
            self._worker = Worker(function, self.environment(lnc))
            self._key = key
        return self._worker

    def environment(self, lnc: int | None = None) -> dict[str, str]:
        """Variables for a process on this core; the LNC that a person has set stays."""
        variables = {
            VISIBLE_CORES: str(self.index),
            EXEC_TIMEOUT: str(self.settings.exec_timeout),
        }
        if lnc is not None:
            variables[LNC] = os.environ.get(LNC, str(lnc))
        return variables

    def stop(self) -> None:
        """End the process on the core, so that another may use it."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def release(self) -> None:
        """End the process and give the core back."""
        self.stop()
        if self._lease is not None:
            self._lease.release()
            self._lease = None


def failure_of(error: BaseException, log: str) -> Failure:
    """The failure with all that is known of it.

    The log counts only where the error's own text has no code, and not for a failed assertion: that
    is the kernel's contract.
    """
    fault = find_fault(str(error))
    if fault is None and not isinstance(error, AssertionError):
        fault = find_fault(log)
    if fault is None and not log:
        return Failure(error, error, None)
    lines = [f"{type(error).__name__}: {error}"]
    lines += [f"hint: {fault}"] if fault else []
    lines += ["log:", textwrap.indent(log, "  ")] if log else []
    shown = DeviceError("\n".join(lines))
    shown.__cause__ = error
    return Failure(shown, error, fault)
