"""Strategies of whole cases: their parts, and how they shrink.

Which cases are tried is the matter of :mod:`difftest.testing.drawing.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.support.rounding import float_info, is_float_dtype
from difftest.testing.concolic.search import float_constants
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Recipe
from difftest.testing.contract.sources import values_in
from difftest.testing.contract.spec import KernelSpec, count_elements
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.data import (
    ENDLESS,
    data_strategy,
    draw_one,
    draw_recipe,
    draw_uniform,
    far_ranges,
)
from difftest.testing.drawing.dry_run import search_kernels
from difftest.testing.drawing.examples import examples, examples_or_none
from difftest.testing.drawing.plan import DrawingPlan, PlannedCase
from difftest.testing.drawing.provider import draw_index
from difftest.testing.drawing.reference_properties import (
    ReferenceProperties,
    infer_properties,
)
from difftest.testing.drawing.sizes import source_of

__tracebackhide__ = True  # its errors are errors of its caller's line

MOST_CASE_ELEMENTS = 2**28
"""The most elements of all arrays of a drawn case: in float64, as references compute, 2 GiB."""
SAMPLES = 9
"""The number of cases on which a reference shows its properties."""
_ORDINARY, _FAR, _SCALED = 7, 4, 3
"""Weights of ordinary cases, of cases in which all numbers of one input are far from 0, and of
cases in which outputs of a narrow dtype overflow or are subnormal."""
_RANDOM = 4
"""In one case of so many any data is drawn; in the others all inputs are random."""


def cases(spec: KernelSpec) -> SearchStrategy[Case]:
    """Return a strategy of cases, which shrink name by name; it first calls the reference."""

    def samples() -> list[Case]:  # an error here occurs again, and is reported then
        return examples_or_none(cases_like(spec, ReferenceProperties()), SAMPLES)

    return st.deferred(lambda: cases_like(spec, infer_properties(spec, samples)))


def cases_like(spec: KernelSpec, nature: ReferenceProperties) -> SearchStrategy[Case]:
    """Return a strategy of cases, for a reference with these properties."""
    plan = DrawingPlan(spec, search_kernels(spec).conditions)
    return _cases(spec, replace(nature, floats=float_constants(spec)), plan)


def distinct_cases(
    spec: KernelSpec,
    strategy: SearchStrategy[Case],
    count: int,
    *,
    simplest: bool = True,
) -> list[Case]:
    """Return up to ``count`` cases without duplicates, the smallest first, the same each time.

    The simplest case, of zeros, is among them unless ``simplest`` is False and others are enough.

    Raises
    ------
    hypothesis.errors.Unsatisfiable : no case can be drawn.
    """
    seen: set[str] = set()

    def is_new(case: Case) -> bool:
        text = case.to_json()
        is_seen = text in seen
        seen.add(text)
        return not is_seen

    drawn = examples(strategy.filter(is_new), count + (not simplest))
    if len(drawn) > count:
        del drawn[0]
    return sorted(drawn, key=lambda case: count_elements(spec, case.values))


def draw_values(
    draw: DrawFn,
    spec: KernelSpec,
    fixed: Mapping[str, Any],
    planned: PlannedCase | None = None,
) -> dict[str, Any]:
    """Draw a value for each name of the domain; the values fit the fixed ones."""
    values: dict[str, Any] = {}
    for name in spec.domain:
        if name in fixed:
            values[name] = fixed[name]
            continue
        source = source_of(spec, name, values)
        if planned is not None:
            planned.expect(name, source, values)
        own = values_in(source)
        if own:
            values[name] = draw_one(own)
        else:
            values[name] = draw(source, label=name)  # type: ignore[arg-type]
    return values


values_of = st.composite(draw_values)


@st.composite
def _cases(
    draw: DrawFn, spec: KernelSpec, nature: ReferenceProperties, plan: DrawingPlan
) -> Case:
    planned = plan.begin()
    values = draw_values(draw, spec, {}, planned)
    _check_size(spec, values)
    if planned is not None:
        planned.expect_one("dtype", len(spec.dtypes))
    dtype = draw_one(spec.dtypes)
    if planned is not None:
        planned.stop()
    dtypes = {name: draw_one(own) for name, own in spec.own_dtypes.items()}
    random = draw_index(_RANDOM) > 0
    data: dict[str, Recipe] = {}
    for name in spec.inputs:
        if spec.input(name).data is None:
            data[name] = draw_recipe(
                dtypes.get(name, dtype),
                nonfinite=spec.nonfinite,
                nature=nature,
                random=random,
            )
        else:
            data[name] = draw(data_strategy(spec, name, values), label=name)
    if planned is not None and all(recipe.is_random for recipe in data.values()):
        planned.keep(values)
    return _special(spec, nature, Case(values, dtype, data, dtypes))


def _check_size(spec: KernelSpec, values: Mapping[str, Any]) -> None:
    """Raise a SpecError for a case that is too large to be tried."""
    count = count_elements(spec, values)
    if count > MOST_CASE_ELEMENTS:
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        shapes = ", ".join(f"{name} {spec.shape(name, values)}" for name in spec.inputs)
        raise SpecError(
            f"domain: drew {shown}, a case of {count:,} elements ({shapes}); accepted: at most "
            f"{MOST_CASE_ELEMENTS:,} in all arrays of a case together"
        )


def _special(spec: KernelSpec, nature: ReferenceProperties, case: Case) -> Case:
    """Return the case, or one with far or scaled data in its place: see ``_ORDINARY``.

    It is drawn last, so that the case without it is one of ordinary data, which shrinks.
    """
    special = draw_index(_ORDINARY + _FAR + _SCALED) - _ORDINARY
    if special >= _FAR:
        return _scaled(spec, nature, case)
    return _with_far_data(spec, nature, case) if special >= 0 else case


def _scaled(spec: KernelSpec, nature: ReferenceProperties, case: Case) -> Case:
    """Return the case with data for which outputs of a narrow dtype overflow or are subnormal."""
    narrow = [name for name in spec.dtypes if nature.exponents.get(name)]
    if not narrow:
        return case
    case = replace(case, dtype=draw_one(narrow))
    size = 2.0 ** draw_one(nature.exponents[case.dtype])
    data = dict(case.data)
    for name in _free_floats(spec, case):
        most = min(size, float(float_info(np.dtype(case.dtype_of(name))).max))
        data[name] = draw_uniform(-most, most)
    return replace(case, data=data)


def _with_far_data(spec: KernelSpec, nature: ReferenceProperties, case: Case) -> Case:
    """Return the case with numbers far from 0 in one input."""
    floats = _free_floats(spec, case)
    if not floats or nature.selects or nature.multiplies:
        return case
    name = draw_one(floats)
    ends = nature.far.get(case.dtype, ENDLESS)
    ranges = far_ranges(np.dtype(case.dtype_of(name)), ends)
    if not ranges:
        return case
    return replace(case, data={**case.data, name: draw_uniform(*draw_one(ranges))})


def _free_floats(spec: KernelSpec, case: Case) -> list[str]:
    """Return the inputs of floating-point numbers that have no data of their own."""
    return [
        name
        for name in spec.inputs
        if spec.input(name).data is None
        and is_float_dtype(np.dtype(case.dtype_of(name)))
    ]
