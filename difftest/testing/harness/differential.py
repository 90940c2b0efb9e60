"""Compare a kernel with its reference in two steps: its algorithm, then its arithmetic.

*Is the algorithm correct?* The exact run computes the kernel without rounding. It is compared with
the reference, within the error that float64 may cause. *Is the arithmetic good enough?* The
machine's result is compared with the exact run, within the error bound of the instructions'
roundings. Neither comparison needs a tolerance from the user.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from difftest.simulator.exact.run import ExactOutput, ExactRun
from difftest.simulator.launch_listeners import listening
from difftest.support.file_arrays import blocks
from difftest.support.rounding import (
    Array,
    Float64,
    float_info,
    is_float_dtype,
    round_once,
    ulp,
    unit_roundoff,
)
from difftest.support.signature import function_name
from difftest.support.tracebacks import format_error
from difftest.testing.backends.base import Completed
from difftest.testing.backends.sdk import function_of
from difftest.testing.contract.case import Case
from difftest.testing.contract.reference import (
    ReferenceDefect,
    ReferenceRefusal,
    as_float64,
    call_reference,
)
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.harness.compare import (
    Answer,
    Expected,
    arrays_text,
    check_shapes,
    check_values,
    error_in_ulp,
    expected_with_roundings,
    expected_within,
    first_mismatch,
    merge_verdicts,
)
from difftest.testing.harness.verdict import Inconclusive, Match, Mismatch, Verdict

FLOAT64_UNIT = 2.0**-53
FLOAT32_UNIT = 2.0**-24
FLOAT64_SHARE = FLOAT64_UNIT / FLOAT32_UNIT
"""The error of float64 as a share of the same roundings' error in float32."""
REFERENCE_FREEDOM = 2.0**10
"""The reference may differ from the exact run by this many times the run's own float64 error.

Its formulas differ from the kernel's, and may lose three more digits. The remaining digits of
float64 still show a relative difference of 2**-43."""
FLUSHED = 2.0**-126
"""Float32's smallest normal number. A result that rounds to less may be 0, as exp below -87 is on
a trn1 (public record)."""
NOISE = 2.0**-26
"""The error that float64 may have, as a share of a float32 error bound. A smaller exact value
counts as a 0 that float64 could not compute, such as the variance of a constant."""
EXCUSE = 2.0**-6
EXCUSED_UNITS = 2.0**5
"""The largest error that a bound may allow in the median element: relative, and in units of the
output's dtype. A float32 sum of 8,192 terms of both signs and attention in bfloat16 stay below."""
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
HALF_UNIT_OF_LARGEST = 2.0**103
"""A number that exceeds the largest float32 by less than this rounds to it.

AWS's pages write the smallest float32 as -3.4028235e38, which is such a number.
"""
BOUND_SLACK = 2.0**-20
"""The error of float64 in a bound, relative to the bound."""
OPEN = "no element is sure: a rounding may change each of these integers"
ALGORITHM = "algorithm"
ARITHMETIC = "arithmetic"


