"""Time a NEFF with nrtpy. A script for the Python of nrtpy's own environment.

``nrtpy`` and ``nki`` cannot be installed together (SDK 2.32), so this file is run there by its path
and imports nothing but the standard library, NumPy and nrtpy. The inputs are .npy files, named as
the NEFF names them; the answer is one line of JSON on stdout.

Written from AWS's public documentation of nrtpy at tag v2.32.0. It has not run on a device.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def benchmark(
    neff: str, core: str, folder: str, warmup: str, iterations: str
) -> dict[str, Any]:
    """Return the milliseconds of each execution on the device, or the error of nrtpy."""
    try:
        import nrtpy  # type: ignore[import-not-found]
        import numpy as np

        nrtpy.configure(visible_cores=[int(core)])
        model = nrtpy.NrtpyModel.load_from_neff(neff, core_id=0)
        inputs = {
            name: nrtpy.NrtpyTensor.from_numpy(
                np.load(os.path.join(folder, f"{name}.npy")), name=name, core_id=0
            )
            for name in model.input_tensors_info
        }
        result = model.benchmark(
            inputs=inputs,
            warmup_iter=int(warmup),
            benchmark_iter=int(iterations),
            mode="device",
        )
        return {"durations_ms": [float(duration) for duration in result.durations_ms]}
    except Exception as error:  # any error is an answer for the process that asked
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the runtime's output goes to the log, not into the answer
    answers.write(json.dumps(benchmark(*sys.argv[1:])))
    answers.close()
