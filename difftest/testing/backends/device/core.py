"""A leased NeuronCore, the one process on it, and the kernels that run there.

The module handles retries, timeouts and the blame for failures. It also finds the APIs that can run
kernels on the device here, or reports what is missing.

The meanings of errors are rows of :mod:`difftest.testing.backends.codes`.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from difftest.support.rounding import Array
from difftest.support.worker import Worker, WorkerEndedError
from difftest.testing.backends.base import (
    SLIPS,
    BackendMissingError,
    Crashed,
    KernelCall,
    Outcome,
    Rejected,
    as_outputs,
)
from difftest.testing.backends.codes import CODES, Blame, codes_in, full_code
from difftest.testing.backends.device.selftest import UntrustedDeviceError, check_sums
from difftest.testing.backends.sdk import (
    CLASSIC,
    NEWER,
    SETUP_GUIDE,
    ByDialect,
    Sdk,
    SdkProbe,
    completed_run,
    detect_sdk,
    is_same,
    with_grid,
)


@dataclass(frozen=True)
class Fault:
    """A known error code; ``number`` is None for a code of the compiler."""

    name: str
    number: int | None
    blame: Blame
    hint: str

    @property
    def code(self) -> str:
        return self.name if self.number is None else f"{self.name}({self.number})"

    def __str__(self) -> str:
        return f"{self.code} ({self.blame.value}): {self.hint}"


FAULTS = {
    code: Fault(code, cause.number, cause.blame, f"{cause.meaning}: {cause.remedy}")
    for code, cause in CODES.items()
}
"""Faults by the name of a status, or by an error code."""
_OF_COMPILER = {code for code, fault in FAULTS.items() if fault.number is None}
_NCC_PAGE = "see AWS Neuron documentation, Neuron Compiler Error Codes"


def _is_of_compiler(code: str) -> bool:
    """Return whether a code is the compiler's, and not a runtime status."""
    return code.startswith("NCC_") or code in _OF_COMPILER


def find_fault(text: str) -> Fault | None:
    """Return the fault of the first code in an error's text or a log; None if there is none.

    The name of an NRT status comes first, because public pages show numbers of other names with it.
    Next comes a code of the compiler, then a number.
    """
    found = [full_code(code) for row in text.splitlines() for code in codes_in(row)]
    names = re.findall(r"\bNRT_[A-Z_]+\b", text)
    named = [code for code in found if code in names]
    compiler = list(filter(_is_of_compiler, found))
    for code in (*named, *compiler, *found):
        if code in FAULTS:
            return FAULTS[code]
        if code in compiler:
            return Fault(code, None, Blame.KERNEL, _NCC_PAGE)
    return None


TIMEOUT = "DIFFTEST_DEVICE_TIMEOUT"
EXEC_TIMEOUT = "NEURON_RT_EXEC_TIMEOUT"


def job_seconds() -> float:
    """Return the seconds that a kernel may compile and run; raise a BackendMissingError if invalid.

    :data:`TIMEOUT` sets them; the default is 1800.
    """
    text = os.environ.get(TIMEOUT) or "1800"
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds < math.inf:
        return seconds
    raise BackendMissingError(
        f"{TIMEOUT}: received {text!r}; accepted: a positive number of seconds"
    )


VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"
"""Runtime: an index, an inclusive range, or several of these with commas (configuration guide)."""
LOCK_FOLDER = "DIFFTEST_LOCK_DIR"


class NoCoreError(Exception):
    """No NeuronCore is free, or none exists."""


def find_cores() -> tuple[int, ...]:
    """Return the cores in the environment, such as ``0``, ``4-7`` or ``0,2,4-5``; by default 0."""
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


_SHARED = f""";
          or let {LOCK_FOLDER} name a folder that all users of the cores can write, and remove
          the locks in the old one"""


