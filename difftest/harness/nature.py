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
from numpy.typing import NDArray

from difftest.harness.case import Case
from difftest.harness.reference import ReferenceDefect, ReferenceRefusal, call_reference
from difftest.harness.rounding import float_info, is_float, round_once
from difftest.harness.spec import KernelSpec, elements_of

Array = NDArray[Any]
Outputs = tuple[NDArray[np.float64], ...]

MOST_ELEMENTS = 2**15
"""Of a sample, if any has so few, where the reference is called often."""
MOST_TOGETHER = 2**22
"""Of all samples: each has to show that values only move, or are chosen from."""
_KEEP_NAN = (None, "trn2", "trn3")
"""Generations whose Tensor Engine spreads no NaN where it transposes (AWS ``nki.isa.nc_transpose``,
v2.32.0)."""
_VALUES = (np.nan, np.inf, -np.inf, *range(-13, 0))
"""Each dtype holds them, and the numbers from 1 to 16 that stand for them."""
_LARGE = 2.0**48
"""No sum of products of few twos comes to it."""
_SPARED = (0, 1, 2, 8, 16, 24)
_WIDE = 4
"""Bytes of an integer that wraps around; narrower ones saturate, as they do for a reference."""


@dataclass(frozen=True)
class Nature:
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
    """

    moves: bool = False
    selects: bool = False
    multiplies: bool = False
    spared: int = 0
    exponents: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def nature_of(spec: KernelSpec, samples: Sequence[Case]) -> Nature:
    """What all samples of a spec's cases show; of a reference that refuses one, nothing."""
    if not samples or all(spec.input(name).data is not None for name in spec.inputs):
        return Nature()
    by_size = sorted(samples, key=lambda case: elements_of(spec, case.values))
    small = [
        case for case in by_size if elements_of(spec, case.values) <= MOST_ELEMENTS
    ] or by_size[:1]
    floats = [replace(case, dtype=_first_float(spec)) for case in by_size]
    if sum(elements_of(spec, case.values) for case in floats) > MOST_TOGETHER:
        floats = []
    try:
        moves = bool(floats) and all(_moves(spec, case) for case in floats)
        return Nature(
            moves=moves and spec.machine in _KEEP_NAN,
            selects=moves or (bool(floats) and all(_selects(spec, case) for case in floats)),
            multiplies=any(_multiplies(spec, case) for case in small),
            spared=max(_spared(spec, case) for case in small),
            exponents={
                name: _exponents(spec, replace(small[-1], dtype=name)) for name in spec.dtypes
            },
        )
    except (ReferenceRefusal, ReferenceDefect):
        return Nature()


def _first_float(spec: KernelSpec) -> str:
    return next((name for name in spec.dtypes if is_float(np.dtype(name))), spec.dtypes[0])


def _inputs(spec: KernelSpec, case: Case, fill: Callable[[Array], Array]) -> dict[str, Array]:
    """The inputs of a case; those without data of their own hold what ``fill`` makes of them."""
    arrays = dict(zip(spec.inputs, spec.inputs_of(case), strict=True))
    free = (name for name in arrays if spec.input(name).data is None)
    return arrays | {name: round_once(fill(arrays[name]), arrays[name].dtype) for name in free}


def _outputs(spec: KernelSpec, case: Case, inputs: Mapping[str, Array]) -> Outputs:
    with np.errstate(all="ignore"):
        return call_reference(spec.reference, inputs, spec.parameters_of(case.values))


def _called(spec: KernelSpec, case: Case, fill: Callable[[Array], Array]) -> Outputs:
    return _outputs(spec, case, _inputs(spec, case, fill))


