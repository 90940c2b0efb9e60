"""Means and variances: ``nl.mean``, ``nl.var``, ``nl.softmax``, ``nisa.bn_stats`` and kin."""

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import FLOAT32, is_float
from difftest.simulator.frontend.arguments import no_extras
from difftest.simulator.frontend.classic.activations import ACTIVATION
from difftest.simulator.frontend.classic.arithmetic import reciprocal
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import binary, on_chip
from difftest.simulator.frontend.classic.reductions import reduce
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.instructions import scan


def mean(
    x: Any,
    axis: Any,
    *,
    dtype: object = None,
    mask: object = None,
    keepdims: bool = False,
    **kwargs: object,
) -> Any:
    """The mean along free axes: a float32 sum, scaled and rounded once."""
    no_extras("nl.mean", kwargs)
    data = on_chip(x, "nl.mean")
    total = reduce("nl.mean", "add", data, axis, FLOAT32, mask, keepdims)
    count = data.size // total.size
    plain = data.dtype if is_float(data.dtype) else FLOAT32
    return binary("multiply", total, 1.0 / count, dtype=plain if dtype is None else dtype)


def var(x: Any, axis: Any, *, dtype: object = None, mask: object = None, **kwargs: object) -> Any:
    """The variance along free axes, in float32."""
    no_extras("nl.var", kwargs)
    data = on_chip(x, "nl.var")
    centred = binary("subtract", data, mean(data, axis, dtype=FLOAT32, mask=mask, keepdims=True))
    squared = binary("multiply", centred, centred, dtype=FLOAT32)
    return mean(squared, axis, dtype=data.dtype if dtype is None else dtype)


def softmax(
    x: Any,
    axis: Any,
    *,
    dtype: object = None,
    compute_dtype: object = None,
    mask: object = None,
    **kwargs: object,
) -> Any:
    """``exp(x - max) / sum(exp(x - max))`` along free axes, in float32."""
    no_extras("nl.softmax", kwargs)
    data = on_chip(x, "nl.softmax")
    result = dtype if dtype is not None else compute_dtype
    peak = reduce("nl.softmax", "maximum", data, axis, FLOAT32, mask, True)
    shifted = binary("subtract", data, peak, dtype=FLOAT32)
    exponent = ACTIVATION["exp"](shifted, dtype=FLOAT32)
    total = reduce("nl.softmax", "add", exponent, axis, FLOAT32, None, True)
    scale = reciprocal(total)
    return binary("multiply", exponent, scale, dtype=data.dtype if result is None else result)


def bn_stats(data: Any, *, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """Count, mean and variance * count of even, then odd, elements: [P, 6]."""
    no_extras("nisa.bn_stats", kwargs)
    result: Tensor = issue(scan.bn_stats, (data,), dtype=dtype, mask=mask)
    return result


def bn_aggr(data: Any, *, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """Mean and variance from bn_stats' tuples: [P, 2]."""
    no_extras("nisa.bn_aggr", kwargs)
    result: Tensor = issue(scan.bn_aggr, (data,), dtype=dtype, mask=mask)
    return result
