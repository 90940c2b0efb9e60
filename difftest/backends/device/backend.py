"""The device as a backend: which way to it is open here, and what is missing where none is."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from difftest.backends.base import BackendMissingError
from difftest.backends.device.core import Device, Devices, NeuronCore, job_seconds
from difftest.backends.sdk import CLASSIC, NEWER, SETUP_GUIDE, Sdk, detect_sdk

DEVICE_NODES = Path("/dev")
"""Where the Neuron driver shows each device, as ``neuron0``, ``neuron1`` and so on."""
ARTIFACTS = "NKI_ARTIFACTS_DIR"
"""Documented for SDK 2.32 (nrtpy's tutorials): where a call with NumPy arrays leaves its NEFF."""


def keep_neffs() -> bool:
    """Have the newer SDK leave its NEFFs, for what times them; whether it will.

    It reads the variable as it is imported: afterwards it is too late, unless a person set it.
    """
    if not os.environ.get(ARTIFACTS) and "nki" not in sys.modules:
        os.environ[ARTIFACTS] = tempfile.mkdtemp(prefix="difftest-nki-")
        atexit.register(shutil.rmtree, os.environ[ARTIFACTS], ignore_errors=True)
    return bool(os.environ.get(ARTIFACTS))


def lacks_of(sdk: Sdk) -> dict[str, str]:
    """Of each dialect why the SDK does not run it on a device; empty for one that it runs."""
    return {
        CLASSIC: sdk.refuses_classic() or sdk.classic.lack("baremetal"),
        NEWER: sdk.newer.lack("simulate"),  # which came when NumPy arrays did
    }


def device_backend(sdk: Sdk | None = None) -> Devices:
    """The device through all generations found here, as one backend on one core.

    Without a device, or an SDK that runs NumPy arrays on it, it is a BackendMissingError.
    """
    core = NeuronCore(job_seconds())
    nodes = sorted(str(node) for node in DEVICE_NODES.glob("neuron[0-9]*"))
    if nodes:
        keep_neffs()
    sdk = sdk or detect_sdk()
    lacks = lacks_of(sdk)
    missing = [] if nodes else [f"no Neuron device: {DEVICE_NODES} shows no neuron0"]
    missing += lacks.values() if all(lacks.values()) else []
    if missing:
        raise BackendMissingError(
            "a Neuron device cannot be used here.\n"
            + "".join(f"  found:  {lack}\n" for lack in missing)
            + "  remedy: run on a Trn1, Trn2 or Inf2 instance with the Neuron driver and SDK\n"
            f"          ({SETUP_GUIDE}), of 2.29 or later for kernels of nki;\n"
            "          without one, --simulate runs the same tests on a simulator"
        )
    ways = [generation for generation in (sdk.classic, sdk.newer) if not lacks[generation.dialect]]
    return Devices({way.dialect: Device(way, core, nodes[0]) for way in ways}, lacks)
