"""The plainest example of a strategy: the first that Hypothesis tries, so that nothing shrinks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeVar

from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.harness.spec_arguments import SpecError

Example = TypeVar("Example")

_TRIES = 4
"""Examples that are tried before a strategy counts as one that has none."""


class NoExampleError(ValueError):
    """A strategy has no example that is soon found."""


def simplest(strategy: Callable[[], SearchStrategy[Example]]) -> Example | None:
    """The plainest example of a strategy, which is made for it.

    None if there is none: a function of the domain may have nothing for an earlier name's value,
    and there is an end to what a strategy can draw.

    Raises
    ------
    SpecError : the strategy makes what the spec does not accept.
    """
    tried = itertools.count()

    @st.composite
    def first(draw: DrawFn) -> Example:
        if next(tried) == _TRIES:  # Hypothesis itself would try hundreds of times
            raise NoExampleError(f"{_TRIES} examples came to nothing")
        return draw(strategy())

    quick = settings(phases=[Phase.generate], database=None, deadline=None, derandomize=True)
    try:
        return find(first(), lambda example: True, settings=quick)
    except SpecError:
        raise
    except (ValueError, ArithmeticError, HypothesisException):
        return None
