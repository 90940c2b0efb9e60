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
    Array,
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
from difftest.backends.detection import CLASSIC, NEWER, SETUP_GUIDE, Detection, Sdk, detect_sdk
from difftest.backends.dialect import ByDialect

NAME = "sdk"


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


class ClassicSimulator:
    """Runs kernels with ``neuronxcc.nki.simulate_kernel``.

    Raises
    ------
    BackendMissingError : on creation, if the SDK has no such function.
    """

    name = NAME

    def __init__(self, detection: Detection) -> None:
        simulate = detection.function("simulate_kernel")
        if simulate is None:
            raise missing(
                "the Neuron SDK's simulator (neuronxcc.nki.simulate_kernel)",
                _without(detection, "neuronxcc.nki", "simulate_kernel"),
            )
        self._simulate = simulate
        self.description = f"the Neuron SDK's simulator ({detection.found})"

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel; whatever the SDK raises is taken as its refusal.

        The SDK documents no base class for its errors, so that a rejection and a bug in the
        kernel's Python cannot be told apart, but for some of Python's own (``SLIPS``); and a
        NotImplementedError says that it lacks something.
        """
        kernel = launched(call)
        args, kwargs = call.arguments()
        return outcome_of(call, lambda: self._simulate(kernel, *args, **kwargs))


class NewerSimulator:
    """Runs kernels with ``nki.simulate``.

    Raises
    ------
    BackendMissingError : on creation, if the SDK has no such function.
    """

    name = NAME

    def __init__(self, detection: Detection) -> None:
        simulate = detection.function("simulate")
        if simulate is None:
            raise missing(
                "the Neuron SDK's simulator (nki.simulate)",
                _without(detection, "nki", "simulate"),
            )
        self._simulate = simulate
        self.description = f"the Neuron SDK's simulator nki.simulate ({detection.found})"

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel; its failed assertions and whatever else the SDK raises are refusals."""
        kernel = launched(call)
        args, kwargs = call.arguments()
        return outcome_of(call, lambda: self._simulate(kernel)(*args, **kwargs))


def sdk_simulator(sdk: Sdk | None = None) -> Backend:
    """The simulators of the generations found here, as one backend.

    Raises
    ------
    BackendMissingError : there is none.
    """
    sdk = sdk or detect_sdk()
    found: dict[str, Backend] = {}
    absent: dict[str, str] = {}
    errors: list[BackendMissingError] = []
    for dialect, make, detection in (
        (CLASSIC, ClassicSimulator, sdk.classic),
        (NEWER, NewerSimulator, sdk.newer),
    ):
        try:
            found[dialect] = make(detection)
        except BackendMissingError as error:
            errors.append(error)
            absent[dialect] = detection.found
    if not found:
        raise errors[1] if sdk.newer.module else errors[0]
    return ByDialect(found, absent)


def has_simulator(sdk: Sdk) -> bool:
    """Whether one of the generations has a simulator."""
    return bool(sdk.classic.function("simulate_kernel") or sdk.newer.function("simulate"))


def _without(detection: Detection, package: str, function: str) -> str:
    if detection.module is None:
        return detection.found
    return f"{detection.found}, whose {package} has no {function}"


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
    outputs = outputs_of(call, returned)
    return Ran(outputs, tuple(map(still_poisoned, outputs)) if call.outputs else ())


def outputs_of(call: KernelCall, returned: object) -> tuple[Array, ...]:
    """What the kernel wrote to the outputs passed, or returned.

    An API may leave the arrays passed as they are and return what was written: then that counts.
    """
    arrays = as_outputs(returned)
    if not call.outputs:
        return arrays
    fits = [(one.shape, one.dtype) for one in arrays] == [(o.shape, o.dtype) for o in call.outputs]
    untouched = all(
        (mask := still_poisoned(one)) is not None and mask.all() for one in call.outputs
    )
    return arrays if fits and untouched else call.outputs
