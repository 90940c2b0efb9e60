"""Recipes of data that means something: indices, masks, rows in order, positive numbers.

They shrink by their seed alone. ``seeded`` in :mod:`difftest.harness.strategies` draws them, and
they compose with Hypothesis's own strategies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from difftest.harness.recipes import Recipe, RecipeError
from difftest.harness.rounding import Array, Float64, round_once


@dataclass(frozen=True)
class Uniform(Recipe):
    """Uniformly distributed from ``low`` to ``high``: positive, say, or within [-1, 1]."""

    kind = "uniform"
    is_random = True
    seed: int = 0
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -math.inf < self.low <= self.high < math.inf:
            raise RecipeError(
                f"uniform: received low={self.low}, high={self.high}; accepted: finite numbers, "
                "low <= high"
            )

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        return np.random.default_rng(self.seed).uniform(self.low, self.high, size)


@dataclass(frozen=True)
class Bernoulli(Recipe):
    """1 with a probability of ``share``, else 0."""

    kind = "bernoulli"
    seed: int = 0
    share: float = 0.5

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        drawn = np.random.default_rng(self.seed).random(size)
        return (drawn < self.share).astype(np.float64)


@dataclass(frozen=True)
class Indices(Recipe):
    """Random integers from 0 to ``below`` - 1; of two or more, the last one is there for sure."""

    kind = "indices"
    seed: int = 0
    below: int = 1

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        generator = np.random.default_rng(self.seed)
        values = generator.integers(0, self.below, size).astype(np.float64)
        if size > 1:
            values[generator.integers(size)] = self.below - 1
        return values


@dataclass(frozen=True)
class Rowwise(Recipe):
    """Recipes that fill each row, the elements along the last axis, for itself."""

    seed: int = 0

    def build(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The array of this shape whose elements are rounded once into ``dtype``."""
        rows, columns = math.prod(shape[:-1]), math.prod(shape[-1:])
        generator = np.random.default_rng(self.seed)
        return round_once(self._rows(generator, rows, columns).reshape(shape), dtype)

    def _rows(self, generator: np.random.Generator, rows: int, columns: int) -> Array:
        raise NotImplementedError


class Sorted(Rowwise):
    """Rows of normally distributed numbers, in ascending order."""

    kind = "sorted"

    def _rows(self, generator: np.random.Generator, rows: int, columns: int) -> Array:
        return np.sort(generator.standard_normal((rows, columns)), axis=1)


class OneHot(Rowwise):
    """Rows of zeros with a single 1."""

    kind = "one_hot"

    def _rows(self, generator: np.random.Generator, rows: int, columns: int) -> Array:
        values = np.zeros((rows, columns))
        values[np.arange(rows), generator.integers(0, columns, rows)] = 1.0
        return values


class Permutation(Rowwise):
    """Rows that hold each integer from 0 to their length less 1 once."""

    kind = "permutation"

    def _rows(self, generator: np.random.Generator, rows: int, columns: int) -> Array:
        return generator.permuted(np.tile(np.arange(columns, dtype=np.float64), (rows, 1)), axis=1)


@dataclass(frozen=True)
class Given(Recipe):
    """The elements themselves, in row-major order: what a strategy for arrays has drawn."""

    kind = "given"
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, array: Any) -> Given:
        """The recipe of an array."""
        return cls(tuple(np.asarray(array).astype(np.float64).reshape(-1).tolist()))

    def _values(self, size: int, dtype: np.dtype[Any]) -> Float64:
        if len(self.values) != size:
            raise RecipeError(
                f"given.values: received {len(self.values)} elements; accepted: {size}, as many as "
                "the array has"
            )
        return np.array(self.values, dtype=np.float64)
