"""Two questions asked apart of a kernel that has run beside its exact run.

*Is the algorithm correct?* What the kernel computes without rounding is compared with the
reference, within what float64 may lose. *Is the arithmetic good enough?* What the machine has
computed is compared with the exact run, within the error that its instructions' roundings may come
to. Neither needs a number from the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from difftest.simulator.exact.run import ExactOutput, ExactRun
from difftest.simulator.launch_listeners import listening
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
from difftest.testing.harness.case import Case
from difftest.testing.harness.compare import (
    Answer,
    Expected,
    around,
    check_shapes,
    check_values,
    counted,
    error_in_ulp,
    first_mismatch,
    merge_verdicts,
    tolerated,
)
from difftest.testing.harness.reference import (
    ReferenceDefect,
    ReferenceRefusal,
    as_float64,
    call_reference,
)
from difftest.testing.harness.spec import KernelSpec
from difftest.testing.harness.spec_arguments import SpecError
from difftest.testing.harness.verdict import Inconclusive, Match, Mismatch, Verdict

FLOAT64_UNIT = 2.0**-53
FLOAT32_UNIT = 2.0**-24
REFERENCE_FREEDOM = 2.0**10
"""How many times the exact run's own float64 error the reference may differ from it: its formulas
are others, and may lose three digits more. What is left of float64 still tells 1 in 2**43 apart."""
FLUSHED = 2.0**-126
"""Float32's smallest normal number: what rounds to less may be 0, as exp below -87 is on a trn1
(public record)."""
NOISE = 2.0**-26
"""Of the bound: what float64 leaves of a number where float32 may err by the bound. An exact value
below that is a 0 that float64 could not meet, such as the variance of a constant."""
EXCUSE = 2.0**-6
EXCUSED_UNITS = 2.0**5
"""How much of the median element a bound may excuse, relative to it, and in units of the output's
dtype: a float32 sum of 8,192 terms of both signs, and attention in bfloat16, stay below both."""
OPEN = "no element is sure: a rounding may change each of these integers"
ALGORITHM = "algorithm"
ARITHMETIC = "arithmetic"


@dataclass(frozen=True)
class ReferenceResult:
    """What the reference says of one case, in the dtypes in which it says it."""

    spec: KernelSpec
    case: Case
    inputs: Mapping[str, Array]
    outputs: tuple[Array, ...]

    @cached_property
    def values(self) -> tuple[Float64, ...]:
        """Its outputs, float64."""
        return as_float64(self.outputs)

    @cached_property
    def forms(self) -> list[tuple[Float64, np.dtype[Any]]]:
        """Its outputs, float64, each with the dtype of the kernel's."""
        dtypes = self.spec.result_dtypes(self.case, len(self.values))
        return list(zip(self.values, dtypes, strict=False))

    def argument_of(self, index: int) -> str:
        """Return the argument that result ``index`` is; empty for a returned array."""
        written = list(self.spec.outputs)
        place = index - (len(self.outputs) - len(written))
        return written[place] if 0 <= place < len(written) else ""

    def with_name(self, verdict: Verdict) -> Verdict:
        """Return a verdict that names the argument whose values are wrong."""
        if not isinstance(verdict, Mismatch) or verdict.output is None:
            return verdict
        return replace(verdict, argument=self.argument_of(verdict.output))

    def wrong_count(self, results: int) -> Mismatch | None:
        """Say that the kernel has another number of results than the reference, if it has."""
        if results == len(self.outputs):
            return None
        declared = list(self.spec.outputs)
        theirs = len(self.outputs)
        returned = results - len(declared)
        if not declared:
            return Mismatch(
                "outputs", None, f"the kernel returned {counted(returned)}, the reference {theirs}"
            )
        names = ", ".join(declared)
        arrays = f"{counted(returned)} that {'is' if returned == 1 else 'are'} not under outputs="
        message = (
            f"the kernel returned {arrays if returned else 'no other array'}, and outputs= names "
            f"{names}: {counted(results)} to compare, and the reference returned {theirs}"
        )
        rule = (
            f"A reference returns the arrays that the kernel returns, then {names}. An argument "
            "under outputs= that the kernel returns counts once"
        )
        return Mismatch("outputs", None, f"{message}. {rule}")

    @cached_property
    def bounds(self) -> tuple[Expected, ...]:
        """Its outputs with the bound that follows from the spec alone."""
        spec = self.spec
        case = self.case
        roundings = spec.reduction_length(case.values), np.dtype(spec.accumulation)
        random = all(recipe.is_random for recipe in case.data.values())
        return tuple(
            tolerated(*form, magnitude, roundings, random)
            for form, magnitude in zip(self.forms, _magnitudes(self), strict=True)
        )

    @cached_property
    def in_float64(self) -> tuple[Array, ...] | None:
        """Its outputs for the same inputs in float64; None if it refuses those.

        A reference on NumPy computes in the dtype that it is given: ``a + b`` of float32 rounds.
        """
        return self._of(lambda array: array)

    @cached_property
    def precise(self) -> tuple[Array, ...]:
        """Its outputs in float64, if it has such."""
        is_wide = all(a.dtype == np.float64 or not is_float_dtype(a.dtype) for a in self.outputs)
        return self.outputs if is_wide or self.in_float64 is None else self.in_float64

    @cached_property
    def input_sensitivity(self) -> tuple[float, ...] | None:
        """How far each output moves where the inputs move by a unit of float32; None as above.

        The most of all elements: that one stays where it is may be chance.
        """
        signs = np.random.default_rng(0)

        def shaken(array: Float64) -> Float64:
            return array * (1 + FLOAT32_UNIT * signs.choice((-1.0, 1.0), array.shape))

        moves = self._moves(shaken, times=2)
        return None if moves is None else tuple(float(move.max(initial=0)) for move in moves)

    @cached_property
    def noise(self) -> tuple[Float64, ...]:
        """How far float64's own roundings may lead each element of each output; 0 if unknown.

        A reference rounds too: ``1 + (-1 + 1e-38)`` is 0 in float64. Roundings of relative size
        ``2**-53`` lead an element about as far as such changes of the inputs do. The changes are
        larger here by ``2**29``, so that roundings do not hide them. They are of any size, so that
        those of two terms that cancel do not cancel.
        """
        sizes = np.random.default_rng(0)

        def shaken(array: Float64) -> Float64:
            return array * (1 + FLOAT32_UNIT * sizes.standard_normal(array.shape))

        moves = self._moves(shaken, times=3)
        if moves is None:
            return tuple(np.zeros(value.shape) for value in self.values)
        scale = REFERENCE_FREEDOM * FLOAT64_UNIT / FLOAT32_UNIT
        return tuple(move * scale for move in moves)

    def _moves(
        self, shaken: Callable[[Float64], Float64], times: int
    ) -> tuple[Float64, ...] | None:
        """How far each element of each output moves, at most, where inputs change so.

        None if the reference refuses such inputs. Elements that are not finite count as 0.
        """
        if self.in_float64 is None:
            return None
        at = as_float64(self.in_float64)
        most = [np.zeros(value.shape) for value in at]
        for _ in range(times):
            moved = self._of(shaken)
            if moved is None:
                return None
            with np.errstate(invalid="ignore"):
                moves = [abs(far - near) for far, near in zip(as_float64(moved), at, strict=True)]
            finite = [np.where(np.isfinite(move), move, 0.0) for move in moves]
            most = [np.maximum(move, so_far) for move, so_far in zip(finite, most, strict=True)]
        return tuple(most)

    def _of(self, change: Callable[[Float64], Float64]) -> tuple[Array, ...] | None:
        inputs = {
            name: change(array.astype(np.float64)) if is_float_dtype(array.dtype) else array
            for name, array in self.inputs.items()
        }
        parameters = self.spec.parameters_of(self.case.values)
        try:
            outputs = call_reference(self.spec.reference, inputs, parameters)
        except (ReferenceDefect, ReferenceRefusal):
            return None
        shapes = [array.shape for array in self.outputs]
        return outputs if [array.shape for array in outputs] == shapes else None


