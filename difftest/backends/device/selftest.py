"""Whether a device can be believed: a kernel that must pass, and one that must fail.

A device path that returns zeros, an old output, or whatever was asked of it would make each test of
a kernel worthless. So two kernels whose results are known run first in a session.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from difftest.backends.base import Array, KernelCall, Outcome, Ran
from difftest.backends.device.guards import Guard

SHAPE = (128, 64)
"""One tile: all partitions."""


class UntrustedDeviceError(Exception):
    """The device did not do what it must with kernels whose result is known."""


class HasDialect(Protocol):
    """What is known of an entry here: the generation that its kernels are written for."""

    @property
    def dialect(self) -> str: ...


class Runs(Protocol):
    """What the check needs of a device."""

    @property
    def entry(self) -> HasDialect: ...

    def run_untrusted(self, call: KernelCall) -> Outcome: ...


def check_device(device: Runs) -> None:
    """Run the known-good kernel on two inputs, and the known-wrong one on one.

    Raises
    ------
    UntrustedDeviceError : one of them did not come out as it must; the text says which and how.
    """
    probes = importlib.import_module(f"difftest.backends.device.probes_{device.entry.dialect}")
    guard = Guard()
    for seed in (0, 1):
        found = _run(device, probes.add, seed, guard)
        if found is not None:
            raise UntrustedDeviceError(
                f"the device is not to be believed: a kernel that adds two matrices failed.\n"
                f"  found:  {found}\n"
                "  remedy: difftest doctor; no kernel of yours has run"
            )
    if _run(device, probes.subtract, 2, Guard()) is None:
        raise UntrustedDeviceError(
            "the device is not to be believed: a kernel that subtracts was taken for one that "
            "adds.\n  found:  its output equals the sum\n"
            "  remedy: difftest doctor; no kernel of yours has run"
        )


def _run(device: Runs, kernel: Callable[..., Any], seed: int, guard: Guard) -> str | None:
    """What is wrong if the kernel is taken for ``add``; None if nothing is."""
    a, b = _inputs(seed)
    outcome = device.run_untrusted(KernelCall(kernel=kernel, inputs=(a, b)))
    if not isinstance(outcome, Ran):
        return f"{type(outcome.error).__name__}: {outcome.error}"
    expected = a.astype(np.float64) + b
    suspicion = guard.suspect("add", outcome.outputs, (expected,))
    if suspicion is not None:
        return suspicion
    if len(outcome.outputs) != 1 or outcome.outputs[0].shape != SHAPE:
        return f"outputs of shapes {[one.shape for one in outcome.outputs]}, not one of {SHAPE}"
    wrong = outcome.outputs[0] != expected
    return f"{int(wrong.sum())} of {wrong.size} elements are wrong" if wrong.any() else None


def _inputs(seed: int) -> tuple[Array, Array]:
    """Integers in float32, whose sums are exact, and none of them zero."""
    random = np.random.default_rng(seed)
    drawn: NDArray[np.int64] = random.integers(1, 1000, (2, *SHAPE))
    a, b = drawn.astype(np.float32)
    return a, b
