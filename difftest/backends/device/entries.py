"""The entry points that each generation of the SDK has for NumPy arrays on a NeuronCore.

Classic: ``neuronxcc.nki.baremetal`` (tag v2.26.0). Newer: a kernel of ``nki.jit`` called with NumPy
arrays (tag v2.32.0; from SDK 2.29). Written from AWS's public documentation. **Neither has run on a
device**: none is at hand where this project is developed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType
from typing import Any, Protocol

from difftest.backends.base import KernelCall
from difftest.backends.detection import CLASSIC, NEWER, Sdk
from difftest.backends.sdk import launched


class Entry(Protocol):
    """How one generation compiles and runs a kernel on NumPy arrays, in the core's process."""

    dialect: str
    description: str

    def runnable(self, call: KernelCall) -> Callable[..., Any]:
        """A function of the arrays and parameters that runs the kernel."""

    def lnc(self, call: KernelCall) -> int | None:
        """Physical cores in the kernel's logical one; None where the SDK sees to it."""


class ClassicEntry:
    """``neuronxcc.nki.baremetal(kernel)``: compiles and runs; NumPy arrays in and out."""

    dialect = CLASSIC
    description = "nki.baremetal"

    def __init__(self, sdk: Sdk) -> None:
        baremetal = sdk.classic.function("baremetal")
        assert baremetal is not None, "entries() makes this where there is a baremetal"
        self._baremetal = baremetal

    def runnable(self, call: KernelCall) -> Callable[..., Any]:
        runnable: Callable[..., Any] = self._baremetal(launched(call))
        return runnable

    def lnc(self, call: KernelCall) -> int | None:
        return None


class NewerEntry:
    """A kernel of ``nki.jit``, called with NumPy arrays: "compiles and executes standalone"."""

    dialect = NEWER
    description = "nki.jit with NumPy arrays"

    def __init__(self, sdk: Sdk) -> None:
        jit = sdk.newer.function("jit")
        assert jit is not None, "entries() makes this where there is a jit"
        self._jit = jit

    def runnable(self, call: KernelCall) -> Callable[..., Any]:
        if isinstance(call.kernel, FunctionType):
            call = replace(call, kernel=self._jit(call.kernel))
        return launched(call)

    def lnc(self, call: KernelCall) -> int | None:
        """What stands in ``kernel[lnc]``, 1 without brackets; the runtime must agree."""
        return math.prod(call.grid)


def entries(sdk: Sdk) -> dict[str, Entry]:
    """The ways to a device that the SDK offers, by dialect."""
    found: dict[str, Entry] = {}
    if sdk.classic.function("baremetal") and not sdk.refuses_classic():
        found[CLASSIC] = ClassicEntry(sdk)
    if sdk.newer.function("jit") and sdk.newer.function("simulate"):
        found[NEWER] = NewerEntry(sdk)
    return found
