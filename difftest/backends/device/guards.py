"""Outputs that look as if the kernel had not run: nothing passes by accident.

The comparison with the reference is not enough. A wide error bound may hold zeros, and a case
whose right answer is zero proves nothing; these checks also name what probably happened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.backends.base import poisoned, still_poisoned
from difftest.harness.rounding import is_float

Array = NDArray[Any]

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


def is_all_zero(output: Array) -> bool:
    """Whether each element is zero; an empty array is not."""
    return output.size > 0 and not output.astype(np.float64).any()


def is_all_canary(output: Array) -> bool:
    """Whether each element is what :func:`difftest.backends.base.poisoned` put there."""
    if output.size == 0 or output.dtype.kind == "b":
        return False
    if is_float(output.dtype):
        mask = still_poisoned(output)
        return mask is not None and bool(mask.all())
    return bool((output == poisoned((1,), output.dtype)).all())


class Guard:
    """Looks at the outputs of one device, run after run."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[Any, ...], tuple[str, str]] = {}

    def suspect(
        self, kernel: str, outputs: Sequence[Array], expected: Sequence[NDArray[np.float64]]
    ) -> str | None:
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
            if is_all_zero(output) and right.any():
                return ALL_ZERO
        return self._stale(kernel, outputs, expected)

    def _stale(
        self, kernel: str, outputs: Sequence[Array], expected: Sequence[NDArray[np.float64]]
    ) -> str | None:
        """Whether the outputs equal those of the run before, though their right values differ."""
        key = (kernel, *((one.shape, str(one.dtype)) for one in outputs))
        digests = _digest(outputs), _digest(expected_in(outputs, expected))
        before = self._earlier.get(key)
        self._earlier[key] = digests
        if before is None or before[0] != digests[0] or before[1] == digests[1]:
            return None
        return STALE


def expected_in(outputs: Sequence[Array], expected: Sequence[NDArray[np.float64]]) -> list[Array]:
    """The right values in the outputs' dtypes: what rounds alike counts as alike."""
    with np.errstate(over="ignore", invalid="ignore"):
        return [
            right.astype(output.dtype) for output, right in zip(outputs, expected, strict=False)
        ]


def _digest(arrays: Sequence[Array]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
