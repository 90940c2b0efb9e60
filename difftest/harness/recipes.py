"""Recipes: how the elements of one array are made, from the plainest to the wildest.

A recipe is small and says everything: it prints as code that runs, travels as JSON, and makes the
same array each time. Hypothesis draws recipes, not elements, so that a shrunk failure shows data
that a person can read. The order of the classes here is the order of shrinking.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

import numpy as np

from difftest.harness.rounding import Array, Float64, float_info, is_float, round_once

_IOTA_PERIODS = (251, 127, 13, 7)
"""Primes, so that no tile size divides one, each below a power of two that some mantissa holds."""

_OUTLIERS = 1 / 8
"""The share of outliers among random data."""

_SPECIAL_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class RecipeError(ValueError):
    """A recipe's fields, or their JSON, do not describe one."""


def largest_exact_integer(dtype: np.dtype[Any]) -> int:
    """The largest n such that ``dtype`` holds each integer from 0 to n."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max)
    return int(2 ** (float_info(dtype).nmant + 1))


RECIPES: dict[str, type[Recipe]] = {}
"""By kind, in their order here and in :mod:`difftest.harness.structured`."""


@dataclass(frozen=True)
class Recipe:
    """One way of filling an array; see the subclasses.

    Raises
    ------
    RecipeError : a field that has to be a number is none, or is out of range.
    """

    # Class attributes without annotations, so that they are no fields of the dataclass.
    kind = ""
    is_random = False
    """Whether rounding errors on this data may be taken as independent (see ``compare``)."""
    least = MappingProxyType({"seed": 0, "bound": 0, "spread": 0, "below": 1, "share": 0})
    most = MappingProxyType({"share": 1})
    """What fields are at least, and at most, in each recipe that has them."""

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = f"{self.kind}.{field.name}", getattr(self, field.name)
            is_kind, accepted = _FIELDS[str(field.type)]
            if not is_kind(value):
                raise RecipeError(f"{name}: received {value!r:.80}; accepted: {accepted}")
            if field.type == "int":  # of NumPy's, too: as JSON knows it
                object.__setattr__(self, field.name, int(value))
            least, most = (ends.get(field.name) for ends in (self.least, self.most))
            if least is not None and not least <= value <= (math.inf if most is None else most):
                range_ = f"at least {least}" if most is None else f"from {least} to {most}"
                raise RecipeError(f"{name}: received {value!r}; accepted: {range_}")

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            RECIPES.setdefault(cls.kind, cls)

    def build(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The array of this shape whose elements are rounded once into ``dtype``."""
        values = self._values(math.prod(shape), dtype)
        return round_once(values.reshape(shape), dtype)

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        raise NotImplementedError

    def to_json(self) -> str | dict[str, Any]:
        """The kind alone if there is nothing more to say, else {kind: fields}.

        NaN and infinities, which JSON lacks, are their names.
        """
        values = {name: _as_json(value) for name, value in asdict(self).items()}
        return {self.kind: values} if values else self.kind


class Zeros(Recipe):
    """All elements 0."""

    kind = "zeros"

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        return np.zeros(size)


class Ones(Recipe):
    """All elements 1."""

    kind = "ones"

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        return np.ones(size)


class Iota(Recipe):
    """Element i, in row-major order, is i modulo a prime: 251, or less where a dtype holds less."""

    kind = "iota"

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        limit = largest_exact_integer(dtype)
        period = next(prime for prime in _IOTA_PERIODS if prime <= limit + 1)
        return np.arange(size, dtype=np.float64) % period


@dataclass(frozen=True)
class Fill(Recipe):
    """All elements ``value``, but for a few ``overrides``: (position, value) pairs.

    A position counts elements in row-major order, modulo the size of the array, so -1 is the last.
    """

    kind = "fill"
    value: float
    overrides: tuple[tuple[int, float], ...] = ()

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        values = np.full(size, float(self.value))
        for position, value in self.overrides:
            values[position % size] = value
        return values


