"""Strategies for the data of an input in a drawn case.

The tables say how often each kind of recipe is drawn, from simple to complex. Hypothesis shrinks to
the first kind of a table.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from difftest.support.rounding import float_info, is_float_dtype
from difftest.testing.contract.recipes import (
    Fill,
    Integers,
    Iota,
    Ones,
    Outliers,
    Random,
    Recipe,
    Zeros,
)
from difftest.testing.contract.spec import (
    KernelSpec,
    call_with_values,
    is_function_of_domain,
)
from difftest.testing.contract.spec_arguments import SpecError, argument_error
from difftest.testing.contract.structured import Given, Uniform
from difftest.testing.drawing.provider import draw_index
from difftest.testing.drawing.reference_properties import FAR, ReferenceProperties

__tracebackhide__ = True  # its errors are errors of its caller's line

_SEEDS = 2**16
_INTEGER_BOUNDS = (1, 2, 4, 8)
_SPREADS = (0, 0, 0, 1, 2, 4, 8)
ENDLESS = (-(2.0 ** FAR[0]), 2.0 ** FAR[0])
"""Numbers that are beyond common stand-ins for infinity."""
_PLAIN_VALUES = (1.0, -1.0, 2.0, 0.5, 0.1, 1 / 3, 0.0, -0.0)
_NONFINITE = (float("nan"), float("inf"), float("-inf"))
_FACTORS = ((-1.0, 1.0), (0.8, 1.2), (-1.2, -0.8))
"""Ranges of numbers of which the products of many stay finite."""


class _DataRequest(NamedTuple):
    """A request for data of a dtype, for a reference with these properties.

    ``nonfinite`` says whether NaN and infinities are drawn too.
    """

    dtype: np.dtype[Any]
    nature: ReferenceProperties
    nonfinite: bool


def draw_one(values: Sequence[Any]) -> Any:
    """Draw one of some values, which shrinks to the first."""
    return values[draw_index(len(values))]


def draw_uniform(low: float, high: float) -> Recipe:
    """Draw a recipe of uniform numbers between two ends."""
    return Uniform(draw_index(_SEEDS), low, high)


def _draw_filled(request: _DataRequest) -> Recipe:
    if is_float_dtype(request.dtype):
        is_wild = request.nonfinite or request.nature.keeps_nonfinite
        values = _PLAIN_VALUES + (_NONFINITE if is_wild else ())
    else:
        least = () if request.dtype.kind in "ub" else (-1.0,)
        values = (1.0, 2.0, 0.0, *least)
    # Not zero throughout: there is a recipe of its own for that. Not NaN: that decides nothing.
    filled = draw_one([value for value in values if value and math.isfinite(value)])
    overrides = []
    for _ in range(draw_index(4)):
        is_last = draw_index(2) == 1
        place = draw_index(3) - 3 if is_last else draw_index(_SEEDS)
        overrides.append((place, draw_one(values)))
    return Fill(filled, tuple(overrides))


def _draw_factors(request: _DataRequest) -> Recipe:
    return draw_uniform(*draw_one(_FACTORS))


def _draw_small_integers(request: _DataRequest) -> Recipe:
    return Integers(draw_index(_SEEDS), draw_one(_INTEGER_BOUNDS))


def _draw_wide_integers(request: _DataRequest) -> Recipe:
    return Integers(draw_index(_SEEDS), _integer_ends(request)[1])


def _draw_negative_integers(request: _DataRequest) -> Recipe:
    low, _ = _integer_ends(request)
    return draw_uniform(float(low), -1.0) if low else _draw_wide_integers(request)


def _draw_integer_ends(request: _DataRequest) -> Recipe:
    low, high = _integer_ends(request)
    return Outliers(draw_index(_SEEDS), (float(low), float(high)))


def _integer_ends(request: _DataRequest) -> tuple[int, int]:
    """Return the ends of an integer dtype, without the bits that outputs need."""
    info = np.iinfo(request.dtype)
    spared = request.nature.spared
    return int(info.min) >> spared, int(info.max) >> spared


def _draw_random(request: _DataRequest) -> Recipe:
    # Products of a few values may not overflow: a quarter of the exponents' range.
    most = int(float_info(request.dtype).maxexp) // 4
    return Random(draw_index(_SEEDS), min(draw_one(_SPREADS), most))


def _draw_of_one_sign(request: _DataRequest) -> Recipe:
    return draw_uniform(*draw_one(_of_one_sign(request.dtype, request.nature.selects)))


def _draw_outliers(request: _DataRequest) -> Recipe:
    return Outliers(draw_index(_SEEDS), draw_one(_outliers(request)))


def _draw_compared(request: _DataRequest) -> Recipe:
    """Draw numbers with which the kernels may compare values."""
    floats = request.nature.floats
    if not floats:
        return _draw_outliers(request)
    return Fill(draw_one(floats), tuple(enumerate(floats)))


Table: TypeAlias = tuple[tuple[Callable[[_DataRequest], Recipe], int], ...]
"""Kinds of recipes, and their weights."""

PLAIN: Table = (
    (lambda request: Zeros(), 1),  # else only the first case has it
    (lambda request: Ones(), 9),
    (lambda request: Iota(), 15),
    (_draw_filled, 25),
)
"""Simple data, which a quarter of the cases may have; the other tables are random data."""
PLAIN_FACTORS: Table = PLAIN[:2]
FACTORS: Table = ((_draw_factors, 50),)
"""Where the reference multiplies many elements."""
COMPUTING: Table = (
    (_draw_small_integers, 15),
    (_draw_random, 22),
    (_draw_of_one_sign, 7),
    (_draw_outliers, 3),
    (_draw_compared, 3),
)
"""Where the reference computes with the elements."""
SELECTING: Table = (
    (_draw_small_integers, 1),
    (_draw_random, 3),
    (_draw_of_one_sign, 40),  # a maximum meets its start in those
    (_draw_outliers, 3),
    (_draw_compared, 3),
)
"""Where the outputs are elements that are chosen by their values."""
MOVING: Table = (
    (_draw_small_integers, 4),
    (_draw_random, 6),
    (_draw_of_one_sign, 6),
    (_draw_outliers, 17),  # NaN and infinities may be among them
    (_draw_compared, 17),
)
"""Where data only move."""
INTEGERS: Table = (
    (_draw_small_integers, 12),
    (_draw_wide_integers, 13),
    (_draw_negative_integers, 10),
    (_draw_integer_ends, 15),
)
BOOLEANS: Table = INTEGERS[:1]


def _tables(dtype: np.dtype[Any], nature: ReferenceProperties) -> tuple[Table, Table]:
    """Return the tables of simple and of random data."""
    if dtype.kind == "b":
        return PLAIN, BOOLEANS
    if not is_float_dtype(dtype):
        return PLAIN, INTEGERS
    if nature.multiplies:
        return PLAIN_FACTORS, FACTORS
    if nature.moves:
        return PLAIN, MOVING
    return PLAIN, SELECTING if nature.selects else COMPUTING


@lru_cache(maxsize=256)
def _kinds(
    dtype: np.dtype[Any], nature: ReferenceProperties, random: bool
) -> tuple[list[Callable[[_DataRequest], Recipe]], list[int]]:
    """Return the kinds of recipes, and the sums of their weights."""
    plain, wild = _tables(dtype, nature)
    table = wild if random else plain + wild
    return [kind for kind, _ in table], list(accumulate(n for _, n in table))


def draw_recipe(
    dtype: str,
    *,
    nonfinite: bool = False,
    nature: ReferenceProperties = ReferenceProperties(),  # noqa: B008
    random: bool = False,
) -> Recipe:
    """Draw a recipe for ``dtype`` within a strategy, without the simple ones if ``random``.

    NaN and infinities are drawn with ``nonfinite``, and if the reference's ``nature`` keeps them.
    """
    request = _DataRequest(np.dtype(dtype), nature, nonfinite)
    kinds, sums = _kinds(request.dtype, nature, random)
    return kinds[bisect(sums, draw_index(sums[-1]))](request)


def recipes(dtype: str, **properties: Any) -> SearchStrategy[Recipe]:
    """Return a strategy of recipes; see :func:`draw_recipe`."""
    return st.builds(partial(draw_recipe, dtype, **properties))


@lru_cache
def _of_one_sign(dtype: np.dtype[Any], selects: bool) -> list[tuple[float, float]]:
    """Ranges of small numbers, and of the largest."""
    small = [(-2.0, -1.0), (-2.0, -1.0), (1.0, 2.0)]
    end = float(float_info(dtype).max)
    large = [(-end, -end), (-end, -end), (-end, -end / 2), (end / 2, end)]
    return [(-2.0, -1.0), far_ranges(dtype)[0], *large] if selects else small


def far_ranges(
    dtype: np.dtype[Any], ends: Iterable[float] = ENDLESS
) -> list[tuple[float, float]]:
    """Return ranges beyond the numbers that kernels use for infinity; most are negative."""
    most = 2.0 ** (int(float_info(dtype).maxexp) - 1)
    below = [(max(end, -most), max(end, -most) / 2) for end in ends if end < 0]
    return (
        below
        + [(min(end, most) / 2, min(end, most)) for end in ends if end > 0]
        + 2 * below
    )


@lru_cache
def _outliers(request: _DataRequest) -> list[tuple[float, ...]]:
    """Return tuples of outliers: zeros of both signs, subnormal, very large, very negative numbers.

    Where something is computed, the squares of their squares are still finite. The large ones are
    the rarer: a softmax of them has no digit that is sure.
    """
    info = float_info(request.dtype)
    selects = request.nature.selects
    subnormal = float(info.smallest_normal) - float(info.smallest_subnormal)
    large = float(info.max) if selects else 2.0 ** (int(info.maxexp) // 4)
    small: list[tuple[float, ...]] = [(-0.0,), (0.0, -0.0), (subnormal, -subnormal)]
    ranges = [*small, *(() if selects else small), (-large,), (large, -large)]
    wild = [(math.nan,), (math.inf, -math.inf), (math.nan, math.inf, -large, -0.0)]
    if request.nature.keeps_nonfinite:
        return ranges + 2 * wild
    return ranges + wild if request.nonfinite else ranges


def data_strategy(
    spec: KernelSpec, name: str, values: Mapping[str, Any]
) -> SearchStrategy[Recipe]:
    """Return a strategy of recipes for an input that has ``data`` of its own."""
    data = spec.input(name).data
    if is_function_of_domain(data):
        data = call_with_values(data, values)
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
    return Given(tuple(array.astype(np.float64).ravel().tolist()))


def seeded(recipe: type[Recipe], **values: Any) -> SearchStrategy[Recipe]:
    """Return a strategy of recipes with any seed: ``seeded(Uniform, low=0.1, high=2.0)``.

    Raises
    ------
    SpecError : it is not a recipe with a seed.
    RecipeError : it has no such field, or a field's value is none for it.
    """
    is_recipe = isinstance(recipe, type) and issubclass(recipe, Recipe)
    if not (is_recipe and hasattr(recipe, "seed")):
        raise argument_error(
            "seeded", recipe, "a recipe with a seed, e.g. Uniform, Indices, Random"
        )
    recipe.made(0, **values)  # says what is wrong
    fixed = {name: st.just(value) for name, value in values.items()}
    return st.builds(recipe, seed=st.integers(0, _SEEDS - 1), **fixed)