@dataclass(frozen=True)
class ReferenceResult:
    """The reference's outputs for one case, in the reference's own dtypes."""

    spec: KernelSpec
    case: Case
    inputs: Mapping[str, Array]
    outputs: tuple[Array, ...]

    @cached_property
    def values(self) -> tuple[Float64, ...]:
        """The outputs as float64."""
        return as_float64(self.outputs)

    @cached_property
    def forms(self) -> list[tuple[Float64, np.dtype[Any]]]:
        """The outputs as float64, each with the dtype of the kernel's result."""
        dtypes = self.spec.result_dtypes(self.case, len(self.values))
        return list(zip(self.values, dtypes, strict=False))

    def argument_of(self, index: int) -> str:
        """Return the name of the argument of result ``index``; empty for a returned array."""
        written = list(self.spec.outputs)
        place = index - (len(self.outputs) - len(written))
        return written[place] if 0 <= place < len(written) else ""

    def with_name(self, verdict: Verdict) -> Verdict:
        """Return a verdict that names the argument whose values are wrong."""
        if not isinstance(verdict, Mismatch) or verdict.output is None:
            return verdict
        return replace(verdict, argument=self.argument_of(verdict.output))

    def result_count_mismatch(self, results: int) -> Mismatch | None:
        """Return a mismatch if kernel and reference differ in their number of results."""
        if results == len(self.outputs):
            return None
        declared = list(self.spec.outputs)
        theirs = len(self.outputs)
        returned = results - len(declared)
        if not declared:
            return Mismatch(
                "outputs",
                None,
                f"the kernel returned {arrays_text(returned)}, the reference {theirs}",
            )
        names = ", ".join(declared)
        arrays = "no other array"
        if returned:
            verb = "is" if returned == 1 else "are"
            arrays = f"{arrays_text(returned)} that {verb} not under outputs="
        message = (
            f"the kernel returned {arrays}, and outputs= names "
            f"{names}: {arrays_text(results)} to compare, and the reference returned {theirs}"
        )
        rule = (
            f"A reference returns the arrays that the kernel returns, then {names}. An argument "
            "under outputs= that the kernel returns counts once"
        )
        return Mismatch("outputs", None, f"{message}. {rule}")

    @cached_property
    def bounds(self) -> tuple[Expected, ...]:
        """The outputs with the error bound that follows from the spec alone."""
        spec = self.spec
        case = self.case
        roundings = spec.reduction_length(case.values), np.dtype(spec.accumulation)
        random = all(recipe.is_random for recipe in case.data.values())
        return tuple(
            expected_with_roundings(*form, magnitude, roundings, random)
            for form, magnitude in zip(self.forms, _magnitudes(self), strict=True)
        )

    @cached_property
    def in_float64(self) -> tuple[Array, ...] | None:
        """The outputs for float64 inputs; None if the reference rejects these.

        A NumPy reference computes in the dtype of its inputs: ``a + b`` of float32 rounds.
        """
        return self.evaluate(lambda name, array: array)

    @cached_property
    def precise(self) -> tuple[Array, ...]:
        """The outputs computed in float64 if possible, else the outputs as they are."""
        is_wide = all(
            array.dtype == np.float64 or not is_float_dtype(array.dtype)
            for array in self.outputs
        )
        if is_wide or self.in_float64 is None:
            return self.outputs
        return self.in_float64

    @cached_property
    def input_changes(self) -> tuple[Float64, ...] | None:
        """The change of each element of the outputs if the inputs change by a unit of float32.

        None if the reference rejects float64 inputs.
        """
        signs = np.random.default_rng(0)

        def perturb(name: str, array: Float64) -> Float64:
            return array * (1 + FLOAT32_UNIT * signs.choice((-1.0, 1.0), array.shape))

        return self._largest_changes(perturb, times=2)

    @cached_property
    def input_sensitivity(self) -> tuple[float, ...] | None:
        """The largest change of each output if the inputs change by one unit of float32.

        It is the maximum over all elements, because a single element may stay equal by chance.
        None if the reference rejects float64 inputs.
        """
        if self.input_changes is None:
            return None
        return tuple(float(change.max(initial=0)) for change in self.input_changes)

    @cached_property
    def input_size(self) -> float:
        """The largest finite absolute value of the inputs; 0 without one."""
        arrays = as_float64(tuple(self.inputs.values()))
        sizes = (np.abs(array[np.isfinite(array)]) for array in arrays)
        return max((float(size.max(initial=0.0)) for size in sizes), default=0.0)

    @cached_property
    def noise(self) -> tuple[Float64, ...]:
        """The error of each element that float64's own roundings may cause; 0 if unknown.

        A reference rounds too: ``1 + (-1 + 1e-38)`` is 0 in float64. Roundings of relative size
        ``2**-53`` change an element about as much as input changes of that size do. The input
        changes here are larger by ``2**29``, so that roundings do not hide them. Their sizes are
        random, so that the changes of two terms that cancel do not cancel.
        """
        sizes = np.random.default_rng(0)

        def perturb(name: str, array: Float64) -> Float64:
            return array * (1 + FLOAT32_UNIT * sizes.standard_normal(array.shape))

        changes = self._largest_changes(perturb, times=3)
        if changes is None:
            return tuple(np.zeros(value.shape) for value in self.values)
        scale = REFERENCE_FREEDOM * FLOAT64_SHARE
        return tuple(change * scale for change in changes)

    def _largest_changes(
        self, perturb: Callable[[str, Float64], Float64], times: int
    ) -> tuple[Float64, ...] | None:
        """Return the largest change of each output element over some perturbed inputs.

        None if the reference rejects such inputs. Elements that are not finite count as 0.
        """
        if self.in_float64 is None:
            return None
        original = as_float64(self.in_float64)
        largest = [np.zeros(value.shape) for value in original]
        for _ in range(times):
            perturbed = self.evaluate(perturb)
            if perturbed is None:
                return None
            for number, other in enumerate(as_float64(perturbed)):
                with np.errstate(invalid="ignore"):
                    change = abs(other - original[number])
                finite = np.where(np.isfinite(change), change, 0.0)
                largest[number] = np.maximum(finite, largest[number])
        return tuple(largest)

    def evaluate(
        self, change: Callable[[str, Float64], Float64]
    ) -> tuple[Array, ...] | None:
        """Return the reference's outputs for changed float64 inputs; None if it rejects them.

        ``change`` takes the name of an input and a copy of its array.
        """
        inputs = dict(self.inputs)
        for name, array in self.inputs.items():
            if is_float_dtype(array.dtype):
                inputs[name] = change(name, array.astype(np.float64))
        parameters = self.spec.parameters_of(self.case.values)
        try:
            outputs = call_reference(self.spec.reference, inputs, parameters)
        except (ReferenceDefect, ReferenceRefusal):
            return None
        shapes = [array.shape for array in self.outputs]
        return outputs if [array.shape for array in outputs] == shapes else None


