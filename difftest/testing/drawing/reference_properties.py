"""Infer properties of a reference by calling it, to choose the data that are drawn.

The ends of a dtype, NaN and infinities are good data if a kernel only moves or selects values. They
are useless if it computes, because every sum overflows. So the reference is called on a few samples
of its domain. A property must hold on all of them.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
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
MOST_ELEMENTS = 2**15
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
        return ReferenceProperties(moves=True, selects=True)
    is_free = any(spec.input(name).data is None for name in spec.inputs)
    samples = sorted(
        draw() if is_free else (), key=lambda case: count_elements(spec, case.values)
    )
    if not samples:
        return ReferenceProperties()
    sizes = [count_elements(spec, case.values) for case in samples]
    small = samples[: max(1, bisect.bisect_right(sizes, MOST_ELEMENTS))]
    first = next(
        (name for name in spec.dtypes if is_float_dtype(np.dtype(name))), spec.dtypes[0]
    )
    floats = [
        replace(case, dtype=first) for case in samples if sum(sizes) <= MOST_TOGETHER
    ]
    try:
        moves = bool(floats) and all(_moves(spec, case) for case in floats)
        return ReferenceProperties(
            moves=moves and spec.machine in _KEEP_NAN,
            selects=moves
            or (bool(floats) and all(_selects(spec, case) for case in floats)),
            multiplies=any(_multiplies(spec, case) for case in small),
            spared=max(_spared(spec, case) for case in small),
            exponents={
                to: _exponents(spec, replace(small[-1], dtype=to)) for to in spec.dtypes
            },
            far={to: _far(spec, replace(small[-1], dtype=to)) for to in spec.dtypes},
        )
    except (ReferenceRefusal, ReferenceDefect, MemoryError, OSError):
        return ReferenceProperties()


def _inputs(
    spec: KernelSpec, case: Case, fill: Filler, kinds: str = FLOATS
) -> dict[str, Array]:
    """Return the inputs of a case.

    ``fill`` makes the inputs that have no data of their own and a dtype of these kinds.
    """
    generator = np.random.default_rng(0)
    arrays = dict(zip(spec.inputs, spec.inputs_of(case), strict=True))
    for name, array in arrays.items():
        if spec.input(name).data is None and array.dtype.kind in kinds:
            arrays[name] = round_once(fill(generator, array), array.dtype)
    return arrays


def _outputs(
    spec: KernelSpec, case: Case, fill: Filler, kinds: str = FLOATS
) -> list[tuple[Float64, np.dtype[Any]]]:
    """Return the reference's outputs as float64, each with the dtype of the kernel's output."""
    inputs = _inputs(spec, case, fill, kinds)
    parameters = spec.parameters_of(case.values)
    with np.errstate(all="ignore"):
        outputs = as_float64(call_reference(spec.reference, inputs, parameters))
    return list(zip(outputs, spec.result_dtypes(case, len(outputs)), strict=False))


def _normal(generator: np.random.Generator, array: Array) -> Array:
    return generator.standard_normal(array.shape)


def _selects(spec: KernelSpec, case: Case) -> bool:
    inputs = _inputs(spec, case, _normal).values()
    sizes = np.sort(
        np.concatenate([abs(array.astype(np.float64)).ravel() for array in inputs])
    )
    doubled = _outputs(spec, case, lambda *of: 2 * _normal(*of))
    for (values, dtype), (others, _) in zip(
        _outputs(spec, case, _normal), doubled, strict=True
    ):
        near = sizes.take(np.searchsorted(sizes, np.abs(values)), mode="clip")
        chosen = (near == np.abs(values)) | (values == np.rint(values))
        # An integer is a place, say, and no number that was rounded.
        if not (
            chosen.all() if is_float_dtype(dtype) else np.array_equal(values, others)
        ):
            return False
    # Infinities of both signs make NaN where something is added, and the ends of a dtype infinity.
    ends = _outputs(spec, case, lambda of, array: of.choice(_VALUES[1:], array.shape))
    return not any(np.isnan(values).any() for values, _ in ends)


def _moves(spec: KernelSpec, case: Case) -> bool:
    """Return whether the reference commutes with a replacement of values by others."""
    values = np.array(_VALUES)[np.random.default_rng(1).permutation(len(_VALUES))]

    def codes(generator: np.random.Generator, array: Array) -> Array:
        return generator.integers(1, values.size, array.shape)

    after = _outputs(spec, case, lambda *of: values[codes(*of)])
    return all(
        is_float_dtype(dtype)
        and ((before == np.rint(before)) & (before > 0) & (before < values.size)).all()
        and np.array_equal(values[before.astype(np.int64)], moved, equal_nan=True)
        for (before, dtype), (moved, _) in zip(
            _outputs(spec, case, codes), after, strict=True
        )
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
            is_float_dtype(dtype)
            or bool((np.abs(round_once(values, dtype) - values) <= 1).all())
            for values, dtype in _outputs(spec, case, ends, "iu")
        )

    return next(
        (bits for bits in _SPARED if fits(bits, "min") and fits(bits, "max")),
        _SPARED[-1],
    )


def _exponents(spec: KernelSpec, case: Case) -> tuple[int, ...]:
    """Return two exponents that give subnormal outputs, and one that gives overflow."""
    dtype = spec.result_dtypes(case, max(1, len(spec.outputs)))[0]
    info = float_info(dtype) if is_float_dtype(dtype) else None
    if info is None or info.maxexp >= np.finfo(np.float32).maxexp:
        return ()

    def sizes(exponent: int) -> Array:
        outputs = _outputs(
            spec, case, lambda of, at: of.uniform(-1, 1, at.shape) * 2.0**exponent
        )
        return np.abs(outputs[0][0])

    ups = range(int(info.maxexp))
    downs = range(int(info.nmant - info.minexp))
    up = bisect.bisect_left(ups, True, key=lambda e: bool((sizes(e) > info.max).any()))
    least = info.smallest_normal
    down = bisect.bisect_left(
        downs, True, key=lambda e: bool(np.median(sizes(-e)) < least)
    )
    small = (-down, -down - 2) if down < len(downs) else ()
    return (*small, up + 1) if up < len(ups) else small


def _far(spec: KernelSpec, case: Case) -> tuple[float, ...]:
    """Return a far negative and a far positive number without overflow; 0 if there is none.

    Numbers 16 times as large must not overflow either, because larger cases have larger sums.
    """

    def fits(end: float) -> bool:
        def fill(generator: np.random.Generator, array: Array) -> Array:
            over = max(1.0, abs(end) / float(float_info(array.dtype).max))
            return generator.uniform(0.5, 1, array.shape) * (end / over)

        return all(
            bool(
                (
                    np.abs(values)
                    <= (float_info(to).max if is_float_dtype(to) else np.inf)
                ).all()
            )
            for values, to in _outputs(spec, case, fill)
        )

    return tuple(
        next((s * 2.0**to for to in FAR if fits(s * 2.0 ** (to + 4))), 0)
        for s in (-1, 1)
    )
