"""Find sizes where the conditions in a kernel change, and aim drawn cases at them.

The kernel's Python runs on sizes that record their computations. A condition such as
``rows == 217`` changes for few values of its names. The kernel then runs once more with one of
these values. That run reaches the conditions behind the first, such as ``columns % 64 == 33``.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import math
import random
import re
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from difftest.support.rounding import Array
from difftest.support.signature import bind_kernel
from difftest.testing.backends.sdk import function_of
from difftest.testing.concolic.run import (
    BranchCondition,
    ConcolicRun,
)
from difftest.testing.contract.limits import USED, CaseLimitError, limit, within_limits
from difftest.testing.contract.spec import (
    KernelSpec,
    resolve_argument,
)

_LOAD_SMALL_INT = dis.opmap.get("LOAD_SMALL_INT")
"""The instruction by which Python 3.14 loads an integer up to 255, instead of a constant."""
_PART = "·"
"""The sign between a name of the domain and the number of one of the choices for its value."""

Ranges = Mapping[str, Sequence[int]]
Points = Mapping[str, Array]
Values = Mapping[str, Any]
Place = dict[str, int]
"""Values of names of the domain where a condition changes."""
Condition = tuple[str, int, list[Place]]
"""The file and the line of a condition, and the places where it changes."""


@dataclass(frozen=True)
class SearchLimits:
    """The limits of a search, each with its reason.

    Attributes
    ----------
    seconds : CPU time of all runs. The first case of a test waits for it.
    mebibytes : memory of all runs.
    depth : nested calls. A deeper recursion could end the process in C.
    bases : random values of the domain at the start. Some of them make each condition true, and
        others make it false.
    runs : runs of the kernels. More runs find no more of the planted conditions.
    place_runs : conditions of one place that are changed. A loop has many.
    text_runs : attempts to change one condition.
    ways : runs towards an outcome of a condition that many values have.
    few : values of a name that cases meet without an aim, because each value is drawn.
    least : the distance from the first value of a name that is worth an aim. Nearer values are
        drawn without one.
    names : names of conditions that must hold together. More names have too many points.
    together : the share of points where they hold. Cases meet a larger share without an aim.
    whole : the share of aims at all names of a place. The other aims show which name matters.
    beside : the share of aims at a size next to a place, where an off-by-one error shows.
    values : values of one name where a condition is evaluated.
    points : points of several names, for a condition that NumPy evaluates at all of them at once.
    single_points : points of several names, for a condition that is evaluated point by point.
    sampled : points where the earlier conditions are evaluated.
    gaps : the gaps around runs of values from which on a condition has no ends to aim at.
    kept : places that are kept of a condition.
    floats : floats of the kernels' code that become data. More would leave no other data.
    largest_float : the largest of these floats. A larger one means infinity.
    """

    seconds: float = 2.4
    mebibytes: int = 1024
    depth: int = 500
    bases: int = 8
    runs: int = 96
    place_runs: int = 32
    text_runs: int = 4
    ways: int = 4
    few: int = 8
    least: int = 2
    names: int = 3
    together: float = 0.2
    whole: float = 0.8
    beside: float = 0.25
    values: int = 2**11
    points: int = 2**15
    single_points: int = 2**11
    sampled: int = 2**12
    gaps: int = 6
    kept: int = 64
    floats: int = 8
    largest_float: float = 2.0**18


LIMITS = SearchLimits()


def draw_target(groups: Sequence[Sequence[Place]], chance: random.Random) -> Place:
    """Return values for names of the domain that lead to a place of each group, or next to one."""
    values: Place = {}
    for places in groups:
        values |= chance.choice(places)
    # The last of several choices for one value is dropped or moved.
    last = {_head(key): key for key in values}
    dropped = "" if chance.random() < LIMITS.whole else chance.choice(list(last))
    moved = last[chance.choice(list(last))]
    if chance.random() < LIMITS.beside and type(values[moved]) is int:
        values[moved] += chance.choice((-1, 1))
    return {key: at for key, at in values.items() if _head(key) != dropped}


def targets_in_domain(
    conditions: Sequence[Condition], ranges: Mapping[str, Any]
) -> list[list[Place]]:
    """Return the places of each condition that are in the domain, each once."""
    groups = []
    for *_, places in conditions:
        inside = {}
        for place in places:
            if all(at in ranges.get(name, (at,)) for name, at in place.items()):
                inside[repr(sorted(place.items()))] = place
        if inside:
            groups.append(list(inside.values()))
    return groups


def nearest_miss(
    places: Sequence[Place], cases: Sequence[Mapping[str, Any]]
) -> tuple[int, str]:
    """Return the distance of the nearest case from a condition, and its values, in words.

    The text is empty for places that consist of the choices of a composed strategy.
    """
    known = [place for place in places if place.keys() <= cases[0].keys()]
    if not known:
        return 0, ""

    def distance(case: Mapping[str, int]) -> int:
        return min(_distance(case, place) for place in known)

    case = min(cases, key=distance)
    shown = ", ".join(f"{name}={value}" for name, value in case.items())
    return distance(case), f"nearest of the last {len(cases)} cases: {shown}"


def _distance(case: Mapping[str, int], place: Place) -> int:
    """Return the sum of the differences between the values of a case and of a place."""
    return sum(abs(case[name] - at) for name, at in place.items())


def float_constants(spec: KernelSpec) -> tuple[float, ...]:
    """Return the floats in the kernels' code, with which it may compare values."""
    functions = list(filter(None, map(function_of, (spec.kernel, *spec.others))))
    floats: list[float] = []
    for function in functions:  # the list grows while it is iterated
        values, named = _values_in(function)
        floats += [value for value in values if type(value) is float]
        for value in named:
            is_own = getattr(value, "__module__", "") == function.__module__
            called = function_of(value) if is_own else None
            if called is not None and called not in functions:
                functions.append(called)
    finite = [number for number in floats if 0 < abs(number) < LIMITS.largest_float]
    return tuple(dict.fromkeys(finite))[: LIMITS.floats]


