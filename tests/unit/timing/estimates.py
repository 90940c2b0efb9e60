"""Estimates made by hand."""

import math

from difftest.timing.interval import ErrorBudget, ErrorSource, Estimate


def estimate(total, low=0.9, high=1.2, **changes):
    """An estimate of ``total`` us whose parts may all be wrong together by this range."""
    figure = ErrorSource("measured", "DMAs")
    logs = (-total * math.log(low), total * math.log(high))
    ground = ErrorBudget({figure: total}, {}, busiest=0.0, streaming=0.0, whole=logs)
    parts = {"own": total, "fixed": 0.0, "unsure": 0.0, "random": 0.0} | changes
    return Estimate(ground, **parts)
