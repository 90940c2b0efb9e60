"""What is installed here, as findings: each with its reason, and with what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from difftest.backends.base import BackendMissingError
from difftest.backends.detection import SETUP_GUIDE, Detection, Sdk, detect_sdk
from difftest.backends.device import backend as device
from difftest.backends.device.lease import NoCoreError, find_cores
from difftest.backends.device.settings import NRTPY_PYTHON, VARIABLES, SettingError, read_settings
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
class Finding:
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


def diagnose() -> list[Finding]:
    """All findings, from the computer to the backends."""
    sdk = detect_sdk()
    return [
        _computer(),
        _package("classic SDK", sdk.classic, "neuronx-cc"),
        _package("newer SDK", sdk.newer, "nki and neuronx-cc"),
        *(Finding("", None, lack) for lack in sdk.lacks()),
        _driver(),
        _runtime(),
        _cores(),
        *_tools(),
        _nrtpy(),
        *_variables(),
        Finding("--simulate=embedded", True, "part of this package: works everywhere"),
        _simulator(sdk),
        _device(sdk),
        Finding(
            "measurements", None, "no path to a device has ever run on one: it is written from docs"
        ),
    ]


def _computer() -> Finding:
    name = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return Finding("computer", True, name)
    return Finding(
        "computer", False, f"{name}: the SDK is for Linux on x86-64", ("use an EC2 instance",)
    )


def _package(subject: str, detection: Detection, packages: str) -> Finding:
    if detection.module is not None:
        return Finding(subject, True, detection.found)
    remedy: tuple[str, ...] = (
        f"install {packages} from AWS's own package index, which the setup guide names:",
        SETUP_GUIDE,
    )
    if "stub" in detection.found or "WRONG PACKAGE" in detection.found:
        remedy = ("pip uninstall the stub first", *remedy)
    return Finding(subject, False, detection.found, remedy)


def _driver() -> Finding:
    devices = device.find_devices()
    if devices:
        return Finding("driver", True, ", ".join(devices))
    return Finding(
        "driver",
        False,
        f"{device.DEVICE_NODES} shows no neuron0: no device, or no driver",
        (
            "use a trn2.3xlarge, or another Trn1, Trn2 or Inf2 instance, with the Neuron DLAMI,",
            "or install the package aws-neuronx-dkms (setup guide)",
        ),
    )


def _runtime() -> Finding:
    if RUNTIME.exists():
        return Finding("runtime", True, str(RUNTIME))
    return Finding(
        "runtime",
        False,
        f"no {RUNTIME}",
        ("install the package aws-neuronx-runtime-lib (setup guide)",),
    )


def _cores() -> Finding:
    try:
        cores = find_cores()
    except NoCoreError as error:
        first, *rest = str(error).splitlines()
        return Finding("NeuronCores", False, first, tuple(line.strip() for line in rest))
    where = "NEURON_RT_VISIBLE_CORES" if os.environ.get("NEURON_RT_VISIBLE_CORES") else "neuron-ls"
    if where == "neuron-ls" and shutil.which(where) is None:
        where = "taken for granted, without neuron-ls"
    return Finding("NeuronCores", None, f"{', '.join(map(str, cores))} ({where})")


def _tools() -> list[Finding]:
    findings = []
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
        findings.append(Finding(tool, found is not None, reason, remedy))
    return findings


def _nrtpy() -> Finding:
    """Whether the second environment imports nrtpy, which is asked for its version alone."""
    remedy = (
        "from SDK 2.32: a second environment (Python 3.11 to 3.14) with nrtpy from AWS's index,",
        f'and its Python in {NRTPY_PYTHON}: AWS\'s page "Get started with nrtpy"',
    )
    try:
        python = read_settings().nrtpy_python
    except SettingError as error:
        return Finding("nrtpy", False, str(error))
    if python is None:
        return Finding("nrtpy", False, f"{NRTPY_PYTHON} is not set", remedy)
    try:
        asked = subprocess.run(
            [python, "-c", "import nrtpy; print(getattr(nrtpy, '__version__', 'of no version'))"],
            capture_output=True,
            text=True,
            timeout=_NRTPY_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("nrtpy", False, f"{python}: {error}", remedy)
    if asked.returncode:
        why = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Finding("nrtpy", False, f"{python}: {why}", remedy)
    return Finding("nrtpy", True, f"{asked.stdout.strip()} of {python}")


def _variables() -> list[Finding]:
    findings = []
    for name, purpose in VARIABLES.items():
        value = os.environ.get(name)
        findings.append(Finding(name, None, f"{value or 'not set'}: {purpose}"))
    return findings


def _simulator(sdk: Sdk) -> Finding:
    try:
        backend = sdk_simulator(sdk)
    except BackendMissingError as error:
        return Finding("--simulate=sdk", False, str(error).splitlines()[0], _found(error))
    return Finding("--simulate=sdk", True, backend.description)


def _device(sdk: Sdk) -> Finding:
    try:
        backend = device.device_backend(sdk)
    except BackendMissingError as error:
        return Finding("--device", False, str(error).splitlines()[0], _found(error))
    return Finding("--device", True, f"{backend.description}; pytest --device will say")


def _found(error: BackendMissingError) -> tuple[str, ...]:
    """What an error says was found; what to do about it stands with the parts above."""
    return tuple(line.strip() for line in str(error).splitlines() if "found:" in line)