def evaluate_reference(spec: KernelSpec, case: Case) -> ReferenceResult:
    """Return the reference's outputs for a case.

    Raises
    ------
    ReferenceRefusal : see :func:`difftest.testing.contract.reference.call_reference`.
    ReferenceDefect : see there; also if the reference runs a kernel that it has to judge.
    """
    arrays = spec.inputs_by_name(case)
    launched: list[object] = []
    with listening(lambda launch: launched.append(function_of(launch.kernel))):
        outputs = call_reference(
            spec.reference, arrays, spec.parameters_of(case.values)
        )
    if launched:
        _refuse_judged_kernel(spec, launched)
    return ReferenceResult(spec, case, arrays, outputs)


def _refuse_judged_kernel(spec: KernelSpec, launched: Collection[object]) -> None:
    """Raise an error if the reference launched a kernel that it has to judge."""
    for kernel in (spec.kernel, *spec.others):
        if function_of(kernel) in launched:
            name = function_name(spec.reference)
            raise ReferenceDefect(
                f"the reference {name} runs the kernel that it is to judge",
                rule="a reference is computed by other means: a kernel agrees with itself",
                received=f"a launch of {function_name(kernel)} in the reference",
                remedy="write the reference in NumPy, in float64",
            )


def _magnitudes(reference: ReferenceResult) -> tuple[Float64, ...]:
    """Return the magnitudes of all elements.

    A magnitude is at least the absolute value of the element. It replaces a magnitude that is not
    finite.
    """
    spec = reference.spec
    arrays = {name: np.abs(array) for name, array in reference.inputs.items()}
    function = spec.magnitude or spec.reference
    role = "magnitude" if spec.magnitude else "reference"
    parameters = spec.parameters_of(reference.case.values)
    try:
        outputs = call_reference(function, arrays, parameters, role)
    except ReferenceRefusal as refusal:
        raise SpecError(
            f"magnitude: the {role} {function_name(function)} rejects the absolute values of "
            f"inputs that the reference accepts, {format_error(refusal.error)}; accepted: "
            "magnitude=, a function that takes them and returns the sums of absolute values"
        ) from refusal.error
    magnitudes = as_float64(outputs)
    if spec.magnitude is not None:
        _check_magnitudes(reference, magnitudes, function_name(spec.magnitude))
    received = [array.shape for array in magnitudes]
    shapes = [array.shape for array in reference.values]
    if received != shapes:
        raise SpecError(
            f"magnitude: received shapes {received}; accepted: those of the reference, {shapes}"
        )
    return tuple(
        np.fmax(np.where(np.isfinite(magnitude), magnitude, 0.0), np.abs(value))
        for magnitude, value in zip(magnitudes, reference.values, strict=True)
    )