@dataclass(frozen=True)
class Integers(Recipe):
    """Random integers from ``-bound`` to ``bound`` (from 0 in an unsigned dtype).

    Sums of their products are exact in float32 up to 2**24: a kernel must get each bit right.
    """

    kind = "integers"
    is_random = True
    seed: int = 0
    bound: int = 1

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        low = 0 if dtype.kind == "u" else -self.bound
        drawn = np.random.default_rng(self.seed).integers(low, self.bound + 1, size)
        return drawn.astype(np.float64)


@dataclass(frozen=True)
class Random(Recipe):
    """Normally distributed, each scaled by 2**e with e uniform in [-spread, spread].

    The values fill the dtype's mantissa: whatever rounds them to a narrower dtype shows.
    """

    kind = "random"
    is_random = True
    seed: int = 0
    spread: int = 0

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        generator = np.random.default_rng(self.seed)
        values = generator.standard_normal(size)
        if self.spread:
            values *= np.exp2(generator.uniform(-self.spread, self.spread, size))
        return values


@dataclass(frozen=True)
class Outliers(Recipe):
    """Normally distributed, but for about one element in eight: there one of ``values`` stands.

    In a floating-point dtype each is scaled by a uniform number from 1/2 to 1, so that no two are
    equal: the largest subnormal number gives subnormal numbers, a very large one very large ones.
    """

    kind = "outliers"
    is_random = True
    seed: int = 0
    values: tuple[float, ...] = (-0.0,)

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        generator = np.random.default_rng(self.seed)
        drawn = generator.standard_normal(size)
        places = np.flatnonzero(generator.random(size) < _OUTLIERS)
        if size > 1 and places.size in (0, size):  # at least one outlier, and one that is none
            places = np.arange(1)
        scales = generator.uniform(0.5, 1.0, places.size) if is_float(dtype) else 1.0
        drawn[places] = generator.choice(np.array(self.values), places.size) * scales
        return drawn


def _as_json(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [*map(_as_json, value)]
    return value if math.isfinite(value) else repr(float(value))


def _is_number(value: object, kind: type = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def is_integer(value: object) -> bool:
    """Whether it is an integer of Python or NumPy, and no truth value."""
    return _is_number(value, Integral)


def _is_row(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_is_number, value))


def _are_pairs(value: Any) -> bool:
    rows = isinstance(value, tuple) and all(_is_row(pair) and len(pair) == 2 for pair in value)
    return rows and all(is_integer(position) for position, _ in value)


_OF_THE_DOMAIN = "(a size of the domain: data=lambda n: seeded(Indices, below=n))"
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (is_integer, f"an integer {_OF_THE_DOMAIN}"),
    "float": (_is_number, f"a number, in JSON 'nan', 'inf' and '-inf' too {_OF_THE_DOMAIN}"),
    "tuple[float, ...]": (_is_row, "a tuple of numbers"),
    "tuple[tuple[int, float], ...]": (_are_pairs, "a tuple of pairs (position, value)"),
}
"""By its annotation, what a field has to be."""


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return (*map(_from_json, value),)
    return _SPECIAL_NAMES.get(value, value) if isinstance(value, str) else value


def recipe_from_json(document: object) -> Recipe:
    """The recipe that :meth:`Recipe.to_json` wrote."""
    kind: object = document
    fields: Any = {}
    if isinstance(document, dict) and len(document) == 1:
        ((kind, fields),) = document.items()
    if not isinstance(kind, str) or kind not in RECIPES or not isinstance(fields, dict):
        raise RecipeError(
            f"recipe: received {document!r}; accepted: one of {', '.join(RECIPES)}, "
            "or {name: fields}"
        )
    recipe = RECIPES[kind]
    accepted = recipe.__dataclass_fields__
    unknown = sorted(set(fields) - set(accepted))
    if unknown:
        raise RecipeError(
            f"recipe {kind}: received the field {unknown[0]!r}; "
            f"accepted: {', '.join(accepted) or 'no fields'}"
        )
    needed = {name: None for name, f in accepted.items() if f.default is MISSING}
    return recipe(**{**needed, **{name: _from_json(value) for name, value in fields.items()}})
