"""The self-test of a device: suspicious outputs, and a kernel with a known result.

A device path that returns zeros or an old output would make each test of a kernel worthless. A
comparison with the reference is not enough, because a wide bound may contain zeros. So each output
is checked. A kernel with a known result also runs first in a session, on two inputs.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.support.rounding import Array
from difftest.testing.backends.base import Completed, KernelCall, Outcome

ALL_ZERO = (
    "the device's output is all zero, the reference's is not; suspected: the kernel did not run "
    "(neuronxcc.nki.baremetal of SDK 2.32 returns zeros), or nothing was stored"
)
STALE = (
    "the device's output is the same, bit for bit, as for other inputs with another right answer; "
    "suspected: an output of an earlier run, or inputs that are not passed on"
)
SHAPE = (128, 64)
"""The shape of the known kernel's operands: one tile, all partitions."""


class UntrustedDeviceError(Exception):
    """The device failed a kernel with a known result."""

    def __init__(self, complaint: str) -> None:
        super().__init__(
            "the device is not to be believed: a kernel that adds two matrices failed.\n"
            f"  found:  {complaint}\n"
            "  remedy: difftest doctor; no kernel of yours has run"
        )


class Guard:
    """A check of the outputs of one device over all its runs."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[Any, ...], tuple[str, str]] = {}

    def suspect(
        self,
        kernel: str,
        outputs: Sequence[Array],
        expected: Sequence[NDArray[np.float64]],
    ) -> str | None:
        """Return a suspicion about the device's outputs, compared with the reference's; else None.

        ``kernel`` identifies the kernel and its parameters.
        """
        for output, right in zip(outputs, expected, strict=False):
            if output.size and not output.astype(np.float64).any() and right.any():
                return ALL_ZERO
        key = (kernel, *((output.shape, str(output.dtype)) for output in outputs))
        # equal after rounding counts as equal
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = [
                r.astype(o.dtype) for o, r in zip(outputs, expected, strict=False)
            ]
        digests = _digest(outputs), _digest(rounded)
        before = self._earlier.get(key)
        self._earlier[key] = digests
        is_stale = before and before[0] == digests[0] and before[1] != digests[1]
        return STALE if is_stale else None


def _digest(arrays: Sequence[Array]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def check_sums(run: Callable[[KernelCall], Outcome], dialect: str) -> str:
    """Return the error in two sums of two matrices on a device; empty if they are right.

    The matrices hold integers in float32, whose sums are exact and not zero.
    """
    kernel = importlib.import_module(
        f"difftest.testing.backends.device.probes_{dialect}"
    ).add
    guard = Guard()
    for seed in (0, 1):
        a, b = (
            np.random.default_rng(seed)
            .integers(1, 1000, (2, *SHAPE))
            .astype(np.float32)
        )
        outcome = run(KernelCall(kernel=kernel, inputs=(a, b)))
        if complaint := _complaint(outcome, a + b, guard):
            return complaint
    return ""


def _complaint(outcome: Outcome, expected: Array, guard: Guard) -> str:
    """Return what is wrong with an outcome of the kernel with a known result; empty if nothing."""
    if not isinstance(outcome, Completed):
        return f"{type(outcome.error).__name__}: {outcome.error}"
    if [output.shape for output in outcome.outputs] != [SHAPE]:
        return f"outputs of shapes {[array.shape for array in outcome.outputs]}, not one of {SHAPE}"
    wrong = int((outcome.outputs[0] != expected).sum())
    suspicion = guard.suspect("add", outcome.outputs, (expected.astype(np.float64),))
    return suspicion or (
        f"{wrong} of {expected.size} elements are wrong" if wrong else ""
    )
