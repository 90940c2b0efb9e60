"""The plainest example of a strategy, the first that Hypothesis tries, and the plainest case."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.harness.case import Case
from difftest.harness.recipes import Integers, Random, Recipe
from difftest.harness.rounding import is_float
from difftest.harness.spec import KernelSpec
from difftest.harness.spec_arguments import SpecError
from difftest.harness.strategies import attempted, data_of

Example = TypeVar("Example")

_TRIES = 4
"""Examples that are tried before a strategy counts as one that has none."""


class NoDataError(SpecError):
    """An input has no data for some values."""


def simplest(strategy: Callable[[], SearchStrategy[Example]]) -> Example | None:
    """The plainest example of a strategy, which is made for it; see :func:`attempted`.

    None if there is none: a function of the domain may have nothing for an earlier name's value.
    """
    return next(iter(attempted(_first(strategy, itertools.count()), 1)), None)


@st.composite
def _first(
    draw: DrawFn, strategy: Callable[[], SearchStrategy[Example]], tried: Iterator[int]
) -> Example:
    if next(tried) == _TRIES:  # Hypothesis itself would try hundreds of times
        raise ValueError(f"{_TRIES} examples came to nothing")
    return draw(strategy())


def simplest_case(
    spec: KernelSpec, values: Mapping[str, Any], dtype: str, others: Mapping[str, str] | None = None
) -> Case:
    """A case of these values: random data, or the plainest of an input's own.

    ``others`` has those inputs that have another dtype than the case.

    Raises
    ------
    NoDataError : an input's own data are none for these values, as where a strategy of arrays has
        an end to what it can draw.
    """
    dtypes = {name: known[0] for name in spec.inputs if (known := spec.input(name).dtypes)}
    dtypes |= others or {}
    data: dict[str, Recipe] = {}
    for seed, name in enumerate(spec.inputs):
        mine = dtypes.get(name, dtype)
        if spec.input(name).data is not None:
            own = simplest(functools.partial(data_of, spec, name, values, mine))
            if own is None:
                raise NoDataError(
                    f"inputs[{name!r}].data: found nothing for {values}; accepted: data for each "
                    "example and each rejection"
                )
            data[name] = own
        else:
            data[name] = Random(seed) if is_float(np.dtype(mine)) else Integers(seed, 4)
    return Case(dict(values), dtype, data, dtypes)
