"""Who judges points: this process, or workers of Dask, here or elsewhere."""

from __future__ import annotations

import contextlib
import queue
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

from difftest.cli.collecting import with_spec
from difftest.harness.limits import LIMITS
from difftest.harness.spec import KernelSpec
from difftest.scale.axes import Point
from difftest.scale.judging import PointJudge
from difftest.scale.store import Row, need
from difftest.verdict.outcome import Outcome

AHEAD = 2
"""Points that a worker has at a time: one that it judges, and the next."""
SLOW = 5.0
"""So many times as long as most points take, and seconds at least, until a point at the end of a
sweep is given to a second worker."""
POLL = 0.5
"""Seconds between two looks at who is slow."""


class SweepOrders(NamedTuple):
    """What each worker is told.

    Attributes
    ----------
    test : PATH::TEST, an absolute path that each worker has.
    cases : drawn at each point.
    timeout : seconds that a call of a kernel or a reference may take.
    """

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
    before = LIMITS.seconds
    LIMITS.seconds = orders.timeout
    judge = PointJudge(spec, orders.cases)
    try:
        for task in tasks:
            yield task, judge.row(task.point)
    finally:
        LIMITS.seconds = before


class Collected(threading.Thread):
    """The spec of a test in a worker: collected once, and kept with its modules in place."""

    def __init__(self, orders: SweepOrders) -> None:
        super().__init__(daemon=True)
        self.orders = orders
        self.asked: queue.Queue[Point] = queue.Queue()
        self.told: queue.Queue[Row | BaseException] = queue.Queue()
        self.start()

    def run(self) -> None:
        """Judge points as they come; an error of the collection is told instead."""
        LIMITS.seconds = self.orders.timeout
        try:
            with_spec(self.orders.test, self._serve)
        except BaseException as error:  # raised anew by whoever asked
            self.told.put(error)

    def _serve(self, spec: KernelSpec) -> None:
        judge = PointJudge(spec, self.orders.cases)
        while True:
            self.told.put(judge.row(self.asked.get()))

    def judged(self, point: Point) -> Row:
        """The row of a point."""
        self.asked.put(point)
        told = self.told.get()
        if isinstance(told, BaseException):
            raise RuntimeError(getattr(told, "message", None) or repr(told))
        return told


_COLLECTED: dict[SweepOrders, Collected] = {}
"""Of this worker."""


def judge_remotely(orders: SweepOrders, point: Point) -> Row:
    """The row of a point, in a worker."""
    known = _COLLECTED.get(orders)
    if known is None or not known.is_alive():
        known = _COLLECTED[orders] = Collected(orders)
    return known.judged(point)


@contextlib.contextmanager
def client_of(workers: int, scheduler: str | None) -> Iterator[Any]:
    """A client of a cluster of so many local processes, or of the scheduler at an address.

    Raises
    ------
    click.UsageError : Dask is not installed.
    click.ClickException : nobody answers there.
    """
    need("distributed", "a sweep on several processes (-n 0 needs none)")
    import distributed

    with contextlib.ExitStack() as after:
        known: Any = distributed  # it has types in part
        if scheduler is None:
            cluster = known.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                silence_logs=50,
            )
            after.enter_context(cluster)
            scheduler = cluster.scheduler_address
        try:
            yield after.enter_context(known.Client(scheduler, timeout="20s"))
        except OSError as error:
            raise click.ClickException(f"no scheduler of Dask at {scheduler}: {error}") from None


@dataclass
class Cluster:
    """Points on the workers of a client.

    Only so many are submitted as keep the workers busy. What a worker that ends had is judged by
    another; a point that has ended three in a row is a crash. When nothing is left to submit, what
    a slow worker has is given to another too: the first row counts.
    """

    client: Any
    orders: SweepOrders
    clock: Callable[[], float] = time.monotonic
    _began: dict[Any, float] = field(default_factory=dict)
    _tasks: dict[Any, SweepTask] = field(default_factory=dict)
    _took: list[float] = field(default_factory=list)
    twins: int = 0

    def results(self, tasks: Sequence[SweepTask]) -> Iterator[tuple[SweepTask, Row]]:
        """The rows of points as they are known, each once.

        Raises
        ------
        click.ClickException : the workers cannot collect the test, or there are none.
        """
        left, done = deque(tasks), set[str]()
        while len(done) < len(tasks):
            while left and len(self._tasks) < AHEAD * self._workers():
                self._submit(left.popleft())
            if not left:
                self._add_twins()
            for future in self._ready():
                task = self._tasks.pop(future, None)
                if task is None:  # its twin was first
                    continue
                self._took.append(self.clock() - self._began.pop(future))
                done.add(task.key)
                row = self._row(future)
                for other in [one for one, its in self._tasks.items() if its.key == task.key]:
                    del self._tasks[other], self._began[other]
                    other.cancel()
                yield task, row

    def _workers(self) -> int:
        return max(1, len(self.client.scheduler_info(n_workers=-1)["workers"]))

    def _submit(self, task: SweepTask, name: str = "", **where: Any) -> None:
        future = self.client.submit(
            judge_remotely,
            self.orders,
            task.point,
            key=f"point-{task.key}{name}",
            pure=False,
            **where,
        )
        self._tasks[future], self._began[future] = task, self.clock()

    def _ready(self) -> list[Any]:
        """The futures that are done, if one is soon."""
        import distributed

        known: Any = distributed
        try:
            done, _ = known.wait([*self._tasks], timeout=POLL, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return []
        return [*done]

    def _add_twins(self) -> None:
        """Give what takes long to workers that do nothing, too."""
        usual = statistics.median(self._took) if self._took else SLOW
        now, names = self.clock(), [task.key for task in self._tasks.values()]
        late = [
            one
            for one, began in self._began.items()
            if now - began > SLOW * max(usual, 1.0) and names.count(self._tasks[one].key) == 1
        ]
        if not late:
            return
        idle = [worker for worker, keys in self.client.processing().items() if not keys]
        for future, worker in zip(late, idle, strict=False):
            self.twins += 1
            self._submit(self._tasks[future], f"-{self.twins}", workers=[worker])

    def _row(self, future: Any) -> Row:
        from distributed import KilledWorker

        error = future.exception() if future.status == "error" else None
        if error is None:
            row: Row = future.result()
            return row
        if not isinstance(error, KilledWorker):
            raise click.ClickException(f"a worker cannot go on: {error}")
        reason = "the processes that judged it ended, one after the other"
        return {"outcome": Outcome.CRASHED.value, "reason": reason}
