"""A record of the history, with some fields changed."""

from difftest.backends.device.history import Record


def record(**changes):
    fields = {
        "test": "224x224, float16, no pool",
        "kernel": "fused_conv2d_maxpool",
        "source": "abc",
        "when": "2026-01-01T00:00:00+00:00",
        "metric": "device time",
        "p99": 930.0,
        "percentiles": {"99": 930.0},
        "spread": 0.001,
        "rounds": 3,
        "quiet": True,
        "predicted": 950.0,
        "tensor_bound": 739.0,
        "relaxed": 1365.0,
        "full": 1002.0,
        "machine": {"core": "0"},
    }
    return Record(**{**fields, **changes})
