"""Hypothesis strategies: sizes that lean to their limits, data recipes, and whole cases."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.control import current_build_context
from hypothesis.internal import conjecture, scrutineer
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.simulator.machine import TRN2
from difftest.support.rounding import float_info, is_float_dtype
from difftest.support.tracebacks import PACKAGE
from difftest.testing.concolic.search import (
    BranchSearch,
    Condition,
    Place,
    choice_keys,
    draw_target,
    float_constants,
    targets_in_domain,
)
from difftest.testing.contract.case import Case
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
from difftest.testing.contract.sources import EDGES, RANGE
from difftest.testing.contract.spec import (
    KernelSpec,
    Source,
    call_with_values,
    count_elements,
    is_choice,
    is_function_of_domain,
)
from difftest.testing.contract.spec_arguments import (
    SpecError,
    argument_error,
    check_integers,
)
from difftest.testing.contract.structured import Given, Uniform
from difftest.testing.drawing.duplicates import (
    begin_case,
    choose,
    draw_points,
    new_size,
)
from difftest.testing.drawing.examples import examples, examples_or_none
from difftest.testing.drawing.reference_properties import (
    FAR,
    ReferenceProperties,
    infer_properties,
)

# Hypothesis draws numbers of others' files, ours it would parse for 2 s. Whose a file is it asks by
# resolving paths, 0.1 s for what is loaded by now: no library's are to be looked at.
if isinstance(_folders := getattr(scrutineer, "SITE_PACKAGES_DIRS", None), set):
    _folders.add(Path(PACKAGE))
if isinstance(
    _seen := getattr(getattr(conjecture, "providers", None), "_seen_modules", None), set
):
    _ours = {"difftest", *sys.stdlib_module_names}
    _seen |= {
        id(at) for name, at in list(sys.modules.items()) if name.split(".")[0] in _ours
    }

__tracebackhide__ = True  # what it refuses is a line of its caller's
HARDWARE_LIMITS = (TRN2.partitions, TRN2.gemm_moving_fmax)
"""Sizes at which tiles end: where kernels go wrong."""

MOST_ELEMENTS = 2**28
"""Of all arrays of a drawn case together: in float64, as references compute, 2 GiB."""

_MAX_SEED = 2**16 - 1
_INTEGER_BOUNDS = (1, 2, 4, 8)
_SPREADS = (0, 0, 0, 1, 2, 4, 8)
_ENDLESS = (-(2.0 ** FAR[0]), 2.0 ** FAR[0])
_PLAIN_VALUES = (1.0, -1.0, 2.0, 0.5, 0.1, 1 / 3, 0.0, -0.0)
_NONFINITE = (float("nan"), float("inf"), float("-inf"))

_ROOM = 2**12
"""A domain of so many values, or more, has new ones for its cases."""
_TICKETS = 2**16 - 1
"""A case that may aim at something begins with one of so many choices: soon with a new one."""
_EQUAL = 3
"""In one free case of four all sizes that can be equal are: what is taken along a wrong axis, such
as a row that is added to columns, shows its wrong values there alone."""

_KINDS = 100
"""A recipe's kind is one of so many numbers, from plain to wild. All are about equally frequent, so
that the all-zero operand comes in the first case, which Hypothesis makes the plainest, and then as
good as never."""
_ONES, _IOTA, _FILL, _INTEGERS = 1, 10, 25, 50
"""The first number of each kind after the zeros; from integers on they are random."""
_COMPUTING = (65, 87, 94)
"""The first number of random floats, of those of one sign, and of outliers."""
_SELECTING = (51, 54, 94)
"""The same where values are chosen from the data: a maximum meets its start in those."""
_MOVING = (54, 60, 66)
"""The same where data only move: NaN and infinities are among the outliers."""
_WIDE, _NEGATIVE, _ENDS = 62, 75, 85
"""The same of integers as wide as the dtype, of negative ones, and of those at both ends."""
SAMPLES = 9
"""Cases on which a reference shows its nature."""
_FAR, _SCALED, _SPECIAL = 7, 11, 13
"""The first numbers, up to the last, of cases in which all numbers of one input are far from 0, and
of those in which outputs of a narrow dtype overflow or are subnormal; the others are ordinary."""
_ALL_RANDOM = 3
"""In one case of four any data is drawn; in the others all inputs are random."""


def sizes(low: int, high: int, *, near: Collection[int] = ()) -> SearchStrategy[int]:
    """Return a strategy of integers from ``low`` to ``high``.

    It favours both ends and the hardware's limits. Each limit L within the range adds L - 1, L and
    L + 1. ``near`` adds further sizes, such as the size where a kernel's third tile begins. It
    shrinks to ``low``, through all sizes between.

    Raises
    ------
    ValueError : no integer lies in the range, or an end of it is no integer.
    """
    check_integers("sizes", low=low, high=high)
    if low > high:
        raise ValueError(
            f"sizes: received low={low}, high={high}; accepted: low <= high"
        )
    steps = {end + step for end in (low, high, *HARDWARE_LIMITS) for step in (-1, 0, 1)}
    return _sizes(1, int(low), int(high), steps | set(near))


def multiples(
    of: int, *, at_most: int, at_least: int = 1, near: Collection[int] = ()
) -> SearchStrategy[int]:
    """Return a strategy of multiples of ``of`` in [at_least, at_most] that favours both ends.

    The three smallest are frequent: a kernel's loops make a first, a second and a third turn there.
    ``near`` adds multiples of one's own.

    Raises
    ------
    ValueError : no multiple lies in the range, or an argument is no integer.
    """
    check_integers("multiples", of=of, at_most=at_most, at_least=at_least)
    if of < 1:
        raise ValueError(f"multiples: received of={of}; accepted: at least 1")
    fewest = int(max(1, -(-at_least // of)))
    most = int(at_most // of)
    if fewest > most:
        raise ValueError(
            f"multiples: received of={of}, at_least={at_least}, at_most={at_most}; "
            "accepted: a range that holds a multiple"
        )
    own = {size // of for size in near}
    return _sizes(
        of, fewest, most, {fewest, fewest + 1, fewest + 2, most - 1, most} | own
    )


def _sizes(of: int, fewest: int, most: int, near: set[int]) -> SearchStrategy[int]:
    edges = sorted(int(count) for count in near if fewest <= count <= most)
    counts = _leaning(fewest, most, tuple(edges))
    strategy = counts.map(lambda count: count * of) if of > 1 else counts
    setattr(strategy, RANGE, range(fewest * of, most * of + 1, of))
    setattr(strategy, EDGES, [count * of for count in edges])
    return strategy


@lru_cache(
    maxsize=512
)  # to make a strategy, and to have it looked at, takes longer than a draw
@st.composite
def _leaning(draw: DrawFn, low: int, high: int, edges: tuple[int, ...]) -> int:
    """Return a strategy of integers from ``low`` to ``high``, half of them at an edge.

    The size itself is a choice of its own even there, with bounds close to it, and there are as
    many choices in a range of one: so a size shrinks from an edge to any size below it, and to draw
    less is no way to a smaller case.
    """
    data: Any = current_build_context().data
    edge = data.draw_integer(
        0, 2 * len(edges) - 1, forced=getattr(data, "difftest_edge", None)
    )
    if edge >= len(edges):
        low = max(low, min(edges[edge - len(edges)], high - 1))
        high = min(low + 1, high)
    if low == high:
        _number(1)
        return low
    return draw(st.integers(low, high))


@st.composite
def recipes(
    draw: DrawFn,
    dtype: str,
    *,
    nonfinite: bool = False,
    nature: ReferenceProperties = ReferenceProperties(),  # noqa: B008
    random: bool = False,
) -> Recipe:
    """Return a strategy of recipes for ``dtype``, without the simple ones if ``random``.

    With ``nonfinite`` NaN and infinities are drawn too. Where data only move, as the reference's
    ``nature`` is, all values of the dtype will do.
    """
    kind = draw(st.integers(_INTEGERS if random else 0, _KINDS - 1))
    np_dtype = np.dtype(dtype)
    is_factor = nature.multiplies and is_float_dtype(np_dtype)
    for number, plain in ((_ONES, Zeros()), (_IOTA, Ones()), (_FILL, Iota())):
        if kind < number and not (is_factor and isinstance(plain, Iota)):
            return plain
    if is_factor:  # products of many of them stay finite
        low, high = _one_of([(-1.0, 1.0), (0.8, 1.2), (-1.2, -0.8)])
        return Uniform(_number(_MAX_SEED), low, high)
    if kind < _INTEGERS:
        return _fill(np_dtype, nonfinite or nature.moves)
    seed = _number(_MAX_SEED)
    if not is_float_dtype(np_dtype):
        return _integers(kind, seed, _one_of(_INTEGER_BOUNDS), np_dtype, nature.spared)
    if nature.moves:
        kinds = _MOVING
    elif nature.selects:
        kinds = _SELECTING
    else:
        kinds = _COMPUTING
    first, of_one_sign, outliers = kinds
    if kind < first:
        return Integers(seed, _one_of(_INTEGER_BOUNDS))
    if kind < of_one_sign:
        # Products of a few values may not overflow: a quarter of the exponents' range.
        return Random(
            seed, min(_one_of(_SPREADS), int(float_info(np_dtype).maxexp) // 4)
        )
    if kind < outliers:
        low, high = _one_of(_of_one_sign(np_dtype, nature.selects))
        return Uniform(seed, low, high)
    if nature.floats and kind % 2:
        return Fill(_one_of(nature.floats), tuple(enumerate(nature.floats)))
    return Outliers(seed, _one_of(_outliers(np_dtype, nonfinite, nature)))


_recipes = lru_cache(maxsize=256)(recipes)


def _number(most: int) -> int:
    """A choice of Hypothesis's without a strategy and a span of its own: in a third of the time."""
    data: Any = current_build_context().data
    number: int = data.draw_integer(0, most)
    return number


