"""The installed Neuron SDK, its features, and its simulators, one for each generation.

NKI has two generations (AWS Neuron documentation, NKI migration guides). The classic one is the
package ``neuronxcc.nki`` (SDK 2.21 to 2.26, and still in later releases). The newer one is the
package ``nki`` (from SDK 2.27; it runs NumPy arrays and has a simulator from 2.29). Features are
probed. The version is read for reports, and for documented defects that a probe cannot find.

The code follows AWS's public documentation: ``neuronxcc.nki.simulate_kernel`` at tag v2.26.0 (NumPy
arrays in and out, SPMD as ``kernel[grid]``), and ``nki.simulate`` at tag v2.32.0 (a callable; a
write to an input in HBM is written back to the array). It has not run against an SDK, because none
is available to this project.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from difftest.simulator.entry.install import is_embedded
from difftest.support.choices import RELEASES
from difftest.support.rounding import Array
from difftest.support.tracebacks import function_of as function_of
from difftest.testing.backends.base import (
    SLIPS,
    Backend,
    BackendMissingError,
    Completed,
    Crashed,
    DialectError,
    KernelCall,
    Outcome,
    Rejected,
    Unsupported,
    as_outputs,
)

SETUP_GUIDE = "awsdocs-neuron.readthedocs-hosted.com, Setup Guide"
"""AWS's instructions to install the SDK; its Python packages are only in AWS's own index."""

CLASSIC = "classic"
NEWER = "newer"
PACKAGES = {CLASSIC: "neuronxcc.nki", NEWER: "nki"}
"""The package that each generation's kernels import."""

SIMULATE = {CLASSIC: "simulate_kernel", NEWER: "simulate"}
"""The simulation function of each generation."""

_STUB_MARK = "WRONG PACKAGE"
"""A text in the description of the stubs that AWS placed on PyPI under these names."""
_DISTRIBUTIONS = {CLASSIC: ("neuronx-cc", "neuronxcc"), NEWER: ("nki",)}
"""The first has the generation's version."""
_ZEROS_SINCE = 30
"""The first minor number of the SDK with an unreliable classic ``baremetal``. With 2.32 it returns
zeros (public issue aws-neuron/nki-samples#134). Since 2.30 the compiler rejects the classic
namespace in kernels (NKI migration guide, 0.3.0 to 0.4.0)."""
_COMPILER_TO_SDK = 5
"""neuronx-cc 2.21 is SDK 2.26, 2.22 is 2.27, 2.24 is 2.29, 2.27 is 2.32 (its release notes)."""


class SdkProbe(NamedTuple):
    """The module of one generation of the SDK, or None if it cannot be used.

    ``state`` is the version, or the reason for no module, in words.
    """

    dialect: str
    module: ModuleType | None
    state: str
    version: str = ""

    def lack(self, function: str) -> str:
        """Return why the module has no function of this name; empty if it has one."""
        if self.module is None:
            return self.state
        if callable(getattr(self.module, function, None)):
            return ""
        return f"{self.state}, whose {PACKAGES[self.dialect]} has no {function}"


class Sdk(NamedTuple):
    """Both generations of the installed SDK."""

    classic: SdkProbe
    newer: SdkProbe

    @property
    def release(self) -> int | None:
        """The minor number of the SDK's release, 26 for 2.26; None if unknown."""
        nki = re.match(r"0\.(\d+)", self.newer.version)
        if nki and nki[0] in RELEASES:
            return RELEASES[nki[0]]
        compiler = re.match(r"2\.(\d+)", self.classic.version)
        return int(compiler[1]) + _COMPILER_TO_SDK if compiler else None

    def refuses_classic(self) -> str:
        """Return why classic kernels do not run on a device with this SDK; empty if they may."""
        if self.release is None or self.release < _ZEROS_SINCE:
            return ""
        return (
            f"neuronxcc.nki.baremetal of SDK 2.{self.release} is not used: since 2.30 the compiler "
            "refuses neuronxcc.nki in kernels, and with 2.32 its outputs are zeros "
            "(aws-neuron/nki-samples#134)"
        )


def detect_sdk() -> Sdk:
    """Find both generations of the SDK; stubs and incomplete packages do not count."""
    return Sdk(_detect(CLASSIC), _detect(NEWER))


def _detect(dialect: str) -> SdkProbe:
    """Return the package of a dialect if it is the SDK's, else the reason why it is not."""
    package = PACKAGES[dialect].partition(".")[0]
    if package in sys.modules and is_embedded(sys.modules[package]):
        state = f"the embedded modules are installed as {package} in this process"
        return SdkProbe(dialect, None, state)
    if importlib.util.find_spec(package) is None:
        return SdkProbe(dialect, None, _stubs(dialect) or f"no package {package}")
    try:
        module = importlib.import_module(PACKAGES[dialect])
    except ImportError as error:
        state = f"the package {package}, which fails to import: {error}"
        return SdkProbe(dialect, None, state)
    stated = ""
    if dialect == NEWER:
        if not callable(getattr(module, "jit", None)):
            state = "a package nki without nki.jit, which is not the SDK's"
            return SdkProbe(dialect, None, state)
        stated = str(getattr(module, "__version__", ""))
    version = stated or _version(_DISTRIBUTIONS[dialect][0])
    state = f"{package} {version or 'of unknown version'}"
    return SdkProbe(dialect, module, state, version)


