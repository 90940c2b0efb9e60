"""`difftest tune`: the fastest point of a kernel that is correct, by predicted latency."""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import click

from difftest.simulator.machine import MACHINES, TRN2
from difftest.support.console import progress
from difftest.support.signature import signature_of
from difftest.testing.backends.base import Completed
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.harness.case import Case
from difftest.testing.harness.explicit import minimal_case
from difftest.testing.harness.runner import make_call, run_kernel
from difftest.testing.harness.spec import KernelSpec
from difftest.testing.host.collection import with_spec
from difftest.testing.host.loading import parse_keywords
from difftest.testing.host.options import with_progress
from difftest.timing import UnknownCostError, predict
from difftest.timing.parameters import timing_parameters
from difftest.timing.program import lower
from difftest.timing.report import bounds_of
from difftest.tools.scale.axes import Axes, Point, SpecAtPoint, check_axes, spec_at
from difftest.tools.scale.engine import PointJudge
from difftest.tools.scale.store import identity_of, key_of, require_extra
from difftest.tools.scale.sweep import CASES, OVER, axes_of_command, microseconds, point_text
from difftest.tools.scale.trials import Place, Trials
from difftest.tools.verdict.judgement import task_bytes
from difftest.tools.verdict.outcome import Outcome

AGREES = Outcome.AGREES.value
BOUND, TRACE_BOUND, SLOWER = "bound", "bound of its trace", "slower"
"""Why a point was left: the traffic of its task, or the work of its trace, takes as long as the
best; or its predicted time is not less."""
_WORST = 1e12
"""Microseconds that Optuna is told of what has no time."""


@dataclass(frozen=True)
class TuningTrial:
    """What is known of a point.

    Attributes
    ----------
    status : ``agrees``; why it was left; or another outcome, of what is refused or wrong.
    own_us : the kernel's own part, predicted, or the bound where it was left by that; None if
        nothing is known. latency_us, low_us, high_us : predicted, of the whole, or nothing.
    """

    point: Point
    status: str
    own_us: float | None = None
    latency_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    reason: str = ""


