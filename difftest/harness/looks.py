"""What a wrong output looks like: which mistake would have left just these values there.

A guess is made only where it accounts for every wrong element, within the bounds that the right
values have, and where the values tell: zeros and ones are transposed, shifted and scaled all alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from difftest.harness.case import Case
from difftest.harness.reference import ReferenceDefect, ReferenceRefusal, as_float64, call_reference
from difftest.harness.rounding import Array, float_info, is_float, ulp
from difftest.harness.spec import KernelSpec
from difftest.harness.verdict import Mismatch, WrongOutput

Float64 = NDArray[np.float64]
Mask = NDArray[np.bool_]
Again = Callable[[Mapping[str, Array]], Float64 | None]
"""What the reference says of other inputs of the same shapes; None if it refuses them."""

TILES = (512, 128)
"""Elements of a whole tile: of the free dimension of a matmul, and partitions."""
_TELLING = 3
"""How many different values there must be, for a guess that could be chance."""
_ROUNDINGS = 16
"""Errors of so many units, or of so many times what is allowed, are roundings."""
_IMAGES = 64
"""How many images of a batch are compared with each other."""
_NARROW = (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))


def looks_like(
    mismatch: Mismatch, inputs: Mapping[str, Array], again: Again, sizes: Sequence[int] = ()
) -> tuple[str, ...]:
    """What the wrong values look like, and where they are; empty where nothing can be said.

    ``again`` is the reference on inputs that lack something; ``sizes`` are of tiles, beside the
    machine's own.
    """
    seen = mismatch.evidence
    if seen is None:
        return ()
    if mismatch.kind == "unwritten":
        content: str | None = "never written"
    else:
        with np.errstate(all="ignore"):
            content = next(_contents(seen, inputs, again, mismatch.question), None)
    return tuple(filter(None, (content, last_tile(seen.wrong, sizes))))


def _contents(
    seen: WrongOutput, inputs: Mapping[str, Array], again: Again, question: str
) -> Iterator[str]:
    values = seen.got.astype(np.float64)
    wrong = values[seen.wrong]
    if wrong.size > 1 and not wrong.any() and seen.value[seen.wrong].any():
        yield "all zero: each wrong element is 0"
    if not np.isfinite(wrong).all():
        return
    if question != "algorithm":  # of which the exact run has decided, and it does not round
        yield from _rounded(seen, values)
    if np.unique(wrong).size < _TELLING:
        return
    yield from _images(seen, values)
    yield from _rearranged(seen, values)
    yield from _scaled(seen, values)
    yield from _lacking(seen, values, inputs, again)


def _rounded(seen: WrongOutput, values: Float64) -> Iterator[str]:
    """Errors as small as roundings, or values of a narrower dtype."""
    at = seen.wrong
    expected, got, dtype = seen.value[at], values[at], seen.got.dtype
    if not is_float(dtype) or not np.isfinite(expected).all():
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


def _within(values: Float64, low: Float64, high: Float64) -> Mask:
    """Where the values would be right."""
    inside: Mask = (low <= values) & (values <= high)
    return inside


def _rearranged(seen: WrongOutput, values: Float64) -> Iterator[str]:
    """Right values in other places."""
    shape = values.shape
    low, high, wrong = seen.low, seen.high, seen.wrong
    for one, other in combinations(range(values.ndim), 2):
        swapped = low.swapaxes(one, other), high.swapaxes(one, other)
        if _within(values, *(end.reshape(shape) for end in swapped)).all():
            yield f"transposed: axes {one} and {other} are swapped"
    for axis, size in enumerate(shape):
        if size < 2:
            continue
        if _within(values, np.flip(low, axis), np.flip(high, axis)).all():
            yield f"reversed along axis {axis}"
        for step, sign in ((1, "-"), (-1, "+")):
            fits = _within(values, np.roll(low, step, axis), np.roll(high, step, axis))
            inner = [slice(None)] * len(shape)
            inner[axis] = slice(step, None) if step > 0 else slice(None, step)
            at = wrong[tuple(inner)]
            told = np.unique(values[tuple(inner)][at]).size >= _TELLING
            if told and fits[tuple(inner)][at].all():
                yield f"shifted by one along axis {axis}: [i] has what belongs at [i {sign} 1]"


def _images(seen: WrongOutput, values: Float64) -> Iterator[str]:
    """Images of a batch in the place of others."""
    if values.ndim < 3 or not 1 < len(values) <= _IMAGES:
        return
    low, high = seen.low, seen.high
    sources: dict[int, int] = {}
    for place in np.flatnonzero(seen.wrong.any(axis=tuple(range(1, values.ndim)))).tolist():
        image, at = values[place], seen.wrong[place]
        fits = [one for one in range(len(values)) if _within(image, low[one], high[one])[at].all()]
        if not fits:
            return
        sources[place] = fits[0]
    place, source = next(iter(sources.items()))
    yield f"another image of the batch: [{place}] has what belongs at [{source}]"


def _scaled(seen: WrongOutput, values: Float64) -> Iterator[str]:
    """A factor too much."""
    at = seen.wrong & (seen.value != 0)
    if not at.any():
        return
    factor = float(np.median(values[at] / seen.value[at]))
    ends = seen.low * factor, seen.high * factor
    if factor and _fits(seen, values, np.minimum(*ends), np.maximum(*ends)):
        yield f"scaled: each wrong element is {factor:.4g} times what it should be"


def _fits(seen: WrongOutput, values: Float64, low: Float64, high: Float64) -> bool:
    """Whether all wrong values lie in an interval that was computed, and rounds once more."""
    slack = ulp(np.where(np.isfinite(values), values, 1.0), seen.got.dtype)
    return bool(_within(values, low - slack, high + slack)[seen.wrong].all())


def _lacking(
    seen: WrongOutput, values: Float64, inputs: Mapping[str, Array], again: Again
) -> Iterator[str]:
    """What the reference gives if a part of an input is left out."""
    half = (seen.high - seen.low) / 2
    for name, array, text in _reduced(inputs):
        found = again({**inputs, name: array})
        fits = found is not None and found.shape == values.shape
        if found is not None and fits and _fits(seen, values, found - half, found + half):
            yield text


def _reduced(inputs: Mapping[str, Array]) -> Iterator[tuple[str, Array, str]]:
    """Each input without a part of it: its name, what is left, and what that would mean."""
    for name, array in inputs.items():
        if not array.size:
            continue
        yield name, np.zeros_like(array), f"a missing term: as if {name} were all 0"
        yield name, np.ones_like(array), f"a missing factor: as if {name} were all 1"
        if is_float(array.dtype):
            yield name, -array, f"a wrong sign: as if {name} were negative"
        for axis, size in enumerate(array.shape):
            cuts = {size - 1: "the last"} | {
                (size - 1) // tile * tile: f"the last tile of {tile}"
                for tile in TILES
                if size > tile
            }
            for start, what in cuts.items():
                if start:
                    left = array.copy()
                    left[(slice(None),) * axis + (slice(start, None),)] = 0
                    text = f"a missing last term: as if {name} had not {what} of axis {axis}"
                    yield name, left, text


def last_tile(wrong: Mask, sizes: Sequence[int] = ()) -> str:
    """Whether the wrong elements are those of the last tile of an axis, in words; else empty."""
    for axis, size in enumerate(wrong.shape):
        others = tuple(one for one in range(wrong.ndim) if one != axis)
        places = np.flatnonzero(wrong.any(axis=others))
        if not places.size or not places[0] or places.size != size - places[0]:
            continue
        start = int(places[0])
        for tile in (*TILES, *sizes):
            if tile > 1 and start % tile == 0 and size - start <= tile:
                return f"the last tile: axis {axis} from {start} on, after whole tiles of {tile}"
    return ""


@dataclass
class History:
    """The cases of one kernel in a test, by what came of them; of those that agreed a thousand.

    ``largest`` is each backend's mismatch of most elements, with its case: it tells more than the
    smallest one, which is reported.
    """

    spec: KernelSpec
    agreed: deque[Case] = field(default_factory=lambda: deque(maxlen=1000))
    failing: list[Case] = field(default_factory=list)
    largest: dict[str, tuple[Case, Mismatch]] = field(default_factory=dict)

    def failed(self, case: Case, backend: str, verdict: Mismatch) -> None:
        self.failing.append(case)
        if backend not in self.largest or verdict.elements > self.largest[backend][1].elements:
            self.largest[backend] = case, verdict

    def looks(self, case: Case, backend: str, verdict: Mismatch) -> str:
        """What a wrong output looks like, in a line; empty where nothing can be said.

        Where the case tells nothing, the largest that failed may.
        """
        said, where = looks_of(self.spec, case, verdict), ""
        if not said and backend in self.largest:
            other, larger = self.largest[backend]
            said = looks_of(self.spec, other, larger)
            where = (
                f" (in {', '.join(f'{k}={v}' for k, v in other.values.items())}, which fails too)"
            )
        dtype = one_dtype(case, self.agreed, self.failing)
        said = (*(f"{one}{where}" for one in said[:1]), *said[1:])
        return "; ".join(filter(None, (*said, dtype)))


def looks_of(spec: KernelSpec, case: Case, mismatch: Mismatch) -> tuple[str, ...]:
    """What a wrong output of a case looks like; see :func:`looks_like`."""
    index = mismatch.output or 0
    parameters = spec.parameters_of(case.values)

    def again(inputs: Mapping[str, Array]) -> Float64 | None:
        try:
            return as_float64(call_reference(spec.reference, inputs, parameters))[index]
        except (ReferenceDefect, ReferenceRefusal, IndexError):
            return None

    inputs = dict(zip(spec.inputs, spec.inputs_of(case), strict=True))
    sizes = [value for value in parameters.values() if type(value) is int]
    return looks_like(mismatch, inputs, again, sizes)


def one_dtype(case: Case, agreed: Sequence[Case], failing: Sequence[Case]) -> str:
    """Whether one dtype alone fails, though others were tried, in words; else empty."""
    others = sorted({one.dtype for one in agreed} - {one.dtype for one in (case, *failing)})
    same = any(one.dtype == case.dtype for one in agreed)
    if same or not others or any(one.dtype != case.dtype for one in failing):
        return ""
    return f"one dtype: no case in {case.dtype} agrees, and all do in {', '.join(others)}"


def nearest(case: Case, agreed: Sequence[Case]) -> Case | None:
    """Of the cases that agree, the one that differs least: in the fewest values, and by least.

    One of the same values and dtype is it only if there is no other: its data show nothing.
    """

    def distance(other: Case) -> tuple[int, float]:
        pairs = [(value, other.values[name]) for name, value in case.values.items()]
        differ = [(one, two) for one, two in pairs if one != two]
        data = sum(recipe != other.data[name] for name, recipe in case.data.items())
        numbers = (
            abs(np.log((1 + abs(one)) / (1 + abs(two))))
            for one, two in differ
            if isinstance(one, int | float) and isinstance(two, int | float)
        )
        return len(differ) + data + (case.dtype != other.dtype), float(sum(numbers))

    kind = case.values, case.dtype
    others = [one for one in agreed if (one.values, one.dtype) != kind]
    return min(others or agreed, key=distance, default=None)
