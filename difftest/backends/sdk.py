"""The Neuron SDK: which is installed, what of it works, and its simulators, one a generation.

Two generations of NKI exist (AWS Neuron documentation, NKI migration guides): the classic one is
the package ``neuronxcc.nki`` (SDK 2.21 to 2.26; still there later), the newer one the package
``nki`` (from SDK 2.27; it runs NumPy arrays and has a simulator from 2.29). Features are probed;
a version is read for the report, and where a documented defect cannot be seen from outside.

Written from AWS's public documentation: ``neuronxcc.nki.simulate_kernel`` at tag v2.26.0 (NumPy
arrays in and out, SPMD as ``kernel[grid]``), and ``nki.simulate`` at tag v2.32.0 (a callable; what
a kernel writes to an input in HBM is written back to the array). Neither has run against an SDK:
none is at hand where this project is developed.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from types import FunctionType, ModuleType
from typing import Any

from difftest.backends.base import (
    SLIPS,
    Backend,
    BackendMissingError,
    Crashed,
    KernelCall,
    Outcome,
    Ran,
    Rejected,
    Unsupported,
    as_outputs,
    still_poisoned,
)
from difftest.choices import RELEASES
from difftest.simulator.frontend.install import is_embedded

SETUP_GUIDE = "awsdocs-neuron.readthedocs-hosted.com, Setup Guide"
"""Where AWS says how to install the SDK; its Python packages are in AWS's own index alone."""

CLASSIC, NEWER = "classic", "newer"
PACKAGES = {CLASSIC: "neuronxcc.nki", NEWER: "nki"}
"""The package that each generation's kernels import."""

_STUB_MARK = "WRONG PACKAGE"
"""What the packages that AWS placed on PyPI under these names say when they are imported."""
_DISTRIBUTIONS = ("neuronx-cc", "neuronxcc", "nki")
_ZEROS_SINCE = 30
"""Minor number of the SDK from which on the classic ``baremetal`` is not to be trusted: with 2.32
it returns zeros (public issue aws-neuron/nki-samples#134), and the compiler refuses the classic
namespace in kernels since 2.30 (NKI migration guide, 0.3.0 to 0.4.0)."""
_COMPILER_TO_SDK = 5
"""neuronx-cc 2.21 is SDK 2.26, 2.22 is 2.27, 2.24 is 2.29, 2.27 is 2.32 (its release notes)."""


@dataclass(frozen=True)
class Detection:
    """What was found where one generation of the SDK would be: a module that can be used, or None.

    ``state`` is the version, or why there is none, in words.
    """

    module: ModuleType | None
    state: str

    def function(self, name: str) -> Callable[..., Any] | None:
        """The module's function of that name, if it has one."""
        function = getattr(self.module, name, None)
        return function if callable(function) else None


@dataclass(frozen=True)
class Sdk:
    """Both generations as they are installed here."""

    classic: Detection
    newer: Detection
    versions: dict[str, str] = field(default_factory=dict)
    """Distribution or module -> version, of what is installed."""

    @property
    def release(self) -> int | None:
        """The minor number of the SDK's release, 26 for 2.26; None if no version tells."""
        nki = re.match(r"0\.(\d+)", self.versions.get("nki", ""))
        if nki and nki[0] in RELEASES:
            return RELEASES[nki[0]]
        compiler = re.match(r"2\.(\d+)", self.versions.get("neuronx-cc", ""))
        return int(compiler[1]) + _COMPILER_TO_SDK if compiler else None

    @property
    def state(self) -> str:
        """Both generations in words."""
        return "; ".join([self.classic.state, *[self.newer.state] * bool(self.newer.module)])

    def refuses_classic(self) -> str | None:
        """Why classic kernels do not run on a device with this SDK; None if they may."""
        if self.release is None or self.release < _ZEROS_SINCE:
            return None
        return (
            f"neuronxcc.nki.baremetal of SDK 2.{self.release} is not used: since 2.30 the compiler "
            "refuses neuronxcc.nki in kernels, and with 2.32 its outputs are zeros "
            "(aws-neuron/nki-samples#134)"
        )


def detect_sdk() -> Sdk:
    """Look for both generations; a stub or a part of one does not count."""
    versions = {name: version for name in _DISTRIBUTIONS if (version := _version(name)) is not None}

    def stated_or_installed() -> str | None:
        return getattr(sys.modules.get("nki"), "__version__", None) or _version("nki")

    classic, newer = detect(), _detect("nki", "nki", stated_or_installed)
    stated = getattr(newer.module, "__version__", None)
    if isinstance(stated, str):
        versions["nki"] = stated
    return Sdk(classic, newer, versions)


