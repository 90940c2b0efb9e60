"""Strategies of sizes that lean to their ends and to the limits of the hardware."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.testing.contract.sources import EDGES, RANGE, edges_of
from difftest.testing.contract.spec import (
    KernelSpec,
    Source,
    call_with_values,
    is_choice,
    is_function_of_domain,
)
from difftest.testing.contract.spec_arguments import argument_error, check_integers
from difftest.testing.drawing.provider import integer_bounds, prefer, sampled_values

__tracebackhide__ = True  # its errors are errors of its caller's line


def sizes(low: int, high: int, *, near: Collection[int] = ()) -> SearchStrategy[int]:
    """Return a strategy of integers from ``low`` to ``high``.

    It favours both ends and the hardware's limits. Each limit L within the range adds L - 1, L and
    L + 1. ``near`` adds further sizes, such as the size where a kernel's third tile begins. It
    shrinks to ``low``, through all sizes between.

    Raises
    ------
    ValueError : no integer is in the range, or an end of it is not an integer.
    """
    check_integers("sizes", low=low, high=high)
    if low > high:
        raise ValueError(
            f"sizes: received low={low}, high={high}; accepted: low <= high"
        )
    return _sizes(1, int(low), int(high), edges_of(int(low), int(high), tuple(near)))


def multiples(
    of: int, *, at_most: int, at_least: int = 1, near: Collection[int] = ()
) -> SearchStrategy[int]:
    """Return a strategy of multiples of ``of`` in [at_least, at_most] that favours both ends.

    The three smallest are frequent: a kernel's loops have a first, a second and a third iteration
    there. ``near`` adds multiples of one's own.

    Raises
    ------
    ValueError : no multiple is in the range, or an argument is not an integer.
    """
    check_integers("multiples", of=of, at_most=at_most, at_least=at_least)
    if of < 1:
        raise ValueError(f"multiples: received of={of}; accepted: at least 1")
    fewest = int(max(1, -(-at_least // of)))
    most = int(at_most // of)
    if fewest > most:
        raise ValueError(
            f"multiples: received of={of}, at_least={at_least}, at_most={at_most}; "
            "accepted: a range that holds a multiple"
        )
    own = {size // of for size in near}
    edges = {fewest, fewest + 1, fewest + 2, most - 1, most} | own
    kept = tuple(sorted(int(edge) for edge in edges if fewest <= edge <= most))
    return _sizes(of, fewest, most, kept)


def _sizes(
    of: int, fewest: int, most: int, edges: tuple[int, ...]
) -> SearchStrategy[int]:
    """Return a strategy of the multiples of ``of`` from ``fewest`` to ``most`` times it.

    ``of`` may be a size that records the computations with it.
    """
    strategy = _counts(fewest, most, edges)
    if of > 1:
        strategy = strategy.map(lambda count: count * of)
    setattr(strategy, RANGE, range(fewest * of, most * of + 1, of))
    setattr(strategy, EDGES, [count * of for count in edges])
    return strategy


@lru_cache(maxsize=512)  # to make a strategy takes longer than to draw from it
@st.composite
def _counts(draw: DrawFn, low: int, high: int, edges: tuple[int, ...]) -> int:
    prefer(low, high, edges)
    return draw(st.integers(low, high))


def source_of(spec: KernelSpec, name: str, earlier: Mapping[str, Any]) -> Source:
    """Return the source of a name's values for earlier ones: a sequence, or a strategy.

    Hypothesis's own ``integers`` become :func:`sizes`, and its ``sampled_from`` a sequence.
    """
    source = spec.domain[name]
    if is_function_of_domain(source):
        source = call_with_values(source, earlier)  # type: ignore[arg-type]
        if not (isinstance(source, SearchStrategy) or is_choice(source)):
            raise argument_error(
                f"domain[{name!r}]: what its function returned",
                source,
                "a Hypothesis strategy, or a sequence that is not empty",
            )
    if is_choice(source) or hasattr(source, RANGE):
        return source
    low, high = integer_bounds(source) or (0, 0)
    if 0 <= low < high:
        return sizes(low, high)
    return sampled_values(source) or source
