"""Explicit cases, from a spec's examples or from ``pytest --case``."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from difftest.support.rounding import is_float_dtype
from difftest.testing.contract.case import Case, choice_named
from difftest.testing.contract.limits import too_large
from difftest.testing.contract.recipes import (
    Integers,
    Random,
    Recipe,
    RecipeError,
    recipe_from_json,
)
from difftest.testing.contract.spec import KernelSpec, is_choice
from difftest.testing.contract.spec_arguments import SpecError, validate_grid
from difftest.testing.drawing.data import data_strategy
from difftest.testing.drawing.examples import minimal_example


class CaseError(ValueError):
    """The JSON does not describe a case of this kernel."""


class NoDataError(SpecError):
    """An input has no data for some values."""


def case_from_json(document: object, spec: KernelSpec) -> Case:
    """Return the case that :meth:`Case.to_json` wrote; ``document`` is JSON text or its object.

    A value for each name of the domain is enough: then the data are random, and the dtype is the
    spec's first. Values may lie outside the domain.

    Raises
    ------
    CaseError : it names the field, the received value and the accepted values.
    """
    try:
        if isinstance(document, str):
            return _read_case(json.loads(document), spec)
        return _read_case(document, spec)
    except json.JSONDecodeError as error:
        raise CaseError(f"received {document!r}, which is not JSON: {error}") from None
    except RecipeError as error:
        raise CaseError(f"data: {error}") from None
    except SpecError as error:
        raise CaseError(f"values: {error}") from None


def _read_case(document: object, spec: KernelSpec) -> Case:
    """Return the case in a document that was read from JSON."""
    if isinstance(document, Mapping) and set(document) == set(spec.domain):
        document = json.loads(minimal_case(spec, document).to_json())
    own_dtypes = spec.own_dtypes
    parts = _parts(document, spec, bool(own_dtypes))
    _check_keys("values", parts["values"], spec.domain)
    _check_keys("data", parts["data"], spec.inputs)
    _check_keys("dtypes", parts["dtypes"], own_dtypes)
    _check_keys("shapes", parts["shapes"], spec.arrays, is_partial=True)
    _check_dtype("dtype", parts["dtype"], spec.dtypes)
    for name, accepted in own_dtypes.items():
        _check_dtype(f"dtypes.{name}", parts["dtypes"][name], accepted)
    case = _case_of(parts, spec)
    sizes = [
        (spec.shape_of(case, name), np.dtype(case.dtype_of(name)).itemsize)
        for name in spec.arrays
    ]
    problem = too_large(sizes)
    if problem:
        raise CaseError(f"values: {problem}")
    return case


def _parts(document: object, spec: KernelSpec, has_own_dtypes: bool) -> dict[str, Any]:
    """Return the fields of a case's document; raise a CaseError if one is missing or unknown."""
    fields = ["values", "dtype", "data"]
    if has_own_dtypes:
        fields.append("dtypes")
    # A case has shapes only if they differ from the spec's.
    if isinstance(document, dict) and set(document) - {"shapes"} == set(fields):
        return {"dtypes": {}, "shapes": {}, **document}
    names = set(document) if isinstance(document, dict) else set(fields)
    wanted = spec.domain if names & set(spec.domain) else fields
    missing = [name for name in wanted if name not in names]
    text = (
        f"received {json.dumps(document)}; accepted: an object of {', '.join(fields)}, or of "
        f"{', '.join(spec.domain)} alone"
    )
    if missing:
        text += f"; it lacks {', '.join(missing)}"
    raise CaseError(text)


def _check_keys(
    field: str, part: object, accepted: Collection[str], *, is_partial: bool = False
) -> None:
    """Check that a field of a document has the accepted names: all of them, or only some."""
    received = repr(part)
    if isinstance(part, dict):
        is_enough = is_partial or len(part) == len(accepted)
        if is_enough and set(part) <= set(accepted):
            return
        received = ", ".join(part)
    raise CaseError(
        f"{field}: received {received or 'nothing'}; accepted: {', '.join(accepted)}"
    )


def _check_dtype(field: str, dtype: object, accepted: Collection[str]) -> None:
    """Check that a dtype of a document is an accepted one."""
    if dtype not in accepted:
        raise CaseError(f"{field}: received {dtype!r}; accepted: {', '.join(accepted)}")


def _case_of(parts: Mapping[str, Any], spec: KernelSpec) -> Case:
    """Return the case of a document's fields, whose names and dtypes are right."""
    values = {}
    for name, source in spec.domain.items():
        value = parts["values"][name]
        values[name] = choice_named(source, value) if is_choice(source) else value
    shapes = {
        name: validate_grid(f"shapes.{name}", shape)
        for name, shape in parts["shapes"].items()
    }
    data = {name: recipe_from_json(parts["data"][name]) for name in spec.inputs}
    return Case(values, parts["dtype"], data, parts["dtypes"], shapes)


def explicit_cases(spec: KernelSpec) -> Iterator[Case]:
    """Yield the spec's examples: each Case as it is, each mapping of values once in every dtype."""
    for example in spec.examples:
        if isinstance(example, Case):
            yield example
            continue
        for dtype in spec.dtypes:
            yield minimal_case(
                spec, {name: example[name] for name in spec.domain}, dtype
            )


def minimal_case(
    spec: KernelSpec,
    values: Mapping[str, Any],
    dtype: str | None = None,
    **own: Mapping[str, Any],
) -> Case:
    """Return the case of these values, with random data or minimal data of an input's own.

    Parameters
    ----------
    dtype : the dtype of the inputs; None means the spec's first.
    own : ``dtypes`` and ``shapes`` of arrays that differ from the spec.

    Raises
    ------
    NoDataError : an input has no data for these values: its strategy draws nothing.
    """
    dtypes = {name: accepted[0] for name, accepted in spec.own_dtypes.items()}
    dtypes |= own.pop("dtypes", {})
    dtype = dtype or spec.dtypes[0]
    data = {}
    for seed, name in enumerate(spec.inputs):
        data[name] = _minimal_data(spec, name, values, dtypes.get(name, dtype), seed)
    return Case(dict(values), dtype, data, dtypes, **own)


def _minimal_data(
    spec: KernelSpec, name: str, values: Mapping[str, Any], dtype: str, seed: int
) -> Recipe:
    """Return random data for an input, or the minimal data of its own."""
    if spec.input(name).data is None:
        is_float = is_float_dtype(np.dtype(dtype))
        return Random(seed) if is_float else Integers(seed, 4)
    recipe: Recipe | None = minimal_example(
        functools.partial(data_strategy, spec, name, values)
    )
    if recipe is None:
        raise NoDataError(
            f"inputs[{name!r}].data: found nothing for {values}; accepted: data for each "
            "example and each rejection"
        )
    return recipe
