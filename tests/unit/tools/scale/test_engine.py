"""Points on workers of Dask: each row once, with workers that end or are slow."""

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

from difftest.support.pool import LostTask
from difftest.testing.contract.limits import LIMITS
from difftest.tools.scale import engine
from difftest.tools.scale.engine import (
    SweepSetup,
    judge_in_processes,
    judge_on_dask,
    row_of,
)
from difftest.tools.scale.store import read_rows
from tests.unit.tools.scale import sample
from tests.unit.tools.scale.test_sweep import TEST, swept, without_seconds

NIGHTLY = settings.get_current_profile_name() == "nightly"
ORDERS = SweepSetup(TEST, 2, 60.0)
POINTS = [{"n": n} for n in range(20)]


def broken(orders, point):
    raise RuntimeError("it cannot be collected")


@pytest.fixture(scope="module")
def scheduler():
    """The address of a cluster whose two workers are threads of this process."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield cluster.scheduler_address


def test_each_point_has_one_row(scheduler, monkeypatch):
    monkeypatch.setattr(engine, "judge_remotely", lambda _, at: {"n": at["n"]})
    rows = [(at["n"], row["n"]) for at, row in judge_on_dask(ORDERS, POINTS, scheduler)]
    assert sorted(rows) == [(n, n) for n in range(20)]


def test_a_worker_without_the_test_is_reported(scheduler, monkeypatch):
    monkeypatch.setattr(engine, "judge_remotely", broken)
    with pytest.raises(click.ClickException, match="it cannot be collected"):
        list(judge_on_dask(ORDERS, POINTS, scheduler))


def test_a_point_that_ends_its_processes_is_a_crash():
    class Ended:
        status = "error"

        def exception(self):
            return distributed.KilledWorker("k", None, 3)

    row = row_of(Ended())
    assert row["outcome"] == "crashed"
    assert "ended" in row["reason"]


def test_workers_judge_as_this_process_does(scheduler, tmp_path, monkeypatch):
    engine._collected.cache_clear()
    monkeypatch.setattr(engine, "_OVER", threading.Event())
    try:
        rows = swept(tmp_path / "a.parquet", workers=scheduler)
    finally:
        engine._OVER.set()
        for thread in threading.enumerate():
            if "::" in thread.name:
                thread.join()
    assert without_seconds(rows) == without_seconds(swept(tmp_path / "b.parquet"))
    assert engine._collected.cache_info().currsize == 1
    assert LIMITS.seconds is None  # as before, though each had one


def test_a_missing_scheduler_is_reported():
    with pytest.raises(click.ClickException, match="no scheduler of Dask at"):
        next(judge_on_dask(ORDERS, POINTS, "tcp://127.0.0.1:9", timeout=0.2))


@pytest.mark.parametrize(
    ("first", "then", "outcome"),
    [
        (LostTask([], False), {"outcome": "agrees"}, "agrees"),
        (LostTask([], False), LostTask([], False), "crashed"),
        (LostTask([], True), {"outcome": "agrees"}, "timeout"),
    ],
)
def test_a_point_that_ends_its_process_is_judged_once_more(
    monkeypatch, first, then, outcome
):
    """A killed process is replaced; a process that hangs is not waited for."""
    told = iter([first, then])
    monkeypatch.setattr(
        engine, "run_tasks", lambda tasks, *rest: ((t, next(told)) for t in tasks)
    )
    ((point, row),) = judge_in_processes(ORDERS, POINTS[:1], 2)
    assert (point, row["outcome"]) == (POINTS[0], outcome)


def test_a_test_that_cannot_be_collected_ends_the_sweep(tmp_path):
    orders = SweepSetup(f"{tmp_path / 'nowhere.py'}::test_add", 1, 60.0)
    with pytest.raises(
        click.ClickException, match=r"cannot go on: no file at .*nowhere\.py"
    ):
        list(judge_in_processes(orders, POINTS[:2], 1))


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
WORDS += [
    "--over",
    "dtype=float32,bfloat16",
    "--over",
    "CHUNK=3,4",
    "--machines",
    "trn1,trn2,trn3",
]
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
        folder = tmp_path / "killed"
        seen = []
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
        whole, killed = (
            read_rows(one / "out.parquet") for one in (tmp_path / "whole", folder)
        )
        assert len(whole) == 2000
        assert without_seconds(killed) == without_seconds(whole)
        keys = [line[:30] for line in seen]
        assert len(set(keys)) == len(keys)
        kept = {row["key"]: row["seconds"] for row in killed}
        assert all(
            str(kept[line.split(b'"')[3].decode()]).encode() in line for line in seen
        )

    def test_a_killed_or_hanging_worker_delays_no_other(
        tmp_path,
    ):
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
