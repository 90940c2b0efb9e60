"""A leased NeuronCore, the one process on it, and the kernels that run there.

Retries and timeouts are here, and who is to blame for what fails.
"""

from __future__ import annotations

import math
import os
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any

from difftest.backends.base import SLIPS, Array, Crashed, KernelCall, Outcome, Rejected, as_outputs
from difftest.backends.device.faults import Blame, find_fault
from difftest.backends.device.selftest import UntrustedDeviceError, check_device
from difftest.backends.sdk import CLASSIC, NEWER, Sdk, launched, ran_of
from difftest.host.worker import Worker, WorkerDiedError, WorkerHungError

TIMEOUT = "DIFFTEST_DEVICE_TIMEOUT"
EXEC_TIMEOUT = "NEURON_RT_EXEC_TIMEOUT"
NRTPY_PYTHON = "DIFFTEST_NRTPY_PYTHON"


class SettingError(ValueError):
    """An environment variable has a value that it does not accept."""


@dataclass(frozen=True)
class Settings:
    """The settings of a session (docs/reference/device-settings.md). Times in seconds."""

    timeout: float = 1800.0
    exec_timeout: int = 60
    nrtpy_python: str | None = None


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of an environment, of this process if none is given; or a SettingError."""
    variables = os.environ if environment is None else environment

    def seconds(name: str, usual: float) -> float:
        text = variables.get(name) or str(usual)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if 0 < value < float("inf"):
            return value
        raise SettingError(f"{name}: received {text!r}; accepted: a positive number of seconds")

    return Settings(
        seconds(TIMEOUT, Settings.timeout),
        int(seconds(EXEC_TIMEOUT, Settings.exec_timeout)),
        variables.get(NRTPY_PYTHON) or None,
    )


VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"
"""Runtime: an index, an inclusive range, or several of these with commas (configuration guide)."""
LOCK_FOLDER = "DIFFTEST_LOCK_DIR"


class NoCoreError(Exception):
    """No NeuronCore is free, or none is there."""


def find_cores() -> tuple[int, ...]:
    """The cores that the environment names, as ``0``, ``4-7`` or ``0,2,4-5``; else 0."""
    text = os.environ.get(VISIBLE_CORES) or "0"
    cores: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise NoCoreError(
                f"{VISIBLE_CORES}: received {text!r}; accepted: an index or a range, as 0 or 0-3"
            )
        cores += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(cores))


class CoreLease:
    """The exclusive use of one ``core``, until :meth:`release` or the end of the process.

    It is a ``flock`` on a file that is named for the core. The system gives it back when the last
    process that inherited it has ended, however that ended: a worker that is killed loses its
    lease, and a child of it that still runs on the core keeps it. NoCoreError where all are taken.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        usual = Path(tempfile.gettempdir()) / "difftest-neuroncores"
        folder = Path(os.environ.get(LOCK_FOLDER) or usual)
        folder.mkdir(parents=True, exist_ok=True)
        holders = []
        for self.core in find_cores():
            lock = folder / f"neuroncore-{self.core}.lock"
            self._descriptor = _locked(lock)
            if self._descriptor is not None:
                return
            holder = lock.read_text(encoding="utf-8").strip() or "of unknown id"
            holders.append(f"core {self.core} by process {holder}")
        raise NoCoreError(
            f"no NeuronCore is free: {', '.join(holders)}.\n"
            f"  remedy: name more cores in {VISIBLE_CORES}, or use fewer workers (pytest -n),\n"
            "          or end the processes that hold the cores"
        )

    def release(self) -> None:
        """Give the core back; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _locked(lock: Path) -> int | None:
    """The descriptor of the lock that this process has now; None if another has it.

    Another user's file is a PermissionError: DIFFTEST_LOCK_DIR names a folder that all can write.
    """
    import fcntl  # here, for the module is read on computers that have no flock

    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


@dataclass(frozen=True)
class Entry:
    """How one generation compiles and runs a kernel on NumPy arrays, in the core's process.

    Classic: ``neuronxcc.nki.baremetal`` of a kernel with its grid (tag v2.26.0). Newer: a kernel of
    ``nki.jit`` called with NumPy arrays (tag v2.32.0; from SDK 2.29). ``wrap`` is that function.
    """

    dialect: str
    description: str
    wrap: Callable[..., Any]

    def runnable(self, call: KernelCall) -> Callable[..., Any]:
        """A function of the arrays and parameters that runs the kernel."""
        if self.dialect == CLASSIC:
            runnable: Callable[..., Any] = self.wrap(launched(call))
            return runnable
        if isinstance(call.kernel, FunctionType):
            call = replace(call, kernel=self.wrap(call.kernel))
        return launched(call)

    def lnc(self, call: KernelCall) -> int | None:
        """Physical cores in the kernel's logical one; None where the SDK sees to it.

        The newer runtime must be told what stands in ``kernel[lnc]``, 1 without brackets.
        """
        return None if self.dialect == CLASSIC else math.prod(call.grid)


def entries(sdk: Sdk) -> dict[str, Entry]:
    """The ways to a device that the SDK offers, by dialect."""
    ways: dict[str, Entry] = {}
    baremetal, jit = sdk.classic.function("baremetal"), sdk.newer.function("jit")
    if baremetal and not sdk.refuses_classic():
        ways[CLASSIC] = Entry(CLASSIC, "nki.baremetal", baremetal)
    if jit and sdk.newer.function("simulate"):
        ways[NEWER] = Entry(NEWER, "nki.jit with NumPy arrays", jit)
    return ways


NAME = "device"
LNC = "NEURON_LOGICAL_NC_CONFIG"
ATTEMPTS = 2
"""One retry, for infrastructure alone: a kernel that fails does so again, minutes later."""


class DeviceError(Exception):
    """A kernel failed on the device; the text adds what a code in it means, and the log.

    ``cause`` is what it raised, or that it hung or died; ``fault``, the code found in its text, or
    else in the log.
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
        """The core's index; leases one if none is. One that was not free is not asked for again."""
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

        The process is used again for jobs of one key, and ended for another. ``lnc`` are the
        physical cores in the kernel's logical core; None leaves that to the SDK. A kernel that
        fails is a DeviceError. A fault that twice was not the kernel's is an InfrastructureError,
        of all later jobs too.
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

        What is not the kernel's is raised: InfrastructureError, NoCoreError, UntrustedDeviceError.
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
        key, job, lnc = (self.entry, *compiled_for), _job(self.entry, call), self.entry.lnc(call)
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


def _job(entry: Entry, call: KernelCall) -> Callable[..., tuple[tuple[Array, ...], ...]]:
    """What the core's process does for one kernel: it is made ready there once, and called often.

    It gives the outputs that were passed, as they are afterwards, and what was returned.
    """
    ready: list[Callable[..., Any]] = []

    def job(inputs: Any, outputs: Any, parameters: Any) -> tuple[tuple[Array, ...], ...]:
        if not ready:
            ready.append(entry.runnable(call))
        own = replace(call, inputs=inputs, outputs=outputs, parameters=parameters)
        args, kwargs = own.arguments()
        return outputs, as_outputs(ready[0](*args, **kwargs))

    return job
