"""Recipes for structured data: indices, masks, sorted rows, positive numbers.

Only their seed shrinks. ``seeded`` in :mod:`difftest.testing.drawing.data` draws them, and
they compose with Hypothesis's own strategies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from difftest.support.rounding import Float64
from difftest.testing.contract.recipes import Recipe, RecipeError, Seeded, Shape


@dataclass(frozen=True)
class Uniform(Seeded, Recipe):
    """Uniformly distributed numbers from ``low`` to ``high``: for example positive ones."""

    is_random = True
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -math.inf < self.low <= self.high < math.inf:
            raise RecipeError(
                f"uniform: received low={self.low}, high={self.high}; accepted: finite numbers, "
                "low <= high"
            )

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        return generator.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class Bernoulli(Seeded, Recipe):
    """Elements that are 1 with a probability of ``share``, else 0."""

    share: float = 0.5

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        return (generator.random(shape) < self.share).astype(np.float64)


@dataclass(frozen=True)
class Indices(Seeded, Recipe):
    """Random integers from 0 to ``below`` - 1; two or more elements always include the last."""

    below: int = 1

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        values = generator.integers(0, self.below, shape).astype(np.float64)
        if values.size > 1:
            values.flat[generator.integers(values.size)] = self.below - 1
        return values


class Sorted(Seeded, Recipe):
    """Rows of normally distributed numbers, in ascending order."""

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        return np.sort(generator.standard_normal(shape), axis=-1)


class OneHot(Seeded, Recipe):
    """Rows of zeros with a single 1."""

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        places = generator.integers(0, shape[-1], (*shape[:-1], 1))
        return np.asarray(np.arange(shape[-1]) == places, np.float64)


class Permutation(Seeded, Recipe):
    """Rows that hold each integer from 0 to their length less 1 once."""

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        return generator.permuted(
            np.broadcast_to(np.arange(float(shape[-1])), shape), axis=-1
        )


@dataclass(frozen=True)
class Given(Recipe):
    """The elements themselves, in row-major order, as a strategy for arrays drew them."""

    values: tuple[float, ...] = ()

    def _values(
        self, generator: Generator, shape: Shape, dtype: np.dtype[Any]
    ) -> Float64:
        if len(self.values) != math.prod(shape):
            raise RecipeError(
                f"given.values: received {len(self.values)} elements; accepted: "
                f"{math.prod(shape)}, as many as the array has"
            )
        return np.array(self.values, dtype=np.float64)