def _check_magnitudes(
    reference: ReferenceResult, magnitudes: Sequence[Float64], name: str
) -> None:
    """Raise a SpecError if a magnitude is negative, or NaN for finite inputs.

    ``name`` is the name of the function in the error.
    """
    is_finite = all(
        np.isfinite(array.astype(np.float64)).all()
        for array in reference.inputs.values()
    )
    for array in magnitudes:
        wrong = array[(array < 0) | (np.isnan(array) & is_finite)]
        if wrong.size:
            raise SpecError(
                f"magnitude: {name} returned {wrong.min():g} among "
                "its values; accepted: sums of absolute values, which are at least 0"
            )


def compare_exact(reference: ReferenceResult, ran: Completed) -> Answer:
    """Return the verdict on all outputs of a run that has an exact run.

    Algorithm and arithmetic are judged separately for each floating-point output. They are judged
    together for integers, and where a decision of the kernel depends on a rounded value.
    """
    exact = ran.exact
    assert exact is not None
    wrong = check_shapes(reference.forms, ran.outputs, ran.unwritten)
    if wrong is not None:
        return wrong
    lost = _algorithm(reference, exact, ran.outputs)
    if lost is not None:
        return lost
    verdicts = []
    is_open = False
    each = zip(reference.forms, ran.outputs, exact.outputs, strict=True)
    for index, ((_, dtype), got, output) in enumerate(each):
        if _has_two_verdicts(exact, dtype):
            verdicts.append(_arithmetic(index, dtype, got, output))
        else:
            verdicts.append(_compare_whole(index, reference, got, output))
        is_open = is_open or not (is_float_dtype(dtype) or _is_exact(output))
    return merge_verdicts(verdicts, OPEN) if is_open else merge_verdicts(verdicts)


def _is_exact(output: ExactOutput) -> bool:
    """Return whether no rounding may change an output."""
    error = output.error
    if error is None:
        return True
    # The first bound decides for most outputs, without a look at the others.
    if error.size and error.item(0):
        return False
    return not any(part.any() for (part,) in blocks(error))


def _has_two_verdicts(exact: ExactRun, dtype: np.dtype[Any]) -> bool:
    """Return whether algorithm and arithmetic of an output are judged separately."""
    return not exact.doubts and is_float_dtype(dtype)


def _algorithm(
    reference: ReferenceResult, exact: ExactRun, outputs: Sequence[Array]
) -> Mismatch | Inconclusive | None:
    """Compare the exact run with the reference, then with the reference in float64.

    ``outputs`` are the kernel's outputs, for the report.
    """
    precise = reference.precise
    verdicts = _compare_algorithms(reference, precise, exact)
    wrong = first_mismatch(verdicts)
    if wrong is None:
        return None
    wide = reference.in_float64
    if wide is not None and wide is not precise:
        others = _compare_algorithms(reference, wide, exact)
        if first_mismatch(others) is None:
            return None
        wrong = first_mismatch(_wrong_in_both(verdicts, others)) or wrong
    return _with_kernel_value(wrong, outputs) if isinstance(wrong, Mismatch) else wrong


def _wrong_in_both(
    verdicts: Sequence[Answer | None], others: Sequence[Answer | None]
) -> list[Mismatch]:
    """Return the mismatches of outputs that have one in ``others`` too.

    A mismatch in one of them alone may come from the reference's own roundings.
    """
    wrong = {other.output for other in others if isinstance(other, Mismatch)}
    return [
        verdict
        for verdict in verdicts
        if isinstance(verdict, Mismatch) and verdict.output in wrong
    ]


def _with_kernel_value(wrong: Mismatch, outputs: Sequence[Array]) -> Mismatch:
    """Return a mismatch of the exact run with the kernel's own value of the first wrong element."""
    first = wrong.first
    evidence = wrong.evidence
    index = wrong.output
    if first is None or evidence is None or index is None:
        return wrong
    output = outputs[index]
    at = first.index
    exact_value = float(evidence.got[at])
    kernel_value = str(output[at])
    error = error_in_ulp(exact_value, float(evidence.value[at]), output.dtype)
    exact = "" if exact_value == float(output[at]) else first.got
    first = replace(first, got=kernel_value, exact=exact, error=error)
    return replace(wrong, first=first)


