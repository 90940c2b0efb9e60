"""Whether a device can be believed: outputs that look as if nothing had run, and known kernels.

A device path that returns zeros, an old output, or whatever was asked of it would make each test of
a kernel worthless. The comparison with the reference is not enough: a wide bound may hold zeros.
So each output is looked at, and two kernels whose results are known run first in a session.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.backends.base import Array, KernelCall, Outcome, Ran, poisoned
from difftest.harness.rounding import is_float

ALL_ZERO = (
    "the device's output is all zero, the reference's is not; suspected: the kernel did not run "
    "(neuronxcc.nki.baremetal of SDK 2.32 returns zeros), or nothing was stored"
)
ALL_CANARY = (
    "the device's output is what was there before the run; suspected: the kernel did not run, or "
    "its output was not copied back"
)
STALE = (
    "the device's output is the same, bit for bit, as for other inputs with another right answer; "
    "suspected: an output of an earlier run, or inputs that are not passed on (nki.benchmark does "
    "not use them)"
)
SHAPE = (128, 64)
"""Of the known kernels' operands: one tile, all partitions."""

Expected = Sequence[NDArray[np.float64]]


class UntrustedDeviceError(Exception):
    """The device did not do what it must with kernels whose result is known."""


class Guard:
    """Looks at the outputs of one device, run after run."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[Any, ...], tuple[str, str]] = {}

    def suspect(self, kernel: str, outputs: Sequence[Array], expected: Expected) -> str | None:
        """What is suspicious about the outputs of a run; None if nothing is.

        Parameters
        ----------
        kernel : what distinguishes this kernel and its parameters from others.
        outputs : of the device.
        expected : the reference's, of the same shapes.
        """
        for output, right in zip(outputs, expected, strict=False):
            if is_all_canary(output):
                return ALL_CANARY
            if output.size and not output.astype(np.float64).any() and right.any():
                return ALL_ZERO
        key = (kernel, *((output.shape, str(output.dtype)) for output in outputs))
        with np.errstate(over="ignore", invalid="ignore"):  # what rounds alike counts as alike
            rounded = [r.astype(o.dtype) for o, r in zip(outputs, expected, strict=False)]
        digests = _digest(outputs), _digest(rounded)
        before = self._earlier.get(key)
        self._earlier[key] = digests
        is_stale = before and before[0] == digests[0] and before[1] != digests[1]
        return STALE if is_stale else None


def is_all_canary(output: Array) -> bool:
    """Whether each element is what :func:`difftest.backends.base.poisoned` put there."""
    if output.size == 0 or output.dtype.kind == "b":
        return False
    bits = f"u{output.dtype.itemsize}" if is_float(output.dtype) else output.dtype
    return bool((output.view(bits) == poisoned((1,), output.dtype).view(bits)).all())


def _digest(arrays: Sequence[Array]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_device(run: Callable[[KernelCall], Outcome], dialect: str) -> None:
    """Run the known-good kernel on two inputs, and the known-wrong one on one.

    Raises
    ------
    UntrustedDeviceError : one of them did not come out as it must; the text says which and how.
    """
    probes = importlib.import_module(f"difftest.backends.device.probes_{dialect}")
    guard = Guard()
    complaints = (_complaint(run, probes.add, seed, guard) for seed in (0, 1))
    complaint = next(filter(None, complaints), None)
    if complaint is not None:
        happened = "a kernel that adds two matrices failed"
    elif _complaint(run, probes.subtract, 2, Guard()) is None:
        happened = "a kernel that subtracts was taken for one that adds"
        complaint = "its output equals the sum"
    else:
        return
    raise UntrustedDeviceError(
        f"the device is not to be believed: {happened}.\n"
        f"  found:  {complaint}\n"
        "  remedy: difftest doctor; no kernel of yours has run"
    )


def _complaint(
    run: Callable[[KernelCall], Outcome], kernel: Callable[..., Any], seed: int, guard: Guard
) -> str | None:
    """What is wrong if the kernel is taken for ``add``; None if nothing is.

    The operands are integers in float32, whose sums are exact, and none of them is zero.
    """
    a, b = np.random.default_rng(seed).integers(1, 1000, (2, *SHAPE)).astype(np.float32)
    outcome = run(KernelCall(kernel=kernel, inputs=(a, b)))
    if not isinstance(outcome, Ran):
        return f"{type(outcome.error).__name__}: {outcome.error}"
    expected = a.astype(np.float64) + b
    suspicion = guard.suspect("add", outcome.outputs, (expected,))
    if suspicion is not None:
        return suspicion
    if len(outcome.outputs) != 1 or outcome.outputs[0].shape != SHAPE:
        shapes = [output.shape for output in outcome.outputs]
        return f"outputs of shapes {shapes}, not one of {SHAPE}"
    wrong = outcome.outputs[0] != expected
    return f"{int(wrong.sum())} of {wrong.size} elements are wrong" if wrong.any() else None