def _stubs(dialect: str) -> str:
    """Return the installed stubs of a generation, in words; empty without any."""
    stubs = []
    for name in _DISTRIBUTIONS[dialect]:
        version = _version(name)
        if not version:
            continue
        description = str(metadata.metadata(name).json.get("description"))
        if _STUB_MARK in description:
            stubs.append(
                f"{name} {version} from PyPI, an empty stub that is not the SDK"
            )
    return "; ".join(stubs)


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


DECLARED = "__difftest_dialect__"
"""The attribute with the dialect of a kernel that can only be imported."""


def dialect_of(kernel: Callable[..., Any]) -> str | None:
    """Return the dialect of a kernel, ``classic`` or ``newer``; None if it is unclear.

    The imports of the kernel's file decide. The class of the kernel decides if no function shows,
    or if the file imports both dialects.
    """
    declared: str | None = getattr(kernel, DECLARED, None)
    if declared is not None:
        return declared
    function = function_of(kernel)
    imported = [] if function is None else list(function.__globals__.values())
    dialects = [
        dialect
        for dialect, package in PACKAGES.items()
        if any(is_of(value, package) for value in imported)
    ]
    if len(dialects) == 1:
        return dialects[0]
    for dialect, package in PACKAGES.items():
        if is_of(type(kernel), package):
            return dialect
    return None


def is_of(value: object, package: str) -> bool:
    """Return whether a value is a module of a package, or defined in one."""
    attribute = "__name__" if isinstance(value, ModuleType) else "__module__"
    home = getattr(value, attribute, None)
    return isinstance(home, str) and f"{home}.".startswith(f"{package}.")


def close_backend(backend: Backend) -> None:
    """Release the resources of a backend, if any: processes, a NeuronCore."""
    close = getattr(backend, "close", None)
    if close is not None:
        close()


def refusal_of(backend: Backend, kernel: Callable[..., Any]) -> DialectError | None:
    """Return a backend's error if it rejects a kernel's dialect, else None."""
    refusal: Callable[..., DialectError | None] | None = getattr(
        backend, "refusal", None
    )
    return None if refusal is None else refusal(kernel)


REMEDIES = {
    CLASSIC: "port the kernel (NKI migration guide, 0.1.0 to 0.2.0), or use an SDK of 2.21 to 2.29",
    NEWER: "use an SDK from 2.29 on",
}
"""The remedy for kernels of each dialect that cannot run."""

B = TypeVar("B", bound=Backend)


class ByDialect(Generic[B]):
    """A backend of several generations: each kernel runs on the generation of its dialect.

    A kernel of unknown dialect runs on the first. ``lacks`` has the reason for each generation that
    is not among the ``backends``.
    """

    def __init__(self, backends: Mapping[str, B], lacks: Mapping[str, str]) -> None:
        self.backends = backends
        self._lacks = lacks
        self._first = next(iter(backends.values()))
        self.name = self._first.name
        self.description = "; ".join(
            backend.description for backend in backends.values()
        )

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel on its generation; without one, return a crash and compile nothing."""
        if call.ranks:
            return Unsupported(
                NotImplementedError(f"{self.name} runs no ranks; the embedded does")
            )
        refusal = self.refusal(call.kernel)
        if refusal is not None:
            return Crashed(refusal)
        return self.backend_for(call.kernel).run(call)

    def refusal(self, kernel: Callable[..., Any]) -> DialectError | None:
        """Return the error if no generation here runs the kernel, or None."""
        dialect = dialect_of(kernel)
        if dialect is None or dialect in self.backends:
            return None
        return DialectError(
            f"the kernel is written for {PACKAGES[dialect]} ({dialect}); {self.name} runs "
            f"{' and '.join(self.backends)} kernels here.\n"
            f"  found:  {self._lacks[dialect]}\n"
            f"  remedy: {REMEDIES[dialect]}"
        )

    def backend_for(self, kernel: Callable[..., Any]) -> B:
        """Return the backend of the kernel's dialect.

        Raises
        ------
        DialectError : no generation here runs the kernel.
        """
        refusal = self.refusal(kernel)
        if refusal is not None:
            raise refusal
        dialect = dialect_of(kernel)
        return self._first if dialect is None else self.backends[dialect]


class SdkSimulator:
    """A backend that runs ``neuronxcc.nki.simulate_kernel`` or ``nki.simulate``."""

    name = "sdk"

    def __init__(self, detection: SdkProbe) -> None:
        self._dialect = detection.dialect
        function = SIMULATE[detection.dialect]
        self._simulate = getattr(detection.module, function)
        what = f"{PACKAGES[detection.dialect]}.{function}"
        self.description = f"the Neuron SDK's simulator {what} ({detection.state})"

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel; most errors of the SDK count as rejections.

        The SDK documents no base class for its errors, so a rejection looks like a bug in the
        kernel's Python. Some of Python's own errors (``SLIPS``) are bugs. A NotImplementedError
        means that the SDK lacks a feature.
        """
        kernel = with_grid(call)
        args, kwargs = call.arguments()
        if self._dialect == CLASSIC:
            return outcome_of(call, lambda: self._simulate(kernel, *args, **kwargs))
        return outcome_of(call, lambda: self._simulate(kernel)(*args, **kwargs))


