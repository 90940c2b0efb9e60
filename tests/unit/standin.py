"""A backend that calls a kernel written in plain NumPy, to test the harness without a simulator."""

from __future__ import annotations

import numpy as np

from difftest.testing.backends.base import (
    Completed,
    Crashed,
    KernelCall,
    Outcome,
    Rejected,
    as_outputs,
    still_poisoned,
)
from difftest.testing.contract.spec import KernelSpec


class PlainBackend:
    def __init__(self, name: str = "plain") -> None:
        self.name = name
        self.description = "NumPy called directly"

    def run(self, call: KernelCall) -> Outcome:
        args, kwargs = call.arguments()
        try:
            returned = call.kernel(*args, **kwargs)
        except AssertionError as error:
            return Rejected(error)
        except Exception as error:
            return Crashed(error)
        outputs = call.outputs or as_outputs(returned)
        return Completed(outputs, tuple(map(still_poisoned, call.outputs)))


def add(a, b):
    """Adds as the engines do: in float32, rounded once."""
    return (a.astype(np.float32) + b.astype(np.float32)).astype(a.dtype)


def broken_add(a, b):
    result = add(a, b)
    result[-1] = 0
    return result


def add_reference(a, b):
    return a.astype(np.float64) + b.astype(np.float64)


def add_spec(kernel=add, **changes) -> KernelSpec:
    """A spec of ``add`` on vectors of 1 to 8 elements, with these fields changed."""
    fields = {
        "kernel": kernel,
        "reference": add_reference,
        "domain": {"n": range(1, 9)},
        "inputs": {"a": "n", "b": "n"},
    }
    return KernelSpec(**{**fields, **changes})
