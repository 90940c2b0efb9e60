"""Points on workers of Dask: each row once, whoever ends, whoever is slow."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import click
import distributed
import psutil
import pytest
from hypothesis import settings

from difftest.harness.limits import LIMITS
from difftest.scale import engine
from difftest.scale.engine import Cluster, SweepOrders, SweepTask, client_of
from difftest.scale.store import read_rows
from tests.unit.scale import sample
from tests.unit.scale.test_sweep import TEST, swept, without_seconds

NIGHTLY = settings.get_current_profile_name() == "nightly"
ORDERS = SweepOrders(TEST, 2, 60.0)
TASKS = [SweepTask(f"k{n}", {"n": n}) for n in range(20)]
SLOW_POINT, STOP = 19, threading.Event()
_FIRST = itertools.count()


def quick(orders, point):
    return {"n": point["n"]}


def slow_once(orders, point):
    """The first worker that has the slow point keeps it until the test ends."""
    if point["n"] == SLOW_POINT and next(_FIRST) == 0:
        STOP.wait()
    return {"n": point["n"]}


def broken(orders, point):
    raise RuntimeError("it cannot be collected")


@pytest.fixture(scope="module")
def client():
    """Two workers that are threads of this process."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as made,
    ):
        yield made


def test_each_point_has_one_row_and_few_are_submitted_at_a_time(client, monkeypatch):
    monkeypatch.setattr(engine, "judge_remotely", quick)
    cluster, most = Cluster(client, ORDERS), []
    rows = []
    for task, row in cluster.results(TASKS):
        rows.append((task.point["n"], row["n"]))
        most.append(len(cluster._running))
    assert sorted(rows) == [(n, n) for n in range(20)]
    assert max(most) < engine.AHEAD * 2
    assert cluster.twins == 0


def test_a_slow_worker_does_not_hold_the_end(client, monkeypatch):
    monkeypatch.setattr(engine, "judge_remotely", slow_once)
    monkeypatch.setattr(engine, "POLL", 0.02)
    monkeypatch.setattr(engine, "SLOW", 0.1)
    cluster = Cluster(client, ORDERS)
    try:
        rows = [row["n"] for _, row in cluster.results(TASKS)]
    finally:
        STOP.set()
    assert sorted(rows) == list(range(20))
    assert cluster.twins == 1


def test_what_is_not_done_yet_is_waited_for(client, monkeypatch):
    class NotYet(Exception):
        """Before Python 3.11 it is none of the built-in ones."""

    def wait(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise NotYet
        return done(*arguments)

    calls, done = [], distributed.wait
    monkeypatch.setattr(distributed, "wait", wait)
    monkeypatch.setattr(distributed, "TimeoutError", NotYet)
    monkeypatch.setattr(engine, "judge_remotely", quick)
    assert len(list(Cluster(client, ORDERS).results(TASKS))) == 20


def test_what_a_worker_cannot_do_is_told(client, monkeypatch):
    monkeypatch.setattr(engine, "judge_remotely", broken)
    with pytest.raises(click.ClickException, match="it cannot be collected"):
        list(Cluster(client, ORDERS).results(TASKS))


def test_a_point_that_ends_its_processes_is_a_crash(client):
    class Ended:
        status = "error"

        def exception(self):
            return distributed.KilledWorker("k", None, 3)

    row = Cluster(client, ORDERS)._row(Ended())
    assert row["outcome"] == "crashed"
    assert "ended" in row["reason"]


def test_workers_judge_as_this_process_does(client, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_COLLECTED", {})
    address = client.scheduler.address
    try:
        rows = swept(tmp_path / "a.parquet", scheduler=address)
    finally:
        for one in engine._COLLECTED.values():
            one.ended.set()
            one.join()
    assert without_seconds(rows) == without_seconds(swept(tmp_path / "b.parquet"))
    assert len(engine._COLLECTED) == 1
    assert LIMITS.seconds is None  # as before, though each had one


def test_nobody_at_the_scheduler_s_address_is_told():
    made = client_of(1, "tcp://127.0.0.1:9", timeout=0.2)
    with pytest.raises(click.ClickException, match="no scheduler of Dask at"):
        made.__enter__()


WORDS = [
    "sweep",
    sample.__file__ + "::test_doubled",
    "--cases",
    "1",
    "-n",
    "2",
    "-o",
    "out.parquet",
]
WORDS += ["--over", "columns=1..50:1", "--over", "columns_at_once=1,2,7,512"]
WORDS += ["--over", "dtype=float32,bfloat16", "--over", "CHUNK=3,4", "--machines", "trn1,trn2,trn3"]
COMMAND = [sys.executable, "-c", f"from difftest.cli.main import main; main({WORDS!r})"]


def lines_of(file):
    return file.read_bytes().splitlines(keepends=True) if file.exists() else []


def started(folder, sample_of=2000):
    folder.mkdir(exist_ok=True)
    command = [
        *COMMAND[:2],
        COMMAND[2].replace("'--cases'", f"'--sample', '{sample_of}', '--cases'"),
    ]
    return subprocess.Popen(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


def wait_for(process, journal, count):
    while len(lines_of(journal)) < count:
        assert process.poll() is None
        time.sleep(0.05)


if NIGHTLY:

    def test_two_thousand_points_killed_twice_equal_an_undisturbed_sweep(tmp_path):
        assert started(tmp_path / "whole").wait() == 0
        folder, seen = tmp_path / "killed", []
        journal = folder / "out.parquet.jsonl"
        for count in (500, 1300):
            process = started(folder)
            wait_for(process, journal, count)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert lines_of(journal)[: len(seen)] == seen
            seen = [line for line in lines_of(journal) if line.endswith(b"\n")]
            assert len(seen) >= count
        assert started(folder).wait() == 0
        whole, killed = (read_rows(one / "out.parquet") for one in (tmp_path / "whole", folder))
        assert len(whole) == 2000
        assert without_seconds(killed) == without_seconds(whole)
        keys = [line[:30] for line in seen]
        assert len(set(keys)) == len(keys)
        kept = {row["key"]: row["seconds"] for row in killed}
        assert all(str(kept[line.split(b'"')[3].decode()]).encode() in line for line in seen)

    def test_a_worker_that_is_killed_and_one_that_stands_still_hold_nothing_up(tmp_path):
        process = started(tmp_path / "out", 300)
        wait_for(process, tmp_path / "out" / "out.parquet.jsonl", 20)
        workers = [
            one
            for one in psutil.Process(process.pid).children(recursive=True)
            if "spawn_main" in " ".join(one.cmdline())
        ]
        assert len(workers) == 2
        workers[0].kill()
        wait_for(process, tmp_path / "out" / "out.parquet.jsonl", 150)
        workers[1].suspend()
        try:
            assert process.wait(timeout=300) == 0
        finally:
            if workers[1].is_running():
                workers[1].resume()
        assert len(read_rows(tmp_path / "out" / "out.parquet")) == 300
