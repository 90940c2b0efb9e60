"""One case: the drawn values, from which the same arrays come each time.

A Case holds values alone and not its spec, so that its repr can be pasted into ``@example`` or
``examples=`` of the very test that found it, and its JSON into ``pytest --case``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from difftest.harness.recipes import Random, Recipe, RecipeError, recipe_from_json

if TYPE_CHECKING:
    from difftest.harness.spec import KernelSpec

Array = NDArray[Any]

_FIELDS = ("values", "dtype", "data")


class CaseError(ValueError):
    """The JSON does not describe a case of this kernel."""


@dataclass(frozen=True)
class Case:
    """Values for the names of a spec's domain, a dtype, and a recipe for each input."""

    values: Mapping[str, Any]
    dtype: str
    data: Mapping[str, Recipe]

    def inputs(
        self, spec: KernelSpec, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> tuple[Array, ...]:
        """The input arrays, made anew at each call; ``shapes`` replaces those of the spec."""
        dtype = np.dtype(self.dtype)
        shapes = shapes or {}
        return tuple(
            self.data[name].build(shapes.get(name) or spec.shape(name, self.values), dtype)
            for name in spec.inputs
        )

    def label(self) -> str:
        """A test id: values and dtype."""
        parts = [f"{name}={value}" for name, value in self.values.items()]
        return "-".join([*parts, self.dtype])

    def to_json(self) -> str:
        """One line, for ``pytest --case``."""
        return json.dumps(
            {
                "values": dict(self.values),
                "dtype": self.dtype,
                "data": {name: recipe.to_json() for name, recipe in self.data.items()},
            },
            separators=(",", ":"),
        )


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
