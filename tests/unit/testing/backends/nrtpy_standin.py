"""A replacement of nrtpy, as its pages document it, and the Python that has it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NRTPY = """
import os
import sys
import numpy as np

class NrtError(RuntimeError):
    pass

def configure(visible_cores=None):
    os.environ["NEURON_RT_VISIBLE_CORES"] = ",".join(map(str, visible_cores))

class NrtpyTensor:
    def __init__(self, array):
        self._array = array

    @classmethod
    def from_numpy(cls, array, name=None, core_id=0):
        return cls(np.ascontiguousarray(array))

class _Result:
    def __init__(self, durations):
        self.durations_ms = durations

def _log(what):
    if os.environ.get("STANDIN_COUNT"):
        with open(os.environ["STANDIN_COUNT"], "a") as log:
            log.write(f"{what} on {os.environ['NEURON_RT_VISIBLE_CORES']} in {os.getpid()}\\n")

class NrtpyModel:
    @classmethod
    def load_from_neff(cls, path, name=None, core_id=0, cc_enabled=False, rank_id=0, world_size=1):
        model = cls()
        assert open(path).read()
        model.input_tensors_info = {"a": None, "b": None}
        print("a line that the runtime prints")
        _log("load")
        return model

    def benchmark(self, inputs, outputs=None, warmup_iter=5, benchmark_iter=5, mode="device"):
        assert mode == "device"
        assert all(isinstance(inputs[name], NrtpyTensor) for name in self.input_tensors_info)
        fault = os.environ.get("STANDIN_NRTPY", "")
        if fault == "out of bounds":
            raise NrtError("NRT Error NRT_EXEC_OOB(1006): Failed to execute model")
        if fault == "crash":
            os._exit(7)
        microseconds = [float(one) for one in os.environ["STANDIN_LATENCY"].split()]
        return _Result([microseconds[i % len(microseconds)] / 1000 for i in range(benchmark_iter)])
"""


def write_nrtpy(folder: Path) -> Path:
    """An environment's Python: this one, with the stand-in on its path."""
    packages = folder / "nrtpy-packages"
    packages.mkdir()
    (packages / "nrtpy.py").write_text(NRTPY)
    python = folder / "python"
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" -W ignore "$@"\n'
    )
    os.chmod(python, 0o755)
    return python
