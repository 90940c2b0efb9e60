"""The judges of points: this process, processes on this machine, or workers of Dask."""

from __future__ import annotations

import functools
import json
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import click

from difftest.simulator.program_scheduler import one_thread
from difftest.support.pool import START, LostTask, run_tasks, serve_tasks
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.limits import limit
from difftest.testing.contract.sources import RANGE
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.cases import SAMPLES, cases_like, distinct_cases
from difftest.testing.drawing.reference_properties import (
    ReferenceProperties,
    infer_properties,
)
from difftest.testing.drawing.sizes import source_of
from difftest.testing.harness.failures import CaseFailure
from difftest.testing.harness.minimal_failure import minimal_failure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import BothRejected, Match
from difftest.testing.host.collection import with_spec
from difftest.tools.scale.axes import Point, SpecAtPoint, spec_at
from difftest.tools.scale.store import Row, require_extra
from difftest.tools.verdict.judgement import Judgement, add_memory, add_time
from difftest.tools.verdict.outcome import Outcome

_TIMES = ("predicted_us", "low_us", "high_us", "limited_by", "caution")


def cases_of(spec: KernelSpec, nature: ReferenceProperties, count: int) -> list[Case]:
    """Return up to ``count`` cases, the smallest first and the same in each process."""
    return distinct_cases(spec, cases_like(spec, nature), count, simplest=False)