def detect() -> Detection:
    """Look for the classic generation."""
    return _detect("neuronxcc", "neuronxcc.nki", lambda: _version("neuronx-cc"))


def _detect(package: str, name: str, version: Callable[[], str | None]) -> Detection:
    if package in sys.modules and is_embedded(sys.modules[package]):
        return Detection(None, f"the embedded modules stand for {package} in this process")
    if importlib.util.find_spec(package) is None:
        return Detection(None, "no package nki" if package == "nki" else _describe_absence())
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        return Detection(None, f"the package {package}, which fails to import: {error}")
    if package == "nki" and not callable(getattr(module, "jit", None)):
        return Detection(None, "a package nki without nki.jit, which is not the SDK's")
    return Detection(module, f"{package} {version() or 'of unknown version'}")


def _describe_absence() -> str:
    stubs = [
        f"{name} {version} from PyPI, an empty stub that is not the SDK"
        for name in _DISTRIBUTIONS
        if (version := _version(name)) is not None and _is_stub(name)
    ]
    return "; ".join(stubs) or "no package neuronxcc"


def _is_stub(distribution: str) -> bool:
    return _STUB_MARK in str(metadata.metadata(distribution).json.get("description"))


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


_INNER = ("__wrapped__", "function", "func", "fn")
"""Attributes in which decorators keep the function they were given."""
_MOST_DECORATORS = 10


class DialectError(Exception):
    """The kernel is written for a generation of NKI that cannot run it here."""


def function_of(kernel: Callable[..., Any]) -> FunctionType | None:
    """The Python function inside a kernel, whatever a decorator made of it; None if none shows."""
    candidate: Any = kernel
    for _ in range(_MOST_DECORATORS):
        if isinstance(candidate, FunctionType) and not hasattr(candidate, "__wrapped__"):
            return candidate
        inner = (getattr(candidate, name, None) for name in _INNER)
        candidate = next((value for value in inner if callable(value)), None)
    return None


def dialect_of(kernel: Callable[..., Any]) -> str | None:
    """``classic`` or ``newer``, by what the kernel's file imports; None if unclear."""
    function = function_of(kernel)
    if function is None:
        return None
    dialects = {
        dialect
        for value in function.__globals__.values()
        for dialect, package in PACKAGES.items()
        if is_of(value, package)
    }
    return dialects.pop() if len(dialects) == 1 else None


def is_of(value: object, package: str) -> bool:
    """Whether a value is a module of a package, or comes from one."""
    home = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None)
    return isinstance(home, str) and f"{home}.".startswith(f"{package}.")


def close_backend(backend: Backend) -> None:
    """Give back what a backend holds, if it holds anything: processes, a NeuronCore."""
    if (close := getattr(backend, "close", None)) is not None:
        close()


