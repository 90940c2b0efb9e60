"""`difftest tune`: find the fastest correct point of a kernel by predicted latency."""

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
from difftest.testing.contract.case import Case
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.explicit import minimal_case
from difftest.testing.harness.kernel_calls import make_call, run_kernel
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
from difftest.tools.scale.sweep import (
    CASES,
    OVER,
    axes_of_command,
    microseconds,
    point_text,
)
from difftest.tools.scale.trials import Place, Trials
from difftest.tools.verdict.judgement import task_bytes
from difftest.tools.verdict.outcome import Outcome

AGREES = Outcome.AGREES.value
BOUND = "bound"
"""The status of a point whose inputs and outputs alone take the best point's time."""
TRACE_BOUND = "bound of its trace"
"""The status of a point whose traced work alone takes the best point's time."""
SLOWER = "slower"
"""The status of a point that is not predicted to be faster than the best point."""
_WORST = 1e12
"""The time of a point without a time, for Optuna, in microseconds."""


@dataclass(frozen=True)
class TuningTrial:
    """The result of trying a point.

    Attributes
    ----------
    status : ``agrees``, the reason why the point was skipped, or another outcome.
    own_us : the predicted time of the kernel's own part, or the bound that skipped the point, in
        microseconds; None without either.
    latency_us, low_us, high_us : the predicted latency and its interval, in microseconds; None if
        it is unknown.
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
    """A search over a grid for the fastest point of one case.

    Attributes
    ----------
    cases : number of drawn cases that judge a new best point, in addition to the timed case.
    attempts : the results of all tried points, in order.
    ladder : the results that were the best when they were found.
    study : Optuna's arguments for a stored study; a search continues a stored study.
    """

    spec: KernelSpec
    axes: Axes
    cases: int = 5
    attempts: list[TuningTrial] = field(default_factory=list)
    ladder: list[TuningTrial] = field(default_factory=list)
    study: Mapping[str, Any] = field(default_factory=dict)

    def search(self, trials: int, start: Mapping[str, int]) -> Iterator[TuningTrial]:
        """Try up to ``trials`` points; yield each result. ``start`` places the first point."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            study = optuna.create_study(**self.study)
        except Exception as error:  # each kind of storage raises its own errors
            raise click.UsageError(f"--storage: {str(error).splitlines()[0]}") from None
        kept = Trials(
            study, {name: len(values) for name, values in self.axes.axes.items()}
        )
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
        places = itertools.product(
            *(range(len(values)) for values in self.axes.axes.values())
        )
        return (place for place in places if place not in known)

    def _ended_twice(self, place: Place) -> TuningTrial:
        reason = "two processes ended while they looked at this point"
        return TuningTrial(
            self._point(place), Outcome.INCONCLUSIVE.value, reason=reason
        )

    @property
    def best_us(self) -> float:
        """Microseconds of the best point's own part; infinity if there is none."""
        return (self.ladder[-1].own_us if self.ladder else None) or math.inf

    def attempt(self, point: Point, stored: TuningTrial | None = None) -> TuningTrial:
        """Try a point while it can still be the best, and keep the result or the stored result."""
        attempt = stored or self.timed(point, self.best_us)
        if stored is None and attempt.status == AGREES:
            attempt = self.judged(attempt)
        self.attempts.append(attempt)
        if attempt.status == AGREES:
            self.ladder.append(attempt)
        return attempt

    def place_of_best(self) -> Iterator[tuple[int, int]]:
        """Yield the rank of the best among correct points, and the number of points with a time.

        A pair is yielded after each point. Points that are faster than the best are judged.
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
        """Return the predicted time of a point; its status ``agrees`` is not judged yet.

        ``limit`` is a time of the kernel's own part, in microseconds. Cheap bounds come first. A
        point that cannot be below the limit is skipped.
        """
        place, case = self._place(point)
        try:
            bound = self._task_bound(place.spec, case)
            if bound >= limit:
                return TuningTrial(point, BOUND, bound)
            call = make_call(place.spec, case)
            with place.in_place():
                ran = run_kernel(
                    EmbeddedSimulator(place.level), call._replace(record=True)
                )
            if not isinstance(ran, Completed) or ran.trace is None:
                reason = str(getattr(ran, "error", "")).partition("\n")[0]
                return TuningTrial(point, Outcome.REFUSED.value, reason=reason)
            machine = MACHINES[ran.trace.machine]
            program = lower(ran.trace, machine)
            line = bounds_of(program)
            bound = max(line.tensor_bound, line.memory_bound)
            if bound >= limit:
                return TuningTrial(point, TRACE_BOUND, bound)
            prediction = predict(ran.trace, machine, lowered=program)
            times = prediction.middle, prediction.latency, *prediction.latency_interval
        except (UnknownCostError, ValueError) as error:
            return TuningTrial(point, Outcome.INCONCLUSIVE.value, reason=str(error))
        status = AGREES if prediction.middle < limit else SLOWER
        return TuningTrial(point, status, *times)

    def judged(self, attempt: TuningTrial) -> TuningTrial:
        """Return the attempt with its outcome on drawn cases, and then on the timed case."""
        point = {**self.axes.shared, **attempt.point}
        free = {
            name: value for name, value in point.items() if name not in self.spec.domain
        }
        row = PointJudge(self.spec, self.cases).row({**free, **attempt.point})
        if row["outcome"] == AGREES:
            row = PointJudge(self.spec, 1).row(point)
        return replace(attempt, status=row["outcome"], reason=row["reason"])

    def own(self) -> TuningTrial | None:
        """Time the defaults of the kernel's parameters; judge them if faster; None without any."""
        chosen = {
            name: value for name, value in self.axes.shared.items() if name == "kernel"
        }
        shown = signature_of(spec_at(self.spec, chosen).spec.kernel)
        rows = shown.parameters if shown is not None else {}
        names = self.axes.axes
        if any(
            name not in rows or rows[name].default is rows[name].empty for name in names
        ):
            return None
        attempt = self.timed({name: rows[name].default for name in names})
        if (attempt.own_us or math.inf) < self.best_us:
            return self.judged(attempt)
        return attempt

    def _place(self, point: Point) -> tuple[SpecAtPoint, Case]:
        """Return the spec at a point, and the timed case with random data."""
        values = {**self.axes.shared, **point}
        place = spec_at(self.spec, values)
        sources: Mapping[str, Any] = place.spec.domain
        own = {name: source[0] for name, source in sources.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return place, minimal_case(place.spec, own)

    def _task_bound(self, spec: KernelSpec, case: Case) -> float:
        """Return the microseconds for the inputs and outputs once, which needs no run."""
        name = spec.machine_of(case.values)
        figures = timing_parameters(
            MACHINES[name] if name else getattr(spec.kernel, "machine", TRN2)
        )
        alone = math.prod(spec.grid_of(case.values)) == 1
        rate = figures.hbm_bandwidth if alone else figures.shared_hbm
        return task_bytes(spec, case) / rate.value / 1e3


_STATUS_TEXTS = {
    BOUND: "never run: the traffic of inputs and outputs takes as long as the best",
    TRACE_BOUND: "run once, not scheduled: the roofline of the trace is above the best",
    SLOWER: "predicted, not judged: not faster than the best",
    "agrees": "the best when they were found, and correct",
}


def run_tuner(
    tuner: Tuner, start: Mapping[str, Any], trials: int, *, exhaustive: bool = False
) -> Iterator[str]:
    """Try points of a grid, and yield the lines of the report.

    Parameters
    ----------
    start : the values of the first point; other axes begin at their first values.
    trials : number of points to try.
    exhaustive : whether to time all points afterwards, for the rank of the best point.

    Raises
    ------
    click.UsageError : an axis is unknown, or the case lacks a value of the domain.
    """
    from optuna.exceptions import StorageInternalError

    check_axes(tuner.spec, tuner.axes)
    first = tuner.axes[0]
    missing = [
        name for name in spec_at(tuner.spec, first).spec.domain if name not in first
    ]
    if missing:
        raise click.UsageError(
            f"the times of one case are compared: give --case a value for {', '.join(missing)}"
        )
    places = _start_places(tuner.axes, start)
    ranks = list[tuple[int, int]]()
    points = len(tuner.axes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with progress("points", min(trials, points)) as advance:
            try:
                for _ in tuner.search(trials, places):
                    advance()
            except StorageInternalError as error:
                cause = str(error.__cause__ or error).splitlines()[0]
                text = f"--storage: {cause}; the same command goes on"
                raise click.ClickException(text) from None
        own = tuner.own()
        if exhaustive:
            with progress("all points", points) as advance:
                for rank in tuner.place_of_best():
                    ranks.append(rank)
                    advance()
    yield from _ladder(tuner, own)
    for place, count in ranks[-1:]:
        yield f"place {place} of {count} points that have a time (predicted)"


def _start_places(axes: Axes, start: Mapping[str, Any]) -> dict[str, int]:
    """Return the place on each axis of the first point; raise UsageError for an unknown value."""
    places: dict[str, int] = {}
    for name, values in axes.axes.items():
        value = start.get(name, values[0])
        if value not in values:
            known = ", ".join(map(str, values))
            raise click.UsageError(f"--start {name}={value}: the axis has {known}")
        places[name] = values.index(value)
    return places


def _ladder(tuner: Tuner, own: TuningTrial | None) -> Iterator[str]:
    """Yield the improvements, the number of points by status, the best point and the defaults."""
    yield f"{len(tuner.attempts)} of {len(tuner.axes)} points looked at; all times are predicted"
    for before, attempt in zip([None, *tuner.ladder], tuner.ladder, strict=False):
        yield f"{microseconds(attempt.latency_us):>8} us  {_step(before, attempt)}"
    statuses = Counter(attempt.status for attempt in tuner.attempts)
    for status, count in statuses.most_common():
        yield f"  {count} {_STATUS_TEXTS.get(status, status.replace('_', ' '))}"
    if not tuner.ladder:
        reasons = dict.fromkeys(
            f"{attempt.status}: {attempt.reason}" for attempt in tuner.attempts
        )
        yield f"no point is correct: {'; '.join(list(reasons)[:3])}"
        return
    best = tuner.ladder[-1]
    time, low, high = map(microseconds, (best.latency_us, best.low_us, best.high_us))
    yield f"best: {point_text(best.point, list(best.point))}"
    yield f"  {time} us predicted, between {low} and {high} nine times of ten"
    if own is not None:
        yield f"the kernel's own sizes: {point_text(own.point, list(own.point))}"
        text = f"{own.status}: {own.reason}"
        if own.status == AGREES:
            time = microseconds(own.latency_us)
            text = f"{time} us predicted, {_times(own, best)} times the best's"
        yield f"  {text}"


def _step(before: TuningTrial | None, attempt: TuningTrial) -> str:
    """Return the changed values between two results of the ladder, and the speedup."""
    if before is None:
        return point_text(attempt.point, list(attempt.point))
    old = before.point
    new = attempt.point
    parts = [
        f"{name} {old[name]} -> {new[name]}" for name in new if old[name] != new[name]
    ]
    return f"{', '.join(parts)}: {_times(before, attempt)}x faster"


def _times(slow: TuningTrial, fast: TuningTrial) -> str:
    return f"{(slow.latency_us or 0.0) / (fast.latency_us or 1.0):.2f}"


@click.command()
@click.argument("test", metavar="PATH::TEST")
@click.option("--over", multiple=True, metavar="NAME=VALUES", help=OVER)
@click.option(
    "--case", metavar="JSON", help="Case whose time counts: names and values."
)
@click.option(
    "--start", multiple=True, metavar="NAME=VALUE", help="Value of the first point."
)
@click.option(
    "--trials", type=click.IntRange(1), default=30, help="Number of points to try."
)
@click.option(
    "--cases",
    type=click.IntRange(1),
    default=CASES,
    help="Drawn cases to judge each best point.",
)
@click.option(
    "--storage",
    metavar="URL",
    help="Storage of Optuna, such as sqlite:///tune.db; a run continues it.",
)
@click.option(
    "--exhaustive",
    is_flag=True,
    help="Then time all points, and print the rank of the best.",
)
@with_progress
@click.pass_context
def tune(
    context: click.Context, /, test: str, start: tuple[str, ...], **options: Any
) -> None:
    """Find the sizes that make a kernel fastest and keep it correct.

    The times of one case are predicted, not measured. Fast points are judged on drawn cases of the
    test and on that case. The exit code is 1 if no point is correct.
    """
    require_extra("optuna", "tuning")
    axes = axes_of_command(options.pop("over"), None, options.pop("case"))
    cases = options.pop("cases")
    begin = parse_keywords(start)
    tuners: list[Tuner] = []
    storage = options.pop("storage")

    def run(spec: Any) -> list[str]:
        name = f"{test} {key_of(identity_of(spec, test), test, cases, axes.shared)}"
        kept = {"storage": storage, "study_name": name, "load_if_exists": True}
        tuners.append(Tuner(spec, axes, cases, study=kept if storage else {}))
        return list(run_tuner(tuners[0], begin, **options))

    try:
        lines = with_spec(test, run)
    except KeyboardInterrupt:
        lines = []
        if tuners and tuners[0].attempts:
            lines += _ladder(tuners[0], None)
        how = "with --storage sqlite:///tune.db a search"
        if storage:
            how = "the same command"
        lines.append(f"stopped: {how} goes on")
        raise KeyboardInterrupt("\n".join(lines)) from None
    click.echo("\n".join(lines))
    context.exit(int(not tuners[0].ladder))
