"""Values of a domain for the dry run of a kernel: sizes that record the computations with them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from difftest.testing.concolic.run import (
    ConcolicRun,
    StepLimitExceeded,
    concrete_value,
)
from difftest.testing.concolic.search import (
    BranchSearch,
    Condition,
    DrawnValues,
    choice_keys,
)
from difftest.testing.contract.sources import RANGE
from difftest.testing.contract.spec import KernelSpec, is_choice, is_function_of_domain
from difftest.testing.drawing.examples import examples
from difftest.testing.drawing.provider import (
    DRY_BACKEND,
    DryProvider,
    draw_index,
    planned_provider,
    without_filter,
)
from difftest.testing.drawing.sizes import source_of

_WIDEST = 2**31
"""The least number of values of an integer that is not a size."""
_TRIES = 50
"""The number of values that a filter may refuse."""


class KernelSearch(NamedTuple):
    """The results of the dry runs of a spec's kernels.

    Attributes
    ----------
    conditions : the conditions that change for few sizes.
    loops : the loops over sizes, by file and line: whether one had a second iteration.
    met : the lines of the conditions that each kernel met: see :class:`BranchSearch`.
    """

    conditions: list[Condition]
    loops: dict[tuple[str, int], bool]
    met: Mapping[int, set[tuple[str, int]]]

    def conditions_of(self, kernel: Callable[..., Any]) -> list[Condition]:
        """Return the conditions that one of the kernels met."""
        met = self.met.get(id(kernel), ())
        return [condition for condition in self.conditions if condition[:2] in met]


@functools.lru_cache(maxsize=8)
def search_kernels(spec: KernelSpec) -> KernelSearch:
    """Run the kernels of a spec without a machine; return the conditions on sizes that they met."""
    found: list[KernelSearch] = []
    is_whole = False

    @st.composite
    def search(draw: DrawFn) -> None:
        nonlocal is_whole
        draw(st.booleans())  # without a choice the simplest case is the only one
        provider = planned_provider()
        if isinstance(provider, DryProvider) and not is_whole:
            branches = BranchSearch(spec, _DryDrawing(spec, provider, draw))
            try:
                branches.run()
                is_whole = True
            finally:  # a filter within a strategy may end the run of Hypothesis before
                found.append(
                    KernelSearch(branches.conditions, branches.loops, branches.met)
                )
                provider.choose = None

    examples(search(), 2, backend=DRY_BACKEND)
    return found[-1]


class _DryDrawing:
    """Draws values for the names of a domain, as sizes that record the computations with them.

    Called with choices of an earlier call, it makes these again and draws the others.
    """

    def __init__(self, spec: KernelSpec, provider: DryProvider, draw: DrawFn) -> None:
        self._spec = spec
        self._provider = provider
        self._draw = draw
        provider.choose = self._choose
        provider.concrete = concrete_value

    def __call__(self, before: Mapping[str, Any]) -> DrawnValues:
        """Return the values, the choices that make them, and the range of each choice."""
        self._before = dict(before)
        self._drawn = drawn = DrawnValues(ConcolicRun(), {}, {}, {})
        with contextlib.suppress(Exception, StepLimitExceeded):
            for name in self._spec.domain:
                drawn.values[name] = self._value(name, drawn.values)
        return drawn

    def _value(self, name: str, values: Mapping[str, Any]) -> Any:
        source = self._source(name, values)
        of_domain = self._spec.domain[name]
        is_computed = is_function_of_domain(of_domain)
        own = source if is_computed else getattr(source, RANGE, source)
        is_size = is_choice(own) and type(own[0]) is int and name.isidentifier()
        # The choices of a composed source have numbers, and it asks for any size, not for edges.
        self._keys: Iterator[str] = iter(()) if is_size else choice_keys(name)
        value = self._before.get(name)
        if value is None and isinstance(source, SearchStrategy):
            value = self._draw_kept(name, source)
        elif value is None:
            value = source[draw_index(len(source))]
        if not is_size:
            return value
        self._drawn.chosen[name] = value
        if value in own:
            self._drawn.ranges[name] = own
        return self._drawn.run.number(value, name)

    def _draw_kept(self, name: str, source: SearchStrategy[Any]) -> Any:
        """Return a value of a strategy. Hypothesis ends the run if a filter refuses three.

        Raises
        ------
        ValueError : the filter refuses many values.
        """
        unfiltered, is_kept = without_filter(source)
        for _ in range(_TRIES):
            value = self._draw(unfiltered)
            if is_kept(value):
                return value
            self._keys = choice_keys(name)
        raise ValueError(f"{name}: its filter refused {_TRIES} values")

    def _source(self, name: str, values: Mapping[str, Any]) -> Any:
        plain = {at: concrete_value(value) for at, value in values.items()}
        is_cached = hasattr(self._spec.domain[name], "cache_info")
        try:  # a function that keeps what it returns must not keep recording sizes
            return source_of(self._spec, name, plain if is_cached else values)
        except Exception:  # it takes no such sizes
            return source_of(self._spec, name, plain)

    def _choose(
        self, kind: str, limits: dict[str, Any], fresh: Callable[[], Any]
    ) -> Any:
        """Return the choice of an earlier call, or a new one; integers as recording sizes."""
        key = next(self._keys, "")
        if not key:
            return fresh()
        self._provider.edges.clear()
        ends = range(0)
        if kind == "integer" and None not in (limits["min_value"], limits["max_value"]):
            ends = range(limits["min_value"], limits["max_value"] + 1)
        value = self._before.pop(key, None)  # not again, if a filter refuses it
        if value is None or (ends and value not in ends):
            value = fresh()
        self._drawn.chosen[key] = value
        if not 0 < ends.stop - ends.start < _WIDEST:
            return value
        self._drawn.ranges[key] = ends
        return self._drawn.run.number(value, key)
