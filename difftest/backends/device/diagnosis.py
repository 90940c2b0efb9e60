"""What is installed here, as diagnoses: each with its reason, and with what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from difftest.backends.base import BackendMissingError
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
    return [
        _computer(),
        _package("classic SDK", sdk.classic, "neuronx-cc"),
        _package("newer SDK", sdk.newer, "nki and neuronx-cc"),
        *(Diagnosis("", None, lack) for lack in sdk.lacks()),
        _driver(),
        _runtime(),
        _cores(),
        *_tools(),
        _nrtpy(),
        *_variables(),
        Diagnosis("--simulate=embedded", True, "part of this package: works everywhere"),
        _simulator(sdk),
        _device(sdk),
        *(_kernels(dialect, package, sdk) for dialect, package in PACKAGES.items()),
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
    return Diagnosis(
        "runtime",
        False,
        f"no {RUNTIME}",
        ("install the package aws-neuronx-runtime-lib (setup guide)",),
    )


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


def _tools() -> list[Diagnosis]:
    diagnoses = []
    for tool, purpose in _TOOLS.items():
        found = shutil.which(tool)
        remedy = (
            ()
            if found
            else (
                "install the package aws-neuronx-tools (setup guide), and add",
                "/opt/aws/neuron/bin to PATH",
            )
        )
        reason = f"{found or 'not on PATH'}: {purpose}"
        diagnoses.append(Diagnosis(tool, found is not None, reason, remedy))
    return diagnoses


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
    try:
        asked = subprocess.run(
            [python, "-c", "import nrtpy; print(getattr(nrtpy, '__version__', 'of no version'))"],
            capture_output=True,
            text=True,
            timeout=_NRTPY_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Diagnosis("nrtpy", False, f"{python}: {error}", remedy)
    if asked.returncode:
        why = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Diagnosis("nrtpy", False, f"{python}: {why}", remedy)
    return Diagnosis("nrtpy", True, f"{asked.stdout.strip()} of {python}")


def _variables() -> list[Diagnosis]:
    diagnoses = []
    for name, purpose in VARIABLES.items():
        value = os.environ.get(name)
        diagnoses.append(Diagnosis(name, None, f"{value or 'not set'}: {purpose}"))
    return diagnoses


def _simulator(sdk: Sdk) -> Diagnosis:
    try:
        backend = sdk_simulator(sdk)
    except BackendMissingError as error:
        return Diagnosis("--simulate=sdk", False, str(error).splitlines()[0], _found(error))
    return Diagnosis("--simulate=sdk", True, backend.description)


def _device(sdk: Sdk) -> Diagnosis:
    try:
        backend = device.device_backend(sdk)
    except BackendMissingError as error:
        return Diagnosis("--device", False, str(error).splitlines()[0], _found(error))
    return Diagnosis("--device", True, f"{backend.description}; pytest --device will say")


def _kernels(dialect: str, package: str, sdk: Sdk) -> Diagnosis:
    """Where the kernels of a dialect run: what the other generation has is of no use to them."""
    places = ["--simulate=embedded"]
    for option, backend_of in (
        ("--simulate=sdk", sdk_simulator),
        ("--device", device.device_backend),
    ):
        try:
            backend = backend_of(sdk)
        except BackendMissingError:
            continue
        chosen = backend.backend_for(dialect) if isinstance(backend, ByDialect) else backend
        if chosen is not None:
            places.append(f"{option} ({chosen.description})")
    return Diagnosis(f"kernels of {package}", None, "run with " + ", ".join(places))


def _found(error: BackendMissingError) -> tuple[str, ...]:
    """What an error says was found; what to do about it stands with the parts above."""
    return tuple(line.strip() for line in str(error).splitlines() if "found:" in line)
