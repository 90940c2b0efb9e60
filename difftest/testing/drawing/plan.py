"""The plan of a test's cases: which values of the domain are tried.

A quarter of the cases have equal sizes. Four in ten of the others aim at a condition of the kernel.
The rest lean to the limits of the hardware. A point of sizes is tried again only where others fail
to be new. All that may be chosen is dealt like cards: nothing comes again before all else came.

The plan sets choices of the provider, so a case stays a function of its choices.
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from difftest.testing.concolic.search import (
    Condition,
    choice_keys,
    draw_target,
    targets_in_domain,
)
from difftest.testing.contract.sources import EDGES, edges_of, values_in
from difftest.testing.contract.spec import (
    KernelSpec,
    is_function_of_domain,
    parameter_names,
)
from difftest.testing.drawing.provider import Planned, planned_provider
from difftest.testing.drawing.sizes import source_of

_CASES, _EQUAL, _AIMED = 20, 5, 6
"""Of ``_CASES`` cases, ``_EQUAL`` have equal sizes, and ``_AIMED`` aim at a condition. An operand
along a wrong axis, such as a row that is added to columns, shows its wrong values only if sizes are
equal."""
_STRATA = 8
"""The parts of a range in which sizes are dealt."""
_ROOM = 2**12
"""The least number of points in a domain whose cases are new points."""
_TRIES = 8
"""The number of sizes that are tried for a new point, or for a value of a dependent name."""
_MANY = 8
"""The most values of a sequence that are dealt one by one."""


class DrawingPlan:
    """The plan of one test, and the points of sizes that its cases have met.

    Attributes
    ----------
    sizes : names of the domain that are dimensions of arrays.
    point : names whose values are a point; empty if the domain has too few of them.
    """

    def __init__(self, spec: KernelSpec, conditions: Sequence[Condition]) -> None:
        self.spec = spec
        tokens = {size for array in spec.arrays for size in spec.dimensions(array)}
        self.sizes = [name for name in spec.domain if name in tokens]
        self.sources = {
            name: source_of(spec, name, {})
            for name, own in spec.domain.items()
            if not is_function_of_domain(own)
        }
        values = {name: values_in(source) for name, source in self.sources.items()}
        ranges = {name: own for name, own in values.items() if own}
        self.point = self._names_of_point(ranges)
        self.groups = targets_in_domain(conditions, ranges)
        self.dependent = dict(self._dependent_edges(ranges))
        self.met: Counter[int] = Counter()
        self._decks: dict[object, list[int]] = {}

    def _names_of_point(self, ranges: Mapping[str, Sequence[Any]]) -> list[str]:
        """Return the names up to the last size; empty if their values have few combinations."""
        names = list(self.spec.domain)
        names = names[: max(map(names.index, self.sizes), default=-1) + 1]
        room = math.prod(len(ranges[name]) for name in names if name in ranges)
        return names if room >= _ROOM else []

    def _dependent_edges(
        self, ranges: Mapping[str, Sequence[Any]]
    ) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield the names that depend on others, with the edges of their widest source."""
        for name in [name for name in self.spec.domain if name not in self.sources]:
            earlier = parameter_names(self.spec.domain[name])  # type: ignore[arg-type]
            if not ranges.keys() >= set(earlier):
                continue
            widest = max(
                (
                    self.source_of(name, {at: ranges[at][end] for at in earlier})
                    for end in (0, -1)
                ),
                key=lambda source: len(values_in(source)),
            )
            if edges := edges_in(widest):
                yield name, edges

    def source_of(self, name: str, earlier: Mapping[str, Any]) -> Any:
        """Return the source of a name; None if the author's function refuses earlier values."""
        try:
            return source_of(self.spec, name, earlier)
        except Exception:
            return None

    def begin(self) -> PlannedCase | None:
        """Return the plan of the case that is drawn; None if Hypothesis replays a case."""
        provider = planned_provider()
        if provider is None:  # each run begins with the simplest case
            self.met.clear()
            self._decks.clear()
            return None
        return PlannedCase(self, provider)

    def deal(self, deck: object, count: int, chance: random.Random) -> int:
        """Return an integer below ``count`` that was not dealt since all others were."""
        cards = self._decks.setdefault((deck, count), [])
        if not cards:
            cards += range(count)
            chance.shuffle(cards)
        return cards.pop()