def evaluate_reference(spec: KernelSpec, case: Case) -> ReferenceResult:
    """What the reference says of a case.

    Raises
    ------
    ReferenceRefusal : see :func:`difftest.testing.harness.reference.call_reference`.
    ReferenceDefect : see there; or it runs one of the kernels that it is to judge.
    """
    arrays = dict(zip(spec.inputs, spec.inputs_of(case), strict=True))
    launched: list[object] = []
    with listening(lambda testimony: launched.append(function_of(testimony.kernel))):
        outputs = call_reference(spec.reference, arrays, spec.parameters_of(case.values))
    judged = [kernel for kernel in (spec.kernel, *spec.others) if function_of(kernel) in launched]
    if judged:
        raise ReferenceDefect(
            f"the reference {function_name(spec.reference)} runs the kernel that it is to judge",
            rule="a reference is computed by other means: a kernel agrees with itself",
            received=f"a launch of {function_name(judged[0])} in the reference",
            remedy="write the reference in NumPy, in float64",
        )
    return ReferenceResult(spec, case, arrays, outputs)


def _magnitudes(reference: ReferenceResult) -> tuple[Float64, ...]:
    """The magnitudes, at least as large as the values; where they are not finite, the values'."""
    spec = reference.spec
    case = reference.case
    values = reference.values
    arrays = {name: np.abs(array) for name, array in reference.inputs.items()}
    function = spec.magnitude or spec.reference
    role = "magnitude" if spec.magnitude else "reference"
    try:
        outputs = call_reference(function, arrays, spec.parameters_of(case.values), role)
    except ReferenceRefusal as refusal:
        raise SpecError(
            f"magnitude: the {role} {function_name(function)} refuses the absolute values "
            f"of inputs that "
            f"the reference accepts, {format_error(refusal.error)}; accepted: magnitude=, a "
            f"function "
            "that takes them and returns the sums of absolute values"
        ) from refusal.error
    magnitudes = as_float64(outputs)
    finite = all(np.isfinite(array.astype(np.float64)).all() for array in reference.inputs.values())
    for array in magnitudes if spec.magnitude is not None else ():
        wrong = array[(array < 0) | (np.isnan(array) & finite)]
        if wrong.size:
            raise SpecError(
                f"magnitude: {function_name(function)} returned {wrong.min():g} among its values; "
                "accepted: sums of absolute values, which are at least 0"
            )
    received, shapes = ([array.shape for array in of] for of in (magnitudes, values))
    if received != shapes:
        accepted = f"those of the reference, {shapes}"
        raise SpecError(f"magnitude: received shapes {received}; accepted: {accepted}")
    return tuple(
        np.fmax(np.where(np.isfinite(magnitude), magnitude, 0.0), np.abs(value))
        for magnitude, value in zip(magnitudes, values, strict=True)
    )


