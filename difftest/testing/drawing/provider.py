"""The choices that drawn cases are made of, by Hypothesis's interface for alternative backends.

This is the one module that knows Hypothesis's internals. Hypothesis asks a provider for each choice
of a new case. It replays, shrinks and saves choices itself, so a case is a function of its choices.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partialmethod
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.control import current_build_context
from hypothesis.internal import scrutineer
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.choice import choice_permitted
from hypothesis.internal.conjecture.data import ConjectureResult
from hypothesis.internal.escalation import current_pytest_item
from hypothesis.internal.observability import observability_enabled

from difftest.support.tracebacks import PACKAGE
from difftest.testing.contract.sources import values_in

BACKEND = "difftest"
"""The backend of kernel tests, for ``hypothesis.settings(backend=...)``."""
DRY_BACKEND = "difftest-dry-run"
"""The backend of dry runs, whose provider is a :class:`DryProvider`."""
_USED_SETTINGS = "_hypothesis_internal_use_settings"
_SEED_BITS = 32
_MOST_VALUES = 2**16
"""The most values of a strategy of Hypothesis's own that are listed in order."""


class Planned:
    """A provider whose next choices a plan may set.

    Attributes
    ----------
    wanted : the next choices, in order. A choice that the strategy does not permit is dropped.
    edges : integers to which those between two bounds lean, by the bounds.
    chance : the random numbers of the case.
    """

    wanted: Sequence[Any] = ()
    chance: random.Random

    @cached_property
    def edges(self) -> dict[tuple[int, int], Sequence[int]]:
        """No edges, until a strategy of sizes draws."""
        return {}

    def next_wanted(self, limits: Any) -> Any:
        """Remove and return the next wanted choice; None if there is none that is permitted."""
        if not self.wanted:
            return None
        choice, *self.wanted = self.wanted
        return choice if choice_permitted(choice, limits) else None

    def next_integer(self, low: int, high: int) -> int:
        """Return a random integer; every second one is one of the edges, or next to it."""
        edges = self.edges.get((low, high), ())
        if edges and self.chance.random() < 0.5:
            return min(self.chance.choice(edges) + self.chance.randrange(2), high)
        return self.chance.randint(low, high)


class CaseProvider(Planned, providers.HypothesisProvider):
    """The provider of new cases. Integers are uniform: Hypothesis's change between versions."""

    lifetime = "test_case"

    @cached_property
    def chance(self) -> random.Random:  # type: ignore[override]
        """Random numbers of the case, which follow from Hypothesis's seed."""
        draw = super().draw_boolean
        return random.Random(sum(draw() << place for place in range(_SEED_BITS)))

    def draw_boolean(self, p: float = 0.5) -> bool:
        """Return the wanted boolean, else one of Hypothesis's."""
        wanted = self.next_wanted({"p": p})
        return super().draw_boolean(p) if wanted is None else bool(wanted)

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        **more: Any,
    ) -> int:
        """Return the wanted integer, else a random one."""
        limits = {"min_value": min_value, "max_value": max_value, **more}
        wanted = self.next_wanted(limits)
        if wanted is not None:
            return int(wanted)
        if min_value is None or max_value is None:
            return super().draw_integer(min_value, max_value, **more)
        return self.next_integer(min_value, max_value)


class DryProvider(CaseProvider):
    """The provider of a dry run, in which sizes are not plain integers.

    Attributes
    ----------
    choose : returns a choice, given its kind, its limits and a function that draws one.
    concrete : returns the plain value of a choice.
    """

    avoid_realization = True
    choose: Callable[[str, dict[str, Any], Callable[[], Any]], Any] | None = None
    concrete: Callable[[Any], Any] = staticmethod(lambda value: value)

    def _draw(self, kind: str, /, **limits: Any) -> Any:
        def draw() -> Any:
            return getattr(super(DryProvider, self), f"draw_{kind}")(**limits)

        return draw() if self.choose is None else self.choose(kind, limits, draw)

    draw_boolean = partialmethod(_draw, "boolean")
    draw_integer = partialmethod(_draw, "integer")
    draw_float = partialmethod(_draw, "float")
    draw_string = partialmethod(_draw, "string")
    draw_bytes = partialmethod(_draw, "bytes")

    def realize(self, value: Any, *, for_failure: bool = False) -> Any:
        """Return the plain value of a choice."""
        return self.concrete(value)


_PROVIDERS = {BACKEND: CaseProvider, DRY_BACKEND: DryProvider}
providers.AVAILABLE_PROVIDERS.update(
    {name: f"{__name__}.{kind.__name__}" for name, kind in _PROVIDERS.items()}
)


def planned_provider() -> Planned | None:
    """Return the provider of the new case that is drawn; None if Hypothesis replays a case."""
    provider = current_build_context().data.provider
    return provider if isinstance(provider, Planned) else None


def is_final_draw() -> bool:
    """Return whether the case that runs is the result of shrinking, and no explicit example."""
    context = current_build_context()
    return context.is_final and len(context.data.choices) > 0


