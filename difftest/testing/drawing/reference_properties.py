"""Infer properties of a reference by calling it, to choose the data that are drawn.

The ends of a dtype, NaN and infinities are good data if a kernel only moves or selects values. They
are useless if it computes, because every sum overflows. So the reference is called on a few samples
of its domain. A property must hold on all of them.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from difftest.support.rounding import (
    Array,
    Float64,
    float_info,
    is_float_dtype,
    round_once,
)
from difftest.testing.contract.case import Case
from difftest.testing.contract.reference import (
    ReferenceDefect,
    ReferenceRefusal,
    as_float64,
    call_reference,
)
from difftest.testing.contract.spec import KernelSpec, count_elements

Filler = Callable[[np.random.Generator, Array], Array]
"""A function that returns values for an array, the same each time."""

FLOATS = "fV"  # kinds of dtypes: those of ml_dtypes are V to NumPy
MOST_SAMPLE_ELEMENTS = 2**15
"""The most elements of a sample for properties that need many calls, if a sample has so few."""
MOST_TOGETHER = 2**22
"""The most elements of all samples for properties that each sample must show."""
_KEEP_NAN = (None, "trn2", "trn3")
"""Generations whose Tensor Engine does not spread NaN in a transpose (AWS
``nki.isa.nc_transpose``, v2.32.0)."""
_VALUES = (np.nan, np.inf, -np.inf, *range(-13, 0))
"""Values that each dtype can hold. It can also hold their places, which encode them."""
_LARGE = 2.0**48  # no sum of products of few twos comes to it
_SPARED = (0, 1, 2, 8, 16, 24)
_WIDE = 4  # bytes of an integer that wraps around; narrower ones saturate, as in a reference
FAR = (18, *range(14, -1, -2))
"""Exponents of two. The first is beyond common stand-ins for infinity: 10,000 and 65,504."""


@dataclass(frozen=True)
class ReferenceProperties:
    """Properties of a reference, for inputs that have no data of their own.

    Attributes
    ----------
    moves : whether each output element is an input element, for any values, NaN included. Then
        ``selects`` is True too.
    keeps_nonfinite : whether ``moves`` is True and kernels must keep NaN and infinities apart from
        other elements. A kernel may choose elements by a mask or by a one-hot row of its inputs:
        it multiplies the others by 0, which spreads NaN. So this is False if an input has data of
        its own or integers.
    selects : whether each output element is an input element, with either sign, or an integer: as
        in a maximum, or in a comparison.
    multiplies : whether it multiplies so many elements that twos give more than 2**48.
    spared : bits that wide integers must leave free, so that the outputs fit their dtypes.
    exponents : dtype of a case -> exponents of two of inputs for which some outputs of a narrow
        dtype overflow or are subnormal.
    far : dtype of a case -> numbers far below and above 0 with which no output overflows.
    floats : numbers with which the kernels may compare values.
    """

    moves: bool = False
    keeps_nonfinite: bool = False
    selects: bool = False
    multiplies: bool = False
    spared: int = 0
    exponents: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    far: Mapping[str, tuple[float, ...]] = field(default_factory=dict, hash=False)
    floats: tuple[float, ...] = ()


def infer_properties(
    spec: KernelSpec, draw: Callable[[], Sequence[Case]]
) -> ReferenceProperties:
    """Return the properties that all drawn samples show; none if the reference rejects a sample.

    For ``reduction=0``, which states that data only moves, no samples are drawn.
    """
    if spec.reduction == 0:
        return ReferenceProperties(
            moves=True, keeps_nonfinite=spec.machine in _KEEP_NAN, selects=True
        )
    samples = []
    if any(spec.input(name).data is None for name in spec.inputs):
        samples = sorted(draw(), key=lambda case: count_elements(spec, case.values))
    if not samples:
        return ReferenceProperties()
    sizes = [count_elements(spec, case.values) for case in samples]
    small = samples[: max(1, bisect.bisect_right(sizes, MOST_SAMPLE_ELEMENTS))]
    floats = []
    if sum(sizes) <= MOST_TOGETHER:
        dtype = _first_float(spec.dtypes)
        floats = [replace(case, dtype=dtype) for case in samples]
    try:
        return _properties(spec, floats, small)
    except (ReferenceRefusal, ReferenceDefect, MemoryError, OSError):
        return ReferenceProperties()


def _first_float(dtypes: Sequence[str]) -> str:
    """Return the first floating-point dtype, else the first dtype."""
    for name in dtypes:
        if is_float_dtype(np.dtype(name)):
            return name
    return dtypes[0]


def _properties(
    spec: KernelSpec, floats: Sequence[Case], small: Sequence[Case]
) -> ReferenceProperties:
    """Return the properties that all samples show.

    Parameters
    ----------
    floats : the samples with a floating-point dtype; empty if they are too large.
    small : the samples for properties that need many calls.
    """
    moves = bool(floats) and all(_moves(spec, case) for case in floats)
    is_static = not any(_has_given_inputs(spec, case) for case in floats)
    selects = moves or (bool(floats) and all(_selects(spec, case) for case in floats))
    exponents = {}
    far = {}
    for dtype in spec.dtypes:
        case = replace(small[-1], dtype=dtype)
        exponents[dtype] = _exponents(spec, case)
        far[dtype] = _far(spec, case)
    return ReferenceProperties(
        moves=moves,
        keeps_nonfinite=moves and is_static and spec.machine in _KEEP_NAN,
        selects=selects,
        multiplies=any(_multiplies(spec, case) for case in small),
        spared=max(_spared(spec, case) for case in small),
        exponents=exponents,
        far=far,
    )


def _inputs(
    spec: KernelSpec, case: Case, fill: Filler, kinds: str = FLOATS
) -> dict[str, Array]:
    """Return the inputs of a case.

    ``fill`` makes the inputs that have no data of their own and a dtype of these kinds.
    """
    generator = np.random.default_rng(0)
    arrays = spec.inputs_by_name(case)
    for name, array in arrays.items():
        if _is_filled(spec, name, array.dtype, kinds):
            arrays[name] = round_once(fill(generator, array), array.dtype)
    return arrays


def _is_filled(
    spec: KernelSpec, name: str, dtype: np.dtype[Any], kinds: str = FLOATS
) -> bool:
    """Return whether an input has no data of its own and a dtype of these kinds."""
    return spec.input(name).data is None and dtype.kind in kinds


def _has_given_inputs(spec: KernelSpec, case: Case) -> bool:
    """Return whether an input has data of its own, or integers, which may choose elements."""
    return not all(
        _is_filled(spec, name, np.dtype(case.dtype_of(name))) for name in spec.inputs
    )


def _outputs(
    spec: KernelSpec, case: Case, fill: Filler, kinds: str = FLOATS
) -> list[tuple[Float64, np.dtype[Any]]]:
    """Return the reference's outputs as float64, each with the dtype of the kernel's output."""
    inputs = _inputs(spec, case, fill, kinds)
    parameters = spec.parameters_of(case.values)
    with np.errstate(all="ignore"):
        outputs = as_float64(call_reference(spec.reference, inputs, parameters))
    return list(zip(outputs, spec.result_dtypes(case, len(outputs)), strict=False))


def _pairs(
    spec: KernelSpec, case: Case, fill: Filler, other: Filler
) -> Iterator[tuple[Float64, Float64, np.dtype[Any]]]:
    """Yield the reference's outputs for two fillings of its inputs, and their dtype."""
    others = _outputs(spec, case, other)
    for (values, dtype), (changed, _) in zip(
        _outputs(spec, case, fill), others, strict=True
    ):
        yield values, changed, dtype