def sdk_simulator(sdk: Sdk | None = None) -> Backend:
    """Return the simulators of the installed generations as one backend.

    Raises
    ------
    BackendMissingError : no generation with a simulator is installed.
    """
    sdk = sdk or detect_sdk()
    simulators = {}
    lacks = {}
    for detection in (sdk.classic, sdk.newer):
        lacks[detection.dialect] = detection.lack(SIMULATE[detection.dialect])
        if not lacks[detection.dialect]:
            simulators[detection.dialect] = SdkSimulator(detection)
    if not simulators:
        raise BackendMissingError(
            "the Neuron SDK's simulator is not here.\n"
            + "".join(f"  found:  {lack}\n" for lack in lacks.values())
            + "  remedy: on Linux x86-64, install neuronx-cc from AWS's own package index\n"
            f"          ({SETUP_GUIDE}),\n"
            "          after pip uninstall of a stub; or run on the embedded simulator:\n"
            "          --simulate=embedded"
        )
    return ByDialect(simulators, lacks)


def with_grid(call: KernelCall) -> Callable[..., Any]:
    """Return the kernel with its grid, in the syntax of both generations: ``kernel[grid]``."""
    # Kernels of an SDK have no type stubs. A grid in brackets is AWS's convention.
    return call.kernel[call.grid] if call.grid else call.kernel  # type: ignore[index]


def outcome_of(call: KernelCall, run: Callable[[], object]) -> Outcome:
    """Run a kernel in this process, and return the outcome."""
    before = tuple(array.copy() for array in call.written)
    try:
        returned = run()
    except SLIPS as error:
        return Crashed(error)
    except NotImplementedError as error:
        return Unsupported(error)
    except Exception as error:
        return Rejected(error)
    return completed_run(call, as_outputs(returned), before)


def completed_run(
    call: KernelCall, returned: Sequence[Array], before: Sequence[Array]
) -> Completed:
    """Return a run: the returned arrays that are not targets, then the targets.

    Parameters
    ----------
    call : its targets are as the kernel has left them.
    returned : the arrays that the kernel returned. An API may return a target itself or a copy.
    before : the targets as they were handed over. An API may leave the arrays passed as they are
        and return what was written: then the returned array counts.
    """
    written = list(call.written)
    others = [array for array in returned if not _is_view_of_one(array, written)]
    expected = 0 if call.results is None else call.results - len(written)
    copies = len(others) - max(0, expected)
    for place, target in enumerate(call.written):
        if copies <= 0:
            break
        if _is_view_of_one(target, returned):
            continue
        number = _copy_of(target, before[place], others)
        if number is not None:
            written[place] = others.pop(number)
            copies -= 1
    unwritten = (*(None for _ in others), *call.missing_writes(written))
    return Completed((*others, *written), unwritten)


def _is_view_of_one(array: Array, others: Sequence[Array]) -> bool:
    """Return whether an array is one of others, or a view of all elements of one."""
    return any(is_same(array, other) for other in others)


_PLACE = ("data", "shape", "strides", "typestr")
"""Items of NumPy's array interface that say where the elements of an array are."""


def is_same(array: Array, other: Array) -> bool:
    """Return whether two arrays are one array: the same elements of the same memory."""
    if array is other:
        return True
    ours = array.__array_interface__
    theirs = other.__array_interface__
    return bool(array.size) and all(ours[key] == theirs[key] for key in _PLACE)


def _copy_of(target: Array, before: Array, returned: Sequence[Array]) -> int | None:
    """Return the number of the returned array that is a copy of a target; None if none may be."""
    form = target.shape, target.dtype
    alike = [
        n for n, array in enumerate(returned) if (array.shape, array.dtype) == form
    ]
    equal = [n for n in alike if returned[n].tobytes() == target.tobytes()]
    if equal:
        return equal[0]
    is_untouched = target.tobytes() == before.tobytes()
    return alike[0] if alike and is_untouched else None