class PlannedCase:
    """The values that are wanted for the names of one case."""

    def __init__(self, plan: DrawingPlan, provider: Planned) -> None:
        self._plan = plan
        self._provider = provider
        self._chance = provider.chance
        number = self._deal("kind", _CASES)
        self._is_equal = len(plan.sizes) > 1 and number < _EQUAL
        self._aims: dict[str, Any] = {}
        if not self._is_equal and number < _EQUAL + _AIMED:
            self._aims = self._aim()
        elif not self._is_equal and plan.dependent and number % 2:
            name = self._one("dependent", list(plan.dependent))
            self._aims[name] = self._one(name, plan.dependent[name])
        for name in [name for name in plan.dependent if name in self._aims]:
            self._make_room(name)

    def _deal(self, deck: object, count: int) -> int:
        return self._plan.deal(deck, count, self._chance)

    def _one(self, deck: object, values: Sequence[Any]) -> Any:
        return values[self._deal(deck, len(values))]

    def _aim(self) -> dict[str, Any]:
        """Return values that lead to a condition, or to two; empty if there are none."""
        groups = self._plan.groups
        if not groups:
            return {}
        chosen = [
            self._one("group", groups) for _ in range(self._chance.choice((1, 2)))
        ]
        return draw_target(chosen, self._chance)

    def _make_room(self, name: str) -> None:
        """Aim at earlier values for which the aim of a dependent name is one of its values."""
        plan = self._plan
        earlier = parameter_names(plan.spec.domain[name])  # type: ignore[arg-type]
        for _ in range(_TRIES):
            values = {
                at: self._aims.get(at, self._lean(at, plan.sources[at]))
                for at in earlier
            }
            if self._aims[name] in values_in(plan.source_of(name, values)):
                self._aims |= values
                return

    def _lean(self, name: str, source: Any) -> Any:
        """Return a value of a source; None if its values are unknown.

        Every second size is an edge, or the next size.
        """
        values = values_in(source)
        if not values or len(values) <= _MANY:
            return self._one(name, values) if values else None
        edges = edges_in(source)
        if edges and self._chance.random() < 0.5:
            at = values.index(
                self._one((name, "edge"), edges)
            ) + self._chance.randrange(2)
        else:
            part = self._deal((name, "part"), _STRATA) + self._chance.random()
            at = int(part / _STRATA * len(values))
        return values[min(at, len(values) - 1)]

    def expect(self, name: str, source: Any, earlier: Mapping[str, Any]) -> None:
        """Set the next choices of the provider, from which the value of a name is drawn."""
        keys = itertools.takewhile(self._aims.__contains__, choice_keys(name))
        wanted = [self._aims[key] for key in keys]
        values = values_in(source)
        if values and wanted and isinstance(values, range):
            wanted = choice_of(values, wanted[0] * values.step)
        elif values and not wanted:
            wanted = choice_of(values, self._size(name, source, earlier))
        self._provider.wanted = wanted

    def _size(self, name: str, source: Any, earlier: Mapping[str, Any]) -> Any:
        plan = self._plan
        if self._is_equal and name in plan.sizes[1:]:
            size = earlier[plan.sizes[0]]
        else:
            size = self._aims.get(name)
        if size is None:
            size = self._lean(name, source)
        if name not in plan.point[-1:]:
            return size
        before = list(earlier.values())
        others = (self._lean(name, source) for _ in range(_TRIES))
        for other in itertools.chain([size], others):
            if plan.met[_mark([*before, other])] < len(plan.spec.dtypes):
                return other
        return size

    def expect_one(self, deck: str, count: int) -> None:
        """Set the next choice of one of so many values."""
        self._provider.wanted = [self._deal(deck, count)]

    def stop(self) -> None:
        """Set no more choices: data are drawn next."""
        self._provider.wanted = ()

    def keep(self, values: Mapping[str, Any]) -> None:
        """Note the point of the case, whose data can show any fault."""
        self._plan.met[_mark([values[name] for name in self._plan.point])] += 1


def _mark(values: Sequence[Any]) -> int:
    return hash(repr(values))


def edges_in(source: Any) -> Sequence[Any]:
    """Return the sizes to which a source leans; empty if it does not."""
    values = values_in(source)
    if isinstance(values, range) and source is values:
        return [at for at in edges_of(values[0], values[-1]) if at in values]
    return getattr(source, EDGES, ())


def choice_of(values: Sequence[Any], value: Any) -> list[int]:
    """Return the index of a value, or of the nearest size below it; empty for other values."""
    if value in values:
        return [values.index(value)]
    if isinstance(values, range) and type(value) is int:
        return [max(0, bisect_right(values, value) - 1)]
    return []