class CoreLease:
    """The exclusive use of one ``core``, until :meth:`release` or the end of the process.

    It is a ``flock`` on a file with the core's name. The system releases it when the last process
    that inherited it has ended in any way. So a killed worker loses its lease, but a child that
    still runs on the core keeps it.

    Raises
    ------
    NoCoreError : all cores are taken.
    """

    def __init__(self) -> None:
        usual = Path(tempfile.gettempdir()) / "difftest-neuroncores"
        folder = Path(os.environ.get(LOCK_FOLDER) or usual)
        holders: list[str] = []
        foreign = ""
        for self.core in find_cores():
            lock = folder / f"neuroncore-{self.core}.lock"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                descriptor = _locked(lock)
                if descriptor is not None:
                    self._descriptor = descriptor
                    return
                holder = lock.read_text(encoding="utf-8").strip() or "of unknown id"
            except PermissionError as error:  # unknown whether this core is free
                foreign = _SHARED
                holders.append(
                    f"core {self.core} by a lock of another user, {error.filename}"
                )
            else:
                holders.append(f"core {self.core} by process {holder}")
        raise NoCoreError(
            f"no NeuronCore is free: {', '.join(holders)}.\n"
            f"  remedy: name more cores in {VISIBLE_CORES}, or use fewer workers (pytest -n),\n"
            f"          or end the processes that hold the cores{foreign}"
        )

    def release(self) -> None:
        """Release the core."""
        os.close(self._descriptor)


def _locked(lock: Path) -> int | None:
    """Lock a file, and return its descriptor; None if another process holds the lock.

    Raises
    ------
    PermissionError : the file belongs to another user.
    """
    import fcntl  # imported late, because some computers have no flock

    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


NAME = "device"
LNC = "NEURON_LOGICAL_NC_CONFIG"
ATTEMPTS = 2
"""The attempts after faults of the infrastructure. A failed kernel is not tried again."""


class DeviceError(Exception):
    """A kernel failed on the device. The text includes the meaning of its code, and the log.

    Attributes
    ----------
    cause : the error that it raised, or the error for a process that hung or died.
    fault : the code in the text of the error, or else in the log.
    """

    def __init__(
        self, text: str, cause: BaseException | None = None, log: str = ""
    ) -> None:
        self.cause = cause
        self.fault = find_fault(str(cause or ""))
        # A failed assertion is the kernel's contract, even if the log has a code.
        if self.fault is None and not isinstance(cause, AssertionError):
            self.fault = find_fault(log)
        if self.fault is not None:
            text += f"\nhint: {self.fault}"
        if log:
            text += f"\nlog:\n{textwrap.indent(log, '  ')}"
        super().__init__(text)


class InfrastructureError(Exception):
    """The device, the driver or the runtime failed, so the kernel is not judged."""


class NeuronCore:
    """The core of this process. It is leased, and its process started, at the first use."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        """The most seconds of a job."""
        self.log = ""
        """The output of the last job and its compiler."""
        self._lease: CoreLease | None = None
        self._worker: Worker | None = None
        self._key: object = None
        self._broken: InfrastructureError | None = None

    @property
    def index(self) -> int:
        """The core's index; leases one if none is."""
        if self._lease is None:
            self._lease = CoreLease()
        return self._lease.core

    def run(
        self,
        key: object,
        function: Callable[..., Any],
        *arguments: Any,
        lnc: int | None = None,
    ) -> Any:
        """Call a function in the core's process, and return its result.

        Jobs with equal keys share a process. ``lnc`` is the number of physical cores in the
        kernel's logical core; None leaves it to the SDK.

        Raises
        ------
        DeviceError : the kernel failed.
        InfrastructureError : the infrastructure failed twice. All later jobs raise it too.
        """
        if self._broken is not None:
            raise self._broken
        for _ in range(ATTEMPTS):
            environment = self.environment(lnc)
            if self._worker is None or key != self._key:
                self.stop()
                self._worker = Worker(function, environment)
                self._key = key
            answer = self._worker.run(*arguments, timeout=self.seconds)
            error = answer.error
            self.log = answer.log
            if error is None:
                return answer.value
            self.stop()
            failure = DeviceError(f"{type(error).__name__}: {error}", error, self.log)
            if failure.fault is None or failure.fault.blame is Blame.KERNEL:
                raise failure from error
        self._broken = InfrastructureError(
            f"the device failed {ATTEMPTS} times, not the kernel: {failure}"
        )
        raise self._broken from failure.cause

    def environment(self, lnc: int | None = None) -> dict[str, str]:
        """Return the environment of a process on this core; variables that are set stay."""
        variables = {EXEC_TIMEOUT: os.environ.get(EXEC_TIMEOUT) or "60"}
        if lnc is not None:
            variables[LNC] = os.environ.get(LNC) or str(lnc)
        return {VISIBLE_CORES: str(self.index), **variables}

    def stop(self) -> None:
        """End the process on the core, so that another process may use it."""
        worker = self._worker
        self._worker = None
        if worker is not None:
            worker.close()

    def release(self) -> None:
        """End the process and release the core."""
        self.stop()
        if self._lease is not None:
            self._lease.release()
            self._lease = None


