"""How long a kernel would take on the device: a timeline predicted from its trace.

>>> prediction = predict(launch(kernel, args).trace, TRN2, dge=True)  # doctest: +SKIP
>>> prediction.get_latency_percentile(50)  # doctest: +SKIP

Every number is a prediction, made from costs that are measured, documented or assumed: each says
which. Reads the trace alone and touches no data.
"""

from difftest.timing.prediction import Prediction, UnknownCostError, predict

__all__ = ["Prediction", "UnknownCostError", "predict"]
