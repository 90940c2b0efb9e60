"""What a case must come to: the reference's values, and how exactly a kernel must meet them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.harness.case import Case
from difftest.harness.compare import Expected
from difftest.harness.spec import KernelSpec, SpecError
from difftest.harness.tolerance import Tolerance, is_exact_in

Array = NDArray[Any]
Float64 = NDArray[np.float64]


def expect(spec: KernelSpec, case: Case, inputs: tuple[Array, ...]) -> tuple[Expected, ...]:
    """Each output as the reference has it. Whatever the reference raises goes through.

    Raises
    ------
    SpecError : ``magnitude`` does not fit the reference's outputs.
    """
    values = _outputs(_call(spec, spec.reference, case, inputs))
    magnitudes = _magnitudes(spec, case, inputs, values)
    accumulation = np.dtype(spec.accumulation)
    dtype = np.dtype(spec.output_dtype or case.dtype)
    exact = spec.exact_integers and all(
        is_exact_in(accumulation, magnitude, value, *inputs)
        for value, magnitude in zip(values, magnitudes, strict=True)
    )
    tolerance = Tolerance(
        reduction=0 if exact else spec.reduction_length(case.values),
        accumulation=accumulation,
        random=all(recipe.is_random for recipe in case.data.values()),
    )
    return tuple(
        Expected(value=value, dtype=dtype, magnitude=magnitude, tolerance=tolerance)
        for value, magnitude in zip(values, magnitudes, strict=True)
    )


def _call(
    spec: KernelSpec, function: Callable[..., Any], case: Case, inputs: tuple[Array, ...]
) -> object:
    """Call the reference with the inputs and those of the parameters that it has."""
    accepted = inspect.signature(function).parameters
    parameters = spec.parameters_of(case.values)
    return function(
        *inputs, **{name: value for name, value in parameters.items() if name in accepted}
    )


def _outputs(returned: object) -> tuple[Float64, ...]:
    several = returned if isinstance(returned, tuple) else (returned,)
    return tuple(np.asarray(array).astype(np.float64) for array in several)


def _magnitudes(
    spec: KernelSpec, case: Case, inputs: tuple[Array, ...], values: tuple[Float64, ...]
) -> tuple[Float64, ...]:
    """The magnitudes, at least as large as the values; where they are not finite, the values'."""
    function = spec.magnitude or spec.reference
    magnitudes = _outputs(_call(spec, function, case, tuple(map(np.abs, inputs))))
    if [array.shape for array in magnitudes] != [array.shape for array in values]:
        raise SpecError(
            f"magnitude: received shapes {[array.shape for array in magnitudes]}; accepted: those "
            f"of the reference, {[array.shape for array in values]}"
        )
    return tuple(
        np.fmax(np.where(np.isfinite(magnitude), magnitude, 0.0), np.abs(value))
        for magnitude, value in zip(magnitudes, values, strict=True)
    )
