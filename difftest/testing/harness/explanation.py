"""Explain a wrong output in a few lines: its likely mistake, and the origin of its errors.

A guess names a mistake that would leave just these values. It is reported only if it explains every
wrong element within the bounds of the right values. The values must also differ enough: zeros and
ones look equal when they are transposed, shifted or scaled. The origin of the errors, and the
effect of the data, come from the notes of the case's exact run.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import NamedTuple

import ml_dtypes
import numpy as np

from difftest.analysis.finding import Finding
from difftest.simulator.errors import Location
from difftest.simulator.exact.contract import RUNNING_SUM, Narrowing
from difftest.simulator.exact.losses import Loss
from difftest.simulator.exact.run import ExactRun
from difftest.support.rounding import (
    Array,
    Float64,
    Mask,
    float_info,
    is_float_dtype,
    round_once,
    ulp,
)
from difftest.testing.contract.case import Case
from difftest.testing.contract.reference import (
    ReferenceDefect,
    ReferenceRefusal,
    as_float64,
    call_reference,
)
from difftest.testing.contract.sources import values_in
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.sizes import source_of
from difftest.testing.harness.differential import ReferenceResult
from difftest.testing.harness.verdict import (
    Inconclusive,
    Mismatch,
    Verdict,
    WrongOutput,
)

Evaluate = Callable[[Mapping[str, Array]], Float64 | None]
"""Return the reference's output for other inputs of the same shapes; None if it rejects them."""


class Guess(NamedTuple):
    """A mistake that may explain a wrong output.

    Attributes
    ----------
    text : the mistake in words.
    low, high : the bounds of the values that it leaves.
    at : the elements to compare.
    """

    text: str
    low: Float64
    high: Float64
    at: Mask

    def explains(self, values: Float64, slack: Float64 | float) -> bool:
        """Return whether values are within the bounds, widened by ``slack``."""
        inside = (self.low - slack <= values) & (values <= self.high + slack)
        return bool(inside[self.at].all())


TILES = (512, 128)
"""The elements of a whole tile: the free dimension of a matmul, and the partitions."""
_TELLING = 3
"""The least number of different values: with fewer, a guess could fit by chance."""
_ROUNDINGS = 16
"""Errors up to this many units, or this many times the allowed error, count as roundings."""
KEPT = 100
"""The number of agreeing cases that are kept, so that long runs need no more memory."""
_NARROW = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))


def describe_mismatch(
    spec: KernelSpec, case: Case, mismatch: Mismatch
) -> tuple[str, ...]:
    """Return the pattern and the place of a wrong output, in words; empty if there is none."""
    evidence = mismatch.evidence
    index = mismatch.output
    parameters = spec.parameters_of(case.values)
    if evidence is None or index is None:
        return ()

    def evaluate(inputs: Mapping[str, Array]) -> Float64 | None:
        try:
            return as_float64(call_reference(spec.reference, inputs, parameters))[index]
        except (ReferenceDefect, ReferenceRefusal, IndexError, MemoryError, OSError):
            return None

    inputs = spec.inputs_by_name(case)
    sizes = [
        value
        for name, value in parameters.items()
        if type(value) is int and _may_be_a_size(spec, case, name)
    ]
    with np.errstate(all="ignore"):
        content = next(_patterns(mismatch, evidence, inputs, evaluate), "")
    return tuple(filter(None, (content, last_tile(evidence.wrong, sizes))))


def _may_be_a_size(spec: KernelSpec, case: Case, name: str) -> bool:
    """Return whether a parameter may be the size of a tile. One that may be 0 is a place."""
    try:
        values = values_in(source_of(spec, name, case.values))
    except Exception:
        # The author's function rejects an example outside of the domain.
        return True
    return 0 not in values


