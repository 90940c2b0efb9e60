"""Explicit cases: those that nobody draws, from a spec's examples or from ``pytest --case``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from difftest.harness.case import Case
from difftest.harness.recipes import Random, RecipeError, recipe_from_json
from difftest.harness.spec import KernelSpec

_FIELDS = ("values", "dtype", "data")


class CaseError(ValueError):
    """The JSON does not describe a case of this kernel."""


def case_from_json(text: str, spec: KernelSpec) -> Case:
    """The case that :meth:`Case.to_json` wrote, checked against the spec.

    Values may lie outside the domain, as long as the shapes can be computed.

    Raises
    ------
    CaseError : it names the field, what was received and what is accepted.
    """
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise CaseError(f"received {text!r}, which is not JSON: {error}") from None
    if not isinstance(document, dict) or set(document) != set(_FIELDS):
        raise CaseError(f"received {text}; accepted: an object of {', '.join(_FIELDS)}")
    values, dtype, data = (document[name] for name in _FIELDS)
    _check_keys("values", values, tuple(spec.domain))
    _check_keys("data", data, tuple(spec.inputs))
    if dtype not in spec.dtypes:
        raise CaseError(f"dtype: received {dtype!r}; accepted: {', '.join(spec.dtypes)}")
    try:
        recipes = {name: recipe_from_json(data[name]) for name in spec.inputs}
    except RecipeError as error:
        raise CaseError(f"data: {error}") from None
    return Case({name: values[name] for name in spec.domain}, dtype, recipes)


def _check_keys(field: str, received: object, accepted: tuple[str, ...]) -> None:
    if not isinstance(received, dict) or set(received) != set(accepted):
        names = ", ".join(received) if isinstance(received, dict) else repr(received)
        raise CaseError(f"{field}: received {names or 'nothing'}; accepted: {', '.join(accepted)}")


def explicit_cases(spec: KernelSpec) -> Iterator[Case]:
    """The spec's examples: each Case as it is, each mapping of values once in every dtype."""
    for example in spec.examples:
        if isinstance(example, Case):
            yield example
            continue
        for dtype in spec.dtypes:
            data = {name: Random(seed=index) for index, name in enumerate(spec.inputs)}
            yield Case({name: example[name] for name in spec.domain}, dtype, data)
