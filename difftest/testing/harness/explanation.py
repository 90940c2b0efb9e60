"""Why an output is wrong, in lines for people: what it looks like, and how its errors came about.

A guess is which mistake would have left just these values there. It is made only where it accounts
for every wrong element, within the bounds that the right values have, and where the values tell:
zeros and ones are transposed, shifted and scaled all alike. How errors came about, and what the
data did, is from what the exact run of a case has noted.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations

import ml_dtypes
import numpy as np

from difftest.analysis.finding import Finding
from difftest.simulator.errors import Location
from difftest.simulator.exact.contract import RUNNING_SUM, Narrowing
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
from difftest.testing.harness.case import Case
from difftest.testing.harness.differential import ReferenceResult
from difftest.testing.harness.reference import (
    ReferenceDefect,
    ReferenceRefusal,
    as_float64,
    call_reference,
)
from difftest.testing.harness.spec import KernelSpec
from difftest.testing.harness.verdict import Inconclusive, Mismatch, Verdict, WrongOutput

Again = Callable[[Mapping[str, Array]], Float64 | None]
"""What the reference says of other inputs of the same shapes; None if it refuses them."""
Guess = tuple[str, Float64, Float64, Mask]
"""What is said if the values lie between bounds of their own, and at which elements they must."""

TILES = (512, 128)
"""Elements of a whole tile: of the free dimension of a matmul, and partitions."""
_TELLING = 3
"""How many different values there must be, for a guess that could be chance."""
_ROUNDINGS = 16
"""Errors of so many units, or of so many times what is allowed, are roundings."""
KEPT = 100
"""Cases that agreed and are kept: a night of cases takes no more memory than a minute of them."""
_NARROW = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))


def describe_mismatch(spec: KernelSpec, case: Case, mismatch: Mismatch) -> tuple[str, ...]:
    """What a wrong output of a case looks like, and where; empty where nothing can be said."""
    seen, index, parameters = mismatch.evidence, mismatch.output, spec.parameters_of(case.values)
    if seen is None or index is None:
        return ()

    def again(inputs: Mapping[str, Array]) -> Float64 | None:
        try:
            return as_float64(call_reference(spec.reference, inputs, parameters))[index]
        except (ReferenceDefect, ReferenceRefusal, IndexError, MemoryError, OSError):
            return None

    inputs = dict(zip(spec.inputs, spec.inputs_of(case), strict=True))
    sizes = [value for value in parameters.values() if type(value) is int]
    with np.errstate(all="ignore"):
        content = next(_contents(mismatch, seen, inputs, again), "")
    return tuple(filter(None, (content, last_tile(seen.wrong, sizes))))


def _contents(
    mismatch: Mismatch, seen: WrongOutput, inputs: Mapping[str, Array], again: Again
) -> Iterator[str]:
    if mismatch.kind == "unwritten":
        yield "never written"
    values = seen.got.astype(np.float64)
    wrong = values[seen.wrong]
    if wrong.size > 1 and not wrong.any() and seen.value[seen.wrong].any():
        yield "all zero: each wrong element is 0"
    if not np.isfinite(wrong).all():
        return
    if mismatch.question != "algorithm":  # the exact run has decided, and does not round
        yield from _rounded(seen, values)
    if np.unique(wrong).size < _TELLING:
        return
    unit = ulp(np.where(np.isfinite(values), values, 1.0), seen.got.dtype)
    computed = chain(_scaled(seen, values), _lacking(seen, inputs, again))
    for guesses, slack in ((_rearranged(seen), 0.0), (computed, unit)):  # those round once more
        for text, low, high, at in guesses:
            ends = low - slack, high + slack
            fits = [bool(((ends[0] <= v) & (v <= ends[1]))[at].all()) for v in (values, seen.value)]
            if fits == [True, False] and np.unique(values[at]).size >= _TELLING:
                yield text


def _rounded(seen: WrongOutput, values: Float64) -> Iterator[str]:
    """Errors as small as roundings, or values of a narrower dtype."""
    at = seen.wrong
    expected = seen.value[at]
    got = values[at]
    dtype = seen.got.dtype
    if not is_float_dtype(dtype) or not np.isfinite(expected).all():
        return
    error = np.abs(got - expected)
    for narrow in _NARROW:
        eps = float(float_info(narrow).eps)
        if narrow.itemsize < dtype.itemsize and np.unique(got).size >= _TELLING:
            held = (got.astype(narrow).astype(np.float64) == got).all()
            if held and (error <= eps * np.abs(expected)).all():
                yield f"rounding only: each wrong element is a {narrow} number"
    allowed = (seen.high - seen.low)[at] / 2
    unit = np.maximum(allowed, ulp(expected, dtype))
    if (error <= _ROUNDINGS * unit).all():
        most = float((error / unit).max())
        yield f"rounding only: at most {most:.3g} times what is allowed or a unit of {dtype}"


def _rearranged(seen: WrongOutput) -> Iterator[Guess]:
    """Right values in other places."""
    low = seen.low
    high = seen.high
    every = np.ones_like(seen.wrong)
    for axis, other in combinations(range(low.ndim), 2):
        swapped = [end.swapaxes(axis, other).reshape(end.shape) for end in (low, high)]
        yield f"transposed: axes {axis} and {other} are swapped", swapped[0], swapped[1], every
    for axis in range(low.ndim):
        yield f"reversed along axis {axis}", np.flip(low, axis), np.flip(high, axis), every
        for step, sign in ((1, "-"), (-1, "+")):
            inner = seen.wrong.copy()
            inner[(slice(None),) * axis + (min(step, 0),)] = False
            text = f"shifted by one along axis {axis}: [i] has what belongs at [i {sign} 1]"
            yield text, np.roll(low, step, axis), np.roll(high, step, axis), inner


def _scaled(seen: WrongOutput, values: Float64) -> Iterator[Guess]:
    """A factor too much."""
    at = seen.wrong & (seen.value != 0)
    factor = float(np.median(values[at] / seen.value[at])) if at.any() else 0.0
    if factor:
        ends = seen.low * factor, seen.high * factor
        digits = 4 if abs(factor - 1) > 1e-3 else 9
        text = f"scaled: each wrong element is {factor:.{digits}g} times what it should be"
        yield text, np.minimum(*ends), np.maximum(*ends), seen.wrong


def _lacking(seen: WrongOutput, inputs: Mapping[str, Array], again: Again) -> Iterator[Guess]:
    """What the reference gives if a part of an input is left out."""
    half = (seen.high - seen.low) / 2
    for name, array, text in _reduced(inputs):
        without = again({**inputs, name: array})
        if without is not None and without.shape == half.shape:
            yield text, without - half, without + half, seen.wrong


def _reduced(inputs: Mapping[str, Array]) -> Iterator[tuple[str, Array, str]]:
    """Each input without a part of it: its name, what is left, and what that would mean."""
    for name, array in inputs.items():
        yield name, np.zeros_like(array), f"a missing term: as if {name} were all 0"
        yield name, np.ones_like(array), f"a missing factor: as if {name} were all 1"
        if is_float_dtype(array.dtype):
            yield name, -array, f"a wrong sign: as if {name} were negative"
        for axis, size in enumerate(array.shape):
            cuts = {size - 1: "the last"}
            cuts |= {(size - 1) // tile * tile: f"the last tile of {tile}" for tile in TILES}
            for start, what in cuts.items():
                if start:
                    left = array.copy()
                    left[(slice(None),) * axis + (slice(start, None),)] = 0
                    text = f"a missing last term: as if {name} had not {what} of axis {axis}"
                    yield name, left, text


def last_tile(wrong: Mask, sizes: Sequence[int] = ()) -> str:
    """Whether the wrong elements are those of the last tile of an axis, in words; else empty."""
    for axis, size in enumerate(wrong.shape):
        others = tuple(place for place in range(wrong.ndim) if place != axis)
        places = np.flatnonzero(wrong.any(axis=others))
        if not places.size or not places[0] or places.size != size - places[0]:
            continue
        start = int(places[0])
        for tile in (*TILES, *sizes):
            if tile > 1 and start % tile == 0 and size - start <= tile:
                return f"the last tile: axis {axis} from {start} on, after whole tiles of {tile}"
    return ""


@dataclass
class CaseHistory:
    """The cases of one kernel in a test, by what came of them; of those that agreed the last ones.

    ``largest`` is each backend's mismatch of most elements, with its case: it tells more than the
    smallest one, which is reported. ``visible`` is the case of fewest elements in which the
    kernel's own numbers are wrong, with their count; None if the exact run's alone were.
    """

    spec: KernelSpec
    agreed: deque[Case] = field(default_factory=lambda: deque(maxlen=KEPT))
    failing: list[Case] = field(default_factory=list)
    largest: dict[str, tuple[Case, Mismatch]] = field(default_factory=dict)
    visible: tuple[Case, int] | None = None

    def failed(self, case: Case, backend: str, verdict: Mismatch) -> None:
        self.failing.append(case)
        if not verdict.hidden and (self.visible is None or verdict.elements < self.visible[1]):
            self.visible = case, verdict.elements
        if backend not in self.largest or verdict.elements > self.largest[backend][1].elements:
            self.largest[backend] = case, verdict

    def looks(self, case: Case, backend: str, verdict: Mismatch) -> str:
        """What a wrong output looks like, in a line; empty where nothing can be said.

        Where the case tells nothing, the largest that failed may.
        """
        said = describe_mismatch(self.spec, case, verdict)
        where = ""
        if not said and backend in self.largest:
            other, larger = self.largest[backend]
            said = describe_mismatch(self.spec, other, larger)
            sizes = ", ".join(f"{name}={size}" for name, size in other.values.items())
            where = f" (in {sizes}, which fails too)"
        dtype = one_dtype(case, self.agreed, self.failing)
        said = (*(f"{text}{where}" for text in said[:1]), *said[1:])
        return "; ".join(filter(None, (*said, dtype)))


def one_dtype(case: Case, agreed: Sequence[Case], failing: Sequence[Case]) -> str:
    """Whether one dtype alone fails, though others were tried, in words; else empty."""
    agree = {c.dtype for c in agreed}
    fail = {c.dtype for c in (case, *failing)}
    if not agree or agree & fail or len(fail) > 1:
        return ""
    return f"one dtype: no case in {case.dtype} agrees, and all do in {', '.join(sorted(agree))}"


def explain_rounding(verdict: Mismatch, exact: ExactRun) -> tuple[str, ...]:
    """What is known of a wrong output's rounding errors, the most telling first.

    Of a wrong algorithm they are nothing to know, but where a doubt lies.
    """
    lines = [_narrowing(narrowing) for narrowing in exact.narrowed]
    if verdict.question == "algorithm":
        return (*describe_caveats(exact), *lines)
    over = [(loss, loss.overflow) for loss in exact.losses if loss.overflow is not None]
    lost = [loss for loss in exact.losses if loss.happened > 0]
    if over:
        loss, number = over[0]
        argument = "" if number.argument is None else f" of {number.argument:.6g}"
        lines.insert(
            0,
            f"{loss.name} overflows {number.tensor}{_at(loss.location)}: without rounding it is "
            f"{number.value:.3g}{argument}, and the largest is {number.largest:.5g}",
        )
    elif lost:
        part = f"{lost[0].happened:.2g} of its largest value is error"
        lines.insert(0, f"{lost[0].name} lost most digits{_at(lost[0].location)}: {part}")
    most = max(exact.losses, key=lambda loss: loss.allowed, default=None)
    if most and most.allowed > 0:
        terms = f", of {most.terms} terms" if most.terms else ""
        lines.append(
            f"{most.name} adds most to the bound{_at(most.location)}: "
            f"{most.allowed:.2g} of its largest value, {most.size:.3g}{terms}, in {most.times} "
            f"{'run' if most.times == 1 else 'runs'}"
        )
    lines += [
        f"{loss.name}{_at(loss.location)}: error {loss.happened:.2g}, bound {loss.allowed:.2g} "
        "of its largest value"
        for loss in lost[1:]
    ]
    return (*describe_caveats(exact), *lines)


def _narrowing(narrowing: Narrowing) -> str:
    """Say which rounding the kernel's contract does not have."""
    rounded = f"{narrowing.name} is rounded into {narrowing.dtype}"
    at = _at(narrowing.location)
    if narrowing.name == RUNNING_SUM:
        return f"{rounded} again and again{at}"
    if narrowing.of_argument:
        return f"{rounded}{at}: an input has that dtype, but no matrix product takes the result"
    return f"{rounded}{at}: no input or output has that dtype"