def _values_in(function: FunctionType) -> tuple[list[Any], list[Any]]:
    """Return the constants and named values of a function, and its named values alone."""
    values: list[Any] = [function.__code__, *(function.__defaults__ or ())]
    named: list[Any] = []
    for code in values:  # the list grows while it is iterated
        if isinstance(code, CodeType):
            named += [function.__globals__.get(name) for name in code.co_names]
            attributes = [
                getattr(value, "__dict__", {}).get(name)
                for value in named
                for name in code.co_names
            ]
            values += [*code.co_consts, *named, *attributes]
    return values, named


def _head(key: str) -> str:
    """Return the name of the domain whose choice has this key."""
    return key.partition(_PART)[0]


def choice_keys(name: str) -> Iterator[str]:
    """Yield the names of the choices of a composed strategy, without end."""
    return (f"{name}{_PART}{number}" for number in itertools.count())


class DrawnValues(NamedTuple):
    """Values of a domain, with the choices that made them.

    Attributes
    ----------
    run : the run where the values record their computations.
    values : by name of the domain. They end before a name whose source fails.
    chosen : the choices. A name whose values are sizes has one choice, under its own name.
    ranges : the possible values of each choice.
    """

    run: ConcolicRun
    values: dict[str, Any]
    chosen: dict[str, Any]
    ranges: dict[str, Sequence[int]]


class _SearchState(NamedTuple):
    """A planned run of a kernel, and its purpose.

    Attributes
    ----------
    chosen : choices for values of the domain. The other choices are drawn.
    dtype : the dtype of the arrays.
    led : names whose values led to this state.
    expected : the condition that the run is to meet, with the wanted outcome.
    aims : places where the outcome is expected.
    chain : conditions that were changed on the way to this state.
    """

    chosen: dict[str, Any]
    dtype: str
    led: Sequence[str]
    expected: BranchCondition = BranchCondition(("", 0, 0, 0), "", held=False)
    aims: Sequence[Place] = ()
    chain: tuple[BranchCondition, ...] = ()


class _Step(NamedTuple):
    """A condition on a path that is to change.

    Attributes
    ----------
    condition : the condition with its outcome on the path.
    own : names of the domain in the condition.
    related : ``own``, and the names that earlier conditions have together with them.
    before : the earlier conditions of the kernel.
    led : names whose values led to the condition.
    """

    condition: BranchCondition
    own: list[str]
    related: list[str]
    before: list[BranchCondition]
    led: set[str]