def _compare_algorithms(
    reference: ReferenceResult, values: Sequence[Array], exact: ExactRun
) -> list[Answer]:
    """Compare the exact run with ``values``, the reference's outputs in some precision."""
    verdicts: list[Answer] = []
    each = zip(reference.forms, exact.outputs, strict=True)
    for index, ((value, dtype), output) in enumerate(each):
        if _has_two_verdicts(exact, dtype) and not _has_equal_bits(value, output.value):
            verdict = _compare_algorithm(reference, index, values[index], output)
            if verdict is not None:
                verdicts.append(verdict)
    return verdicts


def _compare_algorithm(
    reference: ReferenceResult, index: int, raw: Array, output: ExactOutput
) -> Answer | None:
    """Compare an output of the exact run with the reference's; None if they surely agree."""
    value = raw.astype(np.float64, copy=False)
    if _is_within_smallest_tolerance(value, output):
        return None
    tolerance = _limited_tolerance(
        _reference_tolerance(raw, value, output), value, reference, index
    )
    expected = expected_within(value, np.dtype(np.float64), tolerance, ALGORITHM)
    verdict = check_values(index, expected, output.value)
    if isinstance(verdict, Mismatch):
        # The reference itself may have lost these digits.
        tolerance = tolerance + reference.noise[index]
        expected = expected_within(value, expected.dtype, tolerance, ALGORITHM)
        verdict = check_values(index, expected, output.value)
    if not isinstance(verdict, Mismatch):
        return verdict
    # Report the output's dtype if the error shows there.
    _, dtype = reference.forms[index]
    got = round_once(output.value, dtype)
    rounded = check_values(index, expected._replace(dtype=dtype), got)
    return rounded if isinstance(rounded, Mismatch) else replace(verdict, hidden=True)


def _has_equal_bits(values: Float64, others: Float64) -> bool:
    """Return whether two arrays agree in all bits, those of NaN too."""
    # The first elements show most differences at a low cost.
    ours = values.view(np.int64)
    theirs = others.view(np.int64)
    if not np.array_equal(ours.flat[:16], theirs.flat[:16]):
        return False
    return ours.shape == theirs.shape and all(
        itertools.starmap(np.array_equal, blocks(ours, theirs))
    )


def _has_equal_values(got: Array, value: Float64) -> bool:
    """Return whether a machine's values have the bits of float64 values."""
    return all(
        _has_equal_bits(block.astype(np.float64), others)
        for block, others in blocks(got, value)
    )


def _distance(values: Array, others: Float64) -> Float64:
    """Return the absolute differences; NaN where either value is NaN."""
    distance = np.empty(values.shape)
    with np.errstate(all="ignore"):
        return np.abs(np.subtract(values, others, distance), distance)


def _is_within_smallest_tolerance(value: Float64, output: ExactOutput) -> bool:
    """Return whether all elements lie within the least of :func:`_limited_tolerance`.

    This quick check settles most outputs.
    """
    planes = [value, output.value]
    if output.error is not None:
        planes.append(output.error)
    return all(_is_near(*block) for block in blocks(*planes))


def _is_near(value: Float64, exact: Float64, error: Float64 | None = None) -> bool:
    """Return whether values lie within the smallest tolerance of the exact ones."""
    distance = _distance(value, exact)
    sizes = np.abs(value)
    left = ~(distance <= sizes * (REFERENCE_FREEDOM * FLOAT64_UNIT))
    if error is None or not left.any():
        return not left.any()
    sizes = sizes[left]
    tolerance = error[left] * (REFERENCE_FREEDOM * FLOAT64_SHARE)
    tolerance = np.fmin(
        tolerance + sizes * (REFERENCE_FREEDOM * FLOAT64_UNIT), EXCUSE * sizes
    )
    return bool((distance[left] <= tolerance).all())