def describe_caveats(exact: ExactRun) -> tuple[str, ...]:
    """Where an exact run has no meaning or a rounded value has decided, and what follows."""
    use = "both questions are asked as one"
    if not exact.has_meaning:
        use = "the bound that follows from the spec alone is used"
    return tuple(f"{doubt.reason}{_at(doubt.location)}: {use}" for doubt in exact.doubts)


def of_data(verdict: Verdict, reference: ReferenceResult | Exception) -> str:
    """Whether a verdict is one on data too large for the reference, in words; else empty."""
    if isinstance(verdict, Mismatch):
        asked = verdict.kind in ("nan", "infinity") and verdict.question != "algorithm"
    else:
        asked = isinstance(verdict, Inconclusive) and verdict.nonfinite > 0
    if not asked or isinstance(reference, Exception):
        return ""
    if not all(np.isfinite(array.astype(np.float64)).all() for array in reference.inputs.values()):
        return ""
    for value, dtype in reference.forms:
        largest = float(float_info(dtype).max) if is_float_dtype(dtype) else math.inf
        if (np.abs(value) > largest).any():
            return (
                f"the data do it: the inputs are finite, and the reference is beyond {dtype}'s "
                f"{largest:.5g}; give the inputs data= whose results it holds"
            )
    return ""


def is_expected(reference: ReferenceResult | Exception, finding: Finding) -> bool:
    """Whether the reference wants what was found: NaN or infinities in outputs of their dtypes."""
    if finding.id not in ("nan-made", "infinity-made") or isinstance(reference, Exception):
        return False
    floats = (form for form in reference.forms if is_float_dtype(form[1]))
    return not all(np.isfinite(round_once(*form)).all() for form in floats)


def _at(location: Location | None) -> str:
    if location is None:
        return ""
    place = f"{os.path.basename(location.file)}:{location.line}"
    return f" at {place}" + (f" ({location.text})" if location.text else "")
