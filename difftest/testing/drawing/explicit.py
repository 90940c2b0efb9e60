"""Explicit cases, from a spec's examples or from ``pytest --case``."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from difftest.support.rounding import is_float_dtype
from difftest.testing.contract.case import Case, meant
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
        return _read_case(
            json.loads(document) if isinstance(document, str) else document, spec
        )
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
    dtypes = {
        name: spec.input(name).dtypes for name in spec.inputs if spec.input(name).dtypes
    }
    fields = (
        "values",
        "dtype",
        "data",
        *["dtypes"] * bool(dtypes),
    )  # shapes only if they differ
    if not isinstance(document, dict) or set(document) - {"shapes"} != set(fields):
        names = set(document) if isinstance(document, dict) else set(fields)
        wanted = spec.domain if names & set(spec.domain) else fields
        lacks = [name for name in wanted if name not in names]
        raise CaseError(
            f"received {json.dumps(document)}; accepted: an object of {', '.join(fields)}, or of "
            f"{', '.join(spec.domain)} alone{'; it lacks ' * bool(lacks)}{', '.join(lacks)}"
        )
    arrays = spec.arrays
    parts = {"dtypes": {}, "shapes": {}, **document}
    keys: Any = {
        "values": spec.domain,
        "data": spec.inputs,
        "dtypes": dtypes,
        "shapes": arrays,
    }
    for field, accepted in keys.items():
        part = parts[field]
        is_known = isinstance(part, dict) and set(part) <= set(accepted)
        if not is_known or (field != "shapes" and len(part) < len(accepted)):
            received = ", ".join(part) if isinstance(part, dict) else repr(part)
            texts = ", ".join(accepted)
            raise CaseError(
                f"{field}: received {received or 'nothing'}; accepted: {texts}"
            )
    choices = [("dtype", parts["dtype"], spec.dtypes)]
    choices += [
        (f"dtypes.{name}", parts["dtypes"][name], dtypes[name]) for name in dtypes
    ]
    for field, dtype, accepted in choices:
        if dtype not in accepted:
            raise CaseError(
                f"{field}: received {dtype!r}; accepted: {', '.join(accepted)}"
            )
    values = {name: parts["values"][name] for name in spec.domain}
    for name, source in spec.domain.items():
        if is_choice(source):
            values[name] = meant(source, values[name])
    data = {name: recipe_from_json(parts["data"][name]) for name in spec.inputs}
    shapes = {
        name: validate_grid(f"shapes.{name}", shape)
        for name, shape in parts["shapes"].items()
    }
    case = Case(values, parts["dtype"], data, parts["dtypes"], shapes)
    widths = {name: np.dtype(case.dtype_of(name)).itemsize for name in arrays}
    if problem := too_large(
        (spec.shape_of(case, name), width) for name, width in widths.items()
    ):
        raise CaseError(f"values: {problem}")
    return case


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
    dtypes = {
        name: kinds[0] for name in spec.inputs if (kinds := spec.input(name).dtypes)
    }
    dtypes |= own.pop("dtypes", {})
    dtype = dtype or spec.dtypes[0]
    data = dict[str, Recipe]()
    for seed, name in enumerate(spec.inputs):
        mine = dtypes.get(name, dtype)
        if spec.input(name).data is not None:
            recipe = minimal_example(
                functools.partial(data_strategy, spec, name, values)
            )
            if recipe is None:
                raise NoDataError(
                    f"inputs[{name!r}].data: found nothing for {values}; accepted: data for each "
                    "example and each rejection"
                )
            data[name] = recipe
        else:
            data[name] = (
                Random(seed) if is_float_dtype(np.dtype(mine)) else Integers(seed, 4)
            )
    return Case(dict(values), dtype, data, dtypes, **own)
