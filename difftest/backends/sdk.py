"""The simulators of the Neuron SDK, one for each generation.

Written from AWS's public documentation: ``neuronxcc.nki.simulate_kernel`` at tag v2.26.0 (NumPy
arrays in and out, SPMD as ``kernel[grid]``), and ``nki.simulate`` at tag v2.32.0 (a callable; what
a kernel writes to an input in HBM is written back to the array). Neither has run against an SDK:
none is at hand where this project is developed.
"""

from __future__ import annotations

from collections.abc import Callable
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
from difftest.backends.detection import (
    CLASSIC,
    NEWER,
    PACKAGES,
    SETUP_GUIDE,
    Detection,
    Sdk,
    detect_sdk,
)
from difftest.backends.dialect import ByDialect

NAME = "sdk"
SIMULATE = {CLASSIC: "simulate_kernel", NEWER: "simulate"}
"""The function with which each generation simulates a kernel."""


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
    """Runs kernels with ``neuronxcc.nki.simulate_kernel`` or ``nki.simulate``, if there is one."""

    name = NAME

    def __init__(self, detection: Detection, dialect: str) -> None:
        package, function = PACKAGES[dialect], SIMULATE[dialect]
        simulate = detection.function(function)
        if simulate is None:
            without = f", whose {package} has no {function}" if detection.module else ""
            what = f"the Neuron SDK's simulator ({package}.{function})"
            raise missing(what, f"{detection.found}{without}")
        self._simulate, self._dialect = simulate, dialect
        self.description = f"the Neuron SDK's simulator {package}.{function} ({detection.found})"

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
    return ByDialect(simulators, {dialect: one.found for dialect, one in detections.items()})


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
    fits = [(one.shape, one.dtype) for one in arrays] == [(o.shape, o.dtype) for o in call.outputs]
    untouched = all(
        (mask := still_poisoned(output)) is not None and mask.all() for output in call.outputs
    )
    outputs = arrays if fits and untouched else call.outputs
    return Ran(outputs, tuple(map(still_poisoned, outputs)))