def _one_of(values: Sequence[Any]) -> Any:
    return values[_number(len(values) - 1)]


def _integers(
    kind: int, seed: int, bound: int, dtype: np.dtype[Any], spared: int
) -> Recipe:
    """Small ones; as wide as the dtype; all negative; and both of its ends among small ones."""
    if dtype.kind == "b" or kind < _WIDE:
        return Integers(seed, bound)
    info = np.iinfo(dtype)
    low = int(info.min) >> spared
    high = int(info.max) >> spared
    if kind < _NEGATIVE or (not low and kind < _ENDS):
        return Integers(seed, high)
    if kind < _ENDS:
        return Uniform(seed, float(low), -1.0)
    return Outliers(seed, (float(low), float(high)))


@lru_cache
def _of_one_sign(dtype: np.dtype[Any], selects: bool) -> list[tuple[float, float]]:
    """Ranges of small numbers, and of the largest."""
    small = [(-2.0, -1.0), (-2.0, -1.0), (1.0, 2.0)]
    end = float(float_info(dtype).max)
    large = [(-end, -end), (-end, -end), (-end, -end / 2), (end / 2, end)]
    return [(-2.0, -1.0), _far(dtype)[0], *large] if selects else small


def _far(
    dtype: np.dtype[Any], ends: Iterable[float] = _ENDLESS
) -> list[tuple[float, float]]:
    """Ranges beyond the numbers that others are thought not to reach; most are negative."""
    most = 2.0 ** (int(float_info(dtype).maxexp) - 1)
    below = [(max(end, -most), max(end, -most) / 2) for end in ends if end < 0]
    return (
        below
        + [(min(end, most) / 2, min(end, most)) for end in ends if end > 0]
        + 2 * below
    )


