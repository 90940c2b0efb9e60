"""A package that stands in for nrtpy, as its pages document it, and the Python that has it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NRTPY = """
import os
import sys
import time
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

    def numpy(self):
        return self._array.view(f"V{self._array.dtype.itemsize}")  # the dtype gets lost

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
        model.text = open(path).read()
        model.input_tensors_info = {"a": None, "b": None}
        model.output_tensors_info = {"output_0": None}
        print("a line that the runtime prints")
        _log("load")
        return model

    def __call__(self, inputs, outputs=None, save_trace=False, ntff_name=None):
        fault = os.environ.get("STANDIN_NRTPY", "")
        _log("execute")
        if fault == "out of bounds":
            raise NrtError("NRT Error NRT_EXEC_OOB(1006): Failed to execute model")
        if fault == "busy":
            raise NrtError("NRT Error NRT_EXEC_NC_BUSY(1005): Failed to execute model")
        if fault == "hang":
            time.sleep(60)
        if fault == "crash":
            os._exit(7)
        a, b = (inputs[name]._array for name in ("a", "b"))
        result = a - b if self.text.endswith(":subtract") else a + b
        return {"output_0": NrtpyTensor(np.zeros_like(result) if fault == "zeros" else result)}

    def benchmark(self, inputs, outputs=None, warmup_iter=5, benchmark_iter=5, mode="device"):
        assert mode == "device"
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