APIS = {CLASSIC: "nki.baremetal", NEWER: "nki.jit with NumPy arrays"}
"""The API of each generation for kernels on NumPy arrays: ``neuronxcc.nki.baremetal`` of a kernel
with its grid (tag v2.26.0), and a call of a ``nki.jit`` kernel (tag v2.32.0; from SDK 2.29)."""


class Device:
    """A backend for kernels of one generation on the leased NeuronCore, in the core's process."""

    name = NAME

    def __init__(self, detection: SdkProbe, core: NeuronCore, node: str) -> None:
        api = APIS[detection.dialect]
        self.description = f"{node} through {api} ({detection.state})"
        self.detection = detection
        self.core = core
        self._complaint: str | None = None
        """The error of the known kernel; empty if it was right, None before it has run."""

    def run(self, call: KernelCall) -> Outcome:
        """Compile the kernel and run it; errors of its contract or the compiler are rejections.

        Raises
        ------
        InfrastructureError, NoCoreError, UntrustedDeviceError : the error is not the kernel's.
        """
        self.check()
        return self._run_on_core(call)

    def check(self) -> None:
        """Run the kernel with a known result, but only once: it compiles for minutes."""
        if self._complaint is None:
            self._complaint = check_sums(self._run_on_core, self.detection.dialect)
        if self._complaint:
            raise UntrustedDeviceError(self._complaint)

    def _run_on_core(self, call: KernelCall) -> Outcome:
        """Run a call on the leased core, and take over the arrays that the kernel wrote."""
        arrays = [(array.shape, str(array.dtype)) for array in call.arrays]
        parameters = repr(sorted(call.parameters.items()))
        # One compilation, and one process, for each of these.
        key = (self, call.kernel, call.grid, parameters, arrays)
        # The newer runtime needs the number in ``kernel[lnc]``, 1 without brackets.
        lnc = math.prod(call.grid) if self.detection.dialect == NEWER else None
        arguments = (call.inputs, call.outputs, call.parameters)
        before = tuple(array.copy() for array in call.written)
        try:
            written, answers = self.core.run(key, self._job(call), *arguments, lnc=lnc)
        except DeviceError as error:
            return self._refused(error)
        for ours, theirs in zip(call.written, written, strict=True):
            ours[...] = theirs
        returned = [
            call.written[answer] if isinstance(answer, int) else answer
            for answer in answers
        ]
        return completed_run(call, returned, before)

    def _refused(self, error: DeviceError) -> Outcome:
        """Return the outcome of a kernel that failed.

        An error of the runtime is a crash, most others are rejections.
        """
        is_explained = error.fault is not None or self.core.log
        reported: BaseException = error
        if error.cause is not None and not is_explained:
            reported = error.cause
        is_slip = isinstance(error.cause, (*SLIPS, WorkerEndedError))
        at_run_time = error.fault is not None and error.fault.number is not None
        return Crashed(reported) if is_slip or at_run_time else Rejected(reported)

    def _job(self, call: KernelCall) -> Callable[..., tuple[tuple[Any, ...], ...]]:
        """Return the job of the core's process for one kernel, which compiles at its first call.

        The job returns the targets after the run, and the returned arrays. A returned array that is
        a target is given as its number among the targets.
        """
        ready = functools.cache(lambda: self._runnable(call))

        def job(
            inputs: Any, outputs: Any, parameters: Any
        ) -> tuple[tuple[Any, ...], ...]:
            own = call._replace(inputs=inputs, outputs=outputs, parameters=parameters)
            args, kwargs = own.arguments()
            returned = as_outputs(ready()(*args, **kwargs))
            answers = tuple(number_among(own.written, array) for array in returned)
            return own.written, answers

        return job

    def _runnable(self, call: KernelCall) -> Any:
        """Return a function of the arrays and parameters that runs the kernel."""
        sdk: Any = self.detection.module
        if self.detection.dialect == CLASSIC:
            return sdk.baremetal(with_grid(call))
        if isinstance(call.kernel, FunctionType):
            call = call._replace(kernel=sdk.jit(call.kernel))
        return with_grid(call)