def _patterns(
    mismatch: Mismatch,
    output: WrongOutput,
    inputs: Mapping[str, Array],
    evaluate: Evaluate,
) -> Iterator[str]:
    """Yield the mistakes that explain all wrong elements, the most certain first."""
    if mismatch.kind == "unwritten":
        yield "never written"
    values = output.got.astype(np.float64)
    wrong = values[output.wrong]
    is_zero = wrong.size > 1 and not wrong.any()
    if is_zero and output.value[output.wrong].any():
        yield "all zero: each wrong element is 0"
    if not np.isfinite(wrong).all():
        return
    if mismatch.question != "algorithm":  # the exact run does not round
        yield from _rounding_patterns(output, values)
    if np.unique(wrong).size < _TELLING:
        return
    yield from _explaining(_rearranged(output), output, values, 0.0)
    # A computed guess rounds once more than the kernel does.
    unit = ulp(np.where(np.isfinite(values), values, 1.0), output.got.dtype)
    computed = chain(_scaled(output, values), _missing_parts(output, inputs, evaluate))
    yield from _explaining(computed, output, values, unit)


def _explaining(
    guesses: Iterable[Guess],
    output: WrongOutput,
    values: Float64,
    slack: Float64 | float,
) -> Iterator[str]:
    """Yield the mistakes that explain the kernel's values, and not the right ones."""
    for guess in guesses:
        if not guess.explains(values, slack) or guess.explains(output.value, slack):
            continue
        if np.unique(values[guess.at]).size >= _TELLING:
            yield guess.text


def _rounding_patterns(output: WrongOutput, values: Float64) -> Iterator[str]:
    """Yield a text if errors are as small as roundings, or values fit a narrower dtype."""
    at = output.wrong
    expected = output.value[at]
    got = values[at]
    dtype = output.got.dtype
    if not is_float_dtype(dtype) or not np.isfinite(expected).all():
        return
    error = np.abs(got - expected)
    for narrow in _NARROW:
        eps = float(float_info(narrow).eps)
        if narrow.itemsize < dtype.itemsize and np.unique(got).size >= _TELLING:
            held = (got.astype(narrow).astype(np.float64) == got).all()
            if held and (error <= eps * np.abs(expected)).all():
                yield f"rounding only: each wrong element is a {narrow} number"
    allowed = (output.high - output.low)[at] / 2
    unit = np.maximum(allowed, ulp(expected, dtype))
    if (error <= _ROUNDINGS * unit).all():
        most = float((error / unit).max())
        yield f"rounding only: at most {most:.3g} times the allowed error or a unit of {dtype}"


def _rearranged(output: WrongOutput) -> Iterator[Guess]:
    """Yield the right values in other places."""
    low = output.low
    high = output.high
    every = np.ones_like(output.wrong)
    for axis, other in combinations(range(low.ndim), 2):
        yield Guess(
            f"transposed: axes {axis} and {other} are swapped",
            low.swapaxes(axis, other).reshape(low.shape),
            high.swapaxes(axis, other).reshape(high.shape),
            every,
        )
    for axis in range(low.ndim):
        text = f"reversed along axis {axis}"
        yield Guess(text, np.flip(low, axis), np.flip(high, axis), every)
        for step, sign in ((1, "-"), (-1, "+")):
            inner = output.wrong.copy()
            inner[(slice(None),) * axis + (min(step, 0),)] = False
            text = f"shifted by one along axis {axis}: [i] has what belongs at [i {sign} 1]"
            yield Guess(
                text, np.roll(low, step, axis), np.roll(high, step, axis), inner
            )


def _scaled(output: WrongOutput, values: Float64) -> Iterator[Guess]:
    """Yield the right values times the median factor of the wrong ones."""
    at = output.wrong & (output.value != 0)
    factor = float(np.median(values[at] / output.value[at])) if at.any() else 0.0
    if factor:
        low = output.low * factor
        high = output.high * factor
        digits = 4 if abs(factor - 1) > 1e-3 else 9
        text = (
            f"scaled: each wrong element is {factor:.{digits}g} times the right value"
        )
        yield Guess(text, np.minimum(low, high), np.maximum(low, high), output.wrong)


