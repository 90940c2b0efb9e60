"""The kernels of this repository, and their traces."""

import numpy as np

from difftest.simulator import TRN2, launch
from difftest.simulator.entry.install import embedded
from difftest.testing.host.shipped import import_shipped
from difftest.timing import predict


def shipped(name):
    """The kernel named ``module.function`` in kernels/classic/."""
    module, _, function = name.rpartition(".")
    with embedded():
        return getattr(import_shipped(f"kernels.classic.{module}"), function)


def trace_of(name, *shapes, dtype="float32", **keywords):
    arrays = [np.ones(shape, np.dtype(dtype)) for shape in shapes]
    return launch(shipped(name), arrays, keywords).trace


def prediction_of(name, *shapes, dge=False, **keywords):
    return predict(trace_of(name, *shapes, **keywords), TRN2, dge=dge)
