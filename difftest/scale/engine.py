"""Who judges points: this process, processes here, or workers of Dask elsewhere."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import click

from difftest.harness.limits import limit
from difftest.harness.spec import KernelSpec
from difftest.host.collecting import with_spec
from difftest.host.pool import START, LostTask, answer_all, results
from difftest.scale.axes import Point
from difftest.scale.judging import PointJudge
from difftest.scale.store import Row, need
from difftest.verdict.outcome import Outcome

AHEAD = 2
"""Points that a worker of Dask has at a time: one that it judges, and the next."""
_CALLS = 2
"""Of a case: the reference and the kernel. Each may take the time of a call."""
_ENDED = "the processes that judged it ended, one after the other"


class SweepOrders(NamedTuple):
    """What each worker is told: a test at a path that it has, cases of a point, seconds a call."""

    test: str
    cases: int
    timeout: float


class SweepTask(NamedTuple):
    """A point and the key of its row."""

    key: str
    point: Point


def judged_here(
    spec: KernelSpec, orders: SweepOrders, tasks: Sequence[SweepTask]
) -> Iterator[tuple[SweepTask, Row]]:
    """The rows of points, one after the other in this process."""
    undo = limit(orders.timeout, None)
    judge = PointJudge(spec, orders.cases)
    try:
        for task in tasks:
            yield task, judge.row(task.point)
    finally:
        undo()


def serve(connection: Connection, orders: SweepOrders) -> None:
    """Judge the points that come through a connection, in a process of the pool."""

    def work(spec: KernelSpec) -> None:
        judge = PointJudge(spec, orders.cases)
        answer_all(connection, lambda task: judge.row(task.point))

    limit(orders.timeout, None)
    try:
        with_spec(orders.test, work)
    except click.ClickException as error:
        connection.send(error.message)


def judged_apart(
    orders: SweepOrders, tasks: Sequence[SweepTask], count: int
) -> Iterator[tuple[SweepTask, Row]]:
    """The rows of points as so many processes know them.

    What a process that ends had is judged by another; a point that ends that too is a crash.

    Raises
    ------
    click.ClickException : the processes cannot collect the test.
    """
    work, seconds = functools.partial(serve, orders=orders), _CALLS * orders.timeout * orders.cases
    lost: list[SweepTask] = []
    for left in (tasks, lost):
        told = results(left, work, min(count, len(left)), dict, lambda news: START + seconds)
        try:
            for task, row in told:
                if not isinstance(row, LostTask):
                    yield task, row
                elif row.is_late:
                    yield task, {"outcome": Outcome.TIMEOUT.value, "reason": "it took too long"}
                elif left is lost:
                    yield task, {"outcome": Outcome.CRASHED.value, "reason": _ENDED}
                else:
                    lost.append(task)
        except RuntimeError as error:
            raise click.ClickException(f"a worker cannot go on: {error}") from None


class Collected(threading.Thread):
    """The judge of a test in a worker: collected once, and kept with its modules in place."""

    def __init__(self, orders: SweepOrders) -> None:
        super().__init__(daemon=True)
        self.orders, self.ended = orders, threading.Event()
        self.judge: Future[PointJudge] = Future()
        self.start()

    def run(self) -> None:
        """Collect the test, and wait for the end."""
        undo = limit(self.orders.timeout, None)
        try:
            with_spec(self.orders.test, self._keep)
        except BaseException as error:  # raised anew by whoever asks
            text = getattr(error, "message", None) or repr(error)
            self.judge.set_exception(RuntimeError(text))
        finally:
            undo()

    def _keep(self, spec: KernelSpec) -> None:
        self.judge.set_result(PointJudge(spec, self.orders.cases))
        self.ended.wait()


_COLLECTED: dict[SweepOrders, Collected] = {}
"""Of this worker."""
_TURN = threading.Lock()
"""Workers elsewhere may have several threads."""


def judge_remotely(orders: SweepOrders, point: Point) -> Row:
    """The row of a point, in a worker."""
    with _TURN:
        if orders not in _COLLECTED:
            _COLLECTED[orders] = Collected(orders)
        return _COLLECTED[orders].judge.result().row(point)


def judged_elsewhere(
    orders: SweepOrders, tasks: Sequence[SweepTask], scheduler: str, timeout: float = 20
) -> Iterator[tuple[SweepTask, Row]]:
    """The rows of points as the workers of the scheduler at an address know them.

    Only so many are submitted as keep the workers busy.

    Raises
    ------
    click.UsageError : Dask is not installed.
    click.ClickException : nobody answers there, or the workers cannot collect the test.
    """
    need("distributed", "a sweep on a cluster")
    import distributed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's are no errors of the session that collects
        try:
            client: Any = distributed.Client(scheduler, timeout=timeout)
        except OSError as error:
            raise click.ClickException(f"no scheduler of Dask at {scheduler}: {error}") from None
        with client:
            left, running = iter(tasks), dict[Any, SweepTask]()

            def submitted(count: int) -> list[Any]:
                futures = {
                    client.submit(
                        judge_remotely, orders, task.point, key=f"point-{task.key}", pure=False
                    ): task
                    for task in islice(left, count)
                }
                running.update(futures)
                return [*futures]

            done: Any = distributed.as_completed(submitted(AHEAD * max(1, len(client.ncores()))))
            for future in done:
                yield running.pop(future), row_of(future)
                done.update(submitted(1))


def row_of(future: Any) -> Row:
    """What a worker of Dask says of a point."""
    import distributed

    error = future.exception() if future.status == "error" else None
    if isinstance(error, distributed.KilledWorker):
        return {"outcome": Outcome.CRASHED.value, "reason": _ENDED}
    if error is not None:
        raise click.ClickException(f"a worker cannot go on: {error}")
    row: Row = future.result()
    return row
