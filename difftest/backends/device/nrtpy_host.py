"""Run and time a NEFF with nrtpy. A script for the Python of nrtpy's own environment.

``nrtpy`` and ``nki`` cannot be installed together (SDK 2.32), so this file is run there by its path
and imports nothing but the standard library, NumPy and nrtpy. Requests come as lines of JSON on
stdin, answers go as lines of JSON to stdout; arrays travel as .npy files of plain bytes.

Written from AWS's public documentation of nrtpy at tag v2.32.0. It has not run on a device.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def serve(neff: str, core: int) -> None:
    """Load the NEFF on a core, then answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the runtime prints goes to the log, not among the answers
    try:
        import nrtpy  # type: ignore[import-not-found]

        nrtpy.configure(visible_cores=[core])
        model = nrtpy.NrtpyModel.load_from_neff(neff, core_id=0)
        ready = {"inputs": list(model.input_tensors_info), "outputs": []}
        ready["outputs"] = list(model.output_tensors_info)
    except Exception as error:  # every error becomes an answer: the other side tells what it means
        answers.write(_failure(error))
        return
    answers.write(json.dumps(ready) + "\n")
    for line in sys.stdin:
        try:
            answers.write(json.dumps(_answer(nrtpy, model, json.loads(line))) + "\n")
        except Exception as error:
            answers.write(_failure(error))


def _answer(nrtpy: Any, model: Any, request: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    inputs = {
        name: nrtpy.NrtpyTensor.from_numpy(np.load(path), name=name, core_id=0)
        for name, path in request["inputs"].items()
    }
    if request["do"] == "benchmark":
        result = model.benchmark(
            inputs=inputs,
            warmup_iter=request["warmup"],
            benchmark_iter=request["iterations"],
            mode="device",
        )
        return {"durations_ms": [float(one) for one in result.durations_ms]}
    outputs = model(inputs=inputs)
    written = []
    for number, name in enumerate(outputs):
        path = os.path.join(request["folder"], f"output{number}.npy")
        # The dtype may be void, or int8 for float8: the bytes are what can be relied on.
        np.save(path, np.frombuffer(outputs[name].numpy().tobytes(), np.uint8))
        written.append(path)
    return {"outputs": written}


def _failure(error: Exception) -> str:
    return json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n"


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