def number_among(targets: Sequence[Array], array: Array) -> int | Array:
    """Return an array's number among the targets; the array itself if it is not a target."""
    for number, target in enumerate(targets):
        if is_same(array, target):
            return number
    return array


class Devices(ByDialect[Device]):
    """The device through each generation found here; they share one core."""

    @property
    def core(self) -> NeuronCore:
        """The core that all generations share."""
        return next(iter(self.backends.values())).core

    @property
    def log(self) -> str:
        """The output of the compiler and the runtime in the last run."""
        return self.core.log

    def rest(self) -> None:
        """End the process on the core, so that the next run sees this process's current modules."""
        self.core.stop()

    def close(self) -> None:
        """End the process on the core and release the core; a later run leases one again."""
        self.core.release()


DEVICE_NODES = Path("/dev")
"""The folder with the Neuron driver's devices, ``neuron0``, ``neuron1`` and so on."""
ARTIFACTS = "NKI_ARTIFACTS_DIR"
"""The folder in which a call with NumPy arrays leaves its NEFF (SDK 2.32, nrtpy's tutorials)."""


def keep_neffs() -> bool:
    """Make the newer SDK keep its NEFFs for timers, and return whether it does.

    The SDK reads the variable at its import. Later it is too late, unless the variable is set.
    """
    if not os.environ.get(ARTIFACTS) and "nki" not in sys.modules:
        os.environ[ARTIFACTS] = tempfile.mkdtemp(prefix="difftest-nki-")
        atexit.register(shutil.rmtree, os.environ[ARTIFACTS], ignore_errors=True)
    return bool(os.environ.get(ARTIFACTS))


def missing_support(sdk: Sdk) -> dict[str, str]:
    """Return why the SDK does not run each dialect on a device; empty for dialects that it runs."""
    return {
        CLASSIC: sdk.refuses_classic() or sdk.classic.lack("baremetal"),
        NEWER: sdk.newer.lack("simulate"),  # the release with NumPy arrays added it
    }


def device_backend(sdk: Sdk | None = None) -> Devices:
    """Return the device as one backend, with all installed generations on one core.

    Raises
    ------
    BackendMissingError : there is no device, or no SDK that runs NumPy arrays on it.
    """
    core = NeuronCore(job_seconds())
    nodes = sorted(str(node) for node in DEVICE_NODES.glob("neuron[0-9]*"))
    if nodes:
        keep_neffs()
    sdk = sdk or detect_sdk()
    lacks = missing_support(sdk)
    found = list(lacks.values()) if all(lacks.values()) else []
    if not nodes:
        found.insert(0, f"no Neuron device: {DEVICE_NODES} shows no neuron0")
    if found:
        raise BackendMissingError(
            "a Neuron device cannot be used here.\n"
            + "".join(f"  found:  {lack}\n" for lack in found)
            + "  remedy: run on a Trn1, Trn2 or Inf2 instance with the Neuron driver and SDK\n"
            f"          ({SETUP_GUIDE}),\n"
            "          of 2.29 or later for kernels of nki;\n"
            "          without one, --simulate runs the same tests on a simulator"
        )
    devices = {}
    for generation in sdk:
        if not lacks[generation.dialect]:
            devices[generation.dialect] = Device(generation, core, nodes[0])
    return Devices(devices, lacks)
