"""The calls that prove a migration: drawn from shapes that are given, or from a test's spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import hypothesis
import numpy as np
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.harness.case import Case
from difftest.harness.spec import KernelSpec
from difftest.harness.strategies import cases, recipes
from difftest.simulator.dtypes import as_dtype

Array = np.ndarray[Any, np.dtype[Any]]
Drawn = TypeVar("Drawn")


@dataclass(frozen=True)
class ProofCall:
    """A call of a kernel, whose arrays are made anew each time.

    Attributes
    ----------
    dtype : of the inputs.
    shapes : of the arrays that it is called with.
    arrays : makes them.
    keywords, grid : what else it is called with.
    """

    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    arrays: Callable[[], list[Array]]
    keywords: Mapping[str, Any]
    grid: tuple[int, ...] = ()

    def label(self) -> str:
        """The dtype, the shapes and the other arguments, as text."""
        others = [f"{name}={value!r}" for name, value in self.keywords.items()]
        return ", ".join([self.dtype, *(str(list(shape)) for shape in self.shapes), *others])


def calls_of_shapes(
    shapes: Sequence[Sequence[int | str]],
    sizes: Mapping[str, SearchStrategy[int]],
    dtypes: Sequence[str],
    keywords: Mapping[str, Any],
    grid: tuple[int, ...],
    count: int,
) -> list[ProofCall]:
    """Calls with inputs of these shapes, ``count`` in each dtype; names stand for drawn sizes."""

    @st.composite
    def call(draw: DrawFn, dtype: str) -> ProofCall:
        values = {name: draw(source) for name, source in sizes.items()}
        own = tuple(
            tuple(values[one] if isinstance(one, str) else one for one in shape) for shape in shapes
        )
        wanted = as_dtype(dtype)
        drawn = [draw(recipes(wanted.name, random=True)) for _ in own]

        def arrays() -> list[Array]:
            return [one.build(shape, wanted) for one, shape in zip(drawn, own, strict=True)]

        return ProofCall(dtype, own, arrays, keywords, grid)

    return [one for dtype in dtypes for one in _drawn(call(dtype), count)]


def calls_of_spec(spec: KernelSpec, count: int) -> list[ProofCall]:
    """Calls with ``count`` cases of a kernel test's domain, arrays to write to among them."""
    return [_call_of(spec, case) for case in _drawn(cases(spec), count)]


def _call_of(spec: KernelSpec, case: Case) -> ProofCall:
    places = [
        (spec.shape(name, case.values), spec.output_dtype_of(case, index))
        for index, name in enumerate(spec.outputs)
    ]
    shapes = [*(spec.shape(name, case.values) for name in spec.inputs), *(s for s, _ in places)]

    def arrays() -> list[Array]:
        return [*spec.inputs_of(case), *(np.zeros(shape, dtype) for shape, dtype in places)]

    keywords = dict(spec.parameters_of(case.values))
    return ProofCall(case.dtype, tuple(shapes), arrays, keywords, spec.grid_of(case.values))


def _drawn(strategy: SearchStrategy[Drawn], count: int) -> list[Drawn]:
    """``count`` examples, the same each time."""
    found: list[Drawn] = []

    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(one: Drawn) -> None:
        found.append(one)

    collect()
    return found