class BranchSearch:
    """The search for the places where the conditions of a spec's kernels change.

    Parameters
    ----------
    spec : its kernels run.
    draw : returns new values of the domain for some choices, and draws the other choices.

    Attributes
    ----------
    loops : the loops over sizes that ran, by file and line: whether one had a second iteration.
    met : the file and the line of each condition that a kernel met, by the kernel's ``id``. Some
        kernels have no hash.
    """

    def __init__(self, spec: KernelSpec, draw: Callable[[Values], DrawnValues]) -> None:
        self._spec = spec
        self._draw = draw
        self._chance = np.random.default_rng(0)
        self.loops: dict[tuple[str, int], bool] = {}
        self.met = defaultdict[int, set[tuple[str, int]]](set)
        self._tried = Counter[Any]()
        """Attempts, by place, by condition, and by place and outcome."""
        self._found = defaultdict[Any, list[Place]](list)
        self._rare = dict[str, bool]()
        """The text of a condition -> its outcome for few points."""
        self._values = defaultdict[str, set[int]](set)
        """The name of a choice -> values where a condition has changed."""

    @property
    def conditions(self) -> list[Condition]:
        """The conditions that the kernels met in :meth:`run`."""
        return [
            (file, line, places)
            for (file, line, *_), places in self._found.items()
            if places
        ]

    def run(self) -> None:
        """Search for conditions that the kernels meet in limited time."""
        before = sys.getrecursionlimit()
        depth = len(list(traceback.walk_stack(None)))
        memory = LIMITS.mebibytes if USED.exists() and find_spec("resource") else None
        with (
            contextlib.suppress(CaseLimitError),
            limit(4 * LIMITS.seconds, memory) as undo,
        ):
            undo.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the kernel warns again when it is tested
            undo.callback(sys.setrecursionlimit, before)
            # Python's own limit may allow more calls than C's stack can hold.
            sys.setrecursionlimit(min(before, depth + LIMITS.depth))
            within_limits(self._search)

    @np.errstate(all="ignore")
    def _search(self) -> None:
        """Add the places where conditions change, by the place of each condition."""
        bases = self._bases()
        kernels = list(filter(function_of, (self._spec.kernel, *self._spec.others)))
        # The limit in run() is wall time, for a run that never ends.
        end = time.thread_time() + LIMITS.seconds
        for kernel in kernels:
            dtypes = itertools.cycle(self._spec.dtypes)
            states = [
                _SearchState(base, dtype, ())
                for base, dtype in zip(bases, dtypes, strict=False)
            ]
            runs = LIMITS.runs // len(kernels) ** 2
            for state in itertools.islice(states, runs):  # they grow meanwhile
                is_exhausted = self._tried[state.expected.place] >= LIMITS.runs
                if not is_exhausted and time.thread_time() <= end:
                    states += self._run(kernel, state)

    def _bases(self) -> list[dict[str, Any]]:
        """Return choices for the first runs: all sizes at their ends, and random ones."""
        drawings = [self._draw({}) for _ in range(LIMITS.bases)]
        wide = [
            drawn.chosen
            for drawn in drawings
            if any(len(values) > LIMITS.few for values in drawn.ranges.values())
        ]
        first = drawings[0]
        # Loops are long where all sizes are at their ends.
        largest = {name: values[-1] for name, values in first.ranges.items()}
        return [{**first.chosen, **largest}, *(wide or [first.chosen])]

    def _run(self, kernel: Any, state: _SearchState) -> Iterator[_SearchState]:
        """Run a kernel, and return the states that change a condition of this run."""
        drawn = self._draw(state.chosen)
        run = drawn.run
        of_domain = len(run.path_condition)
        is_refused = self._refuses(kernel, run, drawn.values, state.dtype)
        for loop, is_repeated in run.loops.items():
            self.loops[loop] = self.loops.get(loop, False) or is_repeated
        run.steps = -math.inf  # a cache of the kernel may keep numbers of this run
        path = list(run.path_condition.values())
        self.met[id(kernel)].update(condition.place[:2] for condition in path)
        expected = state.expected
        if is_refused and path[-1:] == [expected]:
            # The kernel refuses these values, so the domain leaves them out.
            self._tried[expected.place] += LIMITS.runs * bool(state.aims)
            return iter(())
        outcomes = [(condition.place, condition.held) for condition in path]
        if (expected.place, expected.held) in outcomes:
            self._found[expected.place] += state.aims
        state = state._replace(chosen=drawn.chosen)
        return self._others(path, of_domain, state, drawn.ranges)

    def _refuses(
        self, kernel: Any, run: ConcolicRun, sizes: Values, dtype: str
    ) -> bool:
        """Run the kernel on drawn values, and return whether it refuses them."""
        spec = self._spec
        if len(sizes) < len(spec.domain):
            return False
        arrays = {}
        for name in spec.arrays:
            shape = [sizes[d] if d in sizes else int(d) for d in spec.dimensions(name)]
            arrays[name] = run.stub(shape=tuple(shape), dtype=np.dtype(dtype))
        args, kwargs = bind_kernel(kernel, arrays, spec.parameters_of(sizes))
        if spec.lnc:
            run.grid = (resolve_argument(spec.lnc, sizes),)
        else:
            run.grid = resolve_argument(spec.grid, sizes) or (1,)
        return run.raises(kernel, args, kwargs)

    def _others(
        self,
        path: list[BranchCondition],
        of_domain: int,
        state: _SearchState,
        ranges: Ranges,
    ) -> Iterator[_SearchState]:
        """Yield a state for each condition of a path that can change.

        The first conditions, ``of_domain``, were met while values were drawn. They stay. The value
        of a condition with a rare outcome is kept, because it led to the later conditions.
        """
        rare = list[tuple[Any, list[str]]]()
        self._tried.update({(condition.place, condition.held) for condition in path})
        named = [ranges.keys() & _code(condition.text).co_names for condition in path]
        for number, condition in enumerate(path[of_domain:], of_domain):
            own = [name for name in ranges if name in named[number]]
            if own and self._is_to_try(condition):
                attempts = LIMITS.text_runs if condition.place[3] else 1
                self._tried.update([condition.place, *[condition] * attempts])
                led = set(state.led).union(own)
                for place, names in rare:
                    led.update(names if place != condition.place else ())
                related = _with_related(own, named[:number], ranges)
                step = _Step(condition, own, related, path[of_domain:number], led)
                changed = self._changed(step, state, ranges)
                if changed is not None:
                    yield changed
            is_rare = self._rare.get(condition.text) == condition.held
            if is_rare and not set("<>") & set(condition.text):
                rare.append((condition.place, own))

    def _is_to_try(self, condition: BranchCondition) -> bool:
        """Return whether a condition and its place may have another attempt."""
        if self._tried[condition.place] >= LIMITS.place_runs:
            return False
        return self._tried[condition] < LIMITS.text_runs

    def _changed(
        self, step: _Step, state: _SearchState, ranges: Ranges
    ) -> _SearchState | None:
        """Return the state in which a condition changes; None if no attempt finds one.

        The attempts change its own names, then related names too, while the earlier conditions
        hold. The last attempt lets the earlier conditions change.
        """
        condition = step.condition
        attempts = [(step.own, step.before)]
        is_wide = any(len(ranges[name]) > LIMITS.few for name in step.own)
        if is_wide and step.related != step.own:
            attempts.append((step.related, step.before))
        if is_wide:
            attempts.append((step.own, []))
        for names, before in attempts:
            points = self._points(names[: LIMITS.names], ranges, condition.text)
            places, are_few = self._changes(before, condition, points, state.chosen)
            if not is_wide:
                places = self._places_in_ranges(places, condition, ranges)
                are_few = False
            tried = self._tried[condition.place, not condition.held]
            if places and (are_few or tried < LIMITS.ways):
                return self._next_state(step, places, are_few, state, ranges)
        return None

    def _places_in_ranges(
        self, places: list[Place], condition: BranchCondition, ranges: Ranges
    ) -> list[Place]:
        """Return the places in the ranges; the others become aims.

        Cases meet each value of a range with few values, so it needs no aim.
        """
        outside = [at for at in places if _is_outside(at, ranges)]
        self._found[condition.place] += outside
        return [at for at in places if at not in outside]

    def _next_state(
        self,
        step: _Step,
        places: list[Place],
        are_few: bool,
        state: _SearchState,
        ranges: Ranges,
    ) -> _SearchState:
        """Return the state at the first of the places where a condition changes."""
        condition = step.condition
        other = condition._replace(held=not condition.held)
        chain = (*state.chain, other)
        chosen = state.chosen | places[0]
        if are_few:
            heads = {_head(name) for name in step.led}
            kept = {key: at for key, at in state.chosen.items() if _head(key) in heads}
            aims = [{**kept, **at} for at in places]
        else:
            # Each half of 300 <= n < 312 holds for many values, both together for few.
            line = condition.place[:2]
            same_line = [at for at in step.before if at.place[:2] == line]
            together = dict.fromkeys((*state.chain, *same_line, other))
            aims = self._places_of_all(list(together), ranges, state.chosen)
        led = tuple(state.led)
        if aims:
            led = tuple(aims[0])
        elif len(places) < LIMITS.kept // 4:
            led += tuple(places[0])
        return _SearchState(chosen, state.dtype, led, other, aims, chain)

    def _places_of_all(
        self, conditions: Sequence[BranchCondition], ranges: Ranges, chosen: Values
    ) -> list[Place]:
        """Return places where several conditions hold together; empty if they are many."""
        texts = [f"({condition.text})" for condition in conditions]
        known = {name for text in texts for name in _code(text).co_names}
        names = [name for name in ranges if name in known]
        if not 1 < len(names) <= LIMITS.names:
            return []
        points = self._points(names, ranges, " + ".join(texts))
        holds = np.logical_and.reduce(
            [
                _held(condition.text, chosen, points) == condition.held
                for condition in conditions
            ]
        )
        at = np.flatnonzero(holds)
        if not 0 < len(at) <= LIMITS.together * len(holds):
            return []
        at = self._chance.permutation(at)[: LIMITS.kept]
        return [{n: int(axis[i]) for n, axis in points.items()} for i in at]

    def _points(
        self, names: Sequence[str], ranges: Ranges, text: str
    ) -> dict[str, Array]:
        """Return all combinations of values of some names; a part of them if they are many."""
        near = {n + i for n in _integers(text) for i in (-1, 0, 1, 2)}
        most = 1.0 * (LIMITS.points if _is_of_arrays(text) else LIMITS.single_points)
        axes = dict[str, list[int]]()
        for name in sorted(names, key=lambda name: len(ranges[name])):
            own = ranges[name]
            share = int(most ** (1 / (len(names) - len(axes))))
            values = self._some_values(own, min(LIMITS.values, 8 + share))
            values.update(2**n for n in range(16) if 2**n in own)
            values.update(self._values[name].intersection(own))
            is_alone = len(names) == 1 and _PART not in name
            for number in near:
                if number in own or (is_alone and number > own[-1]):
                    values.add(number)
            axes[name] = sorted(values)
            most /= len(axes[name])
        grid = np.meshgrid(*axes.values(), indexing="ij")
        return {name: axis.ravel() for name, axis in zip(axes, grid, strict=True)}

    def _some_values(self, values: Sequence[int], count: int) -> set[int]:
        """Return all values, or a random part if they are more than ``count``."""
        chosen = self._chance.integers(len(values), size=count).tolist()
        if len(values) <= count:
            return set(values)
        return {values[number] for number in chosen}

    def _changes(
        self,
        before: list[BranchCondition],
        last: BranchCondition,
        points: Points,
        values: Values,
    ) -> tuple[list[Place], bool]:
        """Return points where the last condition changes, and whether they are few.

        The earlier conditions have the same outcomes at these points, if any point allows it.
        """
        holds = _held(last.text, values, points)
        at = np.flatnonzero(holds != last.held)
        share = len(at) / len(holds)
        few = 4.0 ** -max(1, len(points) - 1)
        are_few = share <= few
        if min(share, 1 - share) <= few:
            self._rare.setdefault(last.text, bool(last.held != are_few))
        ends = at
        if len(points) == 1:
            (axis,) = points.values()
            ends, gaps = _ends_of_runs(at, len(holds), axis)
            is_half_in_runs = share <= 0.5 and gaps < LIMITS.gaps
            are_few = len(ends) > 0 and (are_few or is_half_in_runs)
        if are_few:
            for name, axis in points.items():
                self._values[name].update(axis[ends[: LIMITS.kept]].tolist())
            places = self._places(before, ends, points, values)
        else:
            places = self._places(before, at, points, values)
        return places or self._places(before, at, points, values), are_few

    def _places(
        self, before: list[BranchCondition], at: Array, points: Points, values: Values
    ) -> list[Place]:
        """Return the points where conditions have the same outcomes as before."""
        if len(at) <= LIMITS.sampled:
            at = self._chance.permutation(at)
        else:
            at = self._chance.choice(at, LIMITS.sampled)
        related = [
            condition
            for condition in before
            if not points.keys().isdisjoint(_code(condition.text).co_names)
        ]
        # Conditions of arrays are evaluated fast, and leave fewer points for the others.
        related.sort(key=lambda condition: not _is_of_arrays(condition.text))
        for _, text, held in related:
            if not _is_of_arrays(text):
                at = at[: 4 * LIMITS.kept]
            if len(at):
                part = {name: axis[at] for name, axis in points.items()}
                at = at[_held(text, values, part) == held]
        return [
            {n: int(axis[i]) for n, axis in points.items()} for i in at[: LIMITS.kept]
        ]


