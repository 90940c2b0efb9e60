"""Find sizes at which the conditions in a kernel change, and aim drawn cases at them.

The kernel's Python runs on sizes that remember what is computed of them. Where a condition would
come out otherwise for few values of its names, such as ``rows == 217``, it runs once more with one
of those, and shows what it asks behind: ``columns % 64 == 33``.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import CodeType
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
"""The instruction by which Python 3.14 loads an integer up to 255, which is then no constant."""
_PART = "·"
"""Between a name of the domain and the number of a choice that its value is made of."""

Ranges = Mapping[str, Sequence[int]]
Points = Mapping[str, Array]
Values = Mapping[str, Any]
Place = dict[str, int]  # values of names of the domain, at which a condition changes
Condition = tuple[str, int, list[Place]]  # with its file and line


@dataclass(frozen=True)
class SearchLimits:
    """The limits of a search, each with its reason.

    Attributes
    ----------
    seconds : CPU time of all runs. A test's first case waits for it.
    mebibytes : memory of all runs.
    depth : calls within calls. A deeper recursion could end the process in C.
    bases : random values that a search begins with. Each condition comes out both ways in some.
    runs : runs of the kernels. More find no more of the planted conditions.
    place_runs : conditions of one place that are looked at: a loop asks many.
    text_runs : times that one condition is looked at.
    ways : runs that are sought on which a condition comes out so that holds for many values.
    few : values of a name that cases meet anyhow, because each is drawn.
    least : the first size that is worth an aim: smaller ones are drawn anyhow.
    names : names of conditions that must hold together. The points of more are too many.
    together : the share of points at which they hold. Cases meet a larger share anyhow.
    whole : the share of aims at all names of a place. The others show which name matters.
    beside : the share of aims at a size beside a place, where an off-by-one error shows.
    values : values of one name at which a condition is evaluated.
    points : values of several names, of a condition that NumPy evaluates for all at once.
    single_points : the same of a condition that is evaluated point by point.
    sampled : points at which the earlier conditions are evaluated.
    kept : places that are kept of a condition.
    floats : floats of the kernels' code that are data. More would leave no other data.
    largest_float : the largest of these. A larger one stands for infinity.
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
    least: int = 3
    names: int = 3
    together: float = 0.2
    whole: float = 0.8
    beside: float = 0.25
    values: int = 2**11
    points: int = 2**15
    single_points: int = 2**11
    sampled: int = 2**12
    kept: int = 64
    floats: int = 8
    largest_float: float = 2.0**18


LIMITS = SearchLimits()


def draw_target(groups: Sequence[Sequence[Place]], chance: random.Random) -> Place:
    """Return values for names of the domain that lead to a place of each group, or beside one."""
    values: Place = {}
    for places in groups:
        values |= chance.choice(places)
    last = {
        _head(key): key for key in values
    }  # of the choices for one value the last is moved
    dropped = "" if chance.random() < LIMITS.whole else chance.choice(list(last))
    moved = last[chance.choice(list(last))]
    if chance.random() < LIMITS.beside and type(values[moved]) is int:
        values[moved] += chance.choice((-1, 1))
    return {key: at for key, at in values.items() if _head(key) != dropped}


def targets_in_domain(
    conditions: Sequence[Condition], ranges: Mapping[str, Any]
) -> list[list[Place]]:
    """Return the places of each condition that are in the domain, each once."""
    inside = [
        [
            place
            for place in places
            if all(at in ranges.get(n, (at,)) for n, at in place.items())
        ]
        for *_, places in conditions
    ]
    return [
        list({repr(sorted(p.items())): p for p in places}.values())
        for places in inside
        if places
    ]


def nearest_miss(
    places: Sequence[Place], cases: Sequence[Mapping[str, Any]]
) -> tuple[int, str]:
    """Return the distance of the nearest case from a condition, and its values, in words."""

    def far(case: Mapping[str, int]) -> int:
        return min(
            sum(abs(case[name] - at) for name, at in place.items()) for place in known
        )

    known = [place for place in places if place.keys() <= cases[0].keys()]
    if not known:  # of choices it is not told
        return 0, ""
    case = min(cases, key=far)
    shown = ", ".join(f"{name}={value}" for name, value in case.items())
    return far(case), f"nearest of the last {len(cases)} cases: {shown}"


