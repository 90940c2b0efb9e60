"""The last step of shrinking: prove that a failing case is minimal in each of its coordinates.

Hypothesis shrinks a failing case, and promises no minimum: where failure is not monotone, as for
``columns % 3 == 2``, it mostly stops far above. So each name of the domain is tried here at every
smaller value, in ascending order, while the rest of the case stays. Names of equal values are tried
together, then simpler data and dtypes. This is repeated until a whole round changes nothing. Then
the smallest values of each name are tried with some other data too: a bug may need a label 0, which
one seed gives for four rows, and another for one row.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, NamedTuple

from hypothesis.strategies import SearchStrategy

from difftest.simulator.machine import TRN2
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import RECIPES, Iota, Ones, Recipe, Seeded, Zeros
from difftest.testing.contract.sources import EDGES
from difftest.testing.contract.spec import (
    KernelSpec,
    call_with_values,
    is_function_of_domain,
)
from difftest.testing.drawing.data import data_strategy
from difftest.testing.drawing.examples import examples_or_none, minimal_example
from difftest.testing.drawing.provider import ordered_values
from difftest.testing.drawing.sizes import source_of

SECONDS = 2.0
"""The most CPU time of the step, in seconds."""
_WAITING = 5.0
"""The most wall-clock time, in multiples of the CPU time: a backend may run in another process."""
_SIMPLE = (Zeros(), Ones(), Iota())
"""The data that are tried, the simplest first."""
_REDRAWN_VALUES = 6
_REDRAWS = 16
"""The smallest values of a name that are tried with other data, and the number of such data."""


class OutOfTimeError(Exception):
    """The time of the step is over."""


class MinimalCase(NamedTuple):
    """A failing case, and the coordinates that are proven to be minimal.

    Attributes
    ----------
    case : the case, which fails.
    proven : names of the domain. With an earlier value of one of them and the rest of the case
        unchanged, no case fails.
    unproven : names of the domain for which the time was too short.
    tried : the number of cases that ran.
    choices : names of the domain whose values do not grow from one to the next, such as texts.
    """

    case: Case
    proven: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    tried: int = 0
    choices: Collection[str] = ()

    def describe(self, fails: str = "fails") -> str:
        """Return the proof in words; the verb is that of a failing case, such as "fails"."""
        parts = []
        if self.proven:
            parts.append(f"no case with {self._lower_names()} {fails}")
        if self.unproven:
            parts.append(f"no time to try all of {_listed(self.unproven, 'and')}")
        return "; ".join(parts)

    def _lower_names(self) -> str:
        """Return the proven names with the direction of their order, in words."""
        kinds = {
            "smaller": tuple(at for at in self.proven if at not in self.choices),
            "simpler": tuple(at for at in self.proven if at in self.choices),
        }
        return " or ".join(
            f"{kind} {_listed(names, 'or')}" for kind, names in kinds.items() if names
        )


def _listed(names: tuple[str, ...], word: str) -> str:
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last


def minimize(
    spec: KernelSpec,
    case: Case,
    fails: Callable[[Case], bool],
    seconds: float = SECONDS,
) -> MinimalCase:
    """Return a case that fails and is minimal in each coordinate whose values have an order.

    Parameters
    ----------
    case : a case that fails.
    fails : returns whether a case fails in the same way. It may raise an OutOfTimeError.
    seconds : the most CPU time.
    """
    return _Minimization(spec, case, fails, seconds).run()


class _Minimization:
    """The state of :func:`minimize`: the smallest failing case so far, and the time spent."""

    def __init__(
        self,
        spec: KernelSpec,
        case: Case,
        fails: Callable[[Case], bool],
        seconds: float,
    ) -> None:
        self.spec = spec
        self.case = case
        self._fails = fails
        self._seconds = seconds
        self._cpu = time.process_time()
        self._wall = time.monotonic()
        self._agree = set[str]()
        self._tried = 0
        self._proven_at: dict[str, Case] = {}

    def run(self) -> MinimalCase:
        """Lower each coordinate in turn until a whole round changes nothing."""
        ordered = [name for name in self.spec.domain if self._has_order(name)]
        before = None
        try:
            if not self._is_failing(self.case):
                return MinimalCase(self.case, tried=self._tried)
            while before is not self.case:
                before = self.case
                self._simplify_once(ordered)
                if before is self.case:
                    self._redraw(ordered)
        except OutOfTimeError:
            pass
        proven = [name for name in ordered if self._is_proven(name)]
        unproven = [name for name in ordered if name not in proven]
        choices = [name for name in ordered if not self._grows(name)]
        return MinimalCase(
            self.case, tuple(proven), tuple(unproven), self._tried, choices
        )

    def _simplify_once(self, ordered: list[str]) -> None:
        """Simplify the data, lower each coordinate, and simplify the dtypes."""
        self._simplify_data()
        for name in ordered:
            self._lower((name,))
            self._proven_at[name] = self.case
        for names in self._equal_names(ordered):
            self._lower(names)
        self._simplify_dtypes()

    def _redraw(self, ordered: list[str]) -> None:
        """Give one name a smaller value at which the case fails with other data."""
        if not any(isinstance(data, Seeded) for data in self.case.data.values()):
            return
        for name in ordered:
            smaller = self._smaller((name,))[:_REDRAWN_VALUES]
            if self._is_too_much(len(smaller) * _REDRAWS):
                return
            if self._take_first(self._with_other_data(name, smaller)):
                return

    def _with_other_data(self, name: str, values: Iterable[Any]) -> Iterator[Case]:
        """Yield the cases with these values of a name, each with some data in turn."""
        for changed in self._with_values((name,), values):
            redrawn = {
                name: self._redrawn(name, changed)
                for name, recipe in changed.data.items()
                if isinstance(recipe, Seeded)
            }
            for data in zip(*redrawn.values(), strict=False):
                own = dict(zip(redrawn, data, strict=True))
                yield replace(changed, data={**changed.data, **own})

    def _redrawn(self, name: str, case: Case) -> Sequence[Recipe]:
        """Return other data of an input that has a seed, from its own strategy if it has one."""
        recipe: Any = case.data[name]
        if self.spec.input(name).data is None:
            return [replace(recipe, seed=seed) for seed in range(_REDRAWS)]
        strategy = data_strategy(self.spec, name, case.values)
        return examples_or_none(strategy, _REDRAWS)

    def _is_proven(self, name: str) -> bool:
        """Return whether no smaller value of a name fails."""
        return self._proven_at.get(name) is self.case or not self._smaller((name,))

    def _is_failing(self, case: Case) -> bool:
        """Return whether a case fails, and run no case twice; raise if time is over."""
        mark = repr(case)
        if mark in self._agree:
            return False
        if self._spent() > self._seconds:
            raise OutOfTimeError
        self._tried += 1
        is_failing = self._fails(case)
        if not is_failing:
            self._agree.add(mark)
        return is_failing

    def _spent(self) -> float:
        """Return the time that the step has taken, in seconds."""
        cpu = time.process_time() - self._cpu
        return max(cpu, (time.monotonic() - self._wall) / _WAITING)

    def _take_first(self, candidates: Iterable[Case]) -> bool:
        """Keep the first candidate that fails; return whether one does."""
        for candidate in candidates:
            if self._is_failing(candidate):
                self.case = candidate
                return True
        return False

    def _has_order(self, name: str) -> bool:
        return len(ordered_values(self._source(name, self.case.values))) > 0

    def _grows(self, name: str) -> bool:
        """Return whether each value of a name is a larger number than the one before."""
        values = ordered_values(self._source(name, self.case.values))
        if isinstance(values, range):
            return values.step > 0
        are_numbers = all(
            isinstance(value, Real) and not isinstance(value, bool) for value in values
        )
        return are_numbers and all(map(operator.lt, values, values[1:]))

    def _source(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return the source of a name's values; None if it has none for these earlier values."""
        try:
            return source_of(self.spec, name, values)
        except Exception:  # a function of the domain that refuses the values
            return None

    def _lower(self, names: tuple[str, ...]) -> None:
        """Give names of one value the smallest value at which the case still fails.

        If there is no time for all smaller values, the ends of tiles come first.
        """
        smaller = self._smaller(names)
        if self._is_too_much(len(smaller)):
            source = self._source(names[0], self.case.values)
            edges = getattr(source, EDGES, ())
            ends = [at for at in smaller if at in edges or _begins_tile(at)]
            if self._take_first(self._with_values(names, ends)):
                self._lower(names)
                return
        self._take_first(self._with_values(names, smaller))

    def _smaller(self, names: tuple[str, ...]) -> Sequence[Any]:
        """Return the smaller values of names that have one value together."""
        values = self.case.values
        first, *others = names
        smaller = _before(values[first], ordered_values(self._source(first, values)))
        for name in others:
            own = ordered_values(self._source(name, values))
            smaller = [other for other in smaller if other in own]
        return smaller

    def _is_too_much(self, count: int) -> bool:
        """Return whether so many more cases take longer than half of the time that is left."""
        spent = self._spent()
        return count * spent / self._tried > (self._seconds - spent) / 2

    def _with_values(
        self, names: tuple[str, ...], values: Iterable[Any]
    ) -> Iterator[Case]:
        case = self.case
        for value in values:
            changed = self._changed(case, dict.fromkeys(names, value))
            if changed is not None:
                yield changed

    def _changed(self, case: Case, changes: Mapping[str, Any]) -> Case | None:
        """Return the case with other values for some names; None if it leaves the domain.

        A value that depends on a changed one and is not among its values any more becomes the
        nearest smaller one.
        """
        values: dict[str, Any] = {}
        for name in self.spec.domain:
            value = changes.get(name, case.values[name])
            if is_function_of_domain(self.spec.domain[name]):
                fitting = ordered_values(self._source(name, values))
                if value not in fitting and name not in changes:
                    value = _largest_below(value, fitting)
                if value not in fitting:
                    return None
            values[name] = value
        try:
            data = {name: self._data(name, values, case) for name in self.spec.inputs}
        except Exception:  # an input has no data for these values
            return None
        return replace(case, values=values, data=data)

    def _data(self, name: str, values: Mapping[str, Any], case: Case) -> Recipe:
        """Return an input's recipe for changed values.

        Raises
        ------
        ValueError : the input's strategy draws nothing for these values.
        """
        recipe = case.data[name]
        own = self.spec.input(name).data
        is_array = isinstance(own, SearchStrategy) and recipe.kind == "given"
        if not (is_function_of_domain(own) or is_array):
            return recipe
        if is_function_of_domain(own):
            made = call_with_values(own, values)
            if isinstance(made, Recipe):
                return made
        strategy = data_strategy(self.spec, name, values)
        drawn = minimal_example(lambda: strategy)
        if drawn is None:
            raise ValueError(f"no data for {name}")
        if isinstance(recipe, Seeded) and isinstance(drawn, Seeded):
            object.__setattr__(drawn, "seed", recipe.seed)
        return drawn

    def _equal_names(self, ordered: list[str]) -> Iterator[tuple[str, ...]]:
        """Yield the groups of names that have one value together, which is an integer."""
        values = self.case.values
        sizes = [name for name in ordered if type(values[name]) is int]
        for value in dict.fromkeys(values[name] for name in sizes):
            names = tuple(name for name in sizes if values[name] == value)
            if len(names) > 1:
                yield names

    def _simplify_data(self) -> None:
        """Try zeros, ones and iota for all inputs without own data, then for each of them."""
        free = self.spec.free_inputs
        for names in (free, *([name] for name in free)):
            self._take_first(self._with_simpler_data(names))

    def _with_simpler_data(self, names: list[str]) -> Iterator[Case]:
        case = self.case
        order = list(RECIPES)
        for recipe in _SIMPLE:
            rank = order.index(recipe.kind)
            if all(order.index(case.data[name].kind) <= rank for name in names):
                return
            yield replace(case, data={**case.data, **dict.fromkeys(names, recipe)})

    def _simplify_dtypes(self) -> None:
        """Try the dtypes before the case's, and those before each input's own."""
        case = self.case
        dtypes = _before(case.dtype, self.spec.dtypes)
        self._take_first(replace(case, dtype=dtype) for dtype in dtypes)
        for name, own in case.dtypes.items():
            case = self.case
            self._take_first(
                replace(case, dtypes={**case.dtypes, name: dtype})
                for dtype in _before(own, self.spec.own_dtypes[name])
            )


def _before(value: Any, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values that come before a value."""
    return values[: values.index(value)] if value in values else ()


def _largest_below(value: Any, values: Sequence[Any]) -> Any:
    """Return the largest of some values that is smaller than an integer; itself without any."""
    if type(value) is not int:
        return value
    smaller = (at for at in values if type(at) is int and at < value)
    return max(smaller, default=value)


def _begins_tile(size: object) -> bool:
    """Return whether a size fills whole tiles, or whole tiles and one row more."""
    return type(size) is int and size % TRN2.partitions in (0, 1)