def compare_exact(reference: ReferenceResult, ran: Completed) -> Answer:
    """The verdict on all outputs of a run that has an exact run beside it.

    Both questions of each output; one of integers, and where a rounded value has decided.
    """
    exact = ran.exact
    assert exact is not None
    if wrong := check_shapes(reference.forms, ran.outputs, ran.unwritten):
        return wrong
    if lost := _algorithm(reference, exact, ran.outputs):
        return lost
    forms = list(zip(reference.forms, exact.outputs, strict=True))
    each = enumerate(zip(reference.forms, ran.outputs, exact.outputs, strict=True))
    verdicts = [
        _arithmetic(index, dtype, got, output)
        if _are_two(exact, dtype)
        else _as_a_whole(index, reference, got, output)
        for index, ((_, dtype), got, output) in each
    ]
    is_open = any(_has_open_integers(*form, output) for form, output in forms)
    return merge_verdicts(verdicts, OPEN) if is_open else merge_verdicts(verdicts)


def _has_open_integers(value: Float64, dtype: np.dtype[Any], output: ExactOutput) -> bool:
    """Return whether an output of integers has some that a rounding may change."""
    return not is_float_dtype(dtype) and output.error is not None and bool(output.error.any())


def _are_two(exact: ExactRun, dtype: np.dtype[Any]) -> bool:
    return not exact.doubts and is_float_dtype(dtype)


def _algorithm(
    reference: ReferenceResult, exact: ExactRun, outputs: Sequence[Array]
) -> Mismatch | Inconclusive | None:
    """The exact run against the reference; once more against a reference in float64.

    ``outputs`` are the kernel's own, for the report.
    """
    wrong = first_mismatch(_compare_algorithms(reference, "precise", exact))
    if wrong is not None and not (
        reference.in_float64 is None or reference.in_float64 is reference.precise
    ):
        if first_mismatch(_compare_algorithms(reference, "in_float64", exact)):
            wrong = wrong
        else:
            wrong = None
    return _beside_the_kernels(wrong, outputs) if isinstance(wrong, Mismatch) else wrong