def float_constants(spec: KernelSpec) -> tuple[float, ...]:
    """Return the floats in the kernels' code, with which it may compare values."""
    functions = [f for k in (spec.kernel, *spec.others) if (f := function_of(k))]
    floats: list[float] = []
    for function in functions:  # they become more
        values, named = [function.__code__, *(function.__defaults__ or ())], list[Any]()
        for code in (v for v in values if isinstance(v, CodeType)):  # they become more
            named += [function.__globals__.get(name) for name in code.co_names]
            inner = [
                getattr(v, "__dict__", {}).get(n) for v in named for n in code.co_names
            ]
            values += [*code.co_consts, *named, *inner]
        floats += [value for value in values if type(value) is float]
        own = [v for v in named if getattr(v, "__module__", "") == function.__module__]
        functions += [f for v in own if (f := function_of(v)) and f not in functions]
    return tuple(dict.fromkeys(n for n in floats if 0 < abs(n) < LIMITS.largest_float))[
        : LIMITS.floats
    ]


def _head(key: str) -> str:
    """Return the name of the domain whose choice has this key."""
    return key.partition(_PART)[0]


def choice_keys(name: str) -> Iterator[str]:
    """Yield the names of the choices of a composed strategy, without end."""
    return (f"{name}{_PART}{number}" for number in itertools.count())


class DrawnValues(NamedTuple):
    """Values of a domain, the choices that make them, and from what range each choice is.

    Names whose values are sizes have a choice under their name. The ``values`` end before a name
    whose source fails.
    """

    run: ConcolicRun
    values: dict[str, Any]
    chosen: dict[str, Any]
    ranges: dict[str, Sequence[int]]


class _SearchState(NamedTuple):
    """Where a kernel is to run, and why.

    What is not ``chosen`` is drawn. A condition that was asked on another way is to come out there
    as ``expected``, as it may for all ``aims``. ``led`` are the names whose values led there, and
    ``chain`` the conditions that came out otherwise on the way there.
    """

    chosen: dict[str, Any]
    dtype: str
    led: Sequence[str]
    expected: BranchCondition = BranchCondition(("", 0, 0, 0), "", held=False)
    aims: Sequence[Place] = ()
    chain: tuple[BranchCondition, ...] = ()