def _missing_parts(
    output: WrongOutput, inputs: Mapping[str, Array], evaluate: Evaluate
) -> Iterator[Guess]:
    """Yield the reference's values without a part of an input."""
    half = (output.high - output.low) / 2
    for name, array, text in _reduced_inputs(inputs):
        without = evaluate({**inputs, name: array})
        if without is not None and without.shape == half.shape:
            yield Guess(text, without - half, without + half, output.wrong)


def _reduced_inputs(inputs: Mapping[str, Array]) -> Iterator[tuple[str, Array, str]]:
    """Yield each input without a part of it: its name, the rest, and the mistake in words."""
    for name, array in inputs.items():
        yield name, np.zeros_like(array), f"a missing term: as if {name} were all 0"
        yield name, np.ones_like(array), f"a missing factor: as if {name} were all 1"
        if is_float_dtype(array.dtype):
            yield name, -array, f"a wrong sign: as if {name} were negative"
        for axis in range(array.ndim):
            for start, part in _last_parts(array.shape[axis]).items():
                rest = array.copy()
                rest[(slice(None),) * axis + (slice(start, None),)] = 0
                text = (
                    f"a missing last term: as if {name} had not {part} of axis {axis}"
                )
                yield name, rest, text


def _last_parts(size: int) -> dict[int, str]:
    """Return the starts of the last parts of an axis, in words; never the whole axis."""
    parts = {size - 1: "the last"}
    for tile in TILES:
        parts[(size - 1) // tile * tile] = f"the last tile of {tile}"
    return {start: part for start, part in parts.items() if start}


def last_tile(wrong: Mask, sizes: Sequence[int] = ()) -> str:
    """Return the text for errors in the last tile of an axis only; else empty."""
    for axis, size in enumerate(wrong.shape):
        others = tuple(place for place in range(wrong.ndim) if place != axis)
        places = np.flatnonzero(wrong.any(axis=others))
        start = int(places[0]) if places.size else 0
        if start == 0 or places.size != size - start:
            continue
        tile = _tile_before(start, size, (*TILES, *sizes))
        if tile:
            return f"the last tile: axis {axis} from {start} on, after whole tiles of {tile}"
    return ""


def _tile_before(start: int, size: int, tiles: Iterable[int]) -> int:
    """Return the size of the tiles before the last one, which begins at ``start``; 0 if none."""
    for tile in tiles:
        if tile > 1 and start % tile == 0 and size - start <= tile:
            return tile
    return 0


@dataclass
class CaseHistory:
    """The cases of one kernel in a test: the last cases that agreed, and all that failed.

    Attributes
    ----------
    largest : each backend's mismatch with the most elements, and its case. It shows more than the
        smallest mismatch, which is reported.
    visible : the smallest case with wrong values of the kernel's own, and its number of elements.
        None if only values of exact runs were wrong.
    """

    spec: KernelSpec
    agreed: deque[Case] = field(default_factory=lambda: deque(maxlen=KEPT))
    failing: list[Case] = field(default_factory=list)
    largest: dict[str, tuple[Case, Mismatch]] = field(default_factory=dict)
    visible: tuple[Case, int] | None = None

    def add_failure(self, case: Case, backend: str, verdict: Mismatch) -> None:
        """Record a case that failed on a backend."""
        self.failing.append(case)
        is_least = self.visible is None or verdict.elements < self.visible[1]
        if is_least and not verdict.hidden:
            self.visible = case, verdict.elements
        largest = self.largest.get(backend)
        if largest is None or verdict.elements > largest[1].elements:
            self.largest[backend] = case, verdict

    def describe_pattern(self, case: Case, backend: str, verdict: Mismatch) -> str:
        """Return the pattern of a wrong output in one line; empty if there is none.

        If the case shows no pattern, the largest case that failed is described instead.
        """
        texts = describe_mismatch(self.spec, case, verdict)
        where = ""
        if not texts and backend in self.largest:
            other, larger = self.largest[backend]
            texts = describe_mismatch(self.spec, other, larger)
            sizes = ", ".join(f"{name}={size}" for name, size in other.values.items())
            where = f" (in {sizes}, which fails too)"
        dtype = one_dtype(case, self.agreed, self.failing)
        if texts:
            texts = (f"{texts[0]}{where}", *texts[1:])
        return "; ".join(filter(None, (*texts, dtype)))


def one_dtype(case: Case, agreed: Sequence[Case], failing: Sequence[Case]) -> str:
    """Return the text if one dtype alone fails and others agree; else empty."""
    agree = {c.dtype for c in agreed}
    fail = {c.dtype for c in (case, *failing)}
    if not agree or agree & fail or len(fail) > 1:
        return ""
    return f"one dtype: no case in {case.dtype} agrees, and all do in {', '.join(sorted(agree))}"


def explain_rounding(verdict: Mismatch, exact: ExactRun) -> tuple[str, ...]:
    """Return the causes of a wrong output's rounding errors, the most important first.

    For a wrong algorithm, and for an element that is as wrong without rounding, it returns only the
    caveats of the exact run and the narrowed values.
    """
    caveats = describe_caveats(exact)
    narrowed = [_describe_narrowing(narrowing) for narrowing in exact.narrowed]
    if verdict.question == "algorithm" or _is_wrong_unrounded(verdict, exact):
        return (*caveats, *narrowed)
    lost = [loss for loss in exact.losses if loss.happened > 0]
    others = [
        f"{loss.name}{_at(loss.location)}: error {loss.happened:.2g}, bound {loss.allowed:.2g} "
        "of its largest value"
        for loss in lost[1:]
    ]
    return (
        *caveats,
        *_describe_largest_loss(exact.losses),
        *narrowed,
        *_describe_largest_bound(exact.losses),
        *others,
    )


def _is_wrong_unrounded(verdict: Mismatch, exact: ExactRun) -> bool:
    """Return whether the kernel's first wrong element has the same value without rounding."""
    if verdict.output is None or verdict.evidence is None or verdict.first is None:
        return False
    at = verdict.first.index
    unrounded = np.asarray(exact.outputs[verdict.output].value[at])
    got = verdict.evidence.got
    return bool(round_once(unrounded, got.dtype) == got[at])


def _describe_largest_loss(losses: Sequence[Loss]) -> Iterator[str]:
    """Yield one line on the first overflow, or else on the largest error; nothing without one."""
    for loss in losses:
        number = loss.overflow
        if number is not None:
            argument = "" if number.argument is None else f" of {number.argument:.6g}"
            yield (
                f"{loss.name} overflows {number.tensor}{_at(loss.location)}: without rounding it "
                f"is {number.value:.3g}{argument}, and the largest is {number.largest:.5g}"
            )
            return
    for loss in losses:
        if loss.happened > 0:
            part = f"{loss.happened:.2g} of its largest value is error"
            yield f"{loss.name} lost most digits{_at(loss.location)}: {part}"
            return


def _describe_largest_bound(losses: Sequence[Loss]) -> Iterator[str]:
    """Yield one line on the instruction that adds most to the bound; nothing without one."""
    most = max(losses, key=lambda loss: loss.allowed, default=None)
    if most is None or most.allowed <= 0:
        return
    terms = f", of {most.terms} terms" if most.terms else ""
    runs = "1 run" if most.times == 1 else f"{most.times} runs"
    yield (
        f"{most.name} adds most to the bound{_at(most.location)}: "
        f"{most.allowed:.2g} of its largest value, {most.size:.3g}{terms}, in {runs}"
    )


def _describe_narrowing(narrowing: Narrowing) -> str:
    """Describe a rounding into a dtype that the kernel's contract does not need."""
    rounded = f"{narrowing.name} is rounded into {narrowing.dtype}"
    at = _at(narrowing.location)
    if narrowing.name == RUNNING_SUM:
        return f"{rounded} again and again{at}"
    if narrowing.of_output:
        return f"{rounded}{at}: an output has that dtype, but a wider output depends on the result"
    if narrowing.of_argument:
        return f"{rounded}{at}: an input has that dtype, but no matrix product takes the result"
    return f"{rounded}{at}: no input or output has that dtype"


def describe_caveats(exact: ExactRun) -> tuple[str, ...]:
    """Return the limits of an exact run: decisions on rounded values, and no meaning at all."""
    use = "algorithm and arithmetic are judged together"
    if not exact.has_meaning:
        use = "the bound that follows from the spec alone is used"
    return tuple(
        f"{doubt.reason}{_at(doubt.location)}: {use}" for doubt in exact.doubts
    )


def describe_one_rounding(spec: KernelSpec, verdict: Mismatch) -> str:
    """Return the text if a bound of one rounding decides, without an exact run; else empty."""
    output = verdict.evidence
    if verdict.kind != "value" or output is None or spec.reduction is not None:
        return ""
    if not is_float_dtype(output.got.dtype):
        return ""
    why = "on ranks a test has no exact run" if spec.ranks else "without an exact run"
    return (
        f"{why}: reduction=None allows one rounding of {spec.accumulation}; pass the number of "
        'roundings of an element, such as reduction="K" for a sum of K terms'
    )


def describe_large_data(
    verdict: Verdict, reference: ReferenceResult | Exception
) -> str:
    """Return the text if the data are too large for the output's dtype; else empty."""
    if not _is_nonfinite(verdict) or isinstance(reference, Exception):
        return ""
    for array in reference.inputs.values():
        if not np.isfinite(array.astype(np.float64)).all():
            return ""
    for value, dtype in reference.forms:
        largest = float(float_info(dtype).max) if is_float_dtype(dtype) else math.inf
        if (np.abs(value) > largest).any():
            return (
                f"the data do it: the inputs are finite, and the reference is beyond {dtype}'s "
                f"{largest:.5g}; give the inputs data= whose results it holds"
            )
    return ""


def describe_drawn_nonfinite(
    verdict: Mismatch, reference: ReferenceResult | Exception
) -> str:
    """Return the text if NaN or infinities, which the spec does not name, decide; else empty."""
    if verdict.kind not in ("nan", "infinity") or isinstance(reference, Exception):
        return ""
    spec = reference.spec
    for name, array in reference.inputs.items():
        is_named = spec.nonfinite or spec.input(name).data is not None
        if not is_named and not np.isfinite(array.astype(np.float64)).all():
            return (
                f"{name} holds NaN or infinities, which are drawn if a reference only moves data; "
                "a sum or a product spreads them. Move the data without arithmetic, or pass data= "
                f"of finite numbers for {name}"
            )
    return ""


def _is_nonfinite(verdict: Verdict) -> bool:
    """Return whether NaN or infinities decide a verdict."""
    if isinstance(verdict, Mismatch):
        return verdict.kind in ("nan", "infinity") and verdict.question != "algorithm"
    return isinstance(verdict, Inconclusive) and verdict.nonfinite > 0


def is_expected(reference: ReferenceResult | Exception, finding: Finding) -> bool:
    """Return whether the reference, too, has the NaN or the infinities that a finding reports."""
    if finding.id not in ("nan-made", "infinity-made"):
        return False
    if isinstance(reference, Exception):
        return False
    for value, dtype in reference.forms:
        if is_float_dtype(dtype) and not np.isfinite(round_once(value, dtype)).all():
            return True
    return False


def _at(location: Location | None) -> str:
    if location is None:
        return ""
    place = f" at {location.short_place}"
    return f"{place} ({location.text})" if location.text else place
