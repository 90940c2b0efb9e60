"""The NeuronCore, through ``neuronxcc.nki.baremetal`` (classic SDK, 2.21 to 2.26).

Written from AWS's public documentation (``nki.baremetal`` at tag v2.26.0). **It has not run on a
device**: none is at hand where this project is developed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from difftest.backends.sdk import SETUP_GUIDE, detect

DEVICE_NODES = Path("/dev")
"""Where the Neuron driver shows each device, as ``neuron0``, ``neuron1`` and so on."""


def find_devices() -> tuple[str, ...]:
    """The Neuron devices that the driver shows."""
    return tuple(sorted(str(node) for node in DEVICE_NODES.glob("neuron[0-9]*")))


class Device:
    """Runs kernels on a NeuronCore.

    Raises
    ------
    BackendMissingError : on creation, without a device, or without an SDK that has ``baremetal``.
    """

    name = "device"

    def __init__(self) -> None:
        devices, detection = find_devices(), detect()
        baremetal = getattr(detection.module, "baremetal", None)
        lacks = []
        if not devices:
            lacks.append(f"no Neuron device: {DEVICE_NODES} shows no neuron0")
        if detection.module is None:
            lacks.append(f"no Neuron SDK: {detection.found}")
        elif not callable(baremetal):
            lacks.append(f"{detection.found}, whose neuronxcc.nki has no baremetal")
        if lacks or not callable(baremetal):
            raise BackendMissingError(
                "a Neuron device cannot be used here.\n"
                + "".join(f"  found:  {lack}\n" for lack in lacks)
                + "  remedy: run on a Trn1, Trn2 or Inf2 instance with the Neuron driver and SDK\n"
                f"          ({SETUP_GUIDE});\n"
                "          without one, --simulate runs the same tests on a simulator"
            )
        self._baremetal: Callable[..., Any] = baremetal
        self.description = f"{devices[0]} through nki.baremetal ({detection.found})"

    def run(self, call: Call) -> Outcome:
        """Compile the kernel, run it once, and take what the compiler raises as its refusal."""
        kernel = call.kernel[call.grid] if call.grid else call.kernel  # type: ignore[index]
        try:
            returned = self._baremetal(kernel)(*call.inputs, *call.outputs, **call.parameters)
        except (NameError, AttributeError) as error:
            return Crashed(error)
        except Exception as error:
            return Rejected(error)
        outputs = call.outputs or as_outputs(returned)
        return Ran(outputs, tuple(map(still_poisoned, call.outputs)))