class BranchSearch:
    """The search for where a spec's kernels ask something of sizes that changes for few.

    ``draw`` returns new values of the domain for some choices; the other choices it draws.
    ``loops`` are the loops over sizes that the search has met, by file and line, and whether one
    had a second iteration.
    """

    def __init__(self, spec: KernelSpec, draw: Callable[[Values], DrawnValues]) -> None:
        self._spec = spec
        self._drawn = draw
        self._chance = np.random.default_rng(0)
        self.loops: dict[tuple[str, int], bool] = {}
        self._tried = Counter[Any]()
        self._found = defaultdict[Any, list[Place]](list)
        self._rare = dict[str, bool]()  # how a condition comes out for few, by its text
        self._values = defaultdict[str, set[int]](
            set
        )  # of names, where one has come out otherwise

    def conditions(self) -> list[Condition]:
        """Return the conditions that runs from some values of the domain meet in limited time."""
        before = sys.getrecursionlimit()
        depth = len(list(traceback.walk_stack(None)))
        memory = LIMITS.mebibytes if USED.exists() and find_spec("resource") else None
        with (
            contextlib.suppress(CaseLimitError),
            limit(4 * LIMITS.seconds, memory) as undo,
        ):
            undo.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the kernel's own come when it runs
            undo.callback(sys.setrecursionlimit, before)
            sys.setrecursionlimit(
                min(before, depth + LIMITS.depth)
            )  # a larger one than C's stack holds
            within_limits(self._search)
        return [
            (file, line, places)
            for (file, line, *_), places in self._found.items()
            if places
        ]

    @np.errstate(all="ignore")
    def _search(self) -> None:
        """Add the places at which conditions come out otherwise, by where these are asked."""
        drawings = [self._drawn({})[2:] for _ in range(LIMITS.bases)]
        wide = [
            d for d in drawings if any(len(own) > LIMITS.few for own in d[1].values())
        ]
        bases = [chosen for chosen, _ in wide or drawings[:1]]
        chosen, ranges = drawings[0]
        # The first has all sizes at their ends, where loops are long.
        bases.insert(0, {**chosen, **{name: own[-1] for name, own in ranges.items()}})
        kernels = list(filter(function_of, (self._spec.kernel, *self._spec.others)))
        end = (
            time.thread_time() + LIMITS.seconds
        )  # the limit is the clock's, for a run without end
        for kernel in kernels:
            starts = list(
                map(
                    _SearchState,
                    bases,
                    itertools.cycle(self._spec.dtypes),
                    itertools.repeat(()),
                )
            )
            for start in itertools.islice(
                starts, LIMITS.runs // len(kernels) ** 2
            ):  # they grow
                place = start.expected.place
                if self._tried[place] >= LIMITS.runs or time.thread_time() > end:
                    continue
                run, values, chosen, ranges = self._drawn(start.chosen)
                told = len(run.path_condition)
                is_refused = self._refuses(kernel, run, values, start.dtype)
                # a cache may keep its sizes
                for loop, is_repeated in run.loops.items():
                    self.loops[loop] = self.loops.get(loop, False) or is_repeated
                way = list(run.path_condition.values())
                run.steps = -math.inf
                if is_refused and way[-1:] == [start.expected]:
                    self._tried[place] += LIMITS.runs * bool(
                        start.aims
                    )  # the domain keeps to it
                    continue
                if (place, start.expected.held) in [
                    (asked.place, asked.held) for asked in way
                ]:
                    self._found[place] += start.aims
                starts += self._others(way, told, start._replace(chosen=chosen), ranges)

    def _refuses(
        self, kernel: Any, run: ConcolicRun, sizes: Values, dtype: str
    ) -> bool:
        """Run the kernel on what was drawn; whether it refuses that."""
        spec = self._spec
        arrays = {}
        if len(sizes) < len(spec.domain):
            return False
        for name in spec.arrays:
            shape = [sizes[d] if d in sizes else int(d) for d in spec.dimensions(name)]
            arrays[name] = run.stub(shape=tuple(shape), dtype=np.dtype(dtype))
        args, kwargs = bind_kernel(kernel, arrays, spec.parameters_of(sizes))
        run.grid = (
            (resolve_argument(spec.lnc, sizes),)
            if spec.lnc
            else resolve_argument(spec.grid, sizes) or (1,)
        )
        return run.raises(kernel, args, kwargs)

    def _others(
        self, way: list[BranchCondition], told: int, start: _SearchState, ranges: Ranges
    ) -> Iterator[_SearchState]:
        """Where each condition of a way comes out otherwise, those before it as they did.

        By values of its own names, or of those asked beside them too; at last by its own, whatever
        those before come to. What was rare is kept, as it led there. The first, ``told``, chose.
        """
        rare = list[tuple[Any, list[str]]]()
        self._tried.update({(asked.place, asked.held) for asked in way})
        named = [ranges.keys() & _code(text).co_names for _, text, _ in way]
        for number, asked in enumerate(way[told:], told):
            own = [name for name in ranges if name in named[number]]
            place = asked.place
            if (
                own
                and self._tried[place] < LIMITS.place_runs
                and self._tried[asked] < LIMITS.text_runs
            ):
                self._tried.update(
                    [place, *[asked] * (LIMITS.text_runs if place[3] else 1)]
                )
                led = {
                    *start.led,
                    *own,
                    *(n for at, names in rare if at != place for n in names),
                }
                heads = set(map(_head, led))
                before = way[told:number]
                kept = {
                    key: at for key, at in start.chosen.items() if _head(key) in heads
                }
                near = set(own).union(
                    *(names for names in named[:number] if names & set(own))
                )
                beside = own + [name for name in ranges if name in near.difference(own)]
                is_wide = any(len(ranges[name]) > LIMITS.few for name in own)
                ways = [(own, before), *[(beside, before)] * (beside != own), (own, [])]
                for names, held in ways if is_wide else ways[:1]:
                    points = self._points(names[:3], ranges, asked.text)
                    places, are_few = self._changes(held, asked, points, start.chosen)
                    if not is_wide:
                        outside = [
                            at
                            for at in places
                            if any(at[n] not in ranges[n] for n in at)
                        ]
                        self._found[place] += outside
                        places = [at for at in places if at not in outside]
                        are_few = False
                    if places and (
                        are_few or self._tried[place, not asked.held] < LIMITS.ways
                    ):
                        other = asked._replace(held=not asked.held)
                        if are_few:
                            aims = [{**kept, **at} for at in places]
                        else:
                            line = (at for at in before if at.place[:2] == place[:2])
                            together = dict.fromkeys((*start.chain, *line, other))
                            aims = self._places_of_all(
                                list(together), ranges, start.chosen
                            )
                        # Of 300 <= n < 312 each half holds for many: both together lead on.
                        on = (
                            *start.led,
                            *(places[0] if len(places) < LIMITS.kept // 4 else ()),
                        )
                        chosen = start.chosen | places[0]
                        on = tuple(aims[0]) if aims else on
                        chain = (*start.chain, other)
                        yield _SearchState(chosen, start.dtype, on, other, aims, chain)
                        break
            if self._rare.get(asked.text) == asked.held and not set("<>") & set(
                asked.text
            ):
                rare.append((place, own))

    def _places_of_all(
        self, conditions: Sequence[BranchCondition], ranges: Ranges, chosen: Values
    ) -> list[Place]:
        """Return places where several conditions hold together; none if many places are such."""
        texts = [f"({asked.text})" for asked in conditions]
        known = {name for text in texts for name in _code(text).co_names}
        names = [name for name in ranges if name in known]
        if not 1 < len(names) <= LIMITS.names:
            return []
        points = self._points(names, ranges, " + ".join(texts))
        holds = np.logical_and.reduce(
            [_held(asked.text, chosen, points) == asked.held for asked in conditions]
        )
        at = np.flatnonzero(holds)
        if not 0 < len(at) <= LIMITS.together * len(holds):
            return []
        at = self._chance.permutation(at)[: LIMITS.kept]
        return [{n: int(axis[i]) for n, axis in points.items()} for i in at]

    def _points(
        self, names: Sequence[str], ranges: Ranges, text: str
    ) -> dict[str, Array]:
        """All values of a name, all of several together; some where there are many."""
        near = {n + i for n in _integers(text) for i in (-1, 0, 1, 2)}
        most = 1.0 * (LIMITS.points if _is_of_arrays(text) else LIMITS.single_points)
        axes = dict[str, list[int]]()
        for name in sorted(names, key=lambda name: len(ranges[name])):
            own, count = (
                ranges[name],
                min(LIMITS.values, 8 + int(most ** (1 / (len(names) - len(axes))))),
            )
            chosen = self._chance.integers(len(own), size=count).tolist()
            few = own if len(own) <= count else [own[at] for at in chosen]
            powers = (2**n for n in range(16) if 2**n in own)
            is_alone = len(names) == 1 and _PART not in name
            beside = (n for n in near if n in own or (is_alone and n > own[-1]))
            axes[name] = sorted(
                {*few, *powers, *beside, *self._values[name].intersection(own)}
            )
            most /= len(axes[name])
        grid = np.meshgrid(*axes.values(), indexing="ij")
        return {name: axis.ravel() for name, axis in zip(axes, grid, strict=True)}

    def _changes(
        self,
        before: list[BranchCondition],
        last: BranchCondition,
        points: Points,
        values: Values,
    ) -> tuple[list[Place], bool]:
        """At which points the last of conditions comes out otherwise, the others not; if at few."""
        told = _held(last.text, values, points)
        few = 4.0 ** -max(1, len(points) - 1)
        at = np.flatnonzero(told != last.held)
        share = len(at) / len(told)
        ends = at
        if min(share, 1 - share) <= few:
            self._rare.setdefault(last.text, bool(last.held != (share <= few)))
        are_few = share <= few
        if len(points) == 1:  # what lies between the ends of a run is met as well
            steps = np.diff(at, prepend=-2, append=len(told) + 1) > 1
            (axis,) = points.values()
            inner = (at > 0) & (at < len(told) - 1) & (axis[at] >= LIMITS.least)
            ends = at[(steps[1:] | steps[:-1]) & inner]
            are_few = len(ends) > 0 and (
                are_few or (share <= 0.5 and int(steps.sum()) < 6)
            )
        for name, axis in points.items() if are_few else ():
            self._values[name].update(axis[ends[: LIMITS.kept]].tolist())
        places = self._places(before, ends if are_few else at, points, values)
        return places or self._places(before, at, points, values), are_few

    def _places(
        self, before: list[BranchCondition], at: Array, points: Points, values: Values
    ) -> list[Place]:
        """Those of some points where conditions hold as they did."""
        few = len(at) <= LIMITS.sampled
        chance = self._chance
        at = chance.permutation(at) if few else chance.choice(at, LIMITS.sampled)
        before = [
            a for a in before if not points.keys().isdisjoint(_code(a.text).co_names)
        ]
        for _, text, held in sorted(
            before, key=lambda one: not _is_of_arrays(one.text)
        ):
            at = at if _is_of_arrays(text) else at[: 4 * LIMITS.kept]
            if len(at):
                at = at[
                    _held(text, values, {n: a[at] for n, a in points.items()}) == held
                ]
        return [
            {n: int(axis[i]) for n, axis in points.items()} for i in at[: LIMITS.kept]
        ]


@functools.lru_cache(maxsize=4096)
def _code(text: str) -> CodeType:
    return compile(text, "<condition>", "eval")


@functools.lru_cache(maxsize=4096)
def _integers(text: str) -> frozenset[int]:
    """Return the integers in a condition."""
    code = _code(text)
    found = {value for value in code.co_consts if type(value) is int}
    instructions = code.co_code  # pairs of an opcode and its argument
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

    def told(own: Mapping[str, Any]) -> Any:
        try:
            return eval(_code(text), {"math": math, "np": np}, {**values, **own}) != 0
        except Exception:  # such as that of a division by 0
            return False

    axes = list(points.values())
    if _is_of_arrays(text):
        return np.broadcast_to(told(points), axes[0].shape)
    pairs = zip(*(axis.tolist() for axis in axes), strict=True)
    return np.array([told(dict(zip(points, at, strict=True))) for at in pairs], bool)
