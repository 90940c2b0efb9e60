"""What a case must come to: the reference's values, and how exactly a kernel must meet them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from difftest.harness.case import Case
from difftest.harness.compare import Expected
from difftest.harness.reference import ReferenceRefusal, call_reference
from difftest.harness.signature import name_of
from difftest.harness.spec import KernelSpec
from difftest.harness.spec_arguments import SpecError
from difftest.harness.tolerance import Tolerance, is_exact_in

Array = NDArray[Any]
Float64 = NDArray[np.float64]


def bounded(
    spec: KernelSpec, case: Case, inputs: tuple[Array, ...], values: tuple[Float64, ...]
) -> tuple[Expected, ...]:
    """The reference's values with the bound that follows from the spec alone.

    Raises
    ------
    ReferenceDefect : the reference, or ``magnitude``, is wrong on absolute values.
    SpecError : ``magnitude`` does not fit the reference's outputs.
    """
    magnitudes = _magnitudes(spec, case, inputs, values)
    accumulation = np.dtype(spec.accumulation)
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
        Expected(
            value=value,
            dtype=spec.output_dtype_of(case, index),
            magnitude=magnitude,
            tolerance=tolerance,
        )
        for index, (value, magnitude) in enumerate(zip(values, magnitudes, strict=True))
    )


def _magnitudes(
    spec: KernelSpec, case: Case, inputs: tuple[Array, ...], values: tuple[Float64, ...]
) -> tuple[Float64, ...]:
    """The magnitudes, at least as large as the values; where they are not finite, the values'."""
    arrays = dict(zip(spec.inputs, map(np.abs, inputs), strict=True))
    function = spec.magnitude or spec.reference
    role = "magnitude" if spec.magnitude else "reference"
    try:
        magnitudes = call_reference(function, arrays, spec.parameters_of(case.values), role)
    except ReferenceRefusal as refusal:
        error = refusal.error
        raise SpecError(
            f"magnitude: the {role} {name_of(function)} refuses the absolute values of inputs that "
            f"the reference accepts, {type(error).__name__}: {error}; accepted: magnitude=, a "
            "function that takes them and returns the sums of absolute values"
        ) from error
    finite = all(np.isfinite(array.astype(np.float64)).all() for array in inputs)
    for array in magnitudes if spec.magnitude is not None else ():
        wrong = array[(array < 0) | (np.isnan(array) & finite)]
        if wrong.size:
            raise SpecError(
                f"magnitude: {name_of(function)} returned {wrong.min():g} among its values; "
                "accepted: sums of absolute values, which are at least 0"
            )
    if [array.shape for array in magnitudes] != [array.shape for array in values]:
        raise SpecError(
            f"magnitude: received shapes {[array.shape for array in magnitudes]}; accepted: those "
            f"of the reference, {[array.shape for array in values]}"
        )
    return tuple(
        np.fmax(np.where(np.isfinite(magnitude), magnitude, 0.0), np.abs(value))
        for magnitude, value in zip(magnitudes, values, strict=True)
    )
