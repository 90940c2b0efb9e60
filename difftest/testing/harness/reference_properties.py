"""What a reference does with its inputs, seen by calling it: so much may be drawn for its kernel.

The ends of a dtype, NaN and infinities tell much where values only move or are chosen from, and
nothing where they are computed with: every sum overflows there. So the reference is called on a few
samples of its domain. What it does on all of them is its nature.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from difftest.support.rounding import Array, Float64, float_info, is_float_dtype, round_once
from difftest.testing.harness.case import Case
from difftest.testing.harness.reference import (
    ReferenceDefect,
    ReferenceRefusal,
    as_float64,
    call_reference,
)
from difftest.testing.harness.spec import KernelSpec, count_elements

Filler = Callable[[np.random.Generator, Array], Array]
"""Makes values in an array's place, the same each time."""

FLOATS = "fV"  # kinds of dtypes: those of ml_dtypes are V to NumPy
MOST_ELEMENTS = 2**15
"""Of a sample, if any has so few, where the reference is called often."""
MOST_TOGETHER = 2**22
"""Of all samples: each has to show that values only move, or are chosen from."""
_KEEP_NAN = (None, "trn2", "trn3")
"""Generations whose Tensor Engine spreads no NaN where it transposes (AWS ``nki.isa.nc_transpose``,
v2.32.0)."""
_VALUES = (np.nan, np.inf, -np.inf, *range(-13, 0))
"""Each dtype holds them, and their places, which stand for them."""
_LARGE = 2.0**48  # no sum of products of few twos comes to it
_SPARED = (0, 1, 2, 8, 16, 24)
_WIDE = 4  # bytes of an integer that wraps around; narrower ones saturate, as in a reference
FAR = (18, *range(14, -1, -2))
"""Powers of two, first one beyond the numbers that people take for endless: 10,000 and 65,504."""


@dataclass(frozen=True)
class ReferenceProperties:
    """What a reference does with those inputs that have no data of their own.

    Attributes
    ----------
    moves : each element of an output is one of an input, whatever the values are, NaN included; it
        selects too.
    selects : each is one of an input, with either sign, or an integer: of a maximum, a comparison.
    multiplies : so many elements with each other that twos come to more than 2**48.
    spared : bits that wide integers have to spare, so that the outputs fit their dtypes.
    exponents : dtype of a case -> powers of two of inputs for which outputs of a narrow dtype
        overflow in part, or are subnormal.
    far : dtype of a case -> numbers far below and above 0 with which no output overflows.
    floats : what its kernels may compare values with.
    """

    moves: bool = False
    selects: bool = False
    multiplies: bool = False
    spared: int = 0
    exponents: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    far: Mapping[str, tuple[float, ...]] = field(default_factory=dict, hash=False)
    floats: tuple[float, ...] = ()


def infer_properties(spec: KernelSpec, draw: Callable[[], Sequence[Case]]) -> ReferenceProperties:
    """What all samples show that are drawn; of a reference that refuses one, nothing.

    Of a spec that says that its data only move they are not drawn.
    """
    if spec.reduction == 0:
        return ReferenceProperties(moves=True, selects=True)
    is_free = any(spec.input(name).data is None for name in spec.inputs)
    samples = sorted(draw() if is_free else (), key=lambda case: count_elements(spec, case.values))
    if not samples:
        return ReferenceProperties()
    sizes = [count_elements(spec, case.values) for case in samples]
    small = samples[: max(1, bisect.bisect_right(sizes, MOST_ELEMENTS))]
    first = next((name for name in spec.dtypes if is_float_dtype(np.dtype(name))), spec.dtypes[0])
    floats = [replace(case, dtype=first) for case in samples if sum(sizes) <= MOST_TOGETHER]
    try:
        moves = bool(floats) and all(_moves(spec, case) for case in floats)
        return ReferenceProperties(
            moves=moves and spec.machine in _KEEP_NAN,
            selects=moves or (bool(floats) and all(_selects(spec, case) for case in floats)),
            multiplies=any(_multiplies(spec, case) for case in small),
            spared=max(_spared(spec, case) for case in small),
            exponents={to: _exponents(spec, replace(small[-1], dtype=to)) for to in spec.dtypes},
            far={to: _far(spec, replace(small[-1], dtype=to)) for to in spec.dtypes},
        )
    except (ReferenceRefusal, ReferenceDefect, MemoryError, OSError):
        return ReferenceProperties()


def _inputs(spec: KernelSpec, case: Case, fill: Filler, kinds: str = FLOATS) -> dict[str, Array]:
    """The inputs of a case, those filled that have no data of their own and such a dtype."""
    generator = np.random.default_rng(0)
    arrays = dict(zip(spec.inputs, spec.inputs_of(case), strict=True))
    for name, array in arrays.items():
        if spec.input(name).data is None and array.dtype.kind in kinds:
            arrays[name] = round_once(fill(generator, array), array.dtype)
    return arrays