class ByDialect:
    """One backend of several generations: each kernel runs on that of its dialect.

    One whose dialect does not show goes to the first. ``absent`` says of a generation that is not
    among them why.
    """

    def __init__(self, backends: Mapping[str, Backend], absent: Mapping[str, str]) -> None:
        self._backends = dict(backends)
        self._absent = dict(absent)
        first = next(iter(self._backends.values()))
        self.name = first.name
        self.description = "; ".join(backend.description for backend in self._backends.values())
        self._last = first

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel on its generation; without that, say so and compile nothing."""
        if call.ranks:
            return Unsupported(NotImplementedError(f"{self.name} runs no ranks; the embedded does"))
        dialect = dialect_of(call.kernel)
        backend = self.backend_for(dialect)
        if backend is not None:
            self._last = backend
            return backend.run(call)
        return Crashed(DialectError(self._refusal(str(dialect))))

    def takes(self, kernel: Callable[..., Any]) -> bool:
        """Whether the generation that the kernel is written for is here."""
        return self.backend_for(dialect_of(kernel)) is not None

    @property
    def log(self) -> str:
        """What the compiler and the runtime wrote at the last run; empty if nothing was kept."""
        return str(getattr(self._last, "log", ""))

    def backend_for(self, dialect: str | None) -> Backend | None:
        """The backend for kernels of this dialect."""
        if dialect is None:
            return next(iter(self._backends.values()))
        return self._backends.get(dialect)

    def rest(self) -> None:
        """End the processes that a backend keeps for one kernel."""
        for backend in self._backends.values():
            if (rest := getattr(backend, "rest", None)) is not None:
                rest()

    def close(self) -> None:
        """Give back what the backends hold; they can be used again."""
        for backend in self._backends.values():
            close_backend(backend)

    def _refusal(self, dialect: str) -> str:
        here = " and ".join(self._backends)
        remedy = {
            CLASSIC: "port the kernel (NKI migration guide, 0.1.0 to 0.2.0), or use an SDK of 2.21 "
            "to 2.29",
            NEWER: "use an SDK from 2.29 on",
        }
        return (
            f"the kernel is written for {PACKAGES[dialect]} ({dialect}); {self.name} runs {here} "
            f"kernels here.\n  found:  {self._absent.get(dialect, 'no such generation')}\n"
            f"  remedy: {remedy[dialect]}"
        )


NAME = "sdk"
SIMULATE = {CLASSIC: "simulate_kernel", NEWER: "simulate"}
"""The function with which each generation simulates a kernel."""


def missing(what: str, state: str) -> BackendMissingError:
    """The error for a part of the SDK that was asked for and is not here."""
    return BackendMissingError(
        f"{what} is not here.\n"
        f"  found:  {state}\n"
        "  remedy: on Linux x86-64, install neuronx-cc from AWS's own package index\n"
        f"          ({SETUP_GUIDE}),\n"
        "          after pip uninstall of a stub; or run on the embedded simulator:\n"
        "          --simulate=embedded"
    )


class SdkSimulator:
    """Runs kernels with ``neuronxcc.nki.simulate_kernel`` or ``nki.simulate``, if there is one."""

    name = NAME

    def __init__(self, detection: Detection, dialect: str) -> None:
        package, function = PACKAGES[dialect], SIMULATE[dialect]
        simulate = detection.function(function)
        if simulate is None:
            without = f", whose {package} has no {function}" if detection.module else ""
            what = f"the Neuron SDK's simulator ({package}.{function})"
            raise missing(what, f"{detection.state}{without}")
        self._simulate, self._dialect = simulate, dialect
        self.description = f"the Neuron SDK's simulator {package}.{function} ({detection.state})"

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel; whatever the SDK raises is taken as its refusal.

        The SDK documents no base class for its errors, so that a rejection and a bug in the
        kernel's Python cannot be told apart, but for some of Python's own (``SLIPS``); and a
        NotImplementedError says that it lacks something.
        """
        kernel = launched(call)
        args, kwargs = call.arguments()
        if self._dialect == CLASSIC:
            return outcome_of(call, lambda: self._simulate(kernel, *args, **kwargs))
        return outcome_of(call, lambda: self._simulate(kernel)(*args, **kwargs))


def sdk_simulator(sdk: Sdk | None = None) -> Backend:
    """The simulators of the generations found here, as one backend; or a BackendMissingError."""
    sdk = sdk or detect_sdk()
    simulators: dict[str, Backend] = {}
    errors: list[BackendMissingError] = []
    detections = {CLASSIC: sdk.classic, NEWER: sdk.newer}
    for dialect, detection in detections.items():
        try:
            simulators[dialect] = SdkSimulator(detection, dialect)
        except BackendMissingError as error:
            errors.append(error)
    if not simulators:
        raise errors[1] if sdk.newer.module else errors[0]
    return ByDialect(simulators, {dialect: entry.state for dialect, entry in detections.items()})


def has_simulator(sdk: Sdk) -> bool:
    """Whether one of the generations has a simulator."""
    return bool(sdk.classic.function(SIMULATE[CLASSIC]) or sdk.newer.function(SIMULATE[NEWER]))


def launched(call: KernelCall) -> Callable[..., Any]:
    """The kernel with its grid, as both generations write it: ``kernel[grid]``."""
    # Kernels of an SDK have no type stubs: that they take a grid in brackets is AWS's convention.
    return call.kernel[call.grid] if call.grid else call.kernel  # type: ignore[index]


def outcome_of(call: KernelCall, run: Callable[[], object]) -> Outcome:
    """What came of running a kernel in this process."""
    try:
        returned = run()
    except SLIPS as error:
        return Crashed(error)
    except NotImplementedError as error:
        return Unsupported(error)
    except Exception as error:
        return Rejected(error)
    return ran_of(call, returned)


def ran_of(call: KernelCall, returned: object) -> Ran:
    """A run, with what the kernel wrote to the outputs passed, or returned.

    An API may leave the arrays passed as they are and return what was written: then that counts.
    """
    arrays = as_outputs(returned)
    if not call.outputs:
        return Ran(arrays)
    fits = [(a.shape, a.dtype) for a in arrays] == [(o.shape, o.dtype) for o in call.outputs]
    untouched = all(
        (mask := still_poisoned(output)) is not None and mask.all() for output in call.outputs
    )
    outputs = arrays if fits and untouched else call.outputs
    return Ran(outputs, tuple(map(still_poisoned, outputs)))