@dataclass
class PointJudge:
    """A judge of a spec at points, on ``count`` drawn cases for each point."""

    spec: KernelSpec
    count: int
    _natures: dict[str | None, ReferenceProperties] = field(default_factory=dict)

    def row(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Run drawn cases at a point, the smallest first, and predict the time of the largest.

        docs/how-to/sweep.md describes the columns of the row.
        """
        began = time.monotonic()
        judgement = Judgement({"name": self.spec.name}, "", 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                place = spec_at(self.spec, point)
                judgement.kernel = {"name": place.spec.name}
                drawn = cases_of(place.spec, self._nature(place.spec), self.count)
            # from a function of the domain, Hypothesis or spec_at
            except Exception as error:
                judgement.outcome = Outcome.INCONCLUSIVE
                text = f"no case can be drawn: {type(error).__name__}: {error}"
                judgement.reason = text.splitlines()[0]
            else:
                with place.in_place():
                    judge_cases(place, drawn, judgement)
                if judgement.outcome is Outcome.REFUSES_PROMISED:
                    self._excuse(judgement)
        return {**_row(judgement), "seconds": time.monotonic() - began}

    def _excuse(self, judgement: Judgement) -> None:
        """Make a rejection inconclusive if a size is outside the test's domain."""
        values = json.loads(judgement.case or "{}").get("values", {})
        for name, value in values.items():
            if name not in self.spec.domain or type(value) is not int:
                continue
            source: Any = source_of(self.spec, name, values)
            promised = getattr(source, RANGE, source)
            if isinstance(promised, Sequence) and value not in promised:
                why = f"{name}={value} is out of the domain: {judgement.reason}"
                judgement.outcome = Outcome.INCONCLUSIVE
                judgement.reason = why

    def _nature(self, spec: KernelSpec) -> ReferenceProperties:
        """Return the properties of the reference over the whole domain; they are inferred once."""
        if spec.machine not in self._natures:
            whole = replace(self.spec, machine=spec.machine)
            samples = functools.partial(cases_of, whole, ReferenceProperties(), SAMPLES)
            self._natures[spec.machine] = infer_properties(whole, samples)
        return self._natures[spec.machine]


def judge_cases(place: SpecAtPoint, drawn: list[Case], judgement: Judgement) -> None:
    """Judge cases in their order; if all agree, add memory and time of the last case."""
    runner = Runner((EmbeddedSimulator(place.level),))
    run = functools.partial(runner.check, place.spec)
    last = drawn[-1]
    for case in drawn:
        runner.record = case is last
        judgement.evidence.cases += 1
        try:
            verdicts = run(case)
        except CaseFailure as failure:
            smallest = minimal_failure(failure, run, _MINIMAL_SECONDS)
            judgement.blame(smallest.case, smallest)
            return
        for verdict in verdicts.values():
            if isinstance(verdict, BothRejected):
                reason = f"both refuse: {verdict.kernel_error}".splitlines()[0]
                runner.tally.reasons[reason] += 1
            decides = isinstance(verdict, Match) and verdict.elements > 0
            judgement.evidence.decided += decides
    judgement.case = last.to_json()
    judgement.need_decision(runner.tally.reasons)
    judgement.add_hazards(
        (case, finding) for _, case, finding in runner.hazards.values()
    )
    for trace in runner.traces.values():
        add_memory(judgement, trace)
        if judgement.outcome is Outcome.AGREES:
            add_time(judgement, trace, last, place.spec)
            judgement.reason = judgement.reason or "; ".join(judgement.notes)


def _row(judgement: Judgement) -> dict[str, Any]:
    """Return the columns that come from a judgement; unknown values are None."""
    times = judgement.time or {}
    bounds = []
    if times:
        bounds = [times["arithmetic_bound_us"], times["memory_bound_us"]]
    needed: dict[str, list[int]] = {"sbuf": [], "psum": []}
    for peak in judgement.memory:
        needed[peak["memory"]].append(peak["needed"])
    return {
        "kernel": judgement.kernel["name"],
        "outcome": judgement.outcome.value,
        "reason": judgement.reason,
        "findings": sorted({finding["id"] for finding in judgement.findings}),
        "cases": judgement.evidence.cases,
        "case": judgement.case,
        **{name: times.get(name) for name in _TIMES},
        "bound_us": max(bounds, default=None),
        **{f"{name}_bytes": max(peaks, default=None) for name, peaks in needed.items()},
    }


_MINIMAL_SECONDS = 0.5
"""The most CPU time to make the failing case of a point smaller, in seconds."""
AHEAD = 2
"""Points that a worker of Dask holds at a time: the current point and the next."""
_CALLS = 2
"""The calls of a case, of the reference and of the kernel. Each may take the time of a call."""
_LATE_ROW = {"outcome": Outcome.TIMEOUT.value, "reason": "it took too long"}
_CRASHED_ROW = {
    "outcome": Outcome.CRASHED.value,
    "reason": "the processes that judged it ended, one after the other",
}
"""The rows of points without an answer."""


class SweepSetup(NamedTuple):
    """The settings of each worker.

    Attributes
    ----------
    test : the kernel test, at a path that the worker can read.
    cases : number of cases for each point.
    timeout : seconds for each call.
    """

    test: str
    cases: int
    timeout: float


def judge_locally(
    spec: KernelSpec, setup: SweepSetup, points: Sequence[Point]
) -> Iterator[tuple[Point, Row]]:
    """Yield points with their rows, judged one after the other in this process."""
    judge = PointJudge(spec, setup.cases)
    with limit(setup.timeout, None):
        for point in points:
            yield point, judge.row(point)


def serve_points(connection: Connection, setup: SweepSetup) -> None:
    """Judge the points that a connection sends, in a process of the pool."""

    def work(spec: KernelSpec) -> None:
        with one_thread():  # threads of several processes that wait for a core spin
            serve_tasks(connection, PointJudge(spec, setup.cases).row)

    limit(setup.timeout, None)
    try:
        with_spec(setup.test, work)
    except click.ClickException as error:
        connection.send(error.message)


def judge_in_processes(
    setup: SweepSetup, points: Sequence[Point], count: int
) -> Iterator[tuple[Point, Row]]:
    """Yield points with their rows, judged in ``count`` processes.

    If a process ends, another process judges its point. If that process ends too, the point's
    outcome is a crash.

    Raises
    ------
    click.ClickException : the processes cannot collect the test.
    """
    work = functools.partial(serve_points, setup=setup)
    seconds = _CALLS * setup.timeout * setup.cases
    lost: list[Point] = []
    for left in (points, lost):
        rows = run_tasks(
            left, work, min(count, len(left)), dict, lambda news: START + seconds
        )
        try:
            for point, row in rows:
                if not isinstance(row, LostTask):
                    yield point, row
                elif row.is_late:
                    yield point, dict(_LATE_ROW)
                elif left is lost:
                    yield point, dict(_CRASHED_ROW)
                else:
                    lost.append(point)
        except RuntimeError as error:
            raise click.ClickException(f"a worker cannot go on: {error}") from None


_OVER = threading.Event()
"""Ends the threads of :func:`_collected`. It is set if the process outlives its worker."""
_TURN = threading.Lock()
"""Held while a point is judged: a worker of Dask may have several threads."""


@functools.cache
def _collected(setup: SweepSetup) -> Future[PointJudge]:
    """Return the judge of a test in a worker; a thread keeps the test's modules imported."""
    judge: Future[PointJudge] = Future()

    def keep(spec: KernelSpec) -> None:
        judge.set_result(PointJudge(spec, setup.cases))
        _OVER.wait()

    def collect() -> None:
        try:
            with limit(setup.timeout, None):
                with_spec(setup.test, keep)
        except BaseException as error:  # the future raises it in the caller
            judge.set_exception(
                RuntimeError(getattr(error, "message", None) or repr(error))
            )

    threading.Thread(target=collect, name=setup.test, daemon=True).start()
    return judge


def judge_remotely(setup: SweepSetup, point: Point) -> Row:
    """Return the row of a point, judged in a worker."""
    with _TURN:
        return _collected(setup).result().row(point)


def judge_on_dask(
    setup: SweepSetup, points: Sequence[Point], scheduler: str, timeout: float = 20
) -> Iterator[tuple[Point, Row]]:
    """Yield points with their rows, judged by the workers of a Dask scheduler.

    Only enough points are submitted to keep the workers busy.

    Raises
    ------
    click.ClickException : no scheduler answers, or the workers cannot collect the test.
    """
    require_extra("distributed", "a sweep on a cluster")
    import distributed

    with warnings.catch_warnings():
        # a session may turn Dask's warnings into errors
        warnings.simplefilter("ignore")
        try:
            client: Any = distributed.Client(scheduler, timeout=timeout)
        except OSError as error:
            raise click.ClickException(
                f"no scheduler of Dask at {scheduler}: {error}"
            ) from None
        with client:
            left = iter(points)
            running: dict[Any, Point] = {}

            def submitted(count: int) -> list[Any]:
                futures = {
                    client.submit(judge_remotely, setup, point, pure=False): point
                    for point in islice(left, count)
                }
                running.update(futures)
                return list(futures)

            done: Any = distributed.as_completed(
                submitted(AHEAD * max(1, len(client.ncores())))
            )
            for future in done:
                yield running.pop(future), row_of(future)
                done.update(submitted(1))


def row_of(future: Any) -> Row:
    """Return the row from a worker of Dask; a point that killed its workers is a crash."""
    import distributed

    error = future.exception() if future.status == "error" else None
    if isinstance(error, distributed.KilledWorker):
        return dict(_CRASHED_ROW)
    if error is not None:
        raise click.ClickException(f"a worker cannot go on: {error}")
    row: Row = future.result()
    return row
