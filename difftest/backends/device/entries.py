"""The entry points that each generation of the SDK has for NumPy arrays on a NeuronCore.

Classic: ``neuronxcc.nki.baremetal`` (tag v2.26.0). Newer: a kernel of ``nki.jit`` called with NumPy
arrays (tag v2.32.0; from SDK 2.29). Written from AWS's public documentation. **Neither has run on a
device**: none is at hand where this project is developed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from difftest.backends.base import KernelCall
from difftest.backends.detection import CLASSIC, NEWER, Sdk
from difftest.backends.sdk import launched


@dataclass(frozen=True)
class Entry:
    """How one generation compiles and runs a kernel on NumPy arrays, in the core's process.

    Attributes
    ----------
    wrap : the SDK's function: ``baremetal`` of a kernel with its grid, or ``jit``.
    """

    dialect: str
    description: str
    wrap: Callable[..., Any]

    def runnable(self, call: KernelCall) -> Callable[..., Any]:
        """A function of the arrays and parameters that runs the kernel."""
        if self.dialect == CLASSIC:
            runnable: Callable[..., Any] = self.wrap(launched(call))
            return runnable
        if isinstance(call.kernel, FunctionType):
            call = replace(call, kernel=self.wrap(call.kernel))
        return launched(call)

    def lnc(self, call: KernelCall) -> int | None:
        """Physical cores in the kernel's logical one; None where the SDK sees to it.

        The newer runtime must be told what stands in ``kernel[lnc]``, 1 without brackets.
        """
        return None if self.dialect == CLASSIC else math.prod(call.grid)


def entries(sdk: Sdk) -> dict[str, Entry]:
    """The ways to a device that the SDK offers, by dialect."""
    found: dict[str, Entry] = {}
    baremetal, jit = sdk.classic.function("baremetal"), sdk.newer.function("jit")
    if baremetal and not sdk.refuses_classic():
        found[CLASSIC] = Entry(CLASSIC, "nki.baremetal", baremetal)
    if jit and sdk.newer.function("simulate"):
        found[NEWER] = Entry(NEWER, "nki.jit with NumPy arrays", jit)
    return found
