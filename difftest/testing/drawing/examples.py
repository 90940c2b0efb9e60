"""Reproducible examples of a strategy, and the minimal one, which Hypothesis tries first."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException, HypothesisSideeffectWarning
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.provider import BACKEND

Example = TypeVar("Example")

_TRIES = 4
"""Examples that are tried before a strategy counts as one that has none."""


def examples(
    strategy: SearchStrategy[Example], count: int, backend: str = BACKEND
) -> list[Example]:
    """Return a number of examples of a strategy, equal at each call."""
    drawn: list[Example] = []

    # Hypothesis reads the source of this function at each call, so it is short.
    def collect(example: Example) -> None:
        drawn.append(example)

    configure = settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        backend=backend,
    )
    configure(seed(0)(given(strategy)(collect)))()
    return drawn


def make_random_numbers() -> None:
    """Let Hypothesis make its random numbers before :func:`gc.freeze` hides who holds them.

    Hypothesis asks the garbage collector for the holder and warns if there is none. The holder is a
    dictionary, which Python 3.14 tracks from the beginning, and so freezes with everything else.
    """
    if sys.version_info < (3, 14):
        return
    with warnings.catch_warnings():
        # Hypothesis warns plugins of slow code. The first test would take this time as well.
        warnings.simplefilter("ignore", HypothesisSideeffectWarning)
        examples(st.none(), 1)


def examples_or_none(strategy: SearchStrategy[Example], count: int) -> list[Example]:
    """Return a number of examples of a strategy; an empty list if it can draw none.

    Raises
    ------
    SpecError : the strategy makes a value that the spec does not accept.
    """
    try:
        return examples(strategy, count)
    except SpecError:
        raise
    except (ValueError, ArithmeticError, HypothesisException):
        return []


def minimal_example(strategy: Callable[[], SearchStrategy[Example]]) -> Example | None:
    """Return the minimal example of a strategy, which ``strategy`` makes; None without one.

    A function of the domain may have no values for an earlier name's value.
    """
    return next(iter(examples_or_none(_first(strategy, itertools.count()), 1)), None)


@st.composite
def _first(
    draw: DrawFn, strategy: Callable[[], SearchStrategy[Example]], tried: Iterator[int]
) -> Example:
    if next(tried) == _TRIES:  # Hypothesis itself would try hundreds of times
        raise ValueError(f"{_TRIES} examples came to nothing")
    return draw(strategy())