def _beside_the_kernels(wrong: Mismatch, outputs: Sequence[Array]) -> Mismatch:
    """A mismatch of the exact run, whose first element shows the kernel's own number too."""
    first = wrong.first
    seen = wrong.evidence
    index = wrong.output
    if first is None or seen is None or index is None:
        return wrong
    own = outputs[index]
    at = first.index
    judged = float(seen.got[at])
    given = str(own[at])
    error = error_in_ulp(judged, float(seen.value[at]), own.dtype)
    exact = "" if judged == float(own[at]) else first.got
    first = replace(first, got=given, exact=exact, error=error)
    return replace(wrong, first=first)


def _compare_algorithms(
    reference: ReferenceResult, which: str, exact: ExactRun
) -> list[Answer | None]:
    verdicts: list[Answer | None] = []
    each = zip(reference.forms, exact.outputs, strict=True)
    for index, ((value, dtype), output) in enumerate(each):
        if not _are_two(exact, dtype) or _has_bits(value, output.value):
            continue
        raw = getattr(reference, which)[index]
        value = raw.astype(np.float64, copy=False)
        if _is_surely_free(value, output):
            continue
        freedom = _earned(_freedom(raw, value, output), value, reference, index)
        within = around(value, np.dtype(np.float64), freedom, ALGORITHM)
        verdict = check_values(index, within, output.value)
        if isinstance(verdict, Mismatch):  # unless the reference has lost these digits itself
            within = around(value, within.dtype, freedom + reference.noise[index], ALGORITHM)
            verdict = check_values(index, within, output.value)
        if isinstance(verdict, Mismatch):  # in the output's own digits, if they show it
            got = round_once(output.value, dtype)
            shown = check_values(index, within._replace(dtype=dtype), got)
            verdict = shown if isinstance(shown, Mismatch) else replace(verdict, hidden=True)
        verdicts.append(verdict)
    return verdicts


def _has_bits(values: Float64, others: Float64) -> bool:
    """Whether values have the bits of others, NaN too."""
    # of most the first tell
    ours = values.view(np.int64)
    theirs = others.view(np.int64)
    return np.array_equal(ours.flat[:16], theirs.flat[:16]) and np.array_equal(ours, theirs)


def _apart(values: Array, others: Float64) -> Float64:
    """How far values lie from others; NaN from NaN."""
    apart = np.empty(values.shape)
    with np.errstate(all="ignore"):
        return np.abs(np.subtract(values, others, apart), apart)


def _is_surely_free(value: Float64, output: ExactOutput) -> bool:
    """Whether no more than the freedom that :func:`_earned` leaves is taken. Most take less."""
    apart = _apart(value, output.value)
    sizes = np.abs(value)
    left = ~(apart <= sizes * (REFERENCE_FREEDOM * FLOAT64_UNIT))
    if output.error is None or not left.any():
        return not left.any()
    sizes = sizes[left]
    freedom = output.error[left] * (REFERENCE_FREEDOM * 2.0**-29)
    freedom = np.fmin(freedom + sizes * (REFERENCE_FREEDOM * FLOAT64_UNIT), EXCUSE * sizes)
    return bool((apart[left] <= freedom).all())


def _freedom(raw: Array, value: Float64, output: ExactOutput) -> Float64:
    """How far a correct algorithm may lie from the reference's value."""
    units = REFERENCE_FREEDOM * FLOAT64_UNIT
    scale = REFERENCE_FREEDOM * 2.0**-29
    unit = unit_roundoff(raw.dtype) if is_float_dtype(raw.dtype) else 0.0
    if unit > FLOAT64_UNIT:  # it has rounded, and at least once
        units = units + 2 * unit
        scale = unit / FLOAT32_UNIT
    sizes = np.maximum(np.abs(value), np.abs(output.value))
    return _finite(value, sizes, units, output.error, scale)


def _earned(freedom: Float64, value: Float64, reference: ReferenceResult, index: int) -> Float64:
    """The freedom as far as the reference's data explain it.

    A wrong kernel can lose all digits, as one that hides all keys of a row by scores of -1e30 does.
    Its own error says nothing of a result that does not depend on the last digits of the inputs.
    """
    sizes = np.abs(value)
    finite = sizes[np.isfinite(sizes)]
    least = EXCUSE * np.fmax(sizes, np.median(finite) if finite.size else 0.0)
    if not (freedom > least).any() or reference.input_sensitivity is None:
        return freedom
    return np.fmin(freedom, least + EXCUSED_UNITS * reference.input_sensitivity[index])