@dataclass
class Tuner:
    """A search over a grid, for one case.

    So many ``cases`` are drawn to judge a point that would be the best; the case whose time counts
    is one more. ``attempts`` is what is known, in order; ``ladder``, what was the best when found.
    ``study`` is where Optuna keeps it, if anywhere: a search goes on with what is there.
    """

    spec: KernelSpec
    axes: Axes
    cases: int = 5
    attempts: list[TuningTrial] = field(default_factory=list)
    ladder: list[TuningTrial] = field(default_factory=list)
    study: Mapping[str, Any] = field(default_factory=dict)

    def search(self, trials: int, start: Mapping[str, int]) -> Iterator[TuningTrial]:
        """Look at so many points, or all; the first has these places on the axes."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            study = optuna.create_study(**self.study)
        except Exception as error:  # of whatever keeps it
            raise click.UsageError(f"--storage: {str(error).splitlines()[0]}") from None
        kept = Trials(study, {name: len(values) for name, values in self.axes.axes.items()})
        kept.begin(tuple(start.values()))
        lost = kept.settle(_WORST)
        for stored in kept.kept():
            yield self.attempt({}, TuningTrial(**stored))
        for place in lost:
            if place not in kept.times:
                attempt = self.attempt({}, self._ended_twice(place))
                kept.add(place, _WORST, asdict(attempt))
                yield attempt
        while len(kept.times) < min(trials, len(self.axes)):
            trial, place = kept.ask(self._unknown(kept.times))
            try:
                attempt = self.attempt(self._point(place))
            except KeyboardInterrupt:
                kept.stop(trial, place)
                raise
            time = _WORST if attempt.own_us is None else attempt.own_us
            kept.tell(trial, place, time, asdict(attempt))
            yield attempt

    def _point(self, place: Place) -> Point:
        axes = zip(self.axes.axes.items(), place, strict=True)
        return {name: values[n] for (name, values), n in axes}

    def _unknown(self, known: Collection[Place]) -> Iterator[Place]:
        """Yield the points that are not known, in the order of the axes."""
        places = itertools.product(*(range(len(values)) for values in self.axes.axes.values()))
        return (place for place in places if place not in known)

    def _ended_twice(self, place: Place) -> TuningTrial:
        reason = "two processes ended while they looked at this point"
        return TuningTrial(self._point(place), Outcome.INCONCLUSIVE.value, reason=reason)

    @property
    def best_us(self) -> float:
        """Microseconds of the best point's own part; infinity if there is none."""
        return (self.ladder[-1].own_us if self.ladder else None) or math.inf

    def attempt(self, point: Point, stored: TuningTrial | None = None) -> TuningTrial:
        """Look at a point, no further than it can still be the best, unless it is stored."""
        attempt = stored or self.timed(point, self.best_us)
        attempt = self.judged(attempt) if not stored and attempt.status == AGREES else attempt
        self.attempts.append(attempt)
        self.ladder += [attempt] * (attempt.status == AGREES)
        return attempt

    def place_of_best(self) -> Iterator[tuple[int, int]]:
        """The best's place among all points that are correct, and how many have a time.

        Told anew after each point. What is faster than the best is judged.
        """
        attempts = {tuple(a.point.values()): a for a in self.attempts if a.latency_us}
        before = count = 0
        for whole in self.axes.points():
            point = {name: whole[name] for name in self.axes.axes}
            attempt = attempts.get(tuple(point.values())) or self.timed(point)
            count += attempt.own_us is not None
            if attempt.own_us is not None and attempt.own_us < self.best_us:
                before += self.judged(attempt).status == AGREES
            yield 1 + before, count

    def timed(self, point: Point, limit: float = math.inf) -> TuningTrial:
        """The predicted time, the cheapest question first; ``agrees`` is not judged yet.

        What cannot be below the limit, microseconds of the kernel's own part, is left.
        """
        place, case = self._place(point)
        try:
            bound = self._task_bound(place.spec, case)
            if bound >= limit:
                return TuningTrial(point, BOUND, bound)
            call = make_call(place.spec, case)
            with place.in_place():
                ran = run_kernel(EmbeddedSimulator(place.level), call._replace(record=True))
            if not isinstance(ran, Completed) or ran.trace is None:
                reason = str(getattr(ran, "error", "")).splitlines()
                return TuningTrial(point, Outcome.REFUSED.value, reason="".join(reason[:1]))
            machine = MACHINES[ran.trace.machine]
            program = lower(ran.trace, machine)
            line = bounds_of(program)
            if max(line.tensor_bound, line.memory_bound) >= limit:
                return TuningTrial(point, TRACE_BOUND, max(line.tensor_bound, line.memory_bound))
            prediction = predict(ran.trace, machine, lowered=program)
            times = prediction.middle, prediction.latency, *prediction.latency_interval
        except (UnknownCostError, ValueError) as error:
            return TuningTrial(point, Outcome.INCONCLUSIVE.value, reason=str(error))
        return TuningTrial(point, AGREES if prediction.middle < limit else SLOWER, *times)

    def judged(self, attempt: TuningTrial) -> TuningTrial:
        """The attempt with its outcome on drawn cases of the domain, then on the case itself."""
        point = {**self.axes.shared, **attempt.point}
        free = {name: value for name, value in point.items() if name not in self.spec.domain}
        row = PointJudge(self.spec, self.cases).row({**free, **attempt.point})
        if row["outcome"] == AGREES:
            row = PointJudge(self.spec, 1).row(point)
        return replace(attempt, status=row["outcome"], reason=row["reason"])

    def own(self) -> TuningTrial | None:
        """The defaults of its parameters, timed, and judged if faster than the best; or None."""
        chosen = {name: value for name, value in self.axes.shared.items() if name == "kernel"}
        shown = signature_of(spec_at(self.spec, chosen).spec.kernel)
        rows = shown.parameters if shown is not None else {}
        names = self.axes.axes
        if any(name not in rows or rows[name].default is rows[name].empty for name in names):
            return None
        attempt = self.timed({name: rows[name].default for name in names})
        return self.judged(attempt) if (attempt.own_us or math.inf) < self.best_us else attempt

    def _place(self, point: Point) -> tuple[SpecAtPoint, Case]:
        """The spec at a point, and the case whose time counts, on random data."""
        values = {**self.axes.shared, **point}
        place = spec_at(self.spec, values)
        sources: Mapping[str, Any] = place.spec.domain
        own = {name: source[0] for name, source in sources.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return place, minimal_case(place.spec, own)

    def _task_bound(self, spec: KernelSpec, case: Case) -> float:
        """Microseconds that the inputs and outputs take, each once: known without any run."""
        name = spec.machine_of(case.values)
        figures = timing_parameters(
            MACHINES[name] if name else getattr(spec.kernel, "machine", TRN2)
        )
        alone = math.prod(spec.grid_of(case.values)) == 1
        rate = figures.hbm_bandwidth if alone else figures.shared_hbm
        return task_bytes(spec, case) / rate.value / 1e3


_LEFT = {
    BOUND: "never run: the traffic of inputs and outputs takes as long as the best",
    TRACE_BOUND: "run once, not scheduled: the roofline of the trace is above the best",
    SLOWER: "predicted, not judged: not faster than the best",
    "agrees": "the best when they were found, and correct",
}


def run_tuner(
    tuner: Tuner, start: Mapping[str, Any], trials: int, *, exhaustive: bool = False
) -> Iterator[str]:
    """Look at so many points of a grid, or at all for the best's place; what came of it, in lines.

    It begins at the values of ``start``, of other axes at the first. An axis that stands for
    nothing is a click.UsageError, and so is a case with names left open.
    """
    from optuna.exceptions import StorageInternalError

    check_axes(tuner.spec, tuner.axes)
    first = tuner.axes[0]
    missing = [name for name in spec_at(tuner.spec, first).spec.domain if name not in first]
    if missing:
        raise click.UsageError(
            f"the times of one case are compared: give --case a value for {', '.join(missing)}"
        )
    places = dict[str, int]()
    ranks = list[tuple[int, int]]()
    for name, values in tuner.axes.axes.items():
        value = start.get(name, values[0])
        if value not in values:
            known = ", ".join(map(str, values))
            raise click.UsageError(f"--start {name}={value}: the axis has {known}")
        places[name] = values.index(value)
    points = len(tuner.axes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with progress("points", min(trials, points)) as advance:
            try:
                for _ in tuner.search(trials, places):
                    advance()
            except StorageInternalError as error:
                said = str(error.__cause__ or error).splitlines()[0]
                raise click.ClickException(f"--storage: {said}; the same command goes on") from None
        own = tuner.own()
        if exhaustive:
            with progress("all points", points) as advance:
                for told in tuner.place_of_best():
                    ranks.append(told)
                    advance()
    yield from _ladder(tuner, own)
    for place, count in ranks[-1:]:
        yield f"place {place} of {count} points that have a time (predicted)"


def _ladder(tuner: Tuner, own: TuningTrial | None) -> Iterator[str]:
    """The improvements, how far the others were looked at, the best beside the kernel's own."""
    yield f"{len(tuner.attempts)} of {len(tuner.axes)} points looked at; all times are predicted"
    for before, attempt in zip([None, *tuner.ladder], tuner.ladder, strict=False):
        yield f"{microseconds(attempt.latency_us):>8} us  {_step(before, attempt)}"
    for status, count in Counter(attempt.status for attempt in tuner.attempts).most_common():
        yield f"  {count} {_LEFT.get(status, status.replace('_', ' '))}"
    if not tuner.ladder:
        reasons = dict.fromkeys(f"{attempt.status}: {attempt.reason}" for attempt in tuner.attempts)
        yield f"no point is correct: {'; '.join(list(reasons)[:3])}"
        return
    best = tuner.ladder[-1]
    time, low, high = map(microseconds, (best.latency_us, best.low_us, best.high_us))
    yield f"best: {point_text(best.point, list(best.point))}"
    yield f"  {time} us predicted, between {low} and {high} nine times of ten"
    if own is not None:
        yield f"the kernel's own sizes: {point_text(own.point, list(own.point))}"
        told = f"{microseconds(own.latency_us)} us predicted, {_times(own, best)} times the best's"
        yield f"  {told if own.status == AGREES else f'{own.status}: {own.reason}'}"


def _step(before: TuningTrial | None, attempt: TuningTrial) -> str:
    """What changed from one rung of the ladder to the next, and the gain."""
    if before is None:
        return point_text(attempt.point, list(attempt.point))
    old = before.point
    new = attempt.point
    parts = [f"{name} {old[name]} -> {new[name]}" for name in new if old[name] != new[name]]
    return f"{', '.join(parts)}: {_times(before, attempt)}x faster"


def _times(slow: TuningTrial, fast: TuningTrial) -> str:
    return f"{(slow.latency_us or 0.0) / (fast.latency_us or 1.0):.2f}"


@click.command()
@click.argument("test", metavar="PATH::TEST")
@click.option("--over", multiple=True, metavar="NAME=VALUES", help=OVER)
@click.option("--case", metavar="JSON", help="The case whose time counts: names and values.")
@click.option("--start", multiple=True, metavar="NAME=VALUE", help="To begin at; else the first.")
@click.option("--trials", type=click.IntRange(1), default=30, help="Points to look at.")
@click.option("--cases", type=click.IntRange(1), default=CASES, help="To judge a best point.")
@click.option("--storage", metavar="URL", help="Optuna's, such as sqlite:///tune.db. It goes on.")
@click.option("--exhaustive", is_flag=True, help="Then look at all points: the best's place.")
@with_progress
@click.pass_context
def tune(context: click.Context, /, test: str, start: tuple[str, ...], **options: Any) -> None:
    """Find the sizes with which a kernel is correct, and fastest.

    The times are those of one case, and none is measured. What is fast is judged by drawn cases of
    the test and by that case. The exit code is 1 if no point is correct.
    """
    require_extra("optuna", "tuning")
    axes = axes_of_command(options.pop("over"), None, options.pop("case"))
    cases, begin, tuners = options.pop("cases"), parse_keywords(start), list[Tuner]()
    storage = options.pop("storage")

    def run(spec: Any) -> list[str]:
        name = f"{test} {key_of(identity_of(spec, test), test, cases, axes.shared)}"
        kept = {"storage": storage, "study_name": name, "load_if_exists": True}
        tuners.append(Tuner(spec, axes, cases, study=kept if storage else {}))
        return list(run_tuner(tuners[0], begin, **options))

    try:
        lines = with_spec(test, run)
    except KeyboardInterrupt:
        known = [line for tuner in tuners if tuner.attempts for line in _ladder(tuner, None)]
        how = "the same command" if storage else "with --storage sqlite:///tune.db a search"
        raise KeyboardInterrupt("\n".join([*known, f"stopped: {how} goes on"])) from None
    click.echo("\n".join(lines))
    context.exit(int(not tuners[0].ladder))
