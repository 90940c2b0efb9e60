"""Predict how long a kernel takes on the device: a timeline from its trace.

>>> import numpy as np
>>> from difftest.simulator import TRN2, launch
>>> from difftest.simulator.entry.install import embedded
>>> with embedded():
...     import neuronxcc.nki as nki
...     import neuronxcc.nki.language as nl
>>> @nki.jit
... def double(x):
...     out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
...     nl.store(out, nl.load(x) * 2)
...     return out
>>> x = np.ones((128, 512), np.float32)
>>> prediction = predict(launch(double, [x]).trace, TRN2, dge=True)
>>> round(prediction.get_latency_percentile(50), 1)  # microseconds
14.2

Every number is a prediction from costs that are measured, documented or assumed. Each cost names
its evidence. A prediction reads the trace only and touches no data.
"""

from difftest.timing.evidence import UnknownCostError
from difftest.timing.prediction import Prediction, predict

__all__ = ["Prediction", "UnknownCostError", "predict"]