def _reference_tolerance(raw: Array, value: Float64, output: ExactOutput) -> Float64:
    """Return the largest distance of a correct algorithm from the reference's values."""
    units = REFERENCE_FREEDOM * FLOAT64_UNIT
    scale = REFERENCE_FREEDOM * FLOAT64_SHARE
    unit = unit_roundoff(raw.dtype) if is_float_dtype(raw.dtype) else 0.0
    if unit > FLOAT64_UNIT:  # the reference has rounded at least once
        units = units + 2 * unit
        scale = unit / FLOAT32_UNIT
    sizes = np.maximum(np.abs(value), np.abs(output.value))
    tolerance = _scaled_bound(value, sizes, units, output.error, scale)
    excess = sizes - LARGEST_FLOAT32
    rounds_to_largest = (excess > 0) & (excess < HALF_UNIT_OF_LARGEST)
    wider = np.fmax(tolerance, HALF_UNIT_OF_LARGEST)
    return np.where(rounds_to_largest, wider, tolerance)


def _limited_tolerance(
    tolerance: Float64, value: Float64, reference: ReferenceResult, index: int
) -> Float64:
    """Return a tolerance, limited to the error that the reference's data explain.

    A wrong kernel can lose all digits: for example, it masks all keys of a row by scores of -1e30.
    Its error bound must not excuse that if the last digits of the inputs do not change the result.
    """
    sizes = np.abs(value)
    finite = sizes[np.isfinite(sizes)]
    least = EXCUSE * np.fmax(sizes, np.median(finite) if finite.size else 0.0)
    if not (tolerance > least).any() or reference.input_sensitivity is None:
        return tolerance
    change = EXCUSED_UNITS * reference.input_sensitivity[index]
    if not sizes.any() and not change:
        # ``log(exp(x)) - x`` is 0 for all inputs: it has no size of its own
        change = EXCUSE * reference.input_size
    return np.fmin(tolerance, least + change)


def _scaled_bound(
    value: Float64, sizes: Float64, units: float, error: Float64 | None, scale: float
) -> Float64:
    """Return ``units`` of the sizes plus ``scale`` of the error; 0 where ``value`` is not finite.

    A bound that would be NaN is infinite.
    """
    bound = np.where(np.isfinite(sizes), sizes, 0.0) * units
    if error is not None:
        bound = bound + scale * error
    bound = np.where(np.isnan(bound), np.inf, bound)
    return np.where(np.isfinite(value), bound, 0.0)


def _arithmetic(
    index: int, dtype: np.dtype[Any], got: Array, output: ExactOutput
) -> Answer:
    """Compare the machine's values with the exact ones, within the bound of their errors."""
    exact = _is_exact(output)
    if exact and _has_equal_values(got, output.value):
        finite = sum(int(np.isfinite(part).sum()) for (part,) in blocks(output.value))
        return Match(finite, True, got.size - finite)
    if _is_sure(got, output):
        return _unless_excused(Match(got.size, exact), index, dtype, output)
    # The ends of the interval are rounded into the output's dtype. The bound counts this rounding
    # already, so subtract it here: half a unit, or the whole rounding beyond the largest number.
    sizes = np.abs(output.value)
    largest = float(float_info(dtype).max)
    last = np.where(
        sizes > largest, sizes * unit_roundoff(dtype), ulp(sizes, dtype) / 2
    )
    flushed = (got == 0) & (sizes < FLUSHED) & (not exact)
    bound = np.fmax(_bound(output) - last, np.where(flushed, sizes, 0.0))
    expected = expected_within(output.value, dtype, bound, ARITHMETIC, exact=exact)
    return _unless_excused(check_values(index, expected, got), index, dtype, output)


def _is_sure(got: Array, output: ExactOutput) -> bool:
    """Return whether all values lie within the error of the exact ones, far from infinity."""
    if not got.size or not is_float_dtype(got.dtype):
        return False
    value = output.value
    error = output.error
    largest = functools.reduce(np.maximum, (part.max() for (part,) in blocks(value)))
    least = functools.reduce(np.minimum, (part.min() for (part,) in blocks(value)))
    most = max(largest, -least)
    planes = [got, value]
    if error is not None:
        planes.append(error)
        bounds = (part.max() for (part,) in blocks(error))
        most += 2 * functools.reduce(np.maximum, bounds)
    if not most < float(float_info(got.dtype).max) / 2:
        return False
    return all(_is_within(*block) for block in blocks(*planes))