def _on_floats(fill: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Integers stay what they are."""
    return lambda array: fill(array) if is_float(array.dtype) else array


def _normal(array: Array) -> Array:
    return np.random.default_rng(array.size).standard_normal(array.shape)


def _selects(spec: KernelSpec, case: Case) -> bool:
    inputs = _inputs(spec, case, _on_floats(_normal))
    known = np.concatenate([np.abs(array.astype(np.float64)).ravel() for array in inputs.values()])
    outputs = _outputs(spec, case, inputs)
    double = _called(spec, case, _on_floats(lambda array: 2 * _normal(array)))
    for index, (values, others) in enumerate(zip(outputs, double, strict=True)):
        if not is_float(
            spec.output_dtype_of(case, index)
        ):  # a place, say, and no value of an input
            if not np.array_equal(values, others):
                return False
        elif not (np.isin(np.abs(values), known) | (values == np.rint(values))).all():
            return False
    return True


def _moves(spec: KernelSpec, case: Case) -> bool:
    """Whether to put other values in the place of equal ones, before or after, is the same."""
    generator = np.random.default_rng(1)
    values = generator.permutation(np.array(_VALUES, dtype=np.float64))
    codes = _inputs(
        spec, case, _on_floats(lambda array: generator.integers(1, 1 + values.size, array.shape))
    )
    free = [name for name in codes if spec.input(name).data is None and is_float(codes[name].dtype)]
    if not free:
        return False
    moved = {name: values[codes[name].astype(np.int64) - 1] for name in free}
    moved = {name: round_once(array, codes[name].dtype) for name, array in moved.items()}
    pairs = zip(_outputs(spec, case, codes), _outputs(spec, case, codes | moved), strict=True)
    return all(
        is_float(spec.output_dtype_of(case, index))
        and np.isin(before, np.arange(1, 1 + values.size)).all()
        and np.array_equal(values[before.astype(np.int64) - 1], after, equal_nan=True)
        for index, (before, after) in enumerate(pairs)
    )


def _multiplies(spec: KernelSpec, case: Case) -> bool:
    outputs = _called(spec, case, lambda array: np.full(array.shape, 2.0))
    return any(bool((np.abs(values) > _LARGE).any()) for values in outputs)


def _spared(spec: KernelSpec, case: Case) -> int:
    dtypes = {np.dtype(case.dtype_of(name)) for name in spec.inputs}
    if not any(dtype.kind in "iu" and dtype.itemsize == _WIDE for dtype in dtypes):
        return 0

    def fit(bits: int) -> bool:
        for end in ("min", "max"):

            def fill(array: Array, end: str = end) -> Array:
                if array.dtype.kind not in "iu":
                    return array
                return np.full(array.shape, getattr(np.iinfo(array.dtype), end) / 2.0**bits)

            for index, values in enumerate(_called(spec, case, fill)):
                dtype = spec.output_dtype_of(case, index)
                if not is_float(dtype) and (np.abs(round_once(values, dtype) - values) > 1).any():
                    return False
        return True

    return next((bits for bits in _SPARED if fit(bits)), _SPARED[-1])


def _exponents(spec: KernelSpec, case: Case) -> tuple[int, ...]:
    """Two powers of two that are small enough, and one that is large enough."""
    kinds = [spec.output_dtype_of(case, index) for index in range(max(1, len(spec.outputs)))]
    info = float_info(kinds[0]) if is_float(kinds[0]) else None
    if info is None or info.maxexp >= np.finfo(np.float32).maxexp:
        return ()

    def sizes(exponent: int) -> Array:
        fill = _on_floats(
            lambda array: np.random.default_rng(2).uniform(-1, 1, array.shape) * 2.0**exponent
        )
        return np.abs(_called(spec, case, fill)[0])

    ups = range(int(info.maxexp))
    downs = range(int(-info.minexp + info.nmant))
    up = bisect.bisect_left(ups, True, key=lambda e: bool((sizes(e) > info.max).any()))
    down = bisect.bisect_left(
        downs, True, key=lambda e: bool(np.median(sizes(-e)) < info.smallest_normal)
    )
    overflowing = (up + 1,) if up < len(ups) else ()
    return (*((-down, -down - 2) if down < len(downs) else ()), *overflowing)
