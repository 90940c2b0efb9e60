"""What is installed here, as diagnoses: each with its reason, and with what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from difftest.backends.base import Backend, BackendMissingError
from difftest.backends.detection import PACKAGES, SETUP_GUIDE, Detection, Sdk, detect_sdk
from difftest.backends.device import backend as device
from difftest.backends.device.lease import NoCoreError, find_cores
from difftest.backends.device.settings import NRTPY_PYTHON, VARIABLES, SettingError, read_settings
from difftest.backends.dialect import ByDialect
from difftest.backends.sdk import sdk_simulator

RUNTIME = Path("/opt/aws/neuron/lib/libnrt.so.1")
"""The runtime library, where AWS's packages put it."""
_NRTPY_SECONDS = 60
_TOOLS = {
    "neuron-ls": "lists the NeuronCores",
    "neuron-bench": "what nki.benchmark runs",
    "neuron-explorer": "times kernels of the newer SDK without nrtpy, and shows profiles",
    "neuron-profile": "the same, before SDK 2.32",
}
_BACKENDS: dict[str, Callable[[Sdk], Backend]] = {
    "--simulate=sdk": sdk_simulator,
    "--device": lambda sdk: device.device_backend(sdk),
}


@dataclass(frozen=True)
class Diagnosis:
    """One thing that was looked for.

    Attributes
    ----------
    subject : what.
    works : whether it is there and can be used; None if that decides nothing.
    reason : why, or what was found.
    remedy : what to do, a line each; none if nothing is to be done.
    """

    subject: str
    works: bool | None
    reason: str
    remedy: tuple[str, ...] = ()


def diagnose() -> list[Diagnosis]:
    """All diagnoses, from the computer to the backends."""
    sdk = detect_sdk()
    backends = {option: _backend(make, sdk) for option, make in _BACKENDS.items()}
    return [
        _computer(),
        _package("classic SDK", sdk.classic, "neuronx-cc"),
        _package("newer SDK", sdk.newer, "nki and neuronx-cc"),
        *(Diagnosis("", None, lack) for lack in sdk.lacks()),
        _driver(),
        _runtime(),
        _cores(),
        *(_tool(name, purpose) for name, purpose in _TOOLS.items()),
        _nrtpy(),
        *(
            Diagnosis(name, None, f"{os.environ.get(name) or 'not set'}: {purpose}")
            for name, purpose in VARIABLES.items()
        ),
        Diagnosis("--simulate=embedded", True, "part of this package: works everywhere"),
        *(_available(option, backend) for option, backend in backends.items()),
        *(_kernels(dialect, package, backends) for dialect, package in PACKAGES.items()),
        Diagnosis(
            "measurements", None, "no path to a device has ever run on one: it is written from docs"
        ),
    ]


def _computer() -> Diagnosis:
    name = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return Diagnosis("computer", True, name)
    return Diagnosis(
        "computer", False, f"{name}: the SDK is for Linux on x86-64", ("use an EC2 instance",)
    )


def _package(subject: str, detection: Detection, packages: str) -> Diagnosis:
    if detection.module is not None:
        return Diagnosis(subject, True, detection.found)
    remedy: tuple[str, ...] = (
        f"install {packages} from AWS's own package index, which the setup guide names:",
        SETUP_GUIDE,
    )
    if "stub" in detection.found or "WRONG PACKAGE" in detection.found:
        remedy = ("pip uninstall the stub first", *remedy)
    return Diagnosis(subject, False, detection.found, remedy)


def _driver() -> Diagnosis:
    devices = device.find_devices()
    if devices:
        return Diagnosis("driver", True, ", ".join(devices))
    return Diagnosis(
        "driver",
        False,
        f"{device.DEVICE_NODES} shows no neuron0: no device, or no driver",
        (
            "use a trn2.3xlarge, or another Trn1, Trn2 or Inf2 instance, with the Neuron DLAMI,",
            "or install the package aws-neuronx-dkms (setup guide)",
        ),
    )


def _runtime() -> Diagnosis:
    if RUNTIME.exists():
        return Diagnosis("runtime", True, str(RUNTIME))
    remedy = ("install the package aws-neuronx-runtime-lib (setup guide)",)
    return Diagnosis("runtime", False, f"no {RUNTIME}", remedy)


def _cores() -> Diagnosis:
    try:
        cores = find_cores()
    except NoCoreError as error:
        first, *rest = str(error).splitlines()
        return Diagnosis("NeuronCores", False, first, tuple(line.strip() for line in rest))
    where = "NEURON_RT_VISIBLE_CORES" if os.environ.get("NEURON_RT_VISIBLE_CORES") else "neuron-ls"
    if where == "neuron-ls" and shutil.which(where) is None:
        where = "taken for granted, without neuron-ls"
    return Diagnosis("NeuronCores", None, f"{', '.join(map(str, cores))} ({where})")


def _tool(name: str, purpose: str) -> Diagnosis:
    path = shutil.which(name)
    if path is not None:
        return Diagnosis(name, True, f"{path}: {purpose}")
    remedy = (
        "install the package aws-neuronx-tools (setup guide), and add",
        "/opt/aws/neuron/bin to PATH",
    )
    return Diagnosis(name, False, f"not on PATH: {purpose}", remedy)


def _nrtpy() -> Diagnosis:
    """Whether the second environment imports nrtpy, which is asked for its version alone."""
    remedy = (
        "from SDK 2.32: a second environment (Python 3.11 to 3.14) with nrtpy from AWS's index,",
        f'and its Python in {NRTPY_PYTHON}: AWS\'s page "Get started with nrtpy"',
    )
    try:
        python = read_settings().nrtpy_python
    except SettingError as error:
        return Diagnosis("nrtpy", False, str(error))
    if python is None:
        return Diagnosis("nrtpy", False, f"{NRTPY_PYTHON} is not set", remedy)
    source = "import nrtpy; print(getattr(nrtpy, '__version__', 'of no version'))"
    try:
        asked = subprocess.run(
            [python, "-c", source], capture_output=True, text=True, timeout=_NRTPY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Diagnosis("nrtpy", False, f"{python}: {error}", remedy)
    if asked.returncode:
        why = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Diagnosis("nrtpy", False, f"{python}: {why}", remedy)
    return Diagnosis("nrtpy", True, f"{asked.stdout.strip()} of {python}")


def _backend(make: Callable[[Sdk], Backend], sdk: Sdk) -> Backend | BackendMissingError:
    try:
        return make(sdk)
    except BackendMissingError as error:
        return error


def _available(option: str, backend: Backend | BackendMissingError) -> Diagnosis:
    """What an error says was found; what to do about it stands with the parts above."""
    if not isinstance(backend, BackendMissingError):
        return Diagnosis(option, True, backend.description)
    first, *rest = (line.strip() for line in str(backend).splitlines())
    return Diagnosis(option, False, first, tuple(line for line in rest if "found:" in line))


def _kernels(
    dialect: str, package: str, backends: dict[str, Backend | BackendMissingError]
) -> Diagnosis:
    """Where the kernels of a dialect run: what the other generation has is of no use to them."""
    places = ["--simulate=embedded"]
    for option, backend in backends.items():
        chosen = backend.backend_for(dialect) if isinstance(backend, ByDialect) else None
        if chosen is not None:
            places.append(f"{option} ({chosen.description})")
    return Diagnosis(f"kernels of {package}", None, "run with " + ", ".join(places))
