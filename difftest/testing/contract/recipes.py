"""Recipes for the elements of an array, from simple to complex.

A recipe is small and complete: it prints as Python code, is stored as JSON, and makes the same
array each time. Hypothesis draws recipes, not elements, so a shrunk failure shows readable data.
The order of the classes here is the order of shrinking.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator

from difftest.support.rounding import Array, Float64, is_float_dtype, round_once

Shape: TypeAlias = tuple[int, ...]

_IOTA_PERIODS = (251, 127, 13, 7, 2)
"""Primes, so that no tile size divides them; small ones fit narrow dtypes, 2 fits booleans."""


class RecipeError(ValueError):
    """A recipe's fields, or their JSON, do not describe one."""


RECIPES: dict[str, type[Recipe]] = {}
"""Recipes by kind, in the order here and in :mod:`difftest.testing.contract.structured`."""


@dataclass(frozen=True)
class Seeded:
    """Random data, the same for each seed."""

    seed: int = 0


@dataclass(frozen=True)
class Recipe:
    """A way to fill an array; see the subclasses.

    Raises
    ------
    RecipeError : a field is not a number, or is out of range.
    """

    # Class attributes without annotations, so that they are not fields of the dataclass.
    kind = ""
    is_random = False
    """True if rounding errors on this data count as independent (see ``compare``)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            name = f"{self.kind}.{field.name}"
            value = getattr(self, field.name)
            for key in (str(field.type), field.name):
                if key not in _FIELDS:
                    continue
                fits, accepted = _FIELDS[key]
                if not fits(value):
                    raise RecipeError(
                        f"{name}: received {value!r:.80}; accepted: {accepted}"
                    )
            if field.type == "int":  # JSON does not encode NumPy's integers
                object.__setattr__(self, field.name, int(value))

    def __init_subclass__(cls) -> None:
        cls.kind = re.sub(r"\B([A-Z])", r"_\1", cls.__name__).lower()
        RECIPES.setdefault(cls.kind, cls)

    @classmethod
    def made(cls, /, *seed: int, **values: Any) -> Recipe:
        """Return a recipe with these field values; raise a RecipeError if they do not fit."""
        try:
            return cls(*seed, **values)
        except TypeError as error:
            accepted = ", ".join(field.name for field in fields(cls)) or "no fields"
            raise RecipeError(
                f"recipe {cls.kind}: {error}; accepted: {accepted}"
            ) from None

    def build(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array of this shape; its elements are rounded once into ``dtype``."""
        generator = np.random.default_rng(getattr(self, "seed", 0))
        return round_once(
            self._values(generator, shape or (1,), dtype).reshape(shape), dtype
        )

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        raise NotImplementedError

    def to_json(self) -> str | dict[str, Any]:
        """Return the kind if the recipe has no fields, else {kind: fields}.

        NaN and infinities, which JSON lacks, are encoded by name.
        """
        values = {name: _as_json(value) for name, value in asdict(self).items()}
        return {self.kind: values} if values else self.kind


class Zeros(Recipe):
    """All elements 0."""

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        return np.zeros(shape)


class Ones(Recipe):
    """All elements 1."""

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        return np.ones(shape)


class Iota(Recipe):
    """Element i, in row-major order, is i modulo a prime: 251, or less for narrow dtypes."""

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        turns = map(np.arange, _IOTA_PERIODS)
        period = next(
            at.size for at in turns if np.array_equal(round_once(at, dtype), at)
        )
        return np.arange(math.prod(shape), dtype=np.float64) % period


@dataclass(frozen=True)
class Fill(Recipe):
    """All elements ``value``, except a few ``overrides``: (position, value) pairs.

    A position counts elements in row-major order, modulo the size of the array, so -1 is the last.
    """

    value: float
    overrides: tuple[tuple[int, float], ...] = ()

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        values = np.full(shape, float(self.value))
        for position, value in self.overrides:
            values.flat[position % values.size] = value
        return values