def _outputs(
    spec: KernelSpec, case: Case, fill: Filler, kinds: str = FLOATS
) -> list[tuple[Float64, np.dtype[Any]]]:
    """What the reference makes of them, each output with the dtype that the kernel's has."""
    inputs = _inputs(spec, case, fill, kinds)
    parameters = spec.parameters_of(case.values)
    with np.errstate(all="ignore"):
        outputs = as_float64(call_reference(spec.reference, inputs, parameters))
    return list(zip(outputs, spec.result_dtypes(case, len(outputs)), strict=False))


def _normal(generator: np.random.Generator, array: Array) -> Array:
    return generator.standard_normal(array.shape)


def _selects(spec: KernelSpec, case: Case) -> bool:
    inputs = _inputs(spec, case, _normal).values()
    sizes = np.sort(np.concatenate([abs(array.astype(np.float64)).ravel() for array in inputs]))
    doubled = _outputs(spec, case, lambda *of: 2 * _normal(*of))
    for (values, dtype), (others, _) in zip(_outputs(spec, case, _normal), doubled, strict=True):
        near = sizes.take(np.searchsorted(sizes, np.abs(values)), mode="clip")
        chosen = (near == np.abs(values)) | (values == np.rint(values))
        # An integer is a place, say, and no number that was rounded.
        if not (chosen.all() if is_float_dtype(dtype) else np.array_equal(values, others)):
            return False
    # Infinities of both signs make NaN where something is added, and the ends of a dtype infinity.
    ends = _outputs(spec, case, lambda of, array: of.choice(_VALUES[1:], array.shape))
    return not any(np.isnan(values).any() for values, _ in ends)


def _moves(spec: KernelSpec, case: Case) -> bool:
    """Whether to put other values in the place of equal ones, before or after, is the same."""
    values = np.array(_VALUES)[np.random.default_rng(1).permutation(len(_VALUES))]

    def codes(generator: np.random.Generator, array: Array) -> Array:
        return generator.integers(1, values.size, array.shape)

    after = _outputs(spec, case, lambda *of: values[codes(*of)])
    return all(
        is_float_dtype(dtype)
        and ((before == np.rint(before)) & (before > 0) & (before < values.size)).all()
        and np.array_equal(values[before.astype(np.int64)], moved, equal_nan=True)
        for (before, dtype), (moved, _) in zip(_outputs(spec, case, codes), after, strict=True)
    )


def _multiplies(spec: KernelSpec, case: Case) -> bool:
    outputs = _outputs(spec, case, lambda _, array: np.full(array.shape, 2.0))
    return any(bool((np.abs(values) > _LARGE).any()) for values, _ in outputs)


def _spared(spec: KernelSpec, case: Case) -> int:
    dtypes = [np.dtype(case.dtype_of(name)) for name in spec.inputs]
    if not any(dtype.kind in "iu" and dtype.itemsize == _WIDE for dtype in dtypes):
        return 0

    def fits(bits: int, end: str) -> bool:
        def ends(_: np.random.Generator, array: Array) -> Array:
            return np.full(array.shape, getattr(np.iinfo(array.dtype), end) / 2.0**bits)

        return all(
            is_float_dtype(dtype) or bool((np.abs(round_once(values, dtype) - values) <= 1).all())
            for values, dtype in _outputs(spec, case, ends, "iu")
        )

    return next((bits for bits in _SPARED if fits(bits, "min") and fits(bits, "max")), _SPARED[-1])


def _exponents(spec: KernelSpec, case: Case) -> tuple[int, ...]:
    """Two powers of two that are small enough, and one that is large enough."""
    dtype = spec.result_dtypes(case, max(1, len(spec.outputs)))[0]
    info = float_info(dtype) if is_float_dtype(dtype) else None
    if info is None or info.maxexp >= np.finfo(np.float32).maxexp:
        return ()

    def sizes(exponent: int) -> Array:
        outputs = _outputs(spec, case, lambda of, at: of.uniform(-1, 1, at.shape) * 2.0**exponent)
        return np.abs(outputs[0][0])

    ups = range(int(info.maxexp))
    downs = range(int(info.nmant - info.minexp))
    up = bisect.bisect_left(ups, True, key=lambda e: bool((sizes(e) > info.max).any()))
    least = info.smallest_normal
    down = bisect.bisect_left(downs, True, key=lambda e: bool(np.median(sizes(-e)) < least))
    small = (-down, -down - 2) if down < len(downs) else ()
    return (*small, up + 1) if up < len(ups) else small


def _far(spec: KernelSpec, case: Case) -> tuple[float, ...]:
    """0 where none will do. 16 times as large they do too: a larger case has larger sums."""

    def fits(end: float) -> bool:
        def fill(generator: np.random.Generator, array: Array) -> Array:
            over = max(1.0, abs(end) / float(float_info(array.dtype).max))
            return generator.uniform(0.5, 1, array.shape) * (end / over)

        return all(
            bool((np.abs(values) <= (float_info(to).max if is_float_dtype(to) else np.inf)).all())
            for values, to in _outputs(spec, case, fill)
        )

    return tuple(next((s * 2.0**to for to in FAR if fits(s * 2.0 ** (to + 4))), 0) for s in (-1, 1))