def _is_within(got: Array, exact: Float64, error: Float64 | float = 0.0) -> bool:
    """Return whether all values lie within the error of the exact ones."""
    return bool((_distance(got, exact) <= error).all())


def _unless_excused(
    verdict: Answer, index: int, dtype: np.dtype[Any], output: ExactOutput
) -> Answer:
    """Return the verdict; inconclusive for a match whose bound leaves too few sure digits."""
    is_match = isinstance(verdict, Match)
    if not is_match or output.error is None or not is_float_dtype(dtype):
        return verdict
    error = output.error
    most = max(EXCUSE, EXCUSED_UNITS * unit_roundoff(dtype))
    least = float(float_info(dtype).smallest_normal)
    if _are_most_sure(output.value, error, min(most, 0.5), least):
        return verdict
    sizes = np.abs(output.value)
    zero = np.isfinite(error) & (sizes <= NOISE * error)
    decisive = np.isfinite(sizes) & (sizes > 0) & ~zero
    if not decisive.any():
        return verdict
    if (error[decisive] >= sizes[decisive]).all():
        return Inconclusive(
            f"no digit of output {index} is sure: rounding may change it by "
            f"{float(error.max()):.2g}, and its largest value is {float(sizes.max()):.2g}"
        )
    normal = decisive & (sizes >= least) & np.isfinite(error)
    if not normal.any() or float(np.median(error[normal] / sizes[normal])) <= most:
        return verdict
    return Inconclusive(
        f"few digits of output {index} are sure: rounding may change the median element by more "
        f"than {most:.0%} of its value, which float64 knows; a formula that cancels less keeps them"
    )


def _are_most_sure(value: Float64, error: Float64, most: float, least: float) -> bool:
    """Return whether the bounds of more than half of the elements leave sure digits.

    This quick check settles most outputs: then more than half of the decisive elements are sure,
    too.

    Parameters
    ----------
    most : the largest bound, as a share of the element's value.
    least : the smallest value that counts.
    """
    sure = 0
    for values, bounds in blocks(value, error, most=2**15):
        sizes = np.abs(values)
        near = (bounds <= most * sizes) & (sizes >= least)
        sure += int(np.count_nonzero(near & np.isfinite(sizes)))
        if 2 * sure > error.size:
            return True
    return False


def _bound(output: ExactOutput) -> Float64:
    """Return the error bound of each element, including the error of float64 itself."""
    sizes = np.abs(output.value)
    own = 4 * FLOAT64_UNIT
    return _scaled_bound(output.value, sizes, own, output.error, 1 + BOUND_SLACK)


def _compare_whole(
    index: int, reference: ReferenceResult, got: Array, output: ExactOutput
) -> Answer:
    """Compare the machine's values with the reference's.

    This judges integers, and runs in which a rounded value has decided a comparison or an index.
    """
    raw = reference.precise[index]
    dtype = reference.forms[index][1]
    value = raw.astype(np.float64)
    error = _reference_tolerance(raw, value, output) + _bound(output)
    exact = not is_float_dtype(dtype) and _is_exact(output)
    verdict = check_values(
        index, expected_within(value, dtype, error, exact=exact), got
    )
    if isinstance(verdict, Match) and not is_float_dtype(dtype):
        return _count_sure_integers(verdict, output)
    if isinstance(verdict, Mismatch) and is_float_dtype(dtype):
        error = error + reference.noise[index]
        verdict = check_values(
            index, expected_within(value, dtype, error, exact=exact), got
        )
    return _unless_excused(verdict, index, dtype, output)


def _count_sure_integers(verdict: Match, output: ExactOutput) -> Match:
    """Return a match that counts sure integers only: an open decision allows several values."""
    if output.error is None:
        return verdict
    decided = int(np.count_nonzero(output.error < 1))
    return verdict._replace(elements=decided, nonfinite=output.value.size - decided)