def _finite(
    value: Float64, sizes: Float64, units: float, error: Float64 | None, scale: float
) -> Float64:
    """So much of the sizes and of the error: the bound of what is finite. NaN bounds nothing."""
    bound = np.where(np.isfinite(sizes), sizes, 0.0) * units
    if error is not None:
        bound = bound + scale * error
    bound = np.where(np.isnan(bound), np.inf, bound)
    return np.where(np.isfinite(value), bound, 0.0)


def _arithmetic(index: int, dtype: np.dtype[Any], got: Array, output: ExactOutput) -> Answer:
    """The machine's values against the exact ones, within the bound of their errors."""
    exact = output.error is None or not output.error.any()
    if exact and _has_bits(got.astype(np.float64), output.value):
        finite = int(np.isfinite(output.value).sum())
        return Match(finite, True, got.size - finite)
    if _is_sure(got, output):
        return _unless_excused(Match(got.size, exact), index, dtype, output)
    # What the bound counts of the rounding into the output's dtype, which its ends get once more:
    # half a unit, or all where less would make infinities of what rounds to the largest number.
    sizes = np.abs(output.value)
    largest = float(float_info(dtype).max)
    last = np.where(sizes > largest, sizes * unit_roundoff(dtype), ulp(sizes, dtype) / 2)
    flushed = (got == 0) & (sizes < FLUSHED) & (not exact)
    bound = np.fmax(_bound(output) - last, np.where(flushed, sizes, 0.0))
    within = around(output.value, dtype, bound, ARITHMETIC, exact=exact)
    return _unless_excused(check_values(index, within, got), index, dtype, output)


def _is_sure(got: Array, output: ExactOutput) -> bool:
    """Whether all lie within the error itself of the exact values, far from infinity."""
    if not got.size or not is_float_dtype(got.dtype):
        return False
    value = output.value
    error = 0.0 if output.error is None else output.error
    most = max(value.max(), -value.min()) + 2 * np.max(error)
    far = float(float_info(got.dtype).max) / 2
    return bool(most < far and (_apart(got, value) <= error).all())


def _unless_excused(
    verdict: Answer, index: int, dtype: np.dtype[Any], output: ExactOutput
) -> Answer:
    """The verdict; inconclusive if it is a match that a bound without digits gives away."""
    if not isinstance(verdict, Match) or output.error is None or not is_float_dtype(dtype):
        return verdict
    sizes = np.abs(output.value)
    error = np.broadcast_to(output.error, sizes.shape)
    most = max(EXCUSE, EXCUSED_UNITS * unit_roundoff(dtype))
    least = float(float_info(dtype).smallest_normal)
    sure = (error <= min(most, 0.5) * sizes) & (sizes >= least) & np.isfinite(sizes)
    if 2 * np.count_nonzero(sure) > sure.size:  # more than half of those below, too
        return verdict
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


def _bound(output: ExactOutput) -> Float64:
    """The bound of each element, with what float64 itself may lose on the way."""
    return _finite(output.value, np.abs(output.value), 4 * FLOAT64_UNIT, output.error, 1 + 2.0**-20)


def _as_a_whole(index: int, reference: ReferenceResult, got: Array, output: ExactOutput) -> Answer:
    """The machine's values against the reference's.

    So they are compared where a rounded value has decided something, and where they are integers.
    """
    raw = reference.precise[index]
    dtype = reference.forms[index][1]
    value = raw.astype(np.float64)
    error = _freedom(raw, value, output) + _bound(output)
    exact = not is_float_dtype(dtype) and (output.error is None or not output.error.any())
    verdict = check_values(index, around(value, dtype, error, exact=exact), got)
    if isinstance(verdict, Match) and not is_float_dtype(dtype):
        return _of_sure_integers(verdict, output)
    if isinstance(verdict, Mismatch) and is_float_dtype(dtype):
        error = error + reference.noise[index]
        verdict = check_values(index, around(value, dtype, error, exact=exact), got)
    return _unless_excused(verdict, index, dtype, output)


def _of_sure_integers(verdict: Match, output: ExactOutput) -> Match:
    """Return a match that counts sure integers only: of an open decision several are right."""
    if output.error is None:
        return verdict
    decided = int(np.count_nonzero(np.broadcast_to(output.error, output.value.shape) < 1))
    return verdict._replace(elements=decided, nonfinite=output.value.size - decided)