@dataclass(frozen=True)
class Integers(Seeded, Recipe):
    """Random integers from ``-bound`` to ``bound`` (from 0 in an unsigned dtype).

    Sums of their products are exact in float32 up to 2**24, so a kernel must be right to the bit.
    """

    is_random = True
    bound: int = 1

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        low = 0 if dtype.kind == "u" else -self.bound
        return generator.integers(low, self.bound + 1, shape).astype(np.float64)


@dataclass(frozen=True)
class Random(Seeded, Recipe):
    """Normally distributed numbers, each scaled by 2**e with e uniform in [-spread, spread].

    The values fill the dtype's mantissa, so rounding to a narrower dtype shows.
    """

    is_random = True
    spread: int = 0

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        values = generator.standard_normal(shape)
        if self.spread:
            values *= np.exp2(generator.uniform(-self.spread, self.spread, shape))
        return values


@dataclass(frozen=True)
class Outliers(Seeded, Recipe):
    """Normally distributed numbers, but about one element in eight is one of ``values``.

    In a floating-point dtype each of these is scaled by a uniform number from 1/2 to 1, so that no
    two are equal. The largest subnormal number gives subnormal numbers, a very large number gives
    very large numbers.
    """

    is_random = True
    values: tuple[float, ...] = (-0.0,)

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        drawn = generator.standard_normal(shape)
        places = np.flatnonzero(generator.random(drawn.size) < 1 / 8)
        has_both_kinds = 0 < places.size < drawn.size
        if drawn.size > 1 and not has_both_kinds:
            places = np.arange(1)
        scales: Any = 1.0
        if is_float_dtype(dtype):
            scales = generator.uniform(0.5, 1.0, places.size)
        outliers = generator.choice(np.array(self.values), places.size)
        np.put(drawn, places, outliers * scales)
        return drawn


def _as_json(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return list(map(_as_json, value))
    return value if math.isfinite(value) else repr(float(value))


def _is_number(value: object, kind: type = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def is_plain_integer(value: object) -> bool:
    """Return whether a value is an integer of Python or NumPy, and not a boolean."""
    return _is_number(value, Integral)


def _is_row(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_number, value))


def _are_pairs(value: Any) -> bool:
    rows = isinstance(value, tuple) and all(
        _is_row(pair) and len(pair) == 2 for pair in value
    )
    return rows and all(is_plain_integer(position) for position, _ in value)


_OF_THE_DOMAIN = "(a size of the domain: data=lambda n: seeded(Indices, below=n))"
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (is_plain_integer, f"an integer {_OF_THE_DOMAIN}"),
    "float": (
        _is_number,
        f"a number, in JSON 'nan', 'inf' and '-inf' too {_OF_THE_DOMAIN}",
    ),
    "tuple[float, ...]": (_is_row, "a tuple of numbers"),
    "tuple[tuple[int, float], ...]": (_are_pairs, "a tuple of pairs (position, value)"),
    **dict.fromkeys(
        ("seed", "bound", "spread"), (lambda value: value >= 0, "at least 0")
    ),
    "below": (lambda value: value >= 1, "at least 1"),
    "share": (lambda value: 0 <= value <= 1, "from 0 to 1"),
}
"""The checks of a field, by its annotation and by its name: a predicate, and what it accepts."""


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_from_json, value))
    return float(value) if value in ("nan", "inf", "-inf") else value


def recipe_from_json(document: Any) -> Recipe:
    """Return the recipe that :meth:`Recipe.to_json` wrote."""
    is_pair = isinstance(document, dict) and len(document) == 1
    kind, values = next(iter(document.items())) if is_pair else (document, {})
    if not isinstance(kind, str) or kind not in RECIPES or not isinstance(values, dict):
        raise RecipeError(
            f"recipe: received {document!r}; accepted: one of {', '.join(RECIPES)}, "
            "or {name: fields}"
        )
    return RECIPES[kind].made(
        **{name: _from_json(value) for name, value in values.items()}
    )
