"""The simulator of the Neuron SDK, ``neuronxcc.nki.simulate_kernel`` (classic SDK, 2.21 to 2.27).

Written from AWS's public documentation (``nki.simulate_kernel`` at tag v2.26.0: NumPy arrays in
and out, SPMD as ``kernel[grid]``). It has not run against an SDK: none is at hand where this
project is developed. Everything is probed and nothing is taken from a version number.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType

from difftest.backends.base import (
    BackendMissingError,
    Call,
    Crashed,
    Outcome,
    Ran,
    Rejected,
    as_outputs,
    still_poisoned,
)
from difftest.simulator.frontend.install import is_embedded

SETUP_GUIDE = "awsdocs-neuron.readthedocs-hosted.com, Setup Guide"
"""Where AWS says how to install the SDK; its Python packages are in AWS's own index alone."""

_STUB_MARK = "WRONG PACKAGE"
"""What the packages that AWS placed on PyPI under these names say when they are imported."""
_DISTRIBUTIONS = ("neuronx-cc", "neuronxcc", "nki")


@dataclass(frozen=True)
class Detection:
    """What was found where the SDK would be: its module, or the reason why there is none."""

    module: ModuleType | None
    found: str


def detect() -> Detection:
    """Look for an SDK that can be imported; a stub or a part of one does not count."""
    if "neuronxcc" in sys.modules and is_embedded(sys.modules["neuronxcc"]):
        return Detection(None, "the embedded modules stand for neuronxcc in this process")
    if importlib.util.find_spec("neuronxcc") is None:
        return Detection(None, _describe_absence())
    try:
        module = importlib.import_module("neuronxcc.nki")
    except ImportError as error:
        return Detection(None, f"the package neuronxcc, which fails to import: {error}")
    return Detection(module, f"neuronxcc {_version('neuronx-cc') or 'of unknown version'}")


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


def missing(what: str, found: str) -> BackendMissingError:
    """The error for a part of the SDK that was asked for and is not here."""
    return BackendMissingError(
        f"{what} is not here.\n"
        f"  found:  {found}\n"
        "  remedy: on Linux x86-64, install neuronx-cc from AWS's own package index\n"
        f"          ({SETUP_GUIDE}),\n"
        "          after pip uninstall of a stub; or run on the embedded simulator:\n"
        "          --simulate=embedded"
    )


class SdkSimulator:
    """Runs kernels with ``simulate_kernel``.

    Raises
    ------
    BackendMissingError : on creation, without an SDK that has ``simulate_kernel``.
    """

    name = "sdk"

    def __init__(self) -> None:
        detection = detect()
        simulate = getattr(detection.module, "simulate_kernel", None)
        if not callable(simulate):
            found = detection.found
            if detection.module is not None:
                found += ", whose neuronxcc.nki has no simulate_kernel"
            raise missing("the Neuron SDK's simulator (neuronxcc.nki.simulate_kernel)", found)
        self._simulate = simulate
        self.description = f"the Neuron SDK's simulator ({detection.found})"

    def run(self, call: Call) -> Outcome:
        """Run the kernel; whatever the SDK raises is taken as its refusal.

        The SDK documents no base class for its errors, so that a rejection and a bug in the
        kernel's Python cannot be told apart, but for Python's own NameError and AttributeError.
        """
        kernel = call.kernel[call.grid] if call.grid else call.kernel  # type: ignore[index]
        try:
            returned = self._simulate(kernel, *call.inputs, *call.outputs, **call.parameters)
        except (NameError, AttributeError) as error:
            return Crashed(error)
        except Exception as error:
            return Rejected(error)
        outputs = call.outputs or as_outputs(returned)
        return Ran(outputs, tuple(map(still_poisoned, call.outputs)))
