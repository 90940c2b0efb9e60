"""Hypothesis strategies: sizes that lean to their limits, data recipes, and whole cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.harness.case import Case
from difftest.harness.recipes import Fill, Integers, Iota, Ones, Random, Recipe, Zeros
from difftest.harness.rounding import float_info, is_float
from difftest.harness.spec import (
    KernelSpec,
    Source,
    apply,
    is_choice,
    is_function_of_the_domain,
)
from difftest.harness.spec_arguments import SpecError, check_integers, refused
from difftest.harness.structured import Given
from difftest.simulator.machine import TRN2

HARDWARE_LIMITS = (TRN2.partitions, TRN2.gemm_moving_fmax)
"""Sizes at which tiles end: where kernels go wrong."""

_MAX_SEED = 2**16 - 1
_INTEGER_BOUNDS = (1, 2, 4, 8)
_WIDEST_SPREAD = 8
_PLAIN_VALUES = (0.0, 1.0, -1.0, 2.0, 0.5, 0.1, 1 / 3)
_NONFINITE = (float("nan"), float("inf"), float("-inf"))


def sizes(low: int, high: int) -> SearchStrategy[int]:
    """Integers from ``low`` to ``high`` that lean to both ends and to the hardware's limits.

    Each limit L within the range adds L - 1, L and L + 1. Shrinks to ``low``.

    Raises
    ------
    ValueError : no integer lies in the range, or an end of it is no integer.
    """
    check_integers("sizes", low=low, high=high)
    if low > high:
        raise ValueError(f"sizes: received low={low}, high={high}; accepted: low <= high")
    near = {end + step for end in (low, high, *HARDWARE_LIMITS) for step in (-1, 0, 1)}
    edges = sorted(size for size in near if low <= size <= high)
    return st.one_of(st.integers(low, high), st.sampled_from(edges))


def multiples(of: int, *, at_most: int, at_least: int = 1) -> SearchStrategy[int]:
    """Multiples of ``of`` in [at_least, at_most], leaning to both ends. Shrinks to the smallest.

    Raises
    ------
    ValueError : no multiple lies in the range, or an argument is no integer.
    """
    check_integers("multiples", of=of, at_most=at_most, at_least=at_least)
    if of < 1:
        raise ValueError(f"multiples: received of={of}; accepted: at least 1")
    fewest, most = max(1, -(-at_least // of)), at_most // of
    if fewest > most:
        raise ValueError(
            f"multiples: received of={of}, at_least={at_least}, at_most={at_most}; "
            "accepted: a range that holds a multiple"
        )
    counts = sorted({fewest, min(fewest + 1, most), max(fewest, most - 1), most})
    count = st.one_of(st.integers(fewest, most), st.sampled_from(counts))
    return count.map(lambda k: k * of)


def recipes(dtype: str, *, nonfinite: bool = False) -> SearchStrategy[Recipe]:
    """Recipes for data of ``dtype``; random data is the most frequent and shrinks to the plain."""
    kind = np.dtype(dtype)
    seeds = st.integers(0, _MAX_SEED)
    integers = st.builds(Integers, seeds, st.sampled_from(_INTEGER_BOUNDS))
    plain = [st.just(Zeros()), st.just(Ones()), st.just(Iota()), _fills(kind, nonfinite)]
    if not is_float(kind):
        return st.one_of(*plain, integers, integers)
    # Products of a few values may not overflow: a quarter of the exponents' range.
    widest = min(_WIDEST_SPREAD, int(float_info(kind).maxexp) // 4)
    random = st.builds(Random, seeds, st.integers(0, widest))
    return st.one_of(*plain, integers, integers, random, random, random)


def _fills(dtype: np.dtype[Any], nonfinite: bool) -> SearchStrategy[Fill]:
    if is_float(dtype):
        values = _PLAIN_VALUES + (_NONFINITE if nonfinite else ())
    else:
        values = (0.0, 1.0, 2.0) if dtype.kind in "ub" else (0.0, 1.0, 2.0, -1.0)
    positions = st.one_of(st.integers(0, _MAX_SEED), st.integers(-3, -1))
    override = st.tuples(positions, st.sampled_from(values))
    return st.builds(Fill, st.sampled_from(values), st.lists(override, max_size=3).map(tuple))


def _values(name: str, source: Source, earlier: dict[str, Any]) -> SearchStrategy[Any]:
    if is_function_of_the_domain(source):
        source = apply(source, earlier)  # type: ignore[arg-type]
        if not (isinstance(source, SearchStrategy) or is_choice(source)):
            raise refused(
                f"domain[{name!r}]: what its function returned",
                source,
                "a Hypothesis strategy, or a sequence of values",
            )
    if isinstance(source, SearchStrategy):
        return source
    return st.sampled_from(source)  # type: ignore[arg-type]


@st.composite
def cases(draw: DrawFn, spec: KernelSpec) -> Case:
    """Cases of the spec's domain. They shrink name by name, in the order of the domain."""
    values: dict[str, Any] = {}
    for name, source in spec.domain.items():
        values[name] = draw(_values(name, source, values), label=name)
    dtype = draw(st.sampled_from(spec.dtypes), label="dtype")
    dtypes = {
        name: draw(st.sampled_from(own), label=f"{name}'s dtype")
        for name in spec.inputs
        if (own := spec.input(name).dtypes)
    }
    data = {
        name: draw(data_of(spec, name, values, dtypes.get(name, dtype)), label=name)
        for name in spec.inputs
    }
    return Case(values, dtype, data, dtypes)


def data_of(
    spec: KernelSpec, name: str, values: Mapping[str, Any], dtype: str
) -> SearchStrategy[Recipe]:
    """Recipes for an input: those of its own ``data``, else those of its dtype."""
    data = spec.input(name).data
    if data is None:
        return recipes(dtype, nonfinite=spec.nonfinite)
    if is_function_of_the_domain(data):
        data = apply(data, values)
    if isinstance(data, Recipe):
        return st.just(data)
    if not isinstance(data, SearchStrategy):
        raise SpecError(
            f"inputs[{name!r}].data: its function returned {data!r:.80}; accepted: a recipe, or a "
            "Hypothesis strategy of recipes or of arrays"
        )
    shape = spec.shape(name, values)
    return data.map(lambda drawn: _as_recipe(name, shape, drawn))


def _as_recipe(name: str, shape: tuple[int, ...], drawn: Any) -> Recipe:
    if isinstance(drawn, Recipe):
        return drawn
    array = np.asarray(drawn)
    if array.shape != shape or array.dtype.kind == "O":
        raise SpecError(
            f"inputs[{name!r}].data: its strategy drew {drawn!r:.80}; accepted: a recipe, or an "
            f"array of the input's shape {shape}"
        )
    return Given.of(array)


def seeded(recipe: type[Recipe], **fields: Any) -> SearchStrategy[Recipe]:
    """A recipe with all seeds and these fields: ``seeded(Uniform, low=0.1, high=2.0)``."""
    return st.builds(
        recipe,
        seed=st.integers(0, _MAX_SEED),
        **{name: st.just(value) for name, value in fields.items()},
    )