@lru_cache
def _outliers(
    dtype: np.dtype[Any], nonfinite: bool, nature: ReferenceProperties
) -> list[tuple[float, ...]]:
    """Return tuples of outliers: zeros of both signs, subnormal, very large, very negative numbers.

    Where something is computed, the squares of their squares are still finite. The large ones are
    the rarer: a softmax of them has no digit that is sure.
    """
    info = float_info(dtype)
    subnormal = float(info.smallest_normal) - float(info.smallest_subnormal)
    large = float(info.max) if nature.selects else 2.0 ** (int(info.maxexp) // 4)
    small: list[tuple[float, ...]] = [(-0.0,), (0.0, -0.0), (subnormal, -subnormal)]
    ranges = [*small, *(() if nature.selects else small), (-large,), (large, -large)]
    if nonfinite or nature.moves:
        wild = [(math.nan,), (math.inf, -math.inf), (math.nan, math.inf, -large, -0.0)]
        ranges += 2 * wild if nature.moves else wild
    return ranges


def _fill(dtype: np.dtype[Any], nonfinite: bool) -> Fill:
    if is_float_dtype(dtype):
        values = _PLAIN_VALUES + (_NONFINITE if nonfinite else ())
    else:
        values = (1.0, 2.0, 0.0) if dtype.kind in "ub" else (1.0, 2.0, 0.0, -1.0)
    # Not zero throughout: there is a recipe of its own for that. Not NaN: that decides nothing.
    filled = _one_of([value for value in values if value and math.isfinite(value)])
    places = (
        _number(2) - 3 if _number(1) else _number(_MAX_SEED) for _ in range(_number(3))
    )
    return Fill(filled, tuple((place, _one_of(values)) for place in places))


def strategy_of(spec: KernelSpec, name: str, earlier: Mapping[str, Any]) -> Source:
    """Where a name's values come from, given earlier ones; Hypothesis's own, so as to be aimed."""
    source = spec.domain[name]
    if is_function_of_domain(source):
        source = call_with_values(source, earlier)  # type: ignore[arg-type]
        if not (isinstance(source, SearchStrategy) or is_choice(source)):
            raise argument_error(
                f"domain[{name!r}]: what its function returned",
                source,
                "a Hypothesis strategy, or a sequence of values",
            )
    inner: Any = (
        source
        if hasattr(source, RANGE)
        else getattr(source, "wrapped_strategy", source)
    )
    low, high, few = (
        getattr(inner, name, None) for name in ("start", "end", "elements")
    )
    if isinstance(few, Sequence) and not getattr(inner, "_transformations", ()):
        return few  # a range may be long
    return sizes(low, high) if low and high and 0 < low < high else source


def _values(
    draw: DrawFn, spec: KernelSpec, fixed: Mapping[str, Any], wanted: Any = None
) -> dict[str, Any]:
    """Draw a value for each name of the domain; the values fit the fixed ones.

    What is ``wanted`` of earlier values, a name and its source, or next to it, is chosen.
    """
    values: dict[str, Any] = {}
    for name in spec.domain:
        if name in fixed:
            values[name] = fixed[name]
            continue
        source: Any = strategy_of(spec, name, values)
        if wanted and (value := wanted(values, name, source)) is not None:
            choose(source, value)
        is_strategy = isinstance(source, SearchStrategy)
        values[name] = draw(source, label=name) if is_strategy else _one_of(source)
    return values


values_of = st.composite(_values)


@lru_cache(maxsize=8)
def branch_conditions(spec: KernelSpec) -> list[Condition]:
    """Return the conditions of the kernels that change for few sizes."""
    return examples(
        st.builds(BranchSearch(spec, partial(strategy_of, spec)).conditions), 1
    )[0]


def cases(spec: KernelSpec) -> SearchStrategy[Case]:
    """Return a strategy of cases, which shrink name by name; it first calls the reference."""

    def samples() -> list[
        Case
    ]:  # what goes wrong here does so again, and is said there
        return examples_or_none(cases_like(spec, ReferenceProperties()), SAMPLES)

    return st.deferred(lambda: cases_like(spec, infer_properties(spec, samples)))


def cases_like(spec: KernelSpec, nature: ReferenceProperties) -> SearchStrategy[Case]:
    """Return a strategy of cases, for a reference with these properties."""
    tokens = {size for array in spec.arrays for size in spec.dimensions(array)}
    names = list(spec.domain)
    sizes = [name for name in names if name in tokens]
    names = names[: max(map(names.index, sizes), default=-1) + 1]
    fixed = (name for name in names if not is_function_of_domain(spec.domain[name]))
    sources = {n: getattr(of := strategy_of(spec, n, {}), RANGE, of) for n in fixed}
    ranges = {name: of for name, of in sources.items() if isinstance(of, Sequence)}
    room = math.prod(map(len, ranges.values()))
    groups, nature = (
        targets_in_domain(branch_conditions(spec), ranges),
        replace(nature, floats=float_constants(spec)),
    )

    def aim(
        ticket: int,
    ) -> Place:  # Hypothesis reads this text: that of many places is long
        return draw_target(groups, ticket)

    return _cases_with(spec, nature, sizes, aim, names if room >= _ROOM else [])


@st.composite
def _cases_with(
    draw: DrawFn,
    spec: KernelSpec,
    nature: ReferenceProperties,
    sizes: Sequence[str],
    aim: Callable[[int], Place],
    point: Sequence[str],
) -> Case:
    """The same with sizes that may be equal, values to aim at, and names whose values are new."""
    is_free = begin_case(current_build_context().data)
    ticket = _number(_TICKETS)
    points = draw_points()
    assume(is_free is not None)
    is_equal = len(sizes) > 1 and ticket % (_EQUAL + 1) == _EQUAL
    aims = {} if is_equal else aim(ticket)

    def wanted(earlier: Mapping[str, Any], name: str, source: Any) -> int | None:
        size = earlier[sizes[0]] if is_equal and name in sizes[1:] else aims.get(name)
        if choices := list(itertools.takewhile(aims.__contains__, choice_keys(name))):
            data: Any = current_build_context().data
            data.prefix = [aims[at] for at in choices]
            data.index = 0
            return None
        if name not in point[-1:]:
            return size
        before, enough = list(earlier.values()), len(spec.dtypes)
        return new_size(
            source, size, lambda other: points[hash(repr([*before, other]))] < enough
        )

    values = _values(draw, spec, {}, wanted if is_free else None)
    _check_size(spec, values)
    dtype = _one_of(spec.dtypes)
    chosen = ((name, spec.input(name).dtypes) for name in spec.inputs)
    dtypes = {name: _one_of(own) for name, own in chosen if own}
    random = _number(_ALL_RANDOM) > 0
    data = {}
    for name in spec.inputs:
        own = dtypes.get(name, dtype)
        recipe = data_strategy(spec, name, values, own, nature=nature, random=random)
        data[name] = draw(recipe, label=name)
    if all(recipe.is_random for recipe in data.values()):
        points[hash(repr([values[name] for name in point]))] += 1
    return _special(spec, nature, Case(values, dtype, data, dtypes))


def _check_size(spec: KernelSpec, values: Mapping[str, Any]) -> None:
    """A case has room, before it is tried."""
    count = count_elements(spec, values)
    if count > MOST_ELEMENTS:
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        shapes = ", ".join(f"{name} {spec.shape(name, values)}" for name in spec.inputs)
        raise SpecError(
            f"domain: drew {shown}, a case of {count:,} elements ({shapes}); accepted: at most "
            f"{MOST_ELEMENTS:,} in all arrays of a case together"
        )


def _special(spec: KernelSpec, nature: ReferenceProperties, case: Case) -> Case:
    """The case, or one that is not ordinary in its place: see ``_FAR``.

    Drawn last, so that what is left without it is a case of ordinary data, which shrinks.
    """
    special = _number(_SPECIAL)
    narrow = [name for name in spec.dtypes if nature.exponents.get(name)]
    if special >= _SCALED and narrow:
        case = replace(case, dtype=_one_of(narrow))
    types = {name: np.dtype(case.dtype_of(name)) for name in spec.inputs}
    floats = [
        name
        for name in types
        if spec.input(name).data is None and is_float_dtype(types[name])
    ]
    ranges: dict[str, tuple[float, float]] = {}
    if special >= _SCALED and narrow:
        size = 2.0 ** _one_of(nature.exponents[case.dtype])
        sizes = {name: min(size, float(float_info(types[name]).max)) for name in floats}
        ranges = {name: (-most, most) for name, most in sizes.items()}
    elif (
        _FAR <= special < _SCALED
        and floats
        and not (nature.selects or nature.multiplies)
    ):
        name = _one_of(floats)
        if far := _far(types[name], nature.far.get(case.dtype, _ENDLESS)):
            ranges = {name: _one_of(far)}
    own = {name: Uniform(_number(_MAX_SEED), *ends) for name, ends in ranges.items()}
    return replace(case, data={**case.data, **own})


def data_strategy(
    spec: KernelSpec,
    name: str,
    values: Mapping[str, Any],
    dtype: str,
    *,
    nature: ReferenceProperties = ReferenceProperties(),  # noqa: B008
    random: bool = False,
) -> SearchStrategy[Recipe]:
    """Return a strategy of recipes for an input: of its own ``data``, else of its dtype.

    Of these ``random`` leaves the plain ones out.
    """
    data = spec.input(name).data
    if data is None:
        return _recipes(dtype, nonfinite=spec.nonfinite, nature=nature, random=random)
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
    SpecError : it is no recipe with a seed.
    RecipeError : it has no such field, or a field's value is none for it.
    """
    is_recipe = isinstance(recipe, type) and issubclass(recipe, Recipe)
    if not (is_recipe and hasattr(recipe, "seed")):
        raise argument_error(
            "seeded", recipe, "a recipe with a seed, e.g. Uniform, Indices, Random"
        )
    recipe.made(0, **values)  # says what is wrong
    fixed = {name: st.just(value) for name, value in values.items()}
    return st.builds(recipe, seed=st.integers(0, _MAX_SEED), **fixed)
