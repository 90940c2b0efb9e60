"""Who judges points: this process, or workers of Dask, here or elsewhere."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

from difftest.harness.limits import limit
from difftest.harness.spec import KernelSpec
from difftest.host.collecting import with_spec
from difftest.scale.axes import Point
from difftest.scale.judging import PointJudge
from difftest.scale.store import Row, need
from difftest.verdict.outcome import Outcome

AHEAD = 2
"""Points that a worker has at a time: one that it judges, and the next."""
SLOW, POLL = 5.0, 0.5
"""At the end of a sweep a point that takes so many times as long as most, and as many seconds, is
given to a second worker; seconds between two looks."""


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


@contextlib.contextmanager
def client_of(workers: int, scheduler: str | None, timeout: float = 20) -> Iterator[Any]:
    """A client of a cluster of so many local processes, or of the scheduler at an address.

    Raises
    ------
    click.UsageError : Dask is not installed.
    click.ClickException : nobody answers there.
    """
    need("distributed", "a sweep on several processes (-n 0 needs none)")
    import distributed

    settings: Any = {"threads_per_worker": 1, "silence_logs": 50}
    with contextlib.ExitStack() as after:
        after.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # Dask's are no errors of the session that collects
        place: Any = scheduler
        if scheduler is None:
            settings["dashboard_address"] = "127.0.0.1:0"  # several sweeps at a time
            place = after.enter_context(distributed.LocalCluster(n_workers=workers, **settings))
        try:
            client = after.enter_context(distributed.Client(place, timeout=timeout))
        except OSError as error:
            raise click.ClickException(f"no scheduler of Dask at {scheduler}: {error}") from None
        yield client


@dataclass
class Cluster:
    """Points on the workers of a client.

    Only so many are submitted as keep the workers busy. What a worker that ends had is judged by
    another; a point that has ended several in a row is a crash. When nothing is left to submit,
    what a slow worker has is given to another too: the first row counts.
    """

    client: Any
    orders: SweepOrders
    twins: int = 0
    _running: dict[Any, tuple[SweepTask, float]] = field(default_factory=dict)
    _took: list[float] = field(default_factory=list)

    def results(self, tasks: Sequence[SweepTask]) -> Iterator[tuple[SweepTask, Row]]:
        """The rows of points as they are known, each once.

        Raises
        ------
        click.ClickException : the workers cannot collect the test.
        """
        left = deque(tasks)
        while left or self._running:
            while left and len(self._running) < AHEAD * max(1, len(self.client.ncores())):
                self._submit(left.popleft())
            if not left:
                self._add_twins()
            for future in self._ready():
                if future not in self._running:  # its twin was first
                    continue
                task, began = self._running.pop(future)
                self._took.append(time.monotonic() - began)
                for other in [one for one, (its, _) in self._running.items() if its is task]:
                    del self._running[other]
                    other.cancel()
                yield task, self._row(future)

    def _submit(self, task: SweepTask, name: str = "", **where: Any) -> None:
        key = f"point-{task.key}{name}"
        future = self.client.submit(
            judge_remotely, self.orders, task.point, key=key, pure=False, **where
        )
        self._running[future] = task, time.monotonic()

    def _ready(self) -> list[Any]:
        """The futures that are done, if one is soon."""
        import distributed

        try:
            return [*distributed.wait([*self._running], POLL, "FIRST_COMPLETED").done]
        except distributed.TimeoutError:  # before Python 3.11 another than the built-in
            return []

    def _add_twins(self) -> None:
        """Give what takes long to workers that do nothing, too."""
        least = SLOW * max(statistics.median(self._took or [0.0]), 1.0)
        tasks = [task for task, _ in self._running.values()]
        now = time.monotonic()
        late = [
            task
            for task, began in self._running.values()
            if now - began > least and tasks.count(task) == 1
        ]
        processing = self.client.processing() if late else {}
        idle = [worker for worker, keys in processing.items() if not keys]
        for task, worker in zip(late, idle, strict=False):
            self.twins += 1
            self._submit(task, f"-{self.twins}", workers=[worker])

    def _row(self, future: Any) -> Row:
        import distributed

        error = future.exception() if future.status == "error" else None
        if isinstance(error, distributed.KilledWorker):
            reason = "the processes that judged it ended, one after the other"
            return {"outcome": Outcome.CRASHED.value, "reason": reason}
        if error is not None:
            raise click.ClickException(f"a worker cannot go on: {error}")
        row: Row = future.result()
        return row
