"""Processes that work through tasks: when the time of one is over."""

import multiprocessing
from types import SimpleNamespace

import pytest

from difftest.support import pool


@pytest.mark.parametrize(("seconds", "late"), [(0.0, True), (60.0, False)])
def test_seconds_without_a_core_do_not_count(monkeypatch, seconds, late):
    waits = iter([100.0, 100.0 + seconds, 100.0 + seconds])
    monkeypatch.setattr(pool, "cpu_wait_seconds", lambda process: next(waits))
    member = pool.PoolWorker.__new__(pool.PoolWorker)
    member.process = SimpleNamespace(pid=1)
    member.allow(0.0)
    assert member.is_late() is late


def test_a_process_that_is_gone_has_not_waited():
    assert pool.cpu_wait_seconds(None) == 0.0


def test_a_process_that_nobody_hears_any_more_ends_without_a_word():
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    pool.serve_tasks(theirs, str)


def answer(connection):
    pool.serve_tasks(connection, str)


def test_a_task_may_take_any_time():
    assert list(pool.run_tasks([1], answer, 1, str, lambda news: float("inf"))) == [
        (1, "1")
    ]


def test_processes_that_still_start_are_not_waited_for_after_ctrl_c(monkeypatch):
    ended = []
    member = SimpleNamespace(
        deadline=0.0, connection=None, end=lambda grace: ended.append(grace)
    )
    monkeypatch.setattr(pool, "_start_worker", lambda serve: member)
    monkeypatch.setattr(pool, "wait", lambda *_: next(iter(())))
    with pytest.raises(RuntimeError):
        next(pool.run_tasks([1], print, 1, str, float))
    assert ended == [0.0]