def _with_related(
    own: list[str], earlier: Sequence[Set[str]], ranges: Ranges
) -> list[str]:
    """Return some names, and the names that earlier conditions have together with them."""
    related = set(own)
    for names in earlier:
        if names & set(own):
            related |= names
    return own + [name for name in ranges if name in related.difference(own)]


def _is_outside(place: Place, ranges: Ranges) -> bool:
    """Return whether a value of a place is outside its range."""
    return any(value not in ranges[name] for name, value in place.items())


def _ends_of_runs(at: Array, count: int, axis: Array) -> tuple[Array, int]:
    """Return the ends of the runs of consecutive numbers in ``at``, and the number of gaps.

    Cases that are drawn at the ends of a run meet its inside too. The first and the last of the
    ``count`` points are left out, and points whose value on the axis is near the first.
    """
    gaps = np.diff(at, prepend=-2, append=count + 1) > 1
    inner = (at > 0) & (at < count - 1) & (axis[at] >= axis[0] + LIMITS.least)
    return at[(gaps[1:] | gaps[:-1]) & inner], int(gaps.sum())


@functools.lru_cache(maxsize=4096)
def _code(text: str) -> CodeType:
    return compile(text, "<condition>", "eval")


@functools.lru_cache(maxsize=4096)
def _integers(text: str) -> frozenset[int]:
    """Return the integers in a condition."""
    code = _code(text)
    found = {value for value in code.co_consts if type(value) is int}
    instructions = code.co_code  # an opcode and an argument by turns
    for opcode, argument in zip(instructions[::2], instructions[1::2], strict=True):
        if opcode == _LOAD_SMALL_INT:
            found.add(argument)
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def _is_of_arrays(text: str) -> bool:
    """Return whether a condition can be evaluated on arrays: it calls only NumPy."""
    called = (name.removeprefix("np.") for name in re.findall(r"([\w.]+)\(", text))
    return all(isinstance(getattr(np, name, None), np.ufunc) for name in called)


def _held(text: str, values: Values, points: Points) -> Array:
    """Return whether a condition holds at each of some points; False where it is unknown."""

    def evaluate(own: Mapping[str, Any]) -> Any:
        try:
            return eval(_code(text), {"math": math, "np": np}, {**values, **own}) != 0
        except Exception:  # for instance a division by 0
            return False

    axes = list(points.values())
    if _is_of_arrays(text):
        return np.broadcast_to(evaluate(points), axes[0].shape)
    pairs = zip(*(axis.tolist() for axis in axes), strict=True)
    return np.array(
        [evaluate(dict(zip(points, at, strict=True))) for at in pairs], bool
    )
