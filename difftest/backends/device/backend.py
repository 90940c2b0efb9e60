"""The device as a backend: which way to it is open here, and what is missing where none is."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from difftest.backends.base import BackendMissingError
from difftest.backends.device.core import (
    NRTPY_PYTHON,
    Device,
    NeuronCore,
    SettingError,
    entries,
    read_settings,
)
from difftest.backends.sdk import CLASSIC, NEWER, SETUP_GUIDE, ByDialect, Sdk, detect_sdk

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


def device_backend(sdk: Sdk | None = None) -> ByDialect:
    """The device through all generations found here, as one backend on one core.

    Without a device, or an SDK that runs NumPy arrays on it, it is a BackendMissingError.
    """
    try:
        settings = read_settings()
    except SettingError as error:
        raise BackendMissingError(str(error)) from None
    if settings.nrtpy_python is not None and shutil.which(settings.nrtpy_python) is None:
        raise BackendMissingError(
            f"{NRTPY_PYTHON}: {settings.nrtpy_python} is no program.\n"
            "  remedy: the Python of the environment that has nrtpy, or leave the variable out"
        )
    devices = sorted(str(node) for node in DEVICE_NODES.glob("neuron[0-9]*"))
    if devices:
        keep_neffs()
    sdk = sdk or detect_sdk()
    ways = entries(sdk)
    lacks = [] if devices else [f"no Neuron device: {DEVICE_NODES} shows no neuron0"]
    lacks += [] if ways else _lacks_of(sdk)
    if lacks:
        raise BackendMissingError(
            "a Neuron device cannot be used here.\n"
            + "".join(f"  found:  {lack}\n" for lack in lacks)
            + "  remedy: run on a Trn1, Trn2 or Inf2 instance with the Neuron driver and SDK\n"
            f"          ({SETUP_GUIDE});\n"
            "          without one, --simulate runs the same tests on a simulator"
        )
    core = NeuronCore(settings)
    told = {CLASSIC: sdk.classic.state, NEWER: sdk.newer.state}
    backends = {
        dialect: Device(entry, core, f"{devices[0]} through {entry.description} ({told[dialect]})")
        for dialect, entry in ways.items()
    }
    return ByDialect(backends, {**told, CLASSIC: sdk.refuses_classic() or sdk.classic.state})


def _lacks_of(sdk: Sdk) -> list[str]:
    """Why no generation found here reaches a device."""
    if sdk.classic.module is None and sdk.newer.module is None:
        return [f"no Neuron SDK: {sdk.classic.state}"]
    lacks = []
    if sdk.classic.module is not None:
        without = f"{sdk.classic.state}, whose neuronxcc.nki has no baremetal"
        lacks.append(sdk.refuses_classic() or without)
    if sdk.newer.module is not None:
        lacks.append(f"{sdk.newer.state}, whose nki runs no NumPy arrays (SDK 2.29 on does)")
    return lacks