def _normal(generator: np.random.Generator, array: Array) -> Array:
    return generator.standard_normal(array.shape)


def _selects(spec: KernelSpec, case: Case) -> bool:
    """Return whether each output element is an input element or an integer."""
    inputs = _inputs(spec, case, _normal).values()
    sizes = np.sort(
        np.concatenate([abs(array.astype(np.float64)).ravel() for array in inputs])
    )
    for values, doubled, dtype in _pairs(
        spec, case, _normal, lambda *of: 2 * _normal(*of)
    ):
        near = sizes.take(np.searchsorted(sizes, np.abs(values)), mode="clip")
        chosen = (near == np.abs(values)) | (values == np.rint(values))
        # An integer is a place, say, and no number that was rounded.
        is_chosen = (
            chosen.all() if is_float_dtype(dtype) else np.array_equal(values, doubled)
        )
        if not is_chosen:
            return False
    # Infinities of both signs make NaN where something is added, and the ends of a dtype infinity.
    ends = _outputs(spec, case, lambda of, array: of.choice(_VALUES[1:], array.shape))
    return not any(np.isnan(values).any() for values, _ in ends)


def _moves(spec: KernelSpec, case: Case) -> bool:
    """Return whether the reference commutes with a replacement of values by others."""
    values = np.array(_VALUES)[np.random.default_rng(1).permutation(len(_VALUES))]

    def codes(generator: np.random.Generator, array: Array) -> Array:
        return generator.integers(1, values.size, array.shape)

    for before, moved, dtype in _pairs(
        spec, case, codes, lambda *of: values[codes(*of)]
    ):
        if not is_float_dtype(dtype):
            return False
        is_code = (before == np.rint(before)) & (before > 0) & (before < values.size)
        if not is_code.all():
            return False
        replaced = values[before.astype(np.int64)]
        if not np.array_equal(replaced, moved, equal_nan=True):
            return False
    return True


