"""The calls that prove a migration: drawn from shapes that are given, or from a test's spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.harness.case import Case
from difftest.harness.spec import KernelSpec, call_of_case
from difftest.harness.strategies import cases, examples, recipes
from difftest.simulator.dtypes import as_dtype

Array = np.ndarray[Any, np.dtype[Any]]


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

    return [one for dtype in dtypes for one in examples(call(dtype), count)]


def calls_of_spec(spec: KernelSpec, count: int) -> list[ProofCall]:
    """Calls with ``count`` cases of a kernel test's domain, arrays to write to among them."""
    return [_call_of(spec, case) for case in examples(cases(spec), count)]


def _call_of(spec: KernelSpec, case: Case) -> ProofCall:
    shapes = tuple(spec.shape(name, case.values) for name in (*spec.inputs, *spec.outputs))
    keywords, grid = dict(spec.parameters_of(case.values)), spec.grid_of(case.values)
    return ProofCall(case.dtype, shapes, lambda: call_of_case(spec, case)[0], keywords, grid)