def draw_index(count: int) -> int:
    """Draw an integer from 0 to ``count`` - 1; a strategy of its own takes three times as long."""
    return current_build_context().data.draw_integer(0, count - 1)


def use_backend(test: object) -> None:
    """Give a Hypothesis test the backend of drawn cases, unless its settings name another.

    The last step of shrinking runs within the test, and draws data for smaller values there.
    """

    def with_backend(own: settings) -> settings:
        left = {*own.suppress_health_check, HealthCheck.nested_given}
        backend = BACKEND if own.backend == "hypothesis" else own.backend
        return settings(own, backend=backend, suppress_health_check=[*left])

    change_settings(test, with_backend)


def settings_of(test: object) -> settings:
    """Return the settings of a Hypothesis test; the current profile's for other functions."""
    own = getattr(test, _USED_SETTINGS, None)
    return own if isinstance(own, settings) else settings()


def change_settings(test: object, change: Callable[[settings], settings]) -> None:
    """Replace the settings of a Hypothesis test; other functions stay as they are.

    Hypothesis has no public way to change settings that a test has already.
    """
    own = getattr(test, _USED_SETTINGS, None)
    if isinstance(own, settings):
        setattr(test, _USED_SETTINGS, change(own))


def prefer(low: int, high: int, edges: Sequence[int]) -> None:
    """Let the integers between two bounds lean to some edges in a new case."""
    if (provider := planned_provider()) is not None:
        provider.edges[low, high] = edges


def sampled_values(source: Any) -> Sequence[Any] | None:
    """Return the values of ``sampled_from``; None for other strategies."""
    inner = getattr(source, "wrapped_strategy", source)
    elements = getattr(inner, "elements", None)
    is_plain = not getattr(inner, "_transformations", ())
    return elements if isinstance(elements, Sequence) and is_plain else None


def integer_bounds(source: Any) -> tuple[int, int] | None:
    """Return the least and the largest of ``integers``; None for other strategies."""
    inner = getattr(source, "wrapped_strategy", source)
    low = getattr(inner, "start", None)
    high = getattr(inner, "end", None)
    if isinstance(low, int) and isinstance(high, int):
        return low, high
    return None


def without_filter(source: Any) -> tuple[Any, Callable[[Any], bool]]:
    """Return the strategy that a filter draws from, and its predicate; ``source`` without one."""
    inner = getattr(source, "wrapped_strategy", source)
    if not hasattr(inner, "filtered_strategy"):
        return source, lambda value: True
    conditions = inner.flat_conditions
    return (
        inner.filtered_strategy,
        lambda value: all(is_kept(value) for is_kept in conditions),
    )


def ordered_values(source: Any) -> Sequence[Any]:
    """Return the values of a source from simple to complex; empty if their order is unknown."""
    if values := values_in(source):
        return values
    low, high = integer_bounds(source) or (0, _MOST_VALUES)
    if high - low < _MOST_VALUES:
        return sorted(range(low, high + 1), key=lambda n: (abs(n), n < 0))
    unfiltered, is_kept = without_filter(source)
    if unfiltered is not source:
        return list(filter(is_kept, ordered_values(unfiltered)))
    inner = getattr(source, "wrapped_strategy", source)
    if hasattr(inner, "mapped_strategy"):
        return [inner.pack(at) for at in ordered_values(inner.mapped_strategy)]
    if repr(inner) == repr(st.booleans()):
        return (False, True)
    return _samples(inner)


def _samples(inner: Any) -> Sequence[Any]:
    """Return the values of ``sampled_from`` after its ``map`` and ``filter``; else none."""
    values = list(getattr(inner, "elements", ()))
    for kind, function, *_ in getattr(inner, "_transformations", ()):
        change: Any = map if kind == "map" else filter
        values = list(change(function, values))
    return values


def running_test() -> str:
    """Return the pytest node id of the test that Hypothesis runs; empty outside pytest."""
    item = current_pytest_item.value
    return "" if item is None else item.nodeid


def is_observed() -> bool:
    """Return whether a caller of Hypothesis receives an observation for each case."""
    return observability_enabled()


_OLD_NAME = "slice_comments"
"""The attribute of a shrunk failure that HypoFuzz 25.11 reads. Newer Hypotheses renamed it."""


def rename_for_hypofuzz() -> None:
    """Give shrunk failures the attribute that HypoFuzz 25.11 reads."""
    if not hasattr(ConjectureResult, _OLD_NAME):
        setattr(
            ConjectureResult, _OLD_NAME, property(lambda result: result.span_comments)
        )


def _skip_own_modules() -> None:
    """Keep Hypothesis from reading constants in the source of this package and of libraries.

    It parses a checkout's files for them, which takes seconds, and asks of each module whose it is.
    """
    folders = getattr(scrutineer, "SITE_PACKAGES_DIRS", None)
    if isinstance(folders, set):
        folders.add(Path(PACKAGE))
    seen = getattr(providers, "_seen_modules", None)
    if isinstance(seen, set):
        ours = {"difftest", *sys.stdlib_module_names}
        loaded = list(sys.modules.items())
        seen |= {id(module) for name, module in loaded if name.split(".")[0] in ours}


_skip_own_modules()