def _multiplies(spec: KernelSpec, case: Case) -> bool:
    """Return whether inputs of 2 give more than 2**48."""
    outputs = _outputs(spec, case, lambda _, array: np.full(array.shape, 2.0))
    return any(bool((np.abs(values) > _LARGE).any()) for values, _ in outputs)


def _is_wide(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is of integers that wrap around."""
    return dtype.kind in "iu" and dtype.itemsize == _WIDE


def _is_exact_integer(values: Float64, dtype: np.dtype[Any]) -> bool:
    """Return whether an integer dtype holds values to within 1; True for floats."""
    if is_float_dtype(dtype):
        return True
    return bool((np.abs(round_once(values, dtype) - values) <= 1).all())


def _spared(spec: KernelSpec, case: Case) -> int:
    """Return the bits that wide integers must leave free, so that the outputs fit."""
    if not any(_is_wide(np.dtype(case.dtype_of(name))) for name in spec.inputs):
        return 0

    def fits(bits: int, end: str) -> bool:
        def ends(_: np.random.Generator, array: Array) -> Array:
            return np.full(array.shape, getattr(np.iinfo(array.dtype), end) / 2.0**bits)

        outputs = _outputs(spec, case, ends, "iu")
        return all(_is_exact_integer(values, dtype) for values, dtype in outputs)

    for bits in _SPARED:
        if fits(bits, "min") and fits(bits, "max"):
            return bits
    return _SPARED[-1]


def _exponents(spec: KernelSpec, case: Case) -> tuple[int, ...]:
    """Return two exponents that give subnormal outputs, and one that gives overflow."""
    dtype = spec.result_dtypes(case, max(1, len(spec.outputs)))[0]
    if not is_float_dtype(dtype):
        return ()
    info = float_info(dtype)
    if info.maxexp >= np.finfo(np.float32).maxexp:
        return ()

    def sizes(exponent: int) -> Array:
        def fill(generator: np.random.Generator, array: Array) -> Array:
            return generator.uniform(-1, 1, array.shape) * 2.0**exponent

        return np.abs(_outputs(spec, case, fill)[0][0])

    def is_subnormal(exponent: int) -> bool:
        return bool(np.median(sizes(-exponent)) < info.smallest_normal)

    def has_overflow(exponent: int) -> bool:
        return bool((sizes(exponent) > info.max).any())

    exponents = []
    downs = range(int(info.nmant - info.minexp))
    down = bisect.bisect_left(downs, True, key=is_subnormal)
    if down < len(downs):
        exponents += [-down, -down - 2]
    ups = range(int(info.maxexp))
    up = bisect.bisect_left(ups, True, key=has_overflow)
    if up < len(ups):
        exponents.append(up + 1)
    return tuple(exponents)


def _far(spec: KernelSpec, case: Case) -> tuple[float, ...]:
    """Return a far negative and a far positive number without overflow; 0 if there is none.

    Numbers 16 times as large must not overflow either, because larger cases have larger sums.
    """

    def fits(end: float) -> bool:
        def fill(generator: np.random.Generator, array: Array) -> Array:
            over = max(1.0, abs(end) / float(float_info(array.dtype).max))
            return generator.uniform(0.5, 1, array.shape) * (end / over)

        for values, dtype in _outputs(spec, case, fill):
            most = float_info(dtype).max if is_float_dtype(dtype) else np.inf
            if not (np.abs(values) <= most).all():
                return False
        return True

    def farthest(sign: float) -> float:
        for exponent in FAR:
            if fits(math.ldexp(sign, exponent + 4)):
                return math.ldexp(sign, exponent)
        return 0

    return farthest(-1), farthest(1)
