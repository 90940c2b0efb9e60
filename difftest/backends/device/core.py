"""A leased NeuronCore and the one process on it: retries, timeouts, and who is to blame."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
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
        """The core's index; leases one if none is. Shrinking asks again: one waits for it once.

        Raises
        ------
        NoCoreError : none is free.
        """
        if self._unusable is not None:
            raise self._unusable
        if self._lease is None:
            try:
                self._lease = lease_core(wait=self.settings.lease_wait)
            except NoCoreError as error:
                self._unusable = error
                raise
        return self._lease.core

    def run(
        self, key: object, function: Callable[..., Any], *arguments: Any, lnc: int | None = None
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
        for _ in range(ATTEMPTS):
            environment = self.environment(lnc)
            if self._worker is None or key != self._key:
                self.stop()
                self._worker, self._key = Worker(function, environment), key
            result = self._answer(self._worker, arguments)
            if not isinstance(result, Failure) or not is_infrastructure(result):
                return result
            self.stop()
        self._unusable = InfrastructureError(
            f"the device failed {ATTEMPTS} times, not the kernel: {result.error}"
        )
        raise self._unusable from result.cause

    def _answer(self, worker: Worker, arguments: tuple[Any, ...]) -> Any | Failure:
        try:
            answer = worker.run(*arguments, timeout=self.settings.timeout)
        except (WorkerHungError, WorkerDiedError) as error:
            self._worker, self.log = None, error.log
            return failure_of(error, error.log)
        self.log = answer.log
        return answer.value if answer.error is None else failure_of(answer.error, answer.log)

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
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def release(self) -> None:
        """End the process and give the core back."""
        self.stop()
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()


def is_infrastructure(failure: Failure) -> bool:
    """Whether the kernel is not to blame."""
    return failure.fault is not None and failure.fault.blame is Blame.INFRASTRUCTURE


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
